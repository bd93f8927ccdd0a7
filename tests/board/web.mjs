// A web page with the official client (client 2.4.0, ext-tasks 0.2.2) in a real browser: it does a task with a question where
// raincheck lets its origin read answers, and gets nothing where it does not.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { front, here, ran, serve } from "../interop/house.mjs";
import { end } from "../interop/processes.mjs";

const { SCRATCH } = process.env;
const LIMIT = { timeout: 90_000 };
const CONFIG = new URL("../conformance/raincheck.toml", import.meta.url).pathname;
const APP = "app.example";
const EVIL = "evil.example";
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", `--host-resolver-rules=MAP ${APP} 127.0.0.1, MAP ${EVIL} 127.0.0.1`];

/** The packages that the client imports by name, as a browser finds them. */
const IMPORTS = Object.fromEntries(Object.entries({
  "@modelcontextprotocol/client": "@modelcontextprotocol/client/dist/index.mjs",
  "@modelcontextprotocol/client/_shims": "@modelcontextprotocol/client/dist/shimsBrowser.mjs",
  "@modelcontextprotocol/core/internal": "@modelcontextprotocol/core/dist/internal.mjs",
  "@modelcontextprotocol/ext-tasks/client": "@modelcontextprotocol/ext-tasks/dist/client/index.js",
  eventsource: "eventsource/dist/index.js",
  "eventsource-parser": "eventsource-parser/dist/index.js",
  "eventsource-parser/stream": "eventsource-parser/dist/stream.js",
  jose: "jose/dist/webapi/index.js",
  "pkce-challenge": "pkce-challenge/dist/index.browser.js",
  "zod/v4": "zod/v4/index.js",
}).map(([name, path]) => [name, `/node_modules/${path}`]));
const TIMERS = "export const setTimeout = (ms) => new Promise((done) => globalThis.setTimeout(done, ms));";
const PAGE = `<!doctype html><link rel="icon" href="data:,">
<script type="importmap">${JSON.stringify({ imports: { ...IMPORTS, "node:timers/promises": "/timers.mjs" } })}</script>`;

/** What a page is made of: an own file for Node's timers, and the session of the interop tests. */
async function file(path) {
  if (path === "/") return ["text/html", PAGE];
  if (path === "/timers.mjs") return ["text/javascript", TIMERS];
  const name = path.startsWith("/node_modules/") ? path.slice(1) : "session.mjs";
  return ["text/javascript", await readFile(here(name))];
}

/** What a page does, by the era of its client: a task with a question, or one on a session. */
const CALLS = {
  modern: { tool: "confirm_delete", args: { filename: "a.txt" }, asked: 1, says: /^confirm_delete\(a\.txt\): action=accept confirmed=True/ },
  legacy: { tool: "slow_compute", args: { seconds: 0.5, label: "page" }, asked: 0, says: /^slow_compute\(page\) done/ },
};

/** In the page: one task. */
async function useIt({ url, era, tool, args }) {
  const { connect, connectLegacy, settle, text } = await import("/session.mjs");
  const session = await (era === "modern" ? connect : connectLegacy)(url, {
    elicitation: () => ({ action: "accept", content: { confirm: true } }),
  });
  const execution = await session.callTool(tool, args);
  const { outcome } = await settle(execution);
  await session.close();
  return { kind: execution.kind, asked: session.asked.length, text: text(outcome) };
}

for (const [era, { tool, args, asked, says }] of Object.entries(CALLS)) {
  describe(`a page in front of a ${era} server`, () => {
    const started = [];
    let browser, inner, mcp, pages, port;

    before(async () => {
      pages = createServer(async (request, response) => {
        const path = new URL(request.url, "http://localhost").pathname;
        const [kind, body] = await file(path).catch(() => ["text/plain", undefined]);
        response.writeHead(body === undefined ? 404 : 200, { "content-type": kind }).end(body);
      }).listen(0, "127.0.0.1");
      await once(pages, "listening");
      ({ port } = pages.address());
      const dir = `${SCRATCH}/${era}`;
      inner = await serve(era, dir, started);
      mcp = await front(inner, CONFIG, dir, started, { RAINCHECK_LISTEN__ALLOWED_ORIGINS: `["http://${APP}:${port}"]` });
      browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
    }, LIMIT);

    after(async () => {
      await browser?.close();
      for (const child of started.reverse()) await end(child);
      pages?.close();
    });

    const at = async (host) => {
      const page = await (await browser.newContext()).newPage();
      await page.goto(`http://${host}:${port}/`);
      return page;
    };

    test("of an origin that is not allowed gets nothing, and nothing runs", LIMIT, async () => {
      const page = await at(EVIL);
      await assert.rejects(page.evaluate(useIt, { url: mcp, era, tool, args }), /fetch|network|CORS/i);
      assert.equal((await ran(inner, tool)).started, 0);
    });

    for (const host of ["localhost", APP]) {
      test(`of ${host} does a task`, LIMIT, async () => {
        const page = await at(host);
        const did = await page.evaluate(useIt, { url: mcp, era, tool, args });
        assert.match(did.text, says);
        assert.deepEqual([did.kind, did.asked], ["task", asked]);
      });
    }
  });
}
