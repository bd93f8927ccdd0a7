// Clients written by others that know no tasks (and fastmcp-tasks, which does), each in front of the plain legacy and the plain
// modern upstream: it lists the tools, calls one that is quick and one that is slow, is asked, and cancels where it can.
// What a client does is in plain/; here is what it must have seen. `node plain.mjs CLIENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { end, freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, RAINCHECK_TEST_CACHE: CACHE, SCRATCH } = process.env;
/** A client's own limit is 60 s. */
const LIMIT = { timeout: 70_000 };
const QUIET = { FASTMCP_CHECK_FOR_UPDATES: "off" };

const python = (environment) => `${CACHE}/python-${environment}/bin/python`;
const here = (path) => new URL(path, import.meta.url).pathname;

/** Which era a client speaks, how it is started, whether it hears of progress, and whether it can cancel. */
const CLIENTS = {
  "mcp 1.30": { era: "legacy", command: [python("legacy"), here("plain/mcp1.py")] },
  "mcp 2.3, legacy": { era: "legacy", command: [python("modern"), here("plain/mcp2.py")], mode: "legacy" },
  "mcp 2.3": { era: "modern", command: [python("modern"), here("plain/mcp2.py")], mode: "auto" },
  "client 2.4, legacy": { era: "legacy", command: [process.execPath, here("plain/typescript.mjs")], mode: "legacy" },
  "client 2.4": { era: "modern", command: [process.execPath, here("plain/typescript.mjs")], mode: "auto" },
  "fastmcp 3": { era: "legacy", command: [python("fastmcp3"), here("plain/fastmcp_client.py")], mode: "plain", cancels: false },
  "fastmcp 4, legacy": { era: "legacy", command: [python("fastmcp4"), here("plain/fastmcp_client.py")], mode: "legacy", cancels: false },
  "fastmcp 4": { era: "modern", command: [python("fastmcp4"), here("plain/fastmcp_client.py")], mode: "auto", cancels: false },
  "fastmcp 4 with fastmcp-tasks": {
    era: "modern",
    command: [python("fastmcp4"), here("plain/fastmcp_client.py")],
    mode: "tasks",
    progresses: false,
  },
};

/** The servers, and clients of which era they can be put behind. */
const UPSTREAMS = {
  legacy: { python: python("legacy"), eras: ["legacy", "modern"] },
  modern: { python: python("modern"), eras: ["legacy", "modern"] },
};

const wanted = new Set(process.argv.slice(2));
// The two at once; the clients of one after each other, so that what the server counts is theirs.
describe("plain", { concurrency: 2 }, () => {
  for (const [era, upstream] of Object.entries(UPSTREAMS)) {
    describe(`in front of ${era}`, { concurrency: 1 }, () => {
      const started = [];
      let place;
      before(async () => (place = await wrap(era, upstream, started)), LIMIT);
      after(async () => {
        for (const child of started.reverse()) await end(child);
      });
      for (const [name, client] of Object.entries(CLIENTS)) {
        if (!upstream.eras.includes(client.era) || (wanted.size > 0 && !wanted.has(name))) continue;
        test(name, LIMIT, () => drive(client, place));
      }
    });
  }
});

async function wrap(era, upstream, started) {
  const dir = `${SCRATCH}/${era}`;
  await mkdir(dir);
  const [port, inner] = [await freePort(), await freePort()];
  const script = here(`../conformance/upstream_${era}.py`);
  const server = start([upstream.python, script, "--port", `${inner}`], `${dir}/server.log`);
  started.push(server);
  await listening(server, inner);
  const config = here("../conformance/raincheck.toml");
  const proxy = start(
    [RAINCHECK, "run", "--config", config, "--store", "memory:", "--listen", `127.0.0.1:${port}`,
      "--upstream", `http://127.0.0.1:${inner}/mcp`],
    `${dir}/raincheck.log`,
    { HOME: dir },
  );
  started.push(proxy);
  await listening(proxy, port);
  return { url: `http://127.0.0.1:${port}/mcp`, stats: `http://127.0.0.1:${inner}/_stats` };
}

async function drive({ command, mode, era, cancels = true, progresses = true }, { url, stats }) {
  const earlier = await ran(stats);
  const [program, ...args] = command;
  const { stdout } = await promisify(execFile)(program, [...args, url, ...(mode === undefined ? [] : [mode])], {
    env: { ...process.env, ...QUIET },
    timeout: LIMIT.timeout,
  });
  const seen = JSON.parse(stdout);
  if (seen.era !== undefined) assert.equal(seen.era, era);
  if (seen.version !== undefined) assert.equal(seen.version, era === "modern" ? "2026-07-28" : "2025-11-25");
  for (const name of ["greet", "slow_compute", "confirm_delete"]) assert.ok(seen.tools.includes(name), `${name} is listed`);
  assert.equal(seen.quick, "Hello, Ada!");
  assert.equal(seen.slow, "slow_compute(plain) done after 1.5s");
  if (progresses) assert.ok(seen.progress.some((said) => said?.startsWith("plain: ")), "it hears of the progress");
  assert.deepEqual(seen.asked, ["Delete a.txt?"]);
  assert.match(seen.answered, /^confirm_delete\(a\.txt\): action=accept confirmed=True/);
  assert.equal(Boolean(seen.cancelled), cancels);
  // Each call ran once, and the one that was cancelled was so at the server.
  const calls = cancels ? 2 : 1;
  const now = await until(stats, (now) => now.cancelled - earlier.cancelled === calls - 1);
  assert.deepEqual([now.started - earlier.started, now.finished - earlier.finished], [calls, 1]);
}

async function ran(stats) {
  const all = await (await fetch(stats)).json();
  return all.slow_compute ?? { started: 0, finished: 0, cancelled: 0 };
}

/** What the server counts, as soon as it is as it should be. It can only be asked for, so this looks again, for two seconds. */
async function until(stats, wanted) {
  const deadline = Date.now() + 2_000;
  for (;;) {
    const now = await ran(stats);
    if (wanted(now)) return now;
    assert.ok(Date.now() < deadline, `the server is told: ${JSON.stringify(now)}`);
    await sleep(50);
  }
}
