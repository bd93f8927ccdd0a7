// How late ext-tasks hears of the ends of many short tasks, once raincheck knows their tools, and how often it asks; beside the
// usual rule without holds. `POLLING_TASKS=2000 node polling.mjs` runs as many as docs/polling.md says.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { front } from "./house.mjs";
import { end } from "./processes.mjs";
import { connect, settle, text } from "./session.mjs";

const { SCRATCH, POLLING_TASKS } = process.env;
const LIMIT = { timeout: 120_000 };
const TASKS = Number(POLLING_TASKS ?? 400);
const AT_ONCE = TASKS > 1_000 ? 20 : 10;
/** From here on the tool counts as known. */
const SEEN = 20;

/** How long the calls of each tool take, in milliseconds. */
const LAWS = {
  constant: () => 300,
  quick: () => 60 + 40 * Math.random(),
  normal: () => 400 * Math.exp(0.4 * Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random())),
  bimodal: () => (Math.random() < 0.7 ? 100 : 1_200),
  tail: () => Math.min(5_000, 150 * (1 - Math.random()) ** (-1 / 1.5)),
};
const started = [];
let server;

before(async () => {
  server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
}, LIMIT);
after(async () => {
  for (const child of started.reverse()) await end(child);
  server.closeAllConnections();
  server.close();
});

test("ends are known at once, and fewer polls are made", LIMIT, async () => {
  const learned = await run("learned", "", TASKS);
  console.log(`# learned: ${learned.say}`);
  const usual = await run("usual", 'poll_interval = "2s"\npoll_hold = "0s"\n', Math.min(TASKS, 200));
  console.log(`# usual: ${usual.say}`);
  assert.ok(learned.median < 50, `the median lateness is ${learned.median} ms`);
  assert.ok(learned.mean * learned.polls * 4 <= usual.mean * usual.polls, "lateness times polls is a quarter at the most");
  assert.ok(learned.polls <= usual.polls, "at no more polls");
});

/** Lateness in milliseconds and polls of so many tasks, of tools that are known by then. */
async function run(name, lines, tasks) {
  const dir = `${SCRATCH}/polling-${name}`;
  await mkdir(dir);
  const config = `${dir}/raincheck.toml`;
  await writeFile(config, `[upstream]\nera = "modern"\n[tasks]\nmode = "always"\n${lines}`);
  const url = await front(server.address().port, config, dir, started, {}, undefined, `redb:${dir}/tasks.redb`);
  const session = await connect(url);
  const names = Object.keys(LAWS);
  const late = [];
  let polls = 0;
  let next = 0;
  const worker = async () => {
    while (next < tasks) {
      const number = next++;
      const execution = await session.callTool(names[number % names.length], {});
      const { outcome } = await settle(execution);
      const known = Date.now();
      assert.equal(outcome.status, "completed");
      if (number >= SEEN * names.length) late.push(Math.max(0, known - Number(text(outcome))));
    }
  };
  const from = Date.now();
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const seconds = (Date.now() - from) / 1000;
  polls = session.sent.filter((method) => method === "tasks/get").length / tasks;
  await session.close();
  late.sort((one, other) => one - other);
  const at = (part) => late[Math.floor(part * (late.length - 1))];
  const mean = late.reduce((all, one) => all + one, 0) / late.length;
  const [median, worst] = [at(0.5), at(1)];
  const say = `${tasks} tasks in ${seconds.toFixed(1)} s, ${polls.toFixed(2)} polls a task, late by ${mean.toFixed(0)} ms on average, ${median} ms in the median, ${at(0.9)} ms at 90 %, ${worst} ms at worst`;
  return { mean, median, polls, say };
}

/** A modern server: a call says when it was answered. */
async function answer(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { id, method, params } = JSON.parse(Buffer.concat(chunks));
  const say = (result) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result: { resultType: "complete", ...result } }));
  };
  if (method === "server/discover") {
    const _meta = { "io.modelcontextprotocol/serverInfo": { name: "polling", version: "1" } };
    return say({ supportedVersions: ["2026-07-28"], capabilities: { tools: {} }, ttlMs: 0, cacheScope: "private", _meta });
  }
  if (method === "tools/list") {
    const tools = Object.keys(LAWS).map((name) => ({ name, inputSchema: { type: "object" } }));
    return say({ tools, ttlMs: 0, cacheScope: "private" });
  }
  await sleep(LAWS[params.name]());
  return say({ content: [{ type: "text", text: `${Date.now()}` }] });
}
