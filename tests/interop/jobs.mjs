// Servers written by others whose tools start jobs, ask for them and cancel them (jobs/table.mjs), behind raincheck with its preset, in
// front of a fake of the service in which the jobs run. A client with Tasks makes a job of each kind, and one without waits. The fake
// ends jobs when the test says so, and counts: whatever becomes of a job, it is started once.
// `node jobs.mjs SERVER..` runs some.

import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";
import { open } from "./jobs/service.mjs";
import { SERVERS } from "./jobs/table.mjs";
import { end, freePort, listening, start } from "./processes.mjs";
import { connect, settle, text } from "./session.mjs";

const { RAINCHECK, SCRATCH } = process.env;
const LIMIT = { timeout: 120_000 };
/** Raincheck starts a server twice, and some need half a minute for it where both cores are busy. */
const START = { timeout: 180_000 };
const QUIET = { DO_NOT_TRACK: "1", FASTMCP_CHECK_FOR_UPDATES: "off" };
/** Each preset is tested as it is, but for the time between the checks. */
const POLL = 'poll = { first = "500ms", max = "500ms", lost_after = "2m" }';
const TASKS = '[tasks]\npoll_interval = "200ms"\n';
const JOB = "io.raincheck/job";
const LOST_MS = 20_000;

const wanted = new Set(process.argv.slice(2));
describe("jobs", { concurrency: 2 }, () => {
  for (const row of SERVERS) {
    if (wanted.size === 0 || wanted.has(row.is)) describe(row.is, { concurrency: 1 }, () => follow(row));
  }
});

