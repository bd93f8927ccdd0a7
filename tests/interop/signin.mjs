// Real sign-in: two real clients (the TypeScript SDK 1.32.2 and the Python SDK 1.30, with their OAuth clients) find out from raincheck
// where to sign in, do so at a real authorization server (oidc-provider 9), and make a task. Their tokens end while it runs: they
// renew them and collect it. Then the authorization server changes its keys.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { front, here, python, ran, serve } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";

const { SCRATCH } = process.env;
const LIMIT = { timeout: 120_000 };
/** A token is good for 3 s, and 30 s longer in raincheck. The Python SDK looks at the 3 s, the TypeScript SDK waits for the 401. */
const TOKEN_S = 3;
const TASK_S = 38;

const CLIENTS = {
  "TypeScript SDK 1.32": (...args) => [process.execPath, here("signin/typescript.mjs"), ...args],
  "Python SDK 1.30": (...args) => [python("legacy"), here("signin/python.py"), ...args, process.execPath],
};

describe("signin", { concurrency: 2 }, () => {
  for (const era of ["legacy", "modern"]) {
    describe(`in front of ${era}`, { concurrency: 2 }, () => {
      const started = [];
      let inner;
      let url;
      before(async () => {
        const dir = `${SCRATCH}/${era}`;
        inner = await serve(era, dir, started);
        url = await guarded(inner, dir, started);
      }, LIMIT);
      after(async () => {
        const counts = await ran(inner, "slow_compute");
        for (const child of started.reverse()) await end(child);
        // Whoever renewed its token, its call ran once.
        assert.equal(counts.started, Object.keys(CLIENTS).length);
      });
      for (const [name, command] of Object.entries(CLIENTS)) {
        test(name, LIMIT, async () => {
          const seen = await drive(command(url.mcp, name, `${TASK_S}`));
          assert.equal(seen.result, `slow_compute(${name}) done after ${TASK_S}s`);
          assert.match(seen.made, /^(taskCreated|working)$/);
          assert.equal(seen.resource, url.mcp);
          assert.ok(seen.scope.split(" ").includes("tools:run"), seen.scope);
          assert.ok(new Set(seen.tokens).size > 1, "its token was renewed meanwhile");
          // What was good at first is so no more.
          assert.equal((await list(url.mcp, seen.tokens[0])).status, 401);
        });
      }
    });
  }

  test("keys are changed while it runs", LIMIT, async () => {
    const started = [];
    try {
      const dir = `${SCRATCH}/keys`;
      const inner = await serve("modern", dir, started);
      const url = await guarded(inner, dir, started, 60);
      const one = await drive(CLIENTS["TypeScript SDK 1.32"](url.mcp, "before", "0.2"));
      assert.equal((await list(url.mcp, one.tokens[0])).status, 200);
      await end(url.authorization);
      started.push(await authorize(url.port, url.mcp, dir, 60));
      const two = await drive(CLIENTS["TypeScript SDK 1.32"](url.mcp, "after", "0.2"));
      assert.equal(two.result, "slow_compute(after) done after 0.2s");
      assert.equal((await list(url.mcp, one.tokens[0])).status, 401);
    } finally {
      for (const child of started.reverse()) await end(child);
    }
  });
});

async function drive([program, ...args]) {
  const { stdout } = await promisify(execFile)(program, args, { timeout: LIMIT.timeout });
  return JSON.parse(stdout);
}

async function authorize(port, resource, dir, seconds) {
  const script = here("signin/authorization.mjs");
  const server = start([process.execPath, script, `${port}`, resource, `${seconds}`], `${dir}/authorization-${Date.now()}.log`);
  await listening(server, port);
  return server;
}

/** An authorization server, and raincheck, which takes its tokens; a call needs a scope. */
async function guarded(inner, dir, started, seconds = TOKEN_S) {
  const [port, ours] = [await freePort(), await freePort()];
  const issuer = `http://127.0.0.1:${port}`;
  const mcp = `http://127.0.0.1:${ours}/mcp`;
  const authorization = await authorize(port, mcp, dir, seconds);
  started.push(authorization);
  const config = `${dir}/raincheck.toml`;
  await writeFile(config, `
[listen]
public_url = "${mcp}"
[tasks]
poll_interval = "500ms"
scopes = ["tools:run"]
[[auth.jwt]]
issuer = "${issuer}"
jwks = "${issuer}/jwks"
`);
  await front(inner, config, dir, started, {}, ours);
  return { mcp, port, authorization };
}

/** A request with that token, in the words of 2026-07-28. */
function list(url, token) {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "signin", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  return fetch(url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "mcp-method": "tools/list",
      "mcp-protocol-version": "2026-07-28",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta } }),
  });
}
