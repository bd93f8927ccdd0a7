// A plain client for a program or an address: a request is a message that is written, its answer the message with its id.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const LEGACY = "2025-06-18";
const MODERN = "2026-07-28";
const NAMED = "io.modelcontextprotocol";
const CLIENT = { name: "stranger", version: "1" };
const ANSWER_MS = 30_000;
/** Those that stay when their input has ended are killed. */
const END_MS = 3_000;

/** A session of 2025-06-18 with a program, over its standard input and output. */
export function toProgram([program, ...args], { cwd, env }) {
  // A group of its own: what a server starts ends with it.
  const child = spawn(program, args, { cwd, env, stdio: ["pipe", "pipe", "ignore"], detached: true });
  const exit = once(child, "exit").catch(() => {});
  const waiting = new Map();
  const fail = (why) => waiting.forEach(({ reject }) => reject(new Error(`${program} ${why}`)));
  child.on("error", ({ message }) => fail(message)).on("exit", (code) => fail(`ended with ${code}`));
  child.stdin.on("error", () => {});
  const write = (message) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  createInterface({ input: child.stdout }).on("line", (line) => {
    // Some write other things between.
    if (!line.startsWith("{")) return;
    const message = JSON.parse(line);
    // The client declares nothing that a server may ask for.
    if (message.method === undefined) waiting.get(message.id)?.resolve(message);
    else if (message.id !== undefined) write({ id: message.id, error: { code: -32601, message: "Method not found" } });
  });
  return session({
    send: (message) =>
      new Promise((resolve, reject) => {
        if (message.id === undefined) resolve();
        else waiting.set(message.id, { resolve, reject });
        write(message);
      }),
    async close() {
      child.stdin.end();
      await Promise.race([exit, sleep(END_MS, undefined, { ref: false })]);
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // it is gone
      }
    },
  });
}

/** A session of 2025-06-18 with an address. */
export function toAddress(url) {
  let headers = {};
  return session({
    async send(message) {
      const { response, answer } = await post(url, message, headers);
      const id = response.headers.get("mcp-session-id");
      if (message.method === "initialize") headers = { "mcp-protocol-version": LEGACY, ...(id && { "mcp-session-id": id }) };
      return answer;
    },
    close: () => fetch(url, { method: "DELETE", headers }).catch(() => {}),
  });
}

function session({ send, close }) {
  let last = 0;
  const ask = (method, params) => {
    const late = sleep(ANSWER_MS, undefined, { ref: false }).then(() => Promise.reject(new Error(`no answer to ${method}`)));
    return Promise.race([send({ id: ++last, method, params }), late]);
  };
  const hello = async () => {
    const answer = await ask("initialize", { protocolVersion: LEGACY, capabilities: {}, clientInfo: CLIENT });
    await send({ method: "notifications/initialized" });
    return answer;
  };
  return { hello, ask, close };
}

/** A client of 2026-07-28 that declares Tasks: the answer of a call is what its task ends with. */
export function withTasks(url) {
  let last = 0;
  const _meta = {
    [`${NAMED}/protocolVersion`]: MODERN,
    [`${NAMED}/clientCapabilities`]: { extensions: { [`${NAMED}/tasks`]: {} } },
    [`${NAMED}/clientInfo`]: CLIENT,
  };
  const request = async (method, params, name) => {
    const headers = { "mcp-protocol-version": MODERN, "mcp-method": method, ...(name && { "mcp-name": name }) };
    return (await post(url, { id: ++last, method, params: { ...params, _meta } }, headers)).answer;
  };
  const ask = async (method, params) => {
    const answer = await request(method, params, params?.name ?? params?.uri);
    if (method !== "tools/call") return answer;
    const taskId = answer.result?.taskId;
    if (taskId === undefined) throw new Error(`no task, but ${JSON.stringify(answer)}`);
    const deadline = Date.now() + ANSWER_MS;
    while (Date.now() < deadline) {
      const { result, error = result.error } = await request("tasks/get", { taskId }, taskId);
      if (error !== undefined) return { error };
      if (result.status !== "working") return { result: result.result };
      await sleep(result.pollIntervalMs);
    }
    throw new Error(`${params.name} does not end`);
  };
  return { hello: () => request("server/discover", {}), ask, close: async () => {} };
}

async function post(url, message, headers) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const body = await response.text();
  const messages = [...body.matchAll(/^(?:data: ?)?(\{.*)$/gm)].map(([, text]) => JSON.parse(text));
  const answer = messages.findLast(({ id }) => id === message.id) ?? messages.at(-1);
  // Some refuse a message with a line of text.
  return { response, answer: answer ?? { error: { code: response.status, message: body } } };
}
