// A server that sleeps for 6 s before its first word, for the client 2.4 as it comes: no tool, resource or prompt of the server is
// lost to the client, and the next client has the instructions, too. Over HTTP (`run`) and over a pipe (`stdio`), where the client
// probes a process of its own and ends it before the server has said a word.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { test } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { end, freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, SCRATCH, EVERYTHING } = process.env;
const LIMIT = { timeout: 90_000 };
const SERVER = ["sh", "-c", `sleep 6; exec ${process.execPath} ${EVERYTHING} stdio`];

test("over HTTP", LIMIT, async () => {
  const dir = await directory("http");
  const port = await freePort();
  const command = [RAINCHECK, "run", "--store", "memory:", "--listen", `127.0.0.1:${port}`, "--", ...SERVER];
  const proxy = start(command, `${dir}/raincheck.log`, { XDG_STATE_HOME: dir });
  try {
    await listening(proxy, port);
    const transport = () => new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`));
    await sees(transport());
    assert.ok((await sees(transport())).instructions, "the next client has the instructions");
  } finally {
    await end(proxy);
  }
});

test("over a pipe", LIMIT, async () => {
  const env = { ...process.env, XDG_STATE_HOME: await directory("pipe") };
  const transport = () => new StdioClientTransport({ command: RAINCHECK, args: ["stdio", "--", ...SERVER], env, stderr: "ignore" });
  await sees(transport());
  assert.ok((await sees(transport())).instructions, "the next client has the instructions");
});

/** What a client is shown that connects and asks at once. */
async function sees(transport) {
  const client = new Client({ name: "sleeper", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
  try {
    await client.connect(transport);
    assert.equal(client.getNegotiatedProtocolVersion(), "2026-07-28");
    const [{ tools }, { resources }, { prompts }] = await Promise.all([
      client.listTools(),
      client.listResources(),
      client.listPrompts(),
    ]);
    for (const [what, list] of Object.entries({ tools, resources, prompts })) assert.ok(list.length > 0, `there are ${what}`);
    return { instructions: client.getInstructions() };
  } finally {
    await client.close();
  }
}

async function directory(name) {
  const dir = `${SCRATCH}/${name}`;
  await mkdir(dir);
  return dir;
}
