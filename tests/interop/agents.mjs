// Agents written by others, each with a script for its model, in front of a raincheck that no client has spoken to yet, and of the
// plain legacy upstream: its first list has the companion tools, a call that takes longer than its client is patient becomes a
// ticket, the script does what the ticket says, and the result arrives. What an agent does is in agents/; here is what its model
// must have seen. `node agents.mjs AGENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH } = process.env;
/** An agent's own limit is 50 s. */
const LIMIT = { timeout: 60_000 };

/** The only platform that package-lock.json has opencode for. */
const LINUX_X64 = process.platform === "linux" && process.arch === "x64";

const AGENTS = {
  "langchain-mcp-adapters": { file: "langchain_client.py" },
  "pydantic-ai": { file: "pydantic_client.py", args: ["plain"] },
  "pydantic-ai with tasks": { file: "pydantic_client.py", args: ["tasks"], tickets: false },
  "openai-agents": { file: "openai_client.py", args: ["30"] },
  opencode: { file: "programs.py", args: ["opencode", here("node_modules/opencode-linux-x64-baseline/bin/opencode")], skip: !LINUX_X64 },
};

const RAINCHECK = {
  RAINCHECK_TASKS__COMPANION_TOOLS: "true",
  RAINCHECK_TASKS__FALLBACK_AFTER: "2s",
  RAINCHECK_TASKS__MAX_DURATION: "1m",
};

const COMPANIONS = ["task_status", "task_result", "task_cancel", "task_answer"];

const wanted = new Set(process.argv.slice(2));
// Two at once; what the server counts is looked at in the end.
describe("agents", { concurrency: 2 }, () => {
  const started = [];
  let inner;
  let answered = 0;
  before(async () => {
    inner = await serve("legacy", `${SCRATCH}/agents`, started);
  }, LIMIT);
  after(async () => {
    // Each ran once, and its session outlived its client's DELETE.
    const { started: begun, finished, cancelled } = await ran(inner, "slow_compute");
    if (answered > 0) assert.deepEqual({ begun, finished, cancelled }, { begun: answered, finished: answered, cancelled: 0 });
    for (const child of started.reverse()) await end(child);
  });
  for (const [name, { file, args = [], tickets = true, skip = false }] of Object.entries(AGENTS)) {
    if (wanted.size > 0 && !wanted.has(name)) continue;
    test(name, { ...LIMIT, skip }, async () => {
      // A folder of its own: this raincheck knows nothing that another one found out about the server.
      const dir = `${SCRATCH}/${name}`;
      await mkdir(dir);
      const url = await front(inner, here("agents.toml"), dir, started, { ...RAINCHECK, XDG_STATE_HOME: dir });
      const words = [here(`agents/${file}`), url, ...args];
      const { stdout } = await promisify(execFile)(python("agents"), words, LIMIT);
      const seen = JSON.parse(stdout);
      for (const tool of COMPANIONS) assert.ok(seen.offered.some((name) => name.endsWith(tool)), `${tool}: ${seen.offered}`);
      assert.match(seen.heard.at(-1), /slow_compute\(agent\) done after 5s/);
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
