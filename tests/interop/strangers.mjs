// Servers and clients that no other lane runs (strangers/table.mjs): how does the direct answer differ from the one through
// raincheck? A server is asked directly, through raincheck on a session of 2025-06-18, and through raincheck by a client of
// 2026-07-28 whose calls are all tasks; a program also by a client that launches `raincheck stdio`. A client is given the plain legacy upstream, directly and through raincheck.
// `node strangers.mjs NAME..` runs some; RAINCHECK_RENEW=1 writes the tables.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { front, here, serve } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";
import { toAddress, toProgram, withTasks } from "./strangers/speak.mjs";
import { CLIENTS, SERVERS, version } from "./strangers/table.mjs";
import { RENEWS, SERVERS_PAGE, write } from "./written.mjs";

const { RAINCHECK, SCRATCH, PATH } = process.env;
const LIMIT = { timeout: 90_000 };
/** Some would report to their makers. */
const QUIET = { DO_NOT_TRACK: "1", MCP_USE_ANONYMIZED_TELEMETRY: "false" };
const CONFIG = here("servers.toml");
const NAMED = "io.modelcontextprotocol";
const TASKS = `${NAMED}/tasks`;
const SLOW = "slow_compute(stranger) done after 3s";

const wanted = new Set(process.argv.slice(2));
const some = (rows) => rows.filter(({ is }) => wanted.size === 0 || wanted.has(is));

describe("strangers", { concurrency: 2 }, () => {
  describe("servers", { concurrency: 2 }, () => {
    const lines = new Map();
    for (const row of some(SERVERS)) test(row.is, LIMIT, async () => lines.set(row, await compare(row)));
    after(() => renew("strangers", ["server", "written in", "over", "tools", "on a session", "as tasks", "launched"], SERVERS, lines, SERVERS_PAGE));
  });

  describe("clients", { concurrency: 2 }, () => {
    const lines = new Map();
    const started = [];
    let direct;
    let through;
    before(async () => {
      const dir = `${SCRATCH}/clients`;
      const inner = await serve("legacy", dir, started);
      direct = `http://127.0.0.1:${inner}/mcp`;
      through = await front(inner, CONFIG, dir, started);
    }, LIMIT);
    after(() => Promise.all(started.map(end)));
    for (const row of some(CLIENTS)) test(row.is, LIMIT, async () => lines.set(row, await meet(row, direct, through)));
    after(() => renew("strange clients", ["client", "tools", "a call of 3 s", "a call that fails"], CLIENTS, lines));
  });
});

/** Writes the rows, if all of them were run and none failed. */
async function renew(name, head, rows, lines, page) {
  if (!RENEWS || lines.size !== rows.length) return;
  await write(name, head, rows.map((row) => lines.get(row)), page);
}

async function compare(row) {
  const dir = `${SCRATCH}/${row.is.replaceAll(/\W+/g, "-")}`;
  await mkdir(dir);
  const started = [];
  try {
    await row.prepare?.(dir);
    const [direct, url] = await wrap(row, dir, started);
    const asked = await walk(direct, row, dir);
    const onSession = await walk(toAddress(url), row, dir);
    const asTasks = await walk(withTasks(url), row, dir);
    const launched = row.url === undefined ? await walk(launch(row, dir), row, dir) : asked;
    assert.match(JSON.stringify(asked.no_such_tool), /"isError":true|"error":|Error:/);
    for (const [what, answer] of Object.entries(asked)) {
      assert.deepEqual(onSession[what], answer, `${what}, on a session`);
      assert.deepEqual(...translated(what, asTasks[what], answer), `${what}, as tasks`);
      assert.deepEqual(launched[what], answer, `${what}, launched`);
    }
    const over = row.url === undefined ? "standard input and output" : "Streamable HTTP";
    const same = row.why === undefined ? "the same" : `the same, but ${row.why}`;
    const by = row.url === undefined ? same : "";
    return [`${row.is} ${version(row.is)}`, row.in, over, asked["tools/list"].result.tools.length, same, same, by];
  } finally {
    for (const child of started.reverse()) await end(child);
  }
}

/** A client for the server itself, and the address of raincheck in front of it. */
async function wrap(row, dir, started) {
  const port = await freePort();
  const inner = row.url === undefined ? undefined : await freePort();
  const command = row.command(dir, inner);
  const env = { PATH, HOME: dir, ...QUIET, ...row.env };
  const behind = inner === undefined ? ["--", ...command] : ["--upstream", row.url(inner)];
  if (inner !== undefined) {
    const server = start(command, `${dir}/server.log`, env, dir);
    started.push(server);
    await listening(server, inner);
  }
  const proxy = start(
    [RAINCHECK, "run", "--config", CONFIG, "--store", "memory:", "--listen", `127.0.0.1:${port}`, ...behind],
    `${dir}/raincheck.log`,
    { HOME: dir, ...(inner === undefined && toProgramOf(row)) },
    dir,
  );
  started.push(proxy);
  await listening(proxy, port);
  const direct = inner === undefined ? toProgram(command, { cwd: dir, env }) : toAddress(row.url(inner));
  return [direct, `http://127.0.0.1:${port}/mcp`];
}