function follow(row) {
  let service;
  let proxy;
  let session;
  const sessions = [];
  before(async () => {
    service = await open(row.routes);
    proxy = await wrap(row, service.url);
    await proxy.start();
    sessions.push((session = await connect(proxy.url)));
    // The client checks results by the schemas in it.
    const { tools } = await session.client.listTools();
    for (const [tool] of [...row.starts(""), row.status("")]) assert.ok(tools.some(({ name }) => name === tool), `${tool} is listed`);
  }, START);
  after(async () => {
    for (const each of sessions) await each.close();
    await proxy?.end();
    await service?.close();
    if (row.signs !== undefined) for (const sign of service.authorizations) assert.match(sign, row.signs);
  });

  const starts = () => row.starts(service.url);
  const checks = row.routes.status !== undefined;
  const sees = ([tool, args]) => session.client.callTool({ name: tool, arguments: args });

  /** The one job that `call` starts. */
  async function begun(call) {
    const known = new Set(service.jobs.keys());
    const fresh = () => [...service.jobs.values()].filter(({ id }) => !known.has(id));
    const answer = call();
    answer.catch(() => {});
    await service.until("a job is started", () => fresh().length > 0);
    const [job] = fresh();
    return { answer, job, once: () => assert.deepEqual(fresh(), [job], "it was started once") };
  }

  /** A task that follows a new job, and a client that waits for its end; `seen` has what the client has seen of it. */
  async function follows([tool, args] = starts()[0]) {
    const { answer, ...rest } = await begun(() => session.callTool(tool, args));
    const execution = await answer;
    if (execution.kind !== "task") assert.fail(`${tool} is no task: ${JSON.stringify(await settle(execution))}`);
    const seen = [];
    const ending = execution.settle({ onEvent: ({ task }) => task && seen.push(task) }).then(({ outcome }) => outcome);
    const works = () => assert.ok(seen.every(({ status }) => status === "working"), `it works: ${JSON.stringify(seen.at(-1))}`);
    return { execution, ending, seen, works, ...rest };
  }

  /** Until the job was asked for so many times more: each of them raincheck's, as no client asks. */
  async function checked(job, times = 2) {
    const from = job.looks;
    if (checks) await service.until("it is checked", () => job.looks >= from + times);
  }

  /** The result is what the tool says of the job, word for word. */
  async function isAnswer(result, [tool, args], isError) {
    const asked = await sees([tool, args]);
    assert.deepEqual(result.content, asked.content);
    assert.deepEqual(result.structuredContent, asked.structuredContent);
    assert.equal(result.isError ?? false, isError);
  }

  const jobOf = (result) => {
    assert.ok(result._meta?.[JOB], `the job is named: ${JSON.stringify(result)}`);
    return `${result._meta[JOB]}`;
  };
  const final = row.result ?? row.status;

  /** The job succeeded, and its task has the result of it. */
  async function isDone(outcome, job) {
    assert.equal(outcome.status, "completed", inspect(outcome, { depth: 8 }));
    if (checks) assert.equal(jobOf(outcome.result), job.id);
    await isAnswer(outcome.result, final(jobOf(outcome.result)), false);
  }

  row.starts("").forEach(([tool], nth) => {
    test(`a job that finishes is a task with its result (${tool})`, LIMIT, async () => {
      const { ending, job, once, works } = await follows(starts()[nth]);
      await checked(job);
      works();
      service.control({ job: job.id, state: "finished" });
      await isDone(await ending, job);
      once();
    });
  });

  for (const state of row.ends) {
    test(`a job that is ${state} in the service is a task with an error of the tool`, LIMIT, async () => {
      const { ending, job, once } = await follows();
      await checked(job);
      service.control({ job: job.id, state });
      const outcome = await ending;
      assert.equal(outcome.status, "completed", inspect(outcome, { depth: 8 }));
      await isAnswer(outcome.result, row.status(jobOf(outcome.result)), true);
      once();
    });
  }

  test("a task that is cancelled ends its job, or the checks of it", LIMIT, async () => {
    const { execution, ending, job, once } = await follows();
    await checked(job);
    await execution.cancel();
    assert.equal((await ending).status, "cancelled");
    once();
    if (row.cancels) {
      await service.until("the service is told", () => job.state === "cancelled");
    } else {
      const other = await follows();
      await checked(other.job);
      const { looks } = job;
      await checked(other.job, 3);
      assert.equal(job.looks, looks, "nobody asks for it");
      service.control({ job: other.job.id, state: "finished" });
      await isDone(await other.ending, other.job);
    }
  });

  test("a client without Tasks waits for the result", LIMIT, async () => {
    const [[tool, args]] = starts();
    const wait = () => session.client.callTool({ name: tool, arguments: args }, { timeout: LIMIT.timeout });
    const { answer, job, once } = await begun(wait);
    await checked(job);
    service.control({ job: job.id, state: "finished" });
    const result = await answer;
    await isAnswer(result, final(jobOf(result)), false);
    once();
  });

  if (row.shows !== undefined) {
    test("the progress of a job is that of its task", LIMIT, async () => {
      const [says, shown] = row.shows;
      const { ending, job, seen } = await follows();
      service.control({ job: job.id, ...says });
      await eventually("the client sees it", () => seen.some(({ raw }) => matches(raw, shown)), () => seen.at(-1));
      service.control({ job: job.id, state: "finished", word: undefined });
      await isDone(await ending, job);
    });
  }

  if (row.refused !== undefined) {
    test("a service that is away ends no job", LIMIT, async () => {
      const { ending, job, once, works } = await follows();
      for (const down of ["closed", 503]) {
        const from = service.asked.status;
        service.control({ down });
        await service.until("it is asked in vain", ({ asked }) => asked.status >= from + 2);
        works();
      }
      service.control({ down: undefined });
      service.control({ job: job.id, state: "finished" });
      await isDone(await ending, job);
      once();
    });

    test("a start that fails is passed on as it is", LIMIT, async () => {
      const before = service.jobs.size;
      service.control({ down: "closed" });
      const said = await sees(starts()[0]).then((result) => text({ result }), ({ message }) => message);
      service.control({ down: undefined });
      assert.match(said, row.refused);
      assert.equal(service.jobs.size, before);
    });
  }

  if (row.gone) {
    test("a job that the service has forgotten is lost", LIMIT, async () => {
      const { ending, job } = await follows();
      await checked(job);
      service.jobs.delete(job.id);
      const outcome = await ending;
      assert.equal(outcome.status, "failed", inspect(outcome, { depth: 8 }));
      assert.equal(outcome.error.data["io.raincheck/reason"], "job_lost");
      assert.match(outcome.error.message, new RegExp(`\\b${job.id}\\b`));
    });
  }

  /** Raincheck and the server are killed while a job runs, and started again; `end` looks until its task has ended. */
  async function survives() {
    const [[tool, args]] = starts();
    const { answer, job, once } = await begun(() => session.callTool(tool, args));
    const { kind, handle } = await answer;
    assert.equal(kind, "task");
    await checked(job);
    await proxy.kill();
    await proxy.start();
    // ext-tasks gives a task up at the first request that fails: another session looks. Closed, the first one may cancel it.
    sessions.push((session = await connect(proxy.url)));
    return { end: () => ended(session, handle), job, once };
  }

  if (checks) {
    test("a task outlives raincheck and the server", START, async () => {
      const { end, job, once } = await survives();
      await checked(job);
      service.control({ job: job.id, state: "finished" });
      await isDone(await end(), job);
      once();
    });

    test("a task is carried on by another replica, with a server of its own", START, async () => {
      const redis = await freePort();
      const store = start(["redis-server", "--port", `${redis}`, "--save", "", "--dir", SCRATCH], `${SCRATCH}/redis-${redis}.log`);
      const replicas = [];
      try {
        await listening(store, redis);
        for (const id of ["a", "b"]) replicas.push(await wrap(row, service.url, { id, redis }));
        for (const replica of replicas) await replica.start();
        const [a, b] = replicas;
        const [[tool, args]] = starts();
        const first = await connect(a.url);
        sessions.push(first);
        const { answer, job, once } = await begun(() => first.callTool(tool, args));
        const { kind, handle } = await answer;
        assert.equal(kind, "task");
        await checked(job);
        await a.kill();
        await checked(job);
        service.control({ job: job.id, state: "finished" });
        const second = await connect(b.url);
        sessions.push(second);
        await isDone(await ended(second, handle), job);
        once();
      } finally {
        for (const replica of replicas) await replica.end();
        await end(store);
      }
    });
  } else {
    test("a job is lost with the process of its server", START, async () => {
      const { ending, job, once } = await follows();
      process.kill(job.server, "SIGKILL");
      // At once: no check can find the job any more. By the rule's `lost_after` it would be two minutes.
      const outcome = await Promise.race([ending, sleep(LOST_MS, { status: "working" }, { ref: false })]);
      assert.equal(outcome.status, "failed", inspect(outcome, { depth: 8 }));
      const { "io.raincheck/reason": reason, "io.raincheck/effect": effect } = outcome.error.data;
      assert.deepEqual([reason, effect], ["job_lost", "unknown"], inspect(outcome.error));
      once();
    });

    test("a task of a job that lives in the server ends with raincheck", START, async () => {
      const { end, once } = await survives();
      const { status, error } = await end();
      assert.equal(status, "failed");
      assert.equal(error.data["io.raincheck/effect"], "unknown", inspect(error));
      once();
    });
  }
}

