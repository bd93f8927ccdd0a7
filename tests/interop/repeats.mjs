// Agents with a limit of their own that is shorter than the tool takes. Their models are scripts (agents/), which read how the call ended,
// think, and make the same call again until they have the result, or the tool should have ended two calls ago. Directly at the server,
// where each call is a run of the tool; through a raincheck without a setting; and, where their requests do not show that a clock ended,
// with a rule that says `attach = true`. First, what each agent shows its model of raincheck's sentence for a client whose clock is known,
// sent in two ways by servers/told.py.
//
// A call of 17 s and two agents, in every run; RAINCHECK_RENEW=1 has a call of 70 s, all agents, models that think for 2, 10 and 30 s, and
// writes both tables into docs/clients.md. It runs in a network of its own, as hosts.mjs does. `node repeats.mjs AGENT..` runs some.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { ask, CLAUDE, CODEX, large, library, npm, program, START } from "./asked.mjs";
import { front, here, python, ran, serve } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";
import { RENEWS, write } from "./written.mjs";

const { SCRATCH } = process.env;
const SECONDS = RENEWS ? 70 : 17;
const THINKS = RENEWS ? [2, 10, 30] : [2];
const CLOCK = RENEWS ? 15 : 5;
/** How often a model calls. Without raincheck no call helps; with it, a client whose clock is known is answered a little earlier. */
const DIRECT_CALLS = 4;
const enough = (clock, thinks) => Math.ceil(SECONDS / (0.9 * clock + thinks)) + 2;

const set = (agent, clock = CLOCK) => ({ ...agent, clock, isSet: true });

/** Of servers/told.py. */
const SENTENCE = "Request timed out: quiet_compute is still running. Call quiet_compute again with the same arguments to wait for its result";

const SESSION = "session";
const CREDENTIALS = "credentials";
const OPENCODE = npm("opencode-linux-x64-baseline/bin/opencode");

/** `clock`: the agent's own limit in seconds, its default or set. `rule`: what a rule with `attach` knows it by, where its requests do not
 *  show that its clock ended. `isShort`: in every run. */
const AGENTS = {
  "openai-agents 0.24.0 on mcp 1.30": { ...library("agents", "openai_client.py", "default"), clock: 5, rule: SESSION, isShort: true },
  "openai-agents 0.24.0 on mcp 2.3": { ...library("agents2", "openai_client.py", "default"), clock: 5, upstream: "modern" },
  "pydantic-ai 2.68.0 on mcp 1.30": { ...set(library("agents", "pydantic_client.py", "plain")), rule: SESSION },
  "pydantic-ai 2.68.0 on mcp 1.30, with tasks": set(library("agents", "pydantic_client.py", "tasks")),
  "langchain-mcp-adapters 0.3.2": { ...set(library("agents", "langchain_client.py")), rule: CREDENTIALS },
  "Codex 0.169.0": { ...set(program("codex", CODEX)), rule: SESSION },
  "Claude Code 2.1.330, `-p`": { ...set(program("claude-code", CLAUDE)), upstream: "modern" },
  "Claude Code 2.1.330, `-p`, at 12 s": { ...set(program("claude-code", CLAUDE), 12), upstream: "modern" },
  "opencode 1.18.33": set(program("opencode", OPENCODE)),
  "opencode 1.18.33 at 5 s": set(program("opencode", OPENCODE), 5),
  "Gemini CLI 0.61.0": { ...set(program("gemini-cli", process.execPath, npm("@google/gemini-cli/bundle/gemini.js"))), isShort: true },
  "Qwen Code 0.24.4": { ...set(program("qwen-code", process.execPath, large("@qwen-code/qwen-code/cli-entry.js"))), rule: CREDENTIALS },
};

const wanted = new Set(process.argv.slice(2));
for (const name of wanted) assert.ok(name in AGENTS, `there is no ${name}`);
const NAMES = Object.keys(AGENTS).filter((name) => (wanted.size > 0 ? wanted.has(name) : RENEWS || AGENTS[name].isShort));

/** Each run has a length of its own, by which the server counts it. */
const RUNS = NAMES.flatMap((name) => {
  const agent = AGENTS[name];
  const ways = agent.rule ? ["plain", "rule"] : ["plain"];
  const all = RENEWS ? ["direct", ...ways] : ways.slice(-1);
  return all.flatMap((way) => THINKS.map((thinks) => ({ name, agent, way, thinks, upstream: agent.upstream ?? "legacy" })));
}).map((run, place) => ({ ...run, seconds: SECONDS + (place + 1) / 1000 }));

const TOLD_NAMES = NAMES.filter((name) => RENEWS && !name.includes(" at "));
const TOLD = TOLD_NAMES.flatMap((name) => ["error", "result"].map((how) => ({ name, agent: AGENTS[name], how })));

