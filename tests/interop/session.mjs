// A Tasks client as an application would build it: the official client finds out what the server speaks, ext-tasks
// drives the tasks. ext-tasks leaves the sending of its requests to the host (rawDispatch): here that is one POST.

import { setTimeout as sleep } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createApplicationInputHandler, createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const PROTOCOL = "2026-07-28";
const CLIENT = { name: "interop", version: "1.0.0" };
const CAPABILITIES = { elicitation: {}, sampling: {} };

/**
 * Connect to `url`. `answers` holds what the user says: `elicitation(params)` and `sampling(params)` return a result.
 * `session.sent` lists the methods of the requests that ext-tasks had sent, `session.asked` what the user was asked.
 */
export async function connect(url, answers = {}) {
  const client = new Client(CLIENT, { capabilities: CAPABILITIES, versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const sent = [];
  const asked = [];
  const ask = (kind) => (request, context) => {
    asked.push({ kind, params: request.params, delivery: context.delivery, key: context.inputId });
    if (answers[kind] === undefined) throw new Error(`nobody expected a question of the kind ${kind}`);
    return answers[kind](request.params);
  };
  const session = createTaskSessionFromClient(client, {
    endpointId: url,
    rawDispatch: dispatcher(url, sent),
    v2RequestFraming: { protocolVersion: PROTOCOL, clientInfo: CLIENT, clientCapabilities: CAPABILITIES },
    onInputRequest: createApplicationInputHandler({
      elicitation: ask("elicitation"),
      sampling: ask("sampling"),
      roots: ask("roots"),
    }),
    onError: (error) => console.error(error),
  });
  return {
    client,
    sent,
    asked,
    callTool: (name, args) => session.callTool(name, args),
    look: (taskId) => session.task(taskId).snapshot(),
    async close() {
      await session.close();
      await client.close();
    },
  };
}

/** The same over a session of 2025-11-25, where ext-tasks needs no help to send its requests. */
export async function connectLegacy(url, answers = {}) {
  const client = new Client(CLIENT, { capabilities: CAPABILITIES, versionNegotiation: { mode: "legacy" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const asked = [];
  const session = createTaskSessionFromClient(client, {
    endpointId: url,
    onInputRequest: createApplicationInputHandler({
      elicitation: (request) => {
        asked.push(request.params);
        return answers.elicitation(request.params);
      },
    }),
    onError: (error) => console.error(error),
  });
  return {
    client,
    asked,
    // It asks for a task where it is told to.
    callTool: (name, args) => session.callTool(name, args, { task: { preference: "prefer" } }),
    async close() {
      await session.close();
      await client.close();
    },
  };
}

/** Drive one call to its end; returns its outcome and every state of the task that was seen on the way. */
export async function settle(execution) {
  const seen = [];
  const { outcome } = await execution.settle({ onEvent: (event) => event.type === "task" && seen.push(event.task) });
  return { outcome, seen };
}

const LOOK_MS = 100;

/**
 * The same by somebody who looks all the time. The interval that clients are told doubles with a task's age, so that a
 * tool whose program was slow to start can be over between two looks.
 */
export async function watch(session, execution) {
  const seen = [];
  let over = false;
  const watching = (async () => {
    while (!over) {
      seen.push(await session.look(execution.handle.taskId));
      await sleep(LOOK_MS);
    }
  })();
  try {
    const { outcome } = await execution.settle();
    return { outcome, seen };
  } finally {
    over = true;
    await watching;
  }
}

export const text = (outcome) => outcome.result.content.map((block) => block.text).join("\n");

function dispatcher(url, sent) {
  let last = 0;
  return async ({ method, params }, { signal, context } = {}) => {
    sent.push(method);
    const headers = new Headers({
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": PROTOCOL,
      "mcp-method": method,
    });
    if (params.name !== undefined) headers.set("mcp-name", params.name);
    // ext-tasks names the task of a tasks/* request itself.
    for (const [name, value] of Object.entries(context?.headers ?? {})) headers.set(name, value);
    const id = (last += 1);
    const body = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    const response = await fetch(url, { method: "POST", signal, headers, body });
    const message = await answer(response, id);
    return message.error === undefined
      ? { kind: "result", result: message.result }
      : { kind: "error", error: message.error };
  };
}

/** The JSON-RPC answer in a body of either type. */
async function answer(response, id) {
  const body = await response.text();
  const messages = response.headers.get("content-type")?.startsWith("text/event-stream")
    ? body
        .split(/\r?\n\r?\n/)
        .map((event) => event.split(/\r?\n/).filter((line) => line.startsWith("data:")))
        .map((lines) => lines.map((line) => line.slice(5).trim()).join("\n"))
        .filter((data) => data !== "")
        .map((data) => JSON.parse(data))
    : [JSON.parse(body)];
  const found = messages.find((message) => message.id === id && message.method === undefined);
  if (found === undefined) throw new Error(`HTTP ${response.status} without an answer to ${id}: ${body}`);
  return found;
}
