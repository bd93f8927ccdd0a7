// Clients, and agents with a script for their model (agents/), written by others, in their default settings for MCP, in
// front of a raincheck without any setting and that no client has spoken to yet, and of a tool that says nothing for longer than
// many of them wait. The tool takes 75 s, beyond the limit of those that give up after a minute. HOSTS_SECONDS=150,330 is full
// size: then the limits of 300 s count too, and those run whose packages are too large for every run of CI.
//
// This runs in a network of its own (the lane `hosts` of all.sh makes it), so that no agent reaches anything but its model.
// Those that nothing can help without a setting must give up: docs/clients.md names them. `node hosts.mjs HOST..` runs some.
// rmcp: tests/interop.rs.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { ask, CLAUDE, CODEX, large, library, npm, program, START } from "./asked.mjs";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { RAINCHECK, SCRATCH, HOSTS_SECONDS } = process.env;
const IS_FULL = HOSTS_SECONDS !== undefined;
const SIZES = (HOSTS_SECONDS ?? "75").split(",").map(Number);
/** So late a result or the end of a limit may be heard of; by who asks for its task now and then, an interval later. */
const LATE = 15;
const INTERVAL = 15;

/** Addresses of raincheck, in front of a server of each era. */
const ADDRESSES = ["legacy", "modern"];

/** A client library, on the Python environment or in Node; it is told where the server is, for how long, and how. */
const onPython = (environment, ...how) => ({
  runs: [python(environment), here("plain/defaults.py")], how, path: python(environment), ways: ADDRESSES, isPlain: true,
});
const onNode = (...how) => ({
  runs: [process.execPath, here("plain/defaults.mjs")], how, path: npm("@modelcontextprotocol/client"), ways: ADDRESSES, isPlain: true,
});
const mcpc = (...how) => {
  const path = large("@apify/mcpc/bin/mcpc");
  return { runs: [process.execPath, here("plain/mcpc.mjs")], how: [path, ...how], path, isPlain: true };
};
const OPENAI_GIVES_UP = /An error occurred while running the tool/;
const GIVES_UP_AT_60 = { seconds: 60, ends: /timed out/i };
const PYDANTIC_GIVES_UP = { seconds: 300, says: /timed out/i };
const FASTMCP_TASKS_GIVES_UP = { seconds: 300, ends: /did not finish within 300/ };

/** `limit`: after so many seconds it gives up, and says so to its model or ends. `polls`: it asks for its task. `misses`: whether
 *  its model is first asked without the tool, where it reaches its server that way. */
const HOSTS = {
  "mcp 1.30": onPython("legacy"),
  "mcp 2.3": onPython("modern", "auto"),
  "fastmcp 3": onPython("fastmcp3"),
  "fastmcp 4": onPython("fastmcp4", "auto"),
  "fastmcp 4 with fastmcp-tasks": { ...onPython("fastmcp4", "tasks"), polls: true },
  "SDK 1.32": { ...onNode("sdk", "default"), limit: GIVES_UP_AT_60 },
  "SDK 1.32 with progress": onNode("sdk", "progress"),
  "client 2.4": { ...onNode("auto", "default"), limit: GIVES_UP_AT_60 },
  "client 2.4 with progress": onNode("auto", "progress"),
  "client 2.4 with ext-tasks": { ...onNode("auto", "tasks"), polls: true },
  mcpc: { ...mcpc(), limit: GIVES_UP_AT_60 },
  // After 180 s it ends its own session and comes back to it, and then the result has no place to come to. It says so then, or at
  // the end of the task.
  "mcpc --task": {
    ...mcpc("--task"), polls: true, limit: { seconds: 180, ends: /it lost the result|Session not found|Connection closed/ },
  },
  "langchain-mcp-adapters": library("agents", "langchain_client.py"),
  "pydantic-ai": { ...library("agents", "pydantic_client.py", "plain"), limit: PYDANTIC_GIVES_UP },
  "pydantic-ai with tasks": {
    ...library("agents", "pydantic_client.py", "tasks"),
    limit: { seconds: 300, ends: /did not reach terminal state within 300/ },
  },
  // With fastmcp-tasks, which declares Tasks on every request, whatever pydantic-ai prefers.
  "pydantic-ai on mcp 2.3": { ...library("agents2", "pydantic_client.py", "plain"), limit: FASTMCP_TASKS_GIVES_UP },
  "pydantic-ai with tasks on mcp 2.3": { ...library("agents2", "pydantic_client.py", "tasks"), limit: FASTMCP_TASKS_GIVES_UP },
  strands: library("agents", "strands_client.py"),
  "strands on mcp 2.1": library("strands2", "strands_client.py"),
  "openai-agents": { ...library("agents", "openai_client.py", "default"), limit: { seconds: 5, says: OPENAI_GIVES_UP } },
  "openai-agents at 60 s": { ...library("agents", "openai_client.py", "60"), limit: { seconds: 60, says: OPENAI_GIVES_UP } },
  "openai-agents on mcp 2.3": { ...library("agents2", "openai_client.py", "default"), limit: { seconds: 5, says: OPENAI_GIVES_UP } },
  "openai-agents on mcp 2.3 at 60 s": { ...library("agents2", "openai_client.py", "60"), limit: { seconds: 60, says: OPENAI_GIVES_UP } },
  opencode: program("opencode", npm("opencode-linux-x64-baseline/bin/opencode")),
  "Gemini CLI": program("gemini-cli", process.execPath, npm("@google/gemini-cli/bundle/gemini.js")),
  "Qwen Code": program("qwen-code", process.execPath, large("@qwen-code/qwen-code/cli-entry.js")),
  Codex: { ...program("codex", CODEX), misses: { legacy: false, modern: false } },
  // It waits a second for the tools of a server, and shows them to its model when they are there.
  "Codex and a server that starts slowly": { ...program("codex", CODEX), ways: ["slow stdio"], misses: { "slow stdio": true } },
  "Codex with required = true": { ...program("codex-required", CODEX), ways: ["slow stdio"], misses: { "slow stdio": false } },
  "Claude Code -p": program("claude-code", CLAUDE),
  "Claude Code in a terminal": program("claude-code-terminal", CLAUDE),
};

