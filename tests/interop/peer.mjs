// Who a FastMCP server takes its client for, when the client lies about it: the address that the connection came from,
// or the client's own where raincheck is asked to say it, whether the call passes or is carried.

import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { front, here, python } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";

const { SCRATCH } = process.env;
const LIMIT = { timeout: 60_000 };
const LIE = { "x-forwarded-for": "192.0.2.66", "x-real-ip": "192.0.2.66", forwarded: "for=192.0.2.66" };
const HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream", ...LIE };

async function post(url, message, headers = {}) {
  const response = await fetch(url, {
    method: "POST",
    headers: { ...HEADERS, ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", ...message }),
  });
  const text = await response.text();
  const data = text.split("\n").findLast((line) => line.startsWith("data: "));
  const json = data ? data.slice(6) : text;
  return { response, message: json ? JSON.parse(json) : undefined };
}

/** A call that passes, on a session of the client's. */
async function onSession(url) {
  const info = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "peer", version: "1" } };
  const opened = await post(url, { id: 1, method: "initialize", params: info });
  const session = {
    "mcp-session-id": opened.response.headers.get("mcp-session-id"),
    "mcp-protocol-version": opened.message.result.protocolVersion,
  };
  await post(url, { method: "notifications/initialized" }, session);
  const called = await post(url, { id: 2, method: "tools/call", params: { name: "peer", arguments: {} } }, session);
  return called.message.result.content[0].text;
}

/** A call that is carried, of a modern client. */
async function carried(url) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": { name: "peer", version: "1" },
  };
  const params = { name: "peer", arguments: {}, _meta: meta };
  const headers = { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "peer" };
  const called = await post(url, { id: 1, method: "tools/call", params }, headers);
  return called.message.result.content[0].text;
}

/** The client is on the same machine, too. */
const WAYS = {
  "as it is": { config: "", expected: "127.0.0.1" },
  "where raincheck is asked to say": { config: '[upstream]\nforward_headers = ["x-forwarded-for"]\n', expected: "127.0.0.1" },
  "behind a proxy that is trusted": { config: '[listen]\ntrusted_proxies = ["127.0.0.1"]\n', expected: "192.0.2.66" },
};

describe("FastMCP", () => {
  const started = [];
  let inner;

  before(async () => {
    inner = await freePort();
    const server = start([python("fastmcp3"), here("servers/peer.py"), `${inner}`], `${SCRATCH}/server.log`);
    started.push(server);
    await listening(server, inner);
  }, LIMIT);

  after(() => Promise.all(started.map(end)));

  for (const [name, { config, expected }] of Object.entries(WAYS)) {
    test(name, LIMIT, async () => {
      const dir = `${SCRATCH}/${name.replaceAll(" ", "-")}`;
      await mkdir(dir);
      await writeFile(`${dir}/raincheck.toml`, config);
      const url = await front(inner, `${dir}/raincheck.toml`, dir, started);
      assert.equal(await onSession(url), expected, "a call that passes");
      assert.equal(await carried(url), expected, "a call that is carried");
    });
  }
});
