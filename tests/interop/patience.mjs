// Clients without Tasks that give up after a minute, and a tool of five: official clients, each in front of the plain legacy and
// the plain modern upstream. What a client does is in plain/patience.*; here is what it must have seen of each way:
//
//   companion   companion tools: it gets a ticket, and calls the tools that it is told to call until it has the result
//   heartbeat   its clock begins anew with each progress, and raincheck makes some while the server says nothing
//   both        the same, where there are companion tools and the tool's clients have more patience than fallback_after
//   alone       as with heartbeat, but for its clock: it gives up, so its limit is one
//   again       nothing: it gives up and makes the same call again until it has the result, and the tool runs once
//
// PATIENCE_SCALE divides all times but the heartbeat's, which is every 8 s: 4, or what is said; 1 is full size.
// All at once, because they do nothing but wait. `node patience.mjs CLIENT..` runs some clients.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { front, here, perform, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH, PATIENCE_SCALE = "4" } = process.env;
const SCALE = Number(PATIENCE_SCALE);
/** What clients and tools need, in seconds, and what raincheck is told of it. */
const PATIENCE = 60 / SCALE;
const SECONDS = 300 / SCALE;
/** Of the tool that is called again. It does not end when a clock does: its answer would go to a client that just left. */
const AGAIN_SECONDS = Math.floor(SECONDS - PATIENCE / 2);
const FALLBACK_AFTER = 45 / SCALE;
/** While the server says nothing; raincheck has no setting for it. */
const HEARTBEAT = 8;
/** Interpreters start on two busy cores. */
const START = 60;
const LIMIT = { timeout: (START + 2 * SECONDS) * 1000 };
assert.ok(PATIENCE > HEARTBEAT, `PATIENCE_SCALE=${PATIENCE_SCALE} leaves less patience than there is between heartbeats`);

/** A program is started once for all that it does. */
const PROGRAMS = {
  typescript: [process.execPath, here("plain/patience.mjs")],
  "python 1": [python("legacy"), here("plain/patience.py")],
  "python 2": [python("modern"), here("plain/patience.py")],
};

const ALL = ["companion", "heartbeat", "both", "alone", "again"];
/** No Python client's clock begins anew. */
const PYTHONS = ["companion", "alone"];

const CLIENTS = {
  "SDK 1.32": { era: "legacy", program: "typescript", mode: "sdk", ways: ALL },
  "client 2.4, legacy": { era: "legacy", program: "typescript", mode: "legacy", ways: ALL },
  "client 2.4": { era: "modern", program: "typescript", mode: "auto", ways: ALL },
  "mcp 1.30": { era: "legacy", program: "python 1", ways: PYTHONS },
  "mcp 2.3, legacy": { era: "legacy", program: "python 2", mode: "legacy", ways: PYTHONS },
  "mcp 2.3": { era: "modern", program: "python 2", mode: "auto", ways: [...PYTHONS, "again"] },
};

/** What each way is known by: the tool that is called, and which raincheck it goes through. */
const WAYS = {
  companion: { tool: "slow_compute", front: "companion" },
  heartbeat: { tool: "quiet_compute", front: "plain" },
  both: { tool: "quiet_compute", front: "companion" },
  alone: { tool: "quiet_compute", front: "plain" },
  again: { tool: "quiet_compute", front: "again" },
};

