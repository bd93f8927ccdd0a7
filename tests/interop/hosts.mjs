// Agents and agent libraries written by others, each with a script for its model (agents/), in their default settings for MCP, in
// front of a raincheck without any setting and that no client has spoken to yet, and of a tool that says nothing for longer than
// many of them wait. The tool takes 75 s, beyond the limit of those that give up after a minute. HOSTS_SECONDS=150,330 is full
// size: then the limits of 300 s count too, and Codex, Claude Code
// and Qwen Code run, whose packages are too large for every run of CI.
//
// This runs in a network of its own (the lane `hosts` of all.sh makes it), so that no agent reaches anything but its model.
// Those that nothing can help without a setting must give up: docs/clients.md names them. `node hosts.mjs HOST..` runs some.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { front, here, python, ran, serve } from "./house.mjs";
import { end, start } from "./processes.mjs";

const { RAINCHECK, RAINCHECK_TEST_CACHE: CACHE, SCRATCH, HOSTS_SECONDS } = process.env;
const IS_FULL = HOSTS_SECONDS !== undefined;
const SIZES = (HOSTS_SECONDS ?? "75").split(",").map(Number);
/** For an agent to start, connect and make its call. Two start at once, because that keeps two cores busy. */
const START = 60;
const STARTING = 2;

const npm = (path) => here(`node_modules/${path}`);
const large = (path) => `${CACHE}/npm-hosts/node_modules/${path}`;

const library = (file, ...args) => ({ file, args });
const program = (name, ...command) => ({ file: "programs.py", args: [name, ...command], path: command.at(-1), launches: true });

/** `limit`: after so many seconds it gives up, and says so to its model or ends. */
const HOSTS = {
  "langchain-mcp-adapters": library("langchain_client.py"),
  "pydantic-ai": { ...library("pydantic_client.py", "plain"), limit: { seconds: 300, says: /timed out/i } },
  "pydantic-ai with tasks": { ...library("pydantic_client.py", "tasks"), limit: { seconds: 300, ends: /did not reach terminal state within 300/ } },
  strands: library("strands_client.py"),
  "openai-agents": { ...library("openai_client.py", "default"), limit: { seconds: 5, says: /An error occurred while running the tool/ } },
  "openai-agents at 60 s": { ...library("openai_client.py", "60"), limit: { seconds: 60, says: /An error occurred while running the tool/ } },
  opencode: program("opencode", npm("opencode-linux-x64-baseline/bin/opencode")),
  "Gemini CLI": program("gemini-cli", process.execPath, npm("@google/gemini-cli/bundle/gemini.js")),
  "Qwen Code": program("qwen-code", process.execPath, large("@qwen-code/qwen-code/cli-entry.js")),
  // By a command it asks its model before the tools of a server that starts slowly are there.
  Codex: { ...program("codex", large("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex")), launches: false },
  "Claude Code -p": program("claude-code", large("@anthropic-ai/claude-code-linux-x64/claude")),
};

/** How an agent reaches its server: at raincheck's address, in front of a server of each era, or by a command as `raincheck wrap` writes it. */
const WAYS = ["legacy", ...(IS_FULL ? ["modern"] : []), "stdio"];

const wanted = new Set(process.argv.slice(2));
const RUNS = Object.entries(HOSTS)
  .filter(([name]) => wanted.size === 0 || wanted.has(name))
  .flatMap(([name, host]) => WAYS.map((way) => ({ name, host, way })))
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
    const title = `${name}, ${way === "stdio" ? "by a command" : `in front of ${way}`}, ${seconds} s`;
    test(title, { ...options, skip: host.path !== undefined && !existsSync(host.path) && "not installed" }, async (t) => {
      const dir = `${SCRATCH}/run-${place}`;
      await mkdir(dir);
      const server = way === "stdio" ? command() : await front(servers[way], here("agents.toml"), dir, started, { XDG_STATE_HOME: dir });
      if (way !== "stdio") calls[way] += 1;
      const limit = host.limit?.seconds < seconds ? host.limit : undefined;
      const asked = ask(host, server, seconds, `${dir}/agent.log`);
      if (limit?.ends) return assert.rejects(asked, limit.ends);
      const seen = await asked;
      t.diagnostic(`${title}: ${seen.took.toFixed(1)} s, turns: ${seen.turns}, calls: ${seen.called.length}${limit ? ", gave up" : ""}`);
      assert.match(seen.heard.at(-1), limit?.says ?? new RegExp(`quiet_compute done after ${seconds}s`));
      assert.ok(seen.heard.slice(0, -1).every((said) => said.includes("do not make it again")), `${seen.heard}`);
    });
  }
});

/** What `raincheck wrap` puts in the place of a server's command. */
const command = () => JSON.stringify(
  [RAINCHECK, "stdio", "--", python("legacy"), here("../conformance/upstream_legacy.py"), "--transport", "stdio"],
);

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

/** Has the agent make its call and wait. */
async function ask({ file, args }, server, seconds, log) {
  const env = {
    ...process.env,
    AGENT_TOOL: "quiet_compute",
    AGENT_ARGUMENTS: JSON.stringify({ seconds }),
    AGENT_LIMIT: `${seconds + START}`,
  };
  await turn();
  const child = start([python("agents"), here(`agents/${file}`), server, ...args], log, env);
  // The script of its model says when it calls the tool; then the next one may start.
  let isHeard = false;
  const heard = () => {
    if (!isHeard) next();
    isHeard = true;
  };
  createInterface({ input: child.stderr }).on("line", (line) => line === "the script calls" && heard());
  const [printed] = await Promise.all([text(child.stdout), child.over]);
  heard();
  await end(child);
  if (child.exitCode !== 0) throw new Error(`it ended with ${child.exitCode}:\n${await readFile(log, "utf8")}`);
  return JSON.parse(printed);
}
