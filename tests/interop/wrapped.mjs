// Servers written by others, wrapped unmodified: a row of ROWS each, and one loop. Every row's tools are listed, called, and
// called as tasks by a client with Tasks; where the server can ask, it asks in the task and is answered.

import assert from "node:assert/strict";
import { mkdir, rm } from "node:fs/promises";
import { describe, test } from "node:test";
import { end, freePort, listening, start } from "./processes.mjs";
import { ROWS } from "./rows.mjs";
import { connect, settle, text, watch } from "./session.mjs";

const { RAINCHECK, SCRATCH } = process.env;
/** A row takes a few seconds; the slowest start two interpreters after each other. */
const LIMIT = { timeout: 90_000 };
/** The banner of fastmcp asks the network for a newer one. */
const QUIET = { FASTMCP_CHECK_FOR_UPDATES: "off" };
/** More would fight for two cores. */
const AT_ONCE = 3;

const wanted = new Set(process.argv.slice(2));
describe("wrapped", { concurrency: AT_ONCE }, () => {
  for (const [name, row] of Object.entries(ROWS)) {
    if (wanted.size === 0 || wanted.has(name)) test(name, LIMIT, () => serve(name, row));
  }
});

async function serve(name, row) {
  const dir = `${SCRATCH}/${name.replaceAll(/\W+/g, "-")}`;
  await mkdir(dir);
  const started = [];
  try {
    const url = await wrap(row, dir, started);
    const session = await connect(url, { elicitation: (params) => answer(row, params) });
    try {
      await exercise(row, dir, session);
    } finally {
      await session.close();
    }
  } finally {
    for (const child of started.reverse()) await end(child);
  }
  // What is left are the logs of the rows that failed.
  if (!process.env.KEEP_LOGS) await rm(dir, { recursive: true });
}

/** The row's server with raincheck in front of it; returns raincheck's address. */
async function wrap({ command, url, prepare, environment }, dir, started) {
  await prepare?.(dir);
  const port = await freePort();
  const behind = [];
  if (url === undefined) {
    behind.push("--", ...command(dir));
  } else {
    const inner = await freePort();
    const server = start(command(dir, inner), `${dir}/server.log`, { HOME: dir, ...QUIET });
    started.push(server);
    await listening(server, inner);
    behind.push("--upstream", url(inner));
  }
  const config = new URL("servers.toml", import.meta.url).pathname;
  const proxy = start(
    [RAINCHECK, "run", "--config", config, "--store", "memory:", "--listen", `127.0.0.1:${port}`, ...behind],
    `${dir}/raincheck.log`,
    { HOME: dir, ...(url === undefined ? toProgram(QUIET) : {}), ...environment?.(dir) },
  );
  started.push(proxy);
  await listening(proxy, port);
  return `http://127.0.0.1:${port}/mcp`;
}

/** What the wrapped program is to find in its environment, as raincheck is told so. */
const toProgram = (variables) =>
  Object.fromEntries(Object.entries(variables).map(([name, value]) => [`RAINCHECK_UPSTREAM__ENV__${name}`, value]));

async function exercise({ calls, slow, asks }, dir, session) {
  const { tools } = await session.client.listTools();
  const listed = (tool) => assert.ok(tools.some(({ name }) => name === tool), `${tool} is listed`);

  for (const [tool, args, says] of calls("plain", dir)) {
    listed(tool);
    const result = await session.client.callTool({ name: tool, arguments: args });
    assert.match(text({ result }), says);
  }
  for (const [tool, args, says] of calls("task", dir)) await task(session, tool, args, says);

  if (slow !== undefined) {
    const [tool, args, says, progress] = slow;
    const seen = await task(session, tool, args, says, watch);
    assert.ok(seen.some(({ statusMessage }) => progress.test(statusMessage ?? "")), "its progress is shown");
  }
  if (asks !== undefined) {
    const { tool, args, question, says } = asks;
    listed(tool);
    await task(session, tool, args, says);
    const [{ kind, params, delivery }, ...more] = session.asked;
    assert.deepEqual({ kind, delivery }, { kind: "elicitation", delivery: "task-update" });
    assert.match(params.message, question);
    assert.deepEqual(more, [], "asked once");
  }
}

async function task(session, tool, args, says, drive = (_session, execution) => settle(execution)) {
  const execution = await session.callTool(tool, args);
  if (execution.kind !== "task") {
    const { outcome } = await settle(execution);
    assert.fail(`${tool} is no task for a ${session.client.getProtocolEra()} client: ${JSON.stringify(outcome)}`);
  }
  const { outcome, seen } = await drive(session, execution);
  assert.equal(outcome.status, "completed", JSON.stringify(outcome));
  assert.match(text(outcome), says);
  return seen;
}

function answer({ asks }, params) {
  if (asks === undefined) throw new Error(`nobody expected to be asked: ${params.message}`);
  return { action: "accept", content: asks.answer };
}
