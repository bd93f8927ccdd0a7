// Clients written by others, in their default settings, in front of a raincheck without any, and a tool that says nothing for longer
// than most clients wait. DEFAULTS_SECONDS=150 is full size: then each client's limit is its own. Without it the tool takes 20 s.
// Agents: hosts.mjs.
//
// The clients whose limit nothing can help without a setting must give up at full size: docs/clients.md names them.
// `node defaults.mjs CLIENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH, DEFAULTS_SECONDS } = process.env;
const SECONDS = Number(DEFAULTS_SECONDS ?? "20");
const IS_FULL = DEFAULTS_SECONDS !== undefined;
const LIMIT = { timeout: (SECONDS + 150) * 1000 };
const DONE = new RegExp(`quiet_compute done after ${SECONDS}s`);

const QUIET = { FASTMCP_CHECK_FOR_UPDATES: "off" };

const plain = (environment, ...mode) => ({ command: [python(environment), here("plain/defaults.py")], args: [`${SECONDS}`, ...mode] });
const official = (mode, how) => ({ command: [process.execPath, here("plain/defaults.mjs")], args: [`${SECONDS}`, mode, how] });

const CLIENTS = {
  "mcp 1.30": plain("legacy"),
  "mcp 2.3": plain("modern", "auto"),
  "fastmcp 3": plain("fastmcp3"),
  "fastmcp 4": plain("fastmcp4", "auto"),
  "SDK 1.32": { ...official("sdk", "default"), givesUp: true },
  "SDK 1.32 with progress": official("sdk", "progress"),
  "client 2.4": { ...official("auto", "default"), givesUp: true },
  "client 2.4 with progress": official("auto", "progress"),
};

const wanted = new Set(process.argv.slice(2));
// All at once: they do nothing but wait.
describe("defaults", { concurrency: 16 }, () => {
  const started = [];
  const fronts = {};
  const calls = { legacy: 0, modern: 0 };
  before(async () => {
    for (const era of ["legacy", "modern"]) {
      const dir = `${SCRATCH}/${era}`;
      const inner = await serve(era, dir, started);
      await mkdir(`${dir}/state`);
      // A file without a setting.
      fronts[era] = { inner, url: await front(inner, here("agents.toml"), dir, started, { XDG_STATE_HOME: `${dir}/state` }) };
    }
  }, LIMIT);
  after(async () => {
    // Nobody made a call twice because the first took long.
    for (const [era, { inner }] of Object.entries(fronts)) assert.equal((await ran(inner, "quiet_compute")).started, calls[era]);
    for (const child of started.reverse()) await end(child);
  });
  const all = ["legacy", "modern"].flatMap((era) => Object.entries(CLIENTS).map(([name, client]) => ({ era, name, client })));
  for (const { era, name, client } of all) {
    if (wanted.size > 0 && !wanted.has(name)) continue;
    const { givesUp = false } = client;
    test(`${name} in front of ${era}`, LIMIT, async (t) => {
      calls[era] += 1;
      const began = performance.now();
      const said = run(client, fronts[era].url);
      if (givesUp && IS_FULL) {
        await assert.rejects(said, /timed out/i);
      } else {
        assert.match((await said).stdout, DONE);
      }
      t.diagnostic(`${name} in front of ${era}: ${((performance.now() - began) / 1000).toFixed(1)} s${givesUp && IS_FULL ? ", gave up" : ""}`);
    });
  }
});

function run({ command: [program, ...before], args }, url) {
  const env = { ...process.env, ...QUIET };
  return promisify(execFile)(program, [...before, url, ...args], { ...LIMIT, env });
}
