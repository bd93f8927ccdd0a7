#!/usr/bin/env node
// A server of 2025-11-25 on standard input and output, with the tools that docs/clients.md calls.

import { createInterface } from "node:readline";

const schema = { type: "object" };
const TOOLS = { build: ({ target }) => `built ${target}`, echo: ({ text }) => text };

const METHODS = {
  initialize: () => ({
    protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "some-server", version: "1" },
  }),
  "tools/list": () => ({ tools: Object.keys(TOOLS).map((name) => ({ name, inputSchema: schema })) }),
  "tools/call": ({ name, arguments: input }) => ({ content: [{ type: "text", text: TOOLS[name](input) }] }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const answer = METHODS[method] ? { result: METHODS[method](params) } : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
}
