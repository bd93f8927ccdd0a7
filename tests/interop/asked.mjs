// Clients and agents that others wrote, as child processes that make a call: hosts.mjs and repeats.mjs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { here, python } from "./house.mjs";
import { end, start } from "./processes.mjs";

/** For an agent to start, connect and make its call; a client library that needs more after its call's end hangs. Two start at
 *  once, because that keeps two cores busy. */
export const START = 60;
const STARTING = 2;

export const npm = (path) => here(`node_modules/${path}`);
export const large = (path) => `${process.env.RAINCHECK_TEST_CACHE}/npm-hosts/node_modules/${path}`;

/** An agent library, in that environment. */
export const library = (environment, file, ...how) => ({
  runs: [python(environment), here(`agents/${file}`)], how, path: python(environment),
});
/** An agent that is a program. */
export const program = (name, ...command) => ({
  runs: [python("agents"), here("agents/programs.py")], how: [name, ...command], path: command.at(-1), launches: true,
});

export const CODEX = large("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex");
export const CLAUDE = large("@anthropic-ai/claude-code-linux-x64/claude");

/** Those that wait for their turn to start. */
const queue = [];
let starting = 0;

async function turn() {
  if (starting >= STARTING) await new Promise((resolve) => queue.push(resolve));
  else starting += 1;
}

function next() {
  if (queue.length > 0) queue.shift()();
  else starting -= 1;
}

/** Has the client or the agent call a tool of so many seconds and wait, for at most `limit`: what it saw, or the error that it ended
 *  with, and how long that took from its call. */
export async function ask({ runs, how }, server, seconds, limit, log, more = {}) {
  const env = {
    ...process.env,
    AGENT_TOOL: "quiet_compute",
    AGENT_ARGUMENTS: JSON.stringify({ seconds }),
    AGENT_LIMIT: `${limit}`,
    FASTMCP_CHECK_FOR_UPDATES: "off",
    ...more,
  };
  await turn();
  const child = start([...runs, server, ...how], log, env);
  // It says when it calls the tool; then the next one may start.
  let began;
  let hangs;
  const within = (limit, what) => setTimeout(() => {
    hangs = `${what} within ${limit} s`;
    end(child);
  }, limit * 1000);
  let timer = within(START, "it made no call");
  const calling = () => {
    if (began !== undefined) return;
    began = performance.now();
    clearTimeout(timer);
    timer = within(limit, "it did not end after its call");
    next();
  };
  createInterface({ input: child.stderr }).on("line", (line) => line === "calling" && calling());
  const [printed] = await Promise.all([text(child.stdout), child.over]);
  const over = performance.now();
  clearTimeout(timer);
  const isCalled = began !== undefined;
  if (!isCalled) next();
  await end(child);
  assert.equal(hangs, undefined);
  const said = await readFile(log, "utf8");
  assert.ok(isCalled, `it ended before its call:\n${said}`);
  const seen = printed === "" ? undefined : JSON.parse(printed);
  if (child.exitCode !== 0) return { seen, error: `it ended with ${child.exitCode}:\n${said}`, took: (over - began) / 1000 };
  return { seen, took: seen.took };
}
