// Clients in their default settings, and a tool of 150 s that changes something: none of its annotations says that it may run twice.
// Each makes the same call again when its clock ends, as its program would, until it has the result or has tried often enough. First
// directly at a server of its own revision, then through raincheck without a setting, in front of each, and, where no setting is not
// enough, with the one that is.
//
// The lane `again` of all.sh, always at full size: a quarter of an hour, in which everything waits. AGAIN_SECONDS is another size.
// RAINCHECK_RENEW=1 writes the table into docs/clients.md. `node again.mjs CLIENT..` runs some and writes nothing.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { front, here, perform, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";
import { RENEWS, write } from "./written.mjs";

const { RAINCHECK_TEST_CACHE: CACHE, SCRATCH, AGAIN_SECONDS = "150" } = process.env;
const SECONDS = Number(AGAIN_SECONDS);
/** How often a client tries: directly, where no try helps; and through raincheck, where a client whose clock is known is answered up to
 *  a tenth of it earlier. */
const TRIES_DIRECT = 4;
const tries = (clock) => Math.max(12, Math.ceil(SECONDS / (0.9 * clock)) + 3);
/** A command starts Node or Python, on two busy cores. */
const START = 60;

const TYPESCRIPT = { command: [process.execPath, here("plain/patience.mjs")] };
const COMMANDS = { command: [process.execPath, here("plain/commands.mjs")] };
/** On that Python environment, with a limit of its own, or with that of its default. */
const onPython = (environment, patience) => ({ command: [python(environment), here("plain/patience.py")], patience });