describe("repeats", { concurrency: 16 }, () => {
  const started = [];
  const servers = {};
  const told = {};
  before(async () => {
    for (const era of ["legacy", "modern"]) servers[era] = await serve(era, `${SCRATCH}/${era}`, started);
    for (const how of TOLD.length > 0 ? ["error", "result"] : []) {
      const port = await freePort();
      const server = start([python("agents"), here("servers/told.py"), `${port}`, how], `${SCRATCH}/told-${how}.log`);
      started.push(server);
      await listening(server, port);
      told[how] = `http://127.0.0.1:${port}/mcp`;
    }
  });
  after(async () => {
    for (const child of started.reverse()) await end(child);
    if (RENEWS && wanted.size === 0) {
      await write("repeats", ["agent", "its clock", "", ...THINKS.map((thinks) => `its model thinks for ${thinks} s`)], rows());
      await write("told", ["agent", "as an error of JSON-RPC", "as a result with `isError`"], toldRows());
    }
  });
  const timeout = 2_400_000;
  for (const run of TOLD) {
    test(`${run.name} is told by ${run.how}`, { timeout }, async (t) => {
      const dir = `${SCRATCH}/told-${run.how}-${NAMES.indexOf(run.name)}`;
      await mkdir(dir);
      Object.assign(run, await ask(run.agent, told[run.how], 1, START, `${dir}/agent.log`, { AGENT_CALLS: "1" }));
      t.diagnostic(JSON.stringify(run.seen?.heard));
      if (run.error) t.diagnostic(last(run.error));
    });
  }
  for (const run of RUNS) {
    const title = `${run.name}, ${run.way}, thinks ${run.thinks} s`;
    test(title, { timeout }, async (t) => {
      await carryOut(run, servers, started);
      const { seen, error } = run;
      t.diagnostic(`${title}: ${said(run)}`);
      t.diagnostic(JSON.stringify([...new Set(seen?.heard.map((text) => text.replace(/Wall time: .*/, "")))]));
      if (error) t.diagnostic(last(error));
      if (RENEWS) return;
      assert.equal(error, undefined);
      assert.match(seen.heard.at(-1), /quiet_compute done after/);
      assert.equal(run.ran, 1);
    });
  }
});

async function carryOut(run, servers, started) {
  const { agent, way, thinks, upstream, seconds } = run;
  assert.ok(existsSync(agent.path), `${agent.path} is missing: HOSTS_SECONDS=150 tests/setup.sh installs it`);
  const dir = `${SCRATCH}/run-${seconds}`;
  await mkdir(dir);
  const inner = servers[upstream];
  const config = here(way === "rule" ? "again.toml" : "agents.toml");
  const url = way === "direct" ? `http://127.0.0.1:${inner}/mcp` : await front(inner, config, dir, started, { XDG_STATE_HOME: dir });
  const calls = way === "direct" ? DIRECT_CALLS : enough(agent.clock, thinks);
  const environment = { AGENT_CALLS: `${calls}`, AGENT_THINKS: `${thinks}` };
  if (agent.isSet) environment.AGENT_CLOCK = `${agent.clock}`;
  if (way === "rule" && agent.rule === CREDENTIALS) environment.AGENT_TOKEN = "someone";
  const limit = START + SECONDS + calls * (agent.clock + thinks);
  Object.assign(run, await ask(agent, url, seconds, limit, `${dir}/agent.log`, environment));
  run.ran = (await ran(inner, `quiet_compute(${seconds})`)).started;
}

/** What a program says last: Python begins no line of an error itself with a space, and groups have a frame around it. */
function last(error) {
  const lines = error.split("\n").filter((line) => /^\S*(Error|Exception|Exceeded|Behavior)\S*:/.test(line));
  return lines.at(-1) ?? error.trim().split("\n").at(-1);
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

function said({ seen, error, ran: runs }) {
  const turns = seen ? `${count(seen.called.length, "call", "calls")}, ${count(seen.turns, "turn", "turns")}, ` : "";
  const has = seen?.heard.at(-1)?.includes("quiet_compute done after");
  const end = has ? `result after ${seen.took.toFixed(1)} s` : error ? "ends with an error" : "no result";
  return `${end}: ${turns}${count(runs, "run", "runs")}`;
}

const WAYS = { direct: "without raincheck", plain: "with raincheck", rule: "with `attach = true` for the tool" };

function rows() {
  return NAMES.flatMap((name) => Object.keys(WAYS).flatMap((way) => {
    const { clock, isSet, rule } = AGENTS[name];
    const runs = RUNS.filter((run) => run.name === name && run.way === way);
    if (runs.length === 0) return [];
    const first = way === "direct" ? [name, `${clock} s${isSet ? "" : ", its default"}`] : ["", ""];
    const how = way === "rule" && rule === CREDENTIALS ? `${WAYS[way]} and an \`Authorization\` header` : WAYS[way];
    return [[...first, how, ...runs.map(said)]];
  }));
}

function toldRows() {
  return TOLD_NAMES.map((name) => [name, ...["error", "result"].map((how) => {
    const { seen, error } = TOLD.find((run) => run.name === name && run.how === how);
    if (seen?.heard.length > 0) return shown(seen.heard[0]);
    return error ? "ends with the error" : "nothing";
  })]);
}

/** What a model saw, with the sentence itself by its name. */
function shown(heard) {
  const code = (text) => (text === "" ? [] : [`\`${text.replaceAll("`", "'").replaceAll("|", "\\|")}\``]);
  const short = (text) => (text.length > 100 ? `${text.slice(0, 40)} .. ${text.slice(-50)}` : text);
  const plain = heard.replace(/^Wall time: [^\n]*/, "Wall time: ..").replaceAll(/\s+/g, " ");
  const [before, behind] = plain.split(SENTENCE).map((text) => text.trim());
  return behind === undefined ? code(before)[0] : [...code(short(before)), "*the sentence*", ...code(short(behind))].join(" ");
}
