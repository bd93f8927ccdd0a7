// Clients and agents written by others, in their default settings, in front of a raincheck without any, and a tool that says nothing
// for longer than most clients wait. DEFAULTS_SECONDS=150 is full size: then each client's limit is its own. Without it the tool
// takes 20 s, and the one client whose own limit can be said in its settings gets one of 12 s.
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
const OPENCODE = here("node_modules/opencode-linux-x64-baseline/bin/opencode");
const LINUX_X64 = process.platform === "linux" && process.arch === "x64";

const plain = (environment, ...mode) => ({ command: [python(environment), here("plain/defaults.py")], args: [`${SECONDS}`, ...mode] });
const official = (mode, how) => ({ command: [process.execPath, here("plain/defaults.mjs")], args: [`${SECONDS}`, mode, how] });
const agent = (file, ...args) => ({ command: [python("agents"), here(`agents/${file}`)], args, isAgent: true });

const CLIENTS = {
  "mcp 1.30": plain("legacy"),
  "mcp 2.3": plain("modern", "auto"),
  "fastmcp 3": plain("fastmcp3"),
  "fastmcp 4": plain("fastmcp4", "auto"),
  "SDK 1.32": { ...official("sdk", "default"), givesUp: true },
  "SDK 1.32 with progress": official("sdk", "progress"),
  "client 2.4": { ...official("auto", "default"), givesUp: true },
  "client 2.4 with progress": official("auto", "progress"),
  "langchain-mcp-adapters": agent("langchain_client.py"),
  "pydantic-ai": agent("pydantic_client.py", "plain"),
  "pydantic-ai with tasks": agent("pydantic_client.py", "tasks"),
  opencode: { ...agent("opencode_client.py", OPENCODE), skip: !LINUX_X64 },
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
    const { givesUp = false, skip = false } = client;
    test(`${name} in front of ${era}`, { ...LIMIT, skip }, async (t) => {
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

function run({ command: [program, ...before], args, isAgent }, url) {
  const silent = {
    AGENT_TOOL: "quiet_compute",
    AGENT_ARGUMENTS: JSON.stringify({ seconds: SECONDS }),
    AGENT_LIMIT: `${SECONDS + 120}`,
    ...(IS_FULL ? {} : { OPENCODE_TIMEOUT: "12000" }),
  };
  const env = { ...process.env, ...QUIET, ...(isAgent ? silent : {}) };
  return promisify(execFile)(program, [...before, url, ...args], { ...LIMIT, env });
}
