// Clients written by others that know no tasks (and fastmcp-tasks, which does), each in front of the plain legacy and the plain
// modern upstream: it lists the tools, calls one that is quick and one that is slow, is asked, and cancels where it can.
// What a client does is in plain/; here is what it must have seen. `node plain.mjs CLIENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { front, here, python, ran, serve } from "./house.mjs";
import { end } from "./processes.mjs";

const { SCRATCH } = process.env;
/** A client's own limit is 60 s. */
const LIMIT = { timeout: 70_000 };
const QUIET = { FASTMCP_CHECK_FOR_UPDATES: "off" };

/** Which era a client speaks, how it is started, whether it hears of progress, and whether it can cancel. */
const CLIENTS = {
  "mcp 1.30": { era: "legacy", command: [python("legacy"), here("plain/python.py")] },
  "mcp 2.3, legacy": { era: "legacy", command: [python("modern"), here("plain/python.py")], mode: "legacy" },
  "mcp 2.3": { era: "modern", command: [python("modern"), here("plain/python.py")], mode: "auto" },
  "SDK 1.32": { era: "legacy", command: [process.execPath, here("plain/typescript.mjs")], mode: "sdk" },
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

const wanted = new Set(process.argv.slice(2));
// The two at once; the clients of one after each other, so that what the server counts is theirs.
describe("plain", { concurrency: 2 }, () => {
  for (const era of ["legacy", "modern"]) {
    describe(`in front of ${era}`, { concurrency: 1 }, () => {
      const started = [];
      let inner;
      let url;
      before(async () => {
        const dir = `${SCRATCH}/${era}`;
        inner = await serve(era, dir, started);
        url = await front(inner, here("../conformance/raincheck.toml"), dir, started);
      }, LIMIT);
      after(async () => {
        for (const child of started.reverse()) await end(child);
      });
      for (const [name, client] of Object.entries(CLIENTS)) {
        if (wanted.size > 0 && !wanted.has(name)) continue;
        test(name, LIMIT, () => drive(client, url, inner));
      }
    });
  }
});

async function drive({ era, command, mode, cancels = true, progresses = true }, url, inner) {
  const earlier = await ran(inner, "slow_compute");
  const [program, ...args] = command;
  const { stdout } = await promisify(execFile)(program, [...args, url, ...(mode === undefined ? [] : [mode])], {
    env: { ...process.env, ...QUIET },
    timeout: LIMIT.timeout,
  });
  const seen = JSON.parse(stdout);
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
  const now = await until(inner, (now) => now.cancelled - earlier.cancelled === calls - 1);
  assert.deepEqual([now.started - earlier.started, now.finished - earlier.finished], [calls, 1]);
}

/** What the server counts, as soon as it is as it should be. It can only be asked for, so this looks again, for two seconds. */
async function until(inner, wanted) {
  const deadline = Date.now() + 2_000;
  for (;;) {
    const now = await ran(inner, "slow_compute");
    if (wanted(now)) return now;
    assert.ok(Date.now() < deadline, `the server is told: ${JSON.stringify(now)}`);
    await sleep(50);
  }
}
