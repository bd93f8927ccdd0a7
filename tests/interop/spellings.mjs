// A call that a rule refuses, in spellings that real servers read: without raincheck some of them run, behind it none does.
// Between raincheck and the server is a relay that counts what raincheck did not say by itself.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { createServer, request } from "node:http";
import { after, describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { front, here } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";
import { ROWS } from "./rows.mjs";

const { SCRATCH } = process.env;
const LIMIT = { timeout: 120_000 };
const OWN = ["initialize", "notifications/initialized", "server/discover", "tools/list"];
const JSON_BODY = { "content-type": "application/json" };

const SERVERS = {
  "server-everything": {
    row: ROWS["server-everything, a task of its own, HTTP"],
    tool: "echo",
    args: { message: "SPELLED" },
    says: /Echo: SPELLED/,
    fewest: 8,
  },
  fastmcp: { row: ROWS["fastmcp 3, HTTP"], tool: "price", args: { loaves: 4 }, says: /are 12 euros/, fewest: 8 },
};

/** [what, body, headers]: the headers are in place of the usual ones, null for none. */
function spellings(tool, args) {
  const plain = JSON.stringify({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: tool, arguments: args } });
  const instead = (from, to) => plain.replace(from, to);
  const deep = JSON.stringify({ ...args, deep: "DEEP" }).replace('"DEEP"', "[".repeat(100) + "]".repeat(100));
  const space = " ".repeat(70_000);
  const type = (value) => ({ "content-type": value });
  const version = (value) => ({ "mcp-protocol-version": value });
  return [
    ["as it is", plain],
    ["an older version", plain, version("2025-06-18")],
    ["no version", plain, version(null)],
    ["chunked", plain, { "transfer-encoding": "chunked" }],
    ["another case of the type", plain, type("Application/JSON")],
    ["an escaped method", instead("tools/call", "\\u0074ools/call")],
    ["an escaped member", instead('"method"', '"m\\u0065thod"')],
    ["white space beyond the limit", space + plain],
    ["white space behind it", plain + space],
    ["the method twice", instead('"method"', '"method":"ping","method"')],
    ["the method twice, escaped", instead('"method"', '"m\\u0065thod":"ping","method"')],
    ["in capitals, too", instead('"method"', '"METHOD":"ping","method"')],
    ["the params twice", instead('"params"', '"params":{},"params"')],
    ["the name twice", instead('"name"', '"name":"nothing","name"')],
    ["a huge id", instead('"id":7', '"id":99999999999999999999')],
    ["a fraction as id", instead('"id":7', '"id":7.0')],
    ["a null id", instead('"id":7', '"id":null')],
    ["no id", instead('"id":7,', "")],
    ["a batch", `[${plain}]`],
    ["two values", plain + plain],
    ["a byte order mark", `\ufeff${plain}`],
    ["UTF-16", Buffer.from(plain, "utf16le")],
    ["UTF-16 as the type says", Buffer.from(plain, "utf16le"), type("application/json; charset=utf-16le")],
    ["UTF-7", instead("tools/call", "+AHQ-ools/call"), type("application/json; charset=utf-7")],
    ["compressed", gzipSync(plain), { "content-encoding": "gzip" }],
    ["too deep", instead(JSON.stringify(args), deep)],
    ["a lone surrogate", instead('"jsonrpc"', '"more":"\\ud800","jsonrpc"')],
    ["a lone surrogate in _meta", instead('"name"', '"_meta":{"a":"\\ud800"},"name"')],
    ["not a number", instead('"jsonrpc"', '"more":NaN,"jsonrpc"')],
    ["not a number in _meta", instead('"name"', '"_meta":{"a":NaN},"name"')],
  ];
}

/** Posts to `url`; the answer's status and text, up to the answer where it is a stream. */
function post(url, body, headers) {
  const all = { accept: "application/json, text/event-stream", ...JSON_BODY, ...headers };
  const sent = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null));
  if (sent["transfer-encoding"] === undefined) sent["content-length"] = Buffer.byteLength(body);
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method: "POST", headers: sent, agent: false, timeout: 5_000 }, (response) => {
      let text = "";
      response.on("data", (data) => (text += data));
      response.on("close", () => resolve({ status: response.statusCode, headers: response.headers, text }));
    });
    outgoing.on("timeout", () => outgoing.destroy(new Error("no answer")));
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

async function open(url) {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "interop", version: "1" } };
  const opened = await post(url, JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params }), {});
  const session = { "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25" };
  await post(url, JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }), session);
  return session;
}

/** In front of the server on the port `inner`: its port, and what it counts. */
async function relay(inner, started) {
  const seen = { foreign: 0 };
  const server = createServer((incoming, answer) => {
    const parts = [];
    incoming.on("data", (part) => parts.push(part));
    incoming.on("end", () => {
      const body = Buffer.concat(parts);
      if (incoming.method === "POST" && !isOwn(body)) seen.foreign += 1;
      const { method, url: path, headers } = incoming;
      const outgoing = request({ host: "127.0.0.1", port: inner, method, path, headers }, (response) => {
        answer.writeHead(response.statusCode, response.headers);
        response.pipe(answer);
      });
      outgoing.on("error", () => answer.destroy());
      answer.on("close", () => outgoing.destroy());
      outgoing.end(body);
    });
  });
  const port = await freePort();
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  started.push({ close: () => (server.closeAllConnections(), server.close()) });
  return { port, seen };
}

function isOwn(body) {
  try {
    return OWN.includes(JSON.parse(body.toString()).method);
  } catch {
    return false;
  }
}

describe("spellings", () => {
  for (const [name, { row, tool, args, says, fewest }] of Object.entries(SERVERS)) {
    test(name, LIMIT, async () => {
      const started = [];
      after(async () => {
        for (const one of started.reverse()) await (one.close?.() ?? end(one));
      });
      const dir = `${SCRATCH}/${name}`;
      await mkdir(dir);
      const inner = await freePort();
      const server = start(row.command(dir, inner), `${dir}/server.log`, { HOME: dir, FASTMCP_CHECK_FOR_UPDATES: "off" });
      started.push(server);
      await listening(server, inner);

      const direct = row.url(inner);
      const runs = [];
      let session = await open(direct);
      for (const [what, body, headers] of spellings(tool, args)) {
        const answer = await post(direct, body, { ...session, ...headers }).catch(() => undefined);
        if (says.test(answer?.text)) runs.push(what);
      }
      assert.ok(runs.length >= fewest, `the server reads some of them: ${runs.join(", ")}`);

      const { port, seen } = await relay(inner, started);
      const url = await front(port, here("spellings.toml"), dir, started);
      session = await open(url);
      for (const [what, body, headers] of spellings(tool, args)) {
        const { status, text } = await post(url, body, { ...session, ...headers });
        const { error } = JSON.parse(text);
        assert.ok([200, 400, 413].includes(status), `${what}: ${status}`);
        assert.ok([-32700, -32600, -32602, -32601].includes(error?.code), `${what}: ${text}`);
        assert.equal(seen.foreign, 0, `${what} reached the server`);
      }
    });
  }
});