/** The task, once it has ended. */
async function ended(session, handle) {
  for (;;) {
    const { raw } = await session.look(handle.taskId);
    if (raw.status !== "working") return raw;
  }
}

/**
 * Raincheck with the row's preset, and the server behind it: to be started, killed and started again. `shared`: it is one of several
 * replicas on a Redis.
 */
async function wrap(row, service, shared) {
  const dir = `${SCRATCH}/${row.is.replaceAll(/\W+/g, "-")}${shared?.id ?? ""}`;
  await mkdir(dir);
  await writeFile(`${dir}/raincheck.toml`, `${TASKS}[[jobs]]\npreset = "${row.preset}"\n${POLL}\n`);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/mcp`;
  const store = shared ? `redis://127.0.0.1:${shared.redis}` : `redb:${dir}/tasks.redb`;
  const settings = ["--config", `${dir}/raincheck.toml`, "--listen", `127.0.0.1:${port}`, "--store", store];
  const inside = Object.entries({ HOME: dir, ...QUIET, ...row.env(service) });
  const env = { HOME: dir, ...Object.fromEntries(inside.map(([name, value]) => [`RAINCHECK_UPSTREAM__ENV__${name}`, value])) };
  if (shared) {
    Object.assign(env, {
      RAINCHECK_REPLICA__ID: shared.id,
      RAINCHECK_REPLICA__LEASE: "3s",
      RAINCHECK_STORE__NAMESPACE: "jobs",
      RAINCHECK_STORE__SEAL_KEY: "1f2e3d4c".repeat(8),
      RAINCHECK_UPSTREAM__SHARED: "true",
    });
  }
  let child;
  let starts = 0;
  return {
    url,
    async start() {
      child = start([RAINCHECK, "run", ...settings, "--", ...row.command], `${dir}/raincheck-${(starts += 1)}.log`, env, dir);
      await listening(child, port);
      await answers(url);
    },
    async kill() {
      process.kill(-child.pid, "SIGKILL");
      await child.over;
    },
    end: async () => child && end(child),
  };
}

/** Until the server behind raincheck has listed its tools: clients have clocks of their own, and give up after a minute. */
async function answers(url) {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "jobs", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const response = await fetch(url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-method": "tools/list",
      "mcp-protocol-version": "2026-07-28",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta } }),
    signal: AbortSignal.timeout(START.timeout),
  });
  assert.match(await response.text(), /"inputSchema"/);
}

/** Until it is so; the client does not tell of every event, so this looks again. */
async function eventually(what, isSo, instead) {
  const deadline = Date.now() + 30_000;
  while (!isSo()) {
    assert.ok(Date.now() < deadline, `${what}: ${JSON.stringify(instead())}`);
    await sleep(100);
  }
}

/** The members of `wanted` are those of `seen`, which may have more. */
function matches(seen, wanted) {
  if (typeof wanted !== "object") return seen === wanted;
  return Object.entries(wanted).every(([key, value]) => matches(seen?.[key], value));
}