/** What the row's program is to find in its environment, as raincheck is told so. */
const toProgramOf = (row) =>
  Object.fromEntries(Object.entries({ ...QUIET, ...row.env }).map(([name, value]) => [`RAINCHECK_UPSTREAM__ENV__${name}`, value]));

/** A client that launches raincheck, which launches the program. */
function launch(row, dir) {
  const env = { PATH, HOME: dir, RAINCHECK_TASKS__COMPANION_TOOLS: "false", ...toProgramOf(row) };
  return toProgram([RAINCHECK, "stdio", "--store", "memory:", "--", ...row.command(dir)], { cwd: dir, env });
}

/** What the server answers to everything that is asked of it. */
async function walk(client, row, dir) {
  const answers = {};
  const note = (what, { result, error }) => {
    const text = JSON.stringify(error === undefined ? { result } : { error });
    answers[what] = JSON.parse(text.replaceAll(row.volatile ?? /$^/g, "..."));
    return result;
  };
  const ask = async (what, method, params) => note(what, await client.ask(method, params));
  try {
    note("initialize", await client.hello());
    await ask("tools/list", "tools/list", {});
    await ask("resources/templates/list", "resources/templates/list", {});
    const prompts = await ask("prompts/list", "prompts/list", {});
    for (const { name } of prompts?.prompts.slice(0, 1) ?? []) await ask("prompts/get", "prompts/get", { name, arguments: {} });
    const resources = await ask("resources/list", "resources/list", {});
    for (const { uri } of resources?.resources.slice(0, 1) ?? []) await ask("resources/read", "resources/read", { uri });
    await ask("no/such", "no/such", {});
    const call = (what, name, args) => ask(what, "tools/call", { name, arguments: args });
    await call("no_such_tool", "no_such_tool", {});
    for (const [name, args] of row.calls(dir)) await call(`${name} ${JSON.stringify(args)}`, name, args);
  } finally {
    await client.close();
  }
  return answers;
}

/** An answer of 2026-07-28 without the members that this revision adds, and the answer that it must then be. */
function translated(what, { result, error }, asked) {
  // Refused by raincheck where the server speaks no 2026-07-28, and else by the server.
  if (what === "no/such") return [error.code, -32601];
  if (error !== undefined) return [{ error }, asked];
  const { _meta, ...said } = result;
  assert.equal(said.resultType, "complete");
  for (const added of ["resultType", "ttlMs", "cacheScope"]) {
    if (asked.result?.[added] === undefined) delete said[added];
  }
  const { [`${NAMED}/serverInfo`]: serverInfo, ...meta } = _meta ?? {};
  if (Object.keys(meta).length > 0) said._meta = meta;
  if (what !== "initialize") return [{ result: said }, asked];
  const { supportedVersions, capabilities: { extensions: { [TASKS]: tasks, ...extensions }, ...capabilities }, ...info } = said;
  assert.ok(supportedVersions.includes("2026-07-28"));
  assert.deepEqual(tasks, {});
  const { protocolVersion } = asked.result;
  const known = { ...capabilities, ...(Object.keys(extensions).length > 0 && { extensions }) };
  return [{ result: { ...info, protocolVersion, capabilities: known, serverInfo } }, asked];
}

/** A client's run, directly and through raincheck. */
async function meet({ is, bridge, modern, command }, direct, through) {
  const [asked, seen] = await Promise.all([run(bridge, command(direct)), run(bridge, command(through))]);
  for (const what of modern ? ["slow", "failed"] : []) {
    const [{ result }] = translated(what, { result: seen[what] }, { result: asked[what] });
    seen[what] = result;
  }
  assert.deepEqual(seen, asked);
  assert.ok(asked.tools.includes("slow_compute"));
  assert.ok(JSON.stringify(asked.slow).includes(SLOW), JSON.stringify(asked.slow));
  assert.match(JSON.stringify(asked.failed), /intentional tool execution error/);
  return [`${is} ${version(is)}`, "the same", "the same", "the same"];
}

async function run(bridge, [program, ...args]) {
  const env = { ...process.env, ...QUIET, HOME: SCRATCH };
  if (!bridge) {
    const { stdout } = await promisify(execFile)(program, args, { env, timeout: LIMIT.timeout });
    return JSON.parse(stdout.trimEnd().split("\n").at(-1));
  }
  const client = toProgram([program, ...args], { cwd: SCRATCH, env });
  try {
    const hello = await client.hello();
    const { result } = await client.ask("tools/list", {});
    const call = async (tool, args) => (await client.ask("tools/call", { name: tool, arguments: args })).result;
    const slow = await call("slow_compute", { seconds: 3, label: "stranger" });
    return { hello, tools: result.tools.map((it) => it.name), slow, failed: await call("failing_job", {}) };
  } finally {
    await client.close();
  }
}