const CHECKS = {
  companion(seen) {
    assert.equal(seen.said, `slow_compute(patience) done after ${SECONDS}s`);
    const [first, ...polls] = seen.called;
    assert.deepEqual([first, polls.at(-1)], ["slow_compute", "task_result"]);
    // What a call of task_result waits for is as scaled as the rest.
    assert.ok(polls.length > 4, `it waits by polling: ${polls}`);
    assert.ok(polls.every((name) => name === "task_result"), `it waits by polling: ${polls}`);
    for (const name of ["slow_compute", "task_status", "task_result"]) assert.ok(seen.tools.includes(name), `${name} is listed`);
    return `${seen.called.length} calls, the longest ${seen.longest.toFixed(1)} s`;
  },
  heartbeat(seen) {
    assert.equal(seen.said, `quiet_compute done after ${SECONDS}s`);
    assert.ok(Math.abs(seen.progress - Math.floor(SECONDS / HEARTBEAT)) <= 1, `${seen.progress} heartbeats`);
    return `heartbeats: ${seen.progress}`;
  },
  both: (seen) => CHECKS.heartbeat(seen),
  alone(seen) {
    assert.match(seen.gave_up, /timed out/i);
    assert.ok(seen.progress > 0, "it hears of progress");
    return `gave up, heartbeats: ${seen.progress}`;
  },
  again(seen) {
    assert.equal(seen.said, `quiet_compute done after ${AGAIN_SECONDS}s`, seen.gave_up);
    assert.equal(seen.tries, Math.ceil(AGAIN_SECONDS / PATIENCE));
    return `${seen.tries} tries`;
  },
};

const wanted = new Set(process.argv.slice(2));
const RUNS = ["legacy", "modern"].flatMap((upstream) =>
  Object.entries(CLIENTS)
    .filter(([name]) => wanted.size === 0 || wanted.has(name))
    .flatMap(([name, client]) => client.ways.map((way) => ({ upstream, name, client, way }))),
);
describe("patience", () => {
  const started = [];
  const houses = {};
  before(async () => {
    await Promise.all(["legacy", "modern"].map(async (era) => (houses[era] = await open(era, started))));
    await Promise.all(Object.keys(PROGRAMS).map((program) => wait(program, houses)));
  }, LIMIT);
  after(async () => {
    for (const child of started.reverse()) await end(child);
  });
  for (const run of RUNS) {
    const { upstream, name, client, way } = run;
    test(`${name} in front of ${upstream}, ${way}`, (t) => {
      const { seen } = run;
      assert.equal(seen.version, client.era === "modern" ? "2026-07-28" : "2025-11-25", seen.gave_up);
      t.diagnostic(`${name} in front of ${upstream}, ${way}: ${seen.took.toFixed(1)} s, ${CHECKS[way](seen)}`);
    });
  }
  for (const upstream of ["legacy", "modern"]) {
    test(`in front of ${upstream} each call ran once`, async () => {
      for (const tool of ["slow_compute", "quiet_compute"]) {
        const calls = RUNS.filter((run) => run.upstream === upstream && WAYS[run.way].tool === tool);
        assert.equal((await ran(houses[upstream].inner, tool)).started, calls.length, tool);
      }
    });
  }
});

/** An upstream, and in front of it raincheck without companion tools and with them. */
async function open(era, started) {
  const dir = `${SCRATCH}/${era}`;
  const inner = await serve(era, dir, started);
  const house = { inner };
  const scaled = { RAINCHECK_TASKS__FALLBACK_AFTER: `${FALLBACK_AFTER * 1000}ms` };
  const settings = { plain: scaled, again: scaled, companion: { ...scaled, RAINCHECK_TASKS__COMPANION_TOOLS: "true" } };
  for (const [name, environment] of Object.entries(settings)) {
    await mkdir(`${dir}/${name}`);
    house[name] = await front(inner, here("patience.toml"), `${dir}/${name}`, started, environment);
  }
  return house;
}

/** Has `program` do all that its clients do, at the same time. */
async function wait(program, houses) {
  const runs = RUNS.filter((run) => run.client.program === program);
  if (runs.length === 0) return;
  const job = {
    patience: PATIENCE,
    seconds: SECONDS,
    again_seconds: AGAIN_SECONDS,
    runs: runs.map(({ upstream, client, way }) => ({ way, mode: client.mode, url: houses[upstream][WAYS[way].front] })),
  };
  const all = await perform(PROGRAMS[program], job, LIMIT.timeout);
  runs.forEach((run, place) => (run.seen = all[place]));
}