const INSPECTOR = here("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
const MCPC = `${CACHE}/npm-hosts/node_modules/@apify/mcpc/bin/mcpc`;
const OWN = ["--header", "Authorization: Bearer someone"];
const RULE = "`attach = true` for the tool";

/** `clock`: its limit in seconds. `helped`: whether it gets the result, and the tool runs once. `needs`: what it needs for that. */
const CLIENTS = {
  "TypeScript SDK 1.32.2": { program: TYPESCRIPT, mode: "sdk", era: "legacy", clock: 60 },
  "TypeScript client 2.4.0, session": { program: TYPESCRIPT, mode: "legacy", era: "legacy", clock: 60 },
  "TypeScript client 2.4.0": { program: TYPESCRIPT, mode: "auto", era: "modern", clock: 60 },
  "Python mcp 1.30.0 with a limit of 60 s": { program: onPython("legacy", 60), era: "legacy", clock: 60, needs: RULE },
  "Python mcp 2.3.0 with a limit of 60 s": { program: onPython("modern", 60), mode: "auto", era: "modern", clock: 60 },
  "openai-agents 0.24.0 on mcp 1.30": { program: onPython("agents"), mode: "openai-agents", era: "legacy", clock: 5, needs: RULE },
  "openai-agents 0.24.0 on mcp 2.3": { program: onPython("agents2"), mode: "openai-agents", era: "modern", clock: 5 },
  "`inspector --cli` 2.12.0": {
    program: COMMANDS, mode: "inspector", path: INSPECTOR, era: "legacy", clock: 60,
    needs: `${RULE}, and \`--header 'Authorization: ..'\``, options: OWN,
  },
  "`inspector --cli --protocol-era auto` 2.12.0": {
    program: COMMANDS, mode: "inspector", path: INSPECTOR, era: "modern", clock: 60,
    options: ["--protocol-era", "auto"], speaks: "2026-07-28, Tasks",
  },
  "mcpc 0.2.6": { program: COMMANDS, mode: "mcpc", path: MCPC, era: "legacy", clock: 60 },
};

const wanted = new Set(process.argv.slice(2));
for (const name of wanted) assert.ok(name in CLIENTS, `there is no ${name}`);
const NAMES = Object.keys(CLIENTS).filter((name) => wanted.size === 0 || wanted.has(name));

/** Each run has a length of its own, by which the server counts it. */
const RUNS = NAMES.flatMap((name) => {
  const client = CLIENTS[name];
  const through = (way) => ["legacy", "modern"].map((upstream) => ({ name, client, way, upstream }));
  return [
    { name, client, way: "direct", upstream: client.era },
    ...through("plain"),
    ...(client.needs ? through("rule") : []),
  ];
}).map((run, place) => ({ ...run, seconds: SECONDS + (place + 1) / 100 }));

describe("again", () => {
  const started = [];
  const servers = {};
  before(async () => {
    for (const era of ["legacy", "modern"]) servers[era] = await serve(era, `${SCRATCH}/${era}`, started);
    for (const run of RUNS) await open(run, servers, started);
    await Promise.all([...new Set(RUNS.map(({ client }) => client.program))].map(carryOut));
    for (const run of RUNS) run.ran = (await ran(servers[run.upstream], `quiet_compute(${run.seconds})`)).started;
  }, { timeout: 1_700_000 });
  after(async () => {
    await Promise.all(started.map(end));
    if (RENEWS && wanted.size === 0) await write("again", HEAD, rows());
  });
  for (const run of RUNS) {
    const title = `${run.name}, ${run.way}, ${run.upstream}`;
    test(title, (t) => {
      const { seen } = run;
      t.diagnostic(`${title}: ${seen.took?.toFixed(1)} s, ${seen.tries} tries, ${run.ran} runs; ${seen.last ?? ""}`);
      const isHelped = run.way === "rule" || (run.way === "plain" && !run.client.needs);
      if (isHelped) {
        assert.equal(seen.said, `quiet_compute done after ${run.seconds}s`, seen.gave_up);
        assert.equal(run.ran, 1);
      } else {
        assert.equal(seen.said, undefined);
        assert.ok(run.ran > 1, "it runs again with each try");
      }
    });
  }
});

async function open(run, servers, started) {
  const { way, upstream, client } = run;
  const port = servers[upstream];
  assert.ok(existsSync(client.path ?? client.program.command[0]), `${run.name} is missing: HOSTS_SECONDS=150 tests/setup.sh installs it`);
  run.url = `http://127.0.0.1:${port}/mcp`;
  if (way === "direct") return;
  const dir = `${SCRATCH}/run-${run.seconds}`;
  await mkdir(dir);
  const config = here(way === "rule" ? "again.toml" : "agents.toml");
  run.url = await front(port, config, dir, started, { XDG_STATE_HOME: dir });
}

/** Has `program` do all that its clients do, at the same time. */
async function carryOut(program) {
  const runs = RUNS.filter(({ client }) => client.program === program);
  const asked = runs.map(({ client, way, url, seconds }) => ({
    way: "again",
    mode: client.mode,
    program: client.path,
    url,
    seconds,
    tries: way === "direct" ? TRIES_DIRECT : tries(client.clock),
    options: client.needs && way !== "rule" ? [] : client.options,
  }));
  const longest = Math.max(...runs.map(({ client }, place) => client.clock * asked[place].tries));
  const all = await perform(program.command, { patience: program.patience, runs: asked }, (START + SECONDS + longest * 1.5) * 1000);
  runs.forEach((run, place) => (run.seen = all[place]));
}

const HEAD = ["client", "speaks", "its clock", "without raincheck", "in front of a legacy server", "in front of a modern server"];

function rows() {
  return NAMES.flatMap((name) => {
    const { era, clock, needs, speaks = era === "modern" ? "2026-07-28" : "2025-11-25" } = CLIENTS[name];
    const cell = (way, upstream) => said(RUNS.find((run) => run.name === name && run.way === way && run.upstream === upstream));
    const through = (way) => ["legacy", "modern"].map((upstream) => cell(way, upstream));
    const row = [name, speaks, `${clock} s`, cell("direct", era), ...through("plain")];
    return needs ? [row, [`the same, with ${needs}`, "", "", "", ...through("rule")]] : [row];
  });
}

function said({ seen, ran: runs }) {
  const times = `${runs} run${runs === 1 ? "" : "s"} of the tool`;
  const often = `${seen.tries} tr${seen.tries === 1 ? "y" : "ies"}`;
  return seen.said === undefined ? `no result in ${often}, ${times}` : `result after ${seen.took.toFixed(1)} s, ${often}, ${times}`;
}
