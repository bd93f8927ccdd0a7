// Agents written by others, each with a script for its model, in front of the plain legacy upstream: a call that takes longer than
// its client is patient becomes a ticket, the script does what the ticket says, and the result arrives. What an agent does is in
// agents/; here is what its model must have seen. `node agents.mjs AGENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH } = process.env;
/** An agent's own limit is 50 s. */
const LIMIT = { timeout: 60_000 };

const AGENTS = {
  "langchain-mcp-adapters": { file: "langchain_client.py" },
  "pydantic-ai": { file: "pydantic_client.py", mode: "plain" },
  "pydantic-ai with tasks": { file: "pydantic_client.py", mode: "tasks", tickets: false },
  "openai-agents": { file: "openai_client.py" },
};

const RAINCHECK = {
  RAINCHECK_TASKS__COMPANION_TOOLS: "true",
  RAINCHECK_TASKS__FALLBACK_AFTER: "2s",
  RAINCHECK_TASKS__MAX_DURATION: "1m",
};

const wanted = new Set(process.argv.slice(2));
// Two at once; what the server counts is looked at in the end.
describe("agents", { concurrency: 2 }, () => {
  const started = [];
  let inner;
  let url;
  let answered = 0;
  before(async () => {
    const dir = `${SCRATCH}/agents`;
    inner = await serve("legacy", dir, started);
    url = await front(inner, here("agents.toml"), dir, started, RAINCHECK);
  }, LIMIT);
  after(async () => {
    // Each ran once, and its session outlived its client's DELETE.
    const { started: begun, finished, cancelled } = await ran(inner, "slow_compute");
    if (answered > 0) assert.deepEqual({ begun, finished, cancelled }, { begun: answered, finished: answered, cancelled: 0 });
    for (const child of started.reverse()) await end(child);
  });
  for (const [name, { file, mode, tickets = true }] of Object.entries(AGENTS)) {
    if (wanted.size > 0 && !wanted.has(name)) continue;
    test(name, LIMIT, async () => {
      const { stdout } = await promisify(execFile)(python("agents"), [here(`agents/${file}`), url, ...(mode ? [mode] : [])], LIMIT);
      const seen = JSON.parse(stdout);
      assert.match(seen.answer, /slow_compute\(agent\) done after 5s/);
      const [first, ...polls] = seen.called;
      assert.equal(first, "slow_compute");
      // 2 s until the ticket, and waits of 1 s.
      if (tickets) assert.ok(polls.length >= 2 && polls.length <= 6, `${polls}`);
      else assert.deepEqual(polls, []);
      assert.ok(polls.every((tool) => tool === "task_result"), `${polls}`);
      assert.ok(seen.heard.slice(0, -1).every((said) => said.includes("do not make it again")), `${seen.heard}`);
      answered += 1;
    });
  }
});