/** How an agent reaches its server: at an address, or by a command as `raincheck wrap` writes it. */
const WAYS = [...(IS_FULL ? ADDRESSES : ["legacy"]), "stdio"];

/** What tests/setup.sh leaves out if this is not full size. */
const LEFT_OUT = [large(""), python("agents2"), python("strands2")];
/** Why a host is not run; anything else that is missing is a failure. */
const isLeftOut = ({ path }) => !IS_FULL && LEFT_OUT.some((begins) => path.startsWith(begins)) && !existsSync(path) && "not installed";

const wanted = new Set(process.argv.slice(2));
for (const name of wanted) assert.ok(name in HOSTS, `there is no ${name}`);
const RUNS = Object.entries(HOSTS)
  .filter(([name]) => wanted.size === 0 || wanted.has(name))
  .flatMap(([name, host]) => (host.ways ?? WAYS).map((way) => ({ name, host, way })))
  .filter(({ host, way }) => host.launches || way !== "stdio")
  .flatMap((run) => SIZES.map((seconds) => ({ ...run, seconds })));

// All at once: they do nothing but wait.
describe("hosts", { concurrency: 64 }, () => {
  const started = [];
  const servers = {};
  const calls = { legacy: 0, modern: 0 };
  before(async () => {
    for (const era of ["legacy", "modern"]) servers[era] = await serve(era, `${SCRATCH}/${era}`, started);
  });
  after(async () => {
    // Nobody made a call twice because the first took long.
    for (const [era, inner] of Object.entries(servers)) assert.equal((await ran(inner, "quiet_compute")).started, calls[era]);
    for (const child of started.reverse()) await end(child);
  });
  for (const [place, { name, host, way, seconds }] of RUNS.entries()) {
    const options = { timeout: RUNS.length * START * 1000 + (seconds + START) * 1000 };
    const launches = way.endsWith("stdio");
    const title = `${name}, ${launches ? "by a command" : `in front of ${way}`}, ${seconds} s`;
    test(title, { ...options, skip: isLeftOut(host) }, async (t) => {
      assert.ok(existsSync(host.path), `${host.path} is missing: tests/setup.sh installs it`);
      const dir = `${SCRATCH}/run-${place}`;
      await mkdir(dir);
      const state = { XDG_STATE_HOME: dir };
      const server = launches ? command(way !== "stdio") : await front(servers[way], here("agents.toml"), dir, started, state);
      if (!launches) calls[way] += 1;
      const limit = host.limit?.seconds < seconds ? host.limit : undefined;
      const { seen, error, took } = await ask(host, server, seconds, seconds + START, `${dir}/agent.log`);
      const turns = seen?.turns ? `, turns: ${seen.turns}, calls: ${seen.called.length}` : "";
      t.diagnostic(`${title}: ${took.toFixed(1)} s${turns}${limit ? ", gave up" : ""}`);
      // An agent has its own limit, and may need some turns more to hear of the end.
      if (limit || host.isPlain) isAbout(took, limit?.seconds ?? seconds, limit && !host.polls ? limit.seconds : seconds, host.polls);
      if (limit?.ends) return assert.match(error ?? "it did not give up", limit.ends);
      assert.equal(error, undefined);
      assert.match(seen.heard.at(-1), limit?.says ?? new RegExp(`quiet_compute done after ${seconds}s`));
      assert.ok(seen.heard.slice(0, -1).every((said) => GOES_ON.test(said)), `${seen.heard}`);
      const misses = host.misses?.[way];
      if (misses !== undefined) assert.equal(seen.finds > 0, misses);
    });
  }
});

function isAbout(took, least, seconds, polls) {
  const most = seconds + LATE + (polls ? INTERVAL : 0);
  assert.ok(took >= least - 1 && took < most, `${took.toFixed(1)} s, not from ${least - 1} to ${most}`);
}

/** What a model is told of a call that goes on: by a ticket, and by Claude Code of a task. */
const GOES_ON = /do not make it again|keeps running on the server/;

/** What `raincheck wrap` puts in the place of a server's command, and the same of a server that starts slowly. */
function command(isSlow) {
  const server = [python("legacy"), here("../conformance/upstream_legacy.py"), "--transport", "stdio"];
  const slow = isSlow ? ["sh", "-c", 'sleep 3 && exec "$@"', "sh"] : [];
  return JSON.stringify([RAINCHECK, "stdio", "--", ...slow, ...server]);
}
