// Clients without Tasks that give up after a minute, and a tool of five: official clients, each in front of the plain legacy and
// the plain modern upstream. What a client does is in plain/patience.*; here is what it must have seen of each way:
//
//   companion   companion tools: it gets a ticket, and calls the tools that it is told to call until it has the result
//   heartbeat   its clock begins anew with each progress, and raincheck makes some while the server says nothing
//   both        the same, where there are companion tools and the tool's clients have more patience than fallback_after
//   alone       as with heartbeat, but for its clock: it gives up, so its limit is one
//
// PATIENCE_SCALE divides all times but the heartbeat's, which is every 8 s: 6, or what is said; 1 is full size.
// All clients at once, because they do nothing but wait. `node patience.mjs CLIENT..` runs some.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH, PATIENCE_SCALE = "6" } = process.env;
const SCALE = Number(PATIENCE_SCALE);
/** What clients and tools need, in seconds, and what raincheck is told of it. */
const PATIENCE = 60 / SCALE;
const SECONDS = 300 / SCALE;
const FALLBACK_AFTER = 45 / SCALE;
/** While the server says nothing; raincheck has no setting for it. */
const HEARTBEAT = 8;
/** Interpreters start, ten at once on two cores. */
const START = 40;
const LIMIT = { timeout: (START + 2 * SECONDS) * 1000 };
assert.ok(PATIENCE > HEARTBEAT, `PATIENCE_SCALE=${PATIENCE_SCALE} leaves less patience than there is between heartbeats`);

const typescript = (mode) => [process.execPath, here("plain/patience.mjs"), mode];
const ALL = ["companion", "heartbeat", "both", "alone"];
/** Python's clocks never begin anew. */
const PYTHONS = ["companion", "alone"];

const CLIENTS = {
  "SDK 1.32": { era: "legacy", command: typescript("sdk"), ways: ALL },
  "client 2.4, legacy": { era: "legacy", command: typescript("legacy"), ways: ALL },
  "client 2.4": { era: "modern", command: typescript("auto"), ways: ALL },
  "mcp 1.30": { era: "legacy", command: [python("legacy"), here("plain/patience.py")], ways: PYTHONS },
  "mcp 2.3, legacy": { era: "legacy", command: [python("modern"), here("plain/patience.py"), "legacy"], ways: PYTHONS },
  "mcp 2.3": { era: "modern", command: [python("modern"), here("plain/patience.py"), "auto"], ways: PYTHONS },
};

/** What clients of an era do not get yet in front of an upstream of another, "client/upstream way". */
const NOT_YET = new Set(["legacy/modern companion", "legacy/legacy both"]);

const CHECKS = {
  companion(seen) {
    assert.equal(seen.said, `slow_compute(patience) done after ${SECONDS}s`);
    const [first, ...polls] = seen.called;
    assert.deepEqual([first, polls.at(-1)], ["slow_compute", "task_result"]);
    // What a call of task_status waits for is as scaled as the rest, and 30 s at most.
    assert.ok(polls.length > 4, `it waits by polling: ${polls}`);
    assert.ok(polls.slice(0, -1).every((name) => name === "task_status"), `it waits by polling: ${polls}`);
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
};

const wanted = new Set(process.argv.slice(2));
describe("patience", { concurrency: true }, () => {
  for (const era of ["legacy", "modern"]) {
    describe(`in front of ${era}`, () => {
      const started = [];
      const place = { era, asked: { slow_compute: 0, quiet_compute: 0 } };
      before(async () => {
        const dir = `${SCRATCH}/${era}`;
        place.inner = await serve(era, dir, started);
        const scaled = { RAINCHECK_TASKS__FALLBACK_AFTER: `${FALLBACK_AFTER * 1000}ms` };
        const settings = { plain: scaled, companion: { ...scaled, RAINCHECK_TASKS__COMPANION_TOOLS: "true" } };
        for (const [name, environment] of Object.entries(settings)) {
          await mkdir(`${dir}/${name}`);
          place[name] = await front(place.inner, here("patience.toml"), `${dir}/${name}`, started, environment);
        }
      }, LIMIT);
      after(async () => {
        for (const child of started.reverse()) await end(child);
      });
      describe("clients", { concurrency: true }, () => {
        for (const [name, client] of Object.entries(CLIENTS)) {
          if (wanted.size > 0 && !wanted.has(name)) continue;
          test(name, LIMIT, (t) => wait(t, name, client, place));
        }
      });
      test("each call ran once", LIMIT, async () => {
        for (const [tool, calls] of Object.entries(place.asked)) {
          assert.equal((await ran(place.inner, tool)).started, calls, tool);
        }
      });
    });
  }
});

/** Runs a client once, all its ways at the same time, and checks each. */
async function wait(t, name, client, place) {
  const of = (way) => (way === "companion" || way === "both" ? place.companion : place.plain);
  const ways = client.ways.filter((way) => !NOT_YET.has(`${client.era}/${place.era} ${way}`));
  for (const way of ways) place.asked[way === "companion" ? "slow_compute" : "quiet_compute"] += 1;
  const job = { patience: PATIENCE, seconds: SECONDS, ways: Object.fromEntries(ways.map((way) => [way, of(way)])) };
  const seen = await run(client.command, job);
  for (const way of client.ways) {
    await t.test(way, { skip: !ways.includes(way) && "raincheck does not serve that yet" }, (t) => {
      assert.equal(seen[way].version, client.era === "modern" ? "2026-07-28" : "2025-11-25");
      const became = CHECKS[way](seen[way]);
      t.diagnostic(`${name} in front of ${place.era}, ${way}: ${seen[way].took.toFixed(1)} s, ${became}`);
    });
  }
}

/** What a client prints, as JSON, when it is given `job`. */
async function run([program, ...args], job) {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"], timeout: LIMIT.timeout });
  child.stdin.end(JSON.stringify(job));
  return JSON.parse(await text(child.stdout));
}
