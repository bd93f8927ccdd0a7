// Clients of the 2025-11-25 tasks through raincheck, in front of the plain upstream that UPSTREAM_URL names: the TypeScript SDK
// 1.32.2 (callToolStream), ext-tasks 0.2.2 on a legacy session, and the Inspector's mcpdo 2.12.0 (`tools/call --task`).

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { connectLegacy, settle, text } from "./session.mjs";

const { RAINCHECK_URL, UPSTREAM_URL, RAINCHECK_TEST_CACHE, SCRATCH_DIR } = process.env;
const LIMIT = { timeout: 60_000 };
const REVISION = "2025-11-25";

const words = (result) => result.content.map((block) => block.text).join("\n");

describe("TypeScript SDK 1.32.2", () => {
  let client;
  const asked = [];

  before(async () => {
    client = new Client(
      { name: "interop", version: "1.0.0" },
      { capabilities: { elicitation: {}, tasks: { requests: { elicitation: { create: {} } } } } },
    );
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      asked.push(params);
      return { action: "accept", content: { confirm: true } };
    });
    await client.connect(new StreamableHTTPClientTransport(new URL(RAINCHECK_URL)));
    await client.listTools();
  }, LIMIT);
  after(() => client?.close());

  async function run(name, args, seen) {
    const messages = [];
    for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema)) {
      messages.push(message);
      await seen?.(message);
    }
    return messages;
  }

  test("tasks of 2025-11-25 are offered, and no others", LIMIT, () => {
    const { tasks, extensions } = client.getServerCapabilities();
    assert.deepEqual(tasks.requests, { tools: { call: {} } });
    assert.deepEqual(tasks.cancel, {});
    assert.equal(extensions, undefined);
  });

  test("a call is a task from its beginning to its result", LIMIT, async () => {
    const messages = await run("slow_compute", { seconds: 1.5, label: "stream" });
    assert.equal(messages[0].type, "taskCreated");
    assert.ok(messages.some(({ type, task }) => type === "taskStatus" && task.status === "working"));
    const last = messages.at(-1);
    assert.equal(last.type, "result");
    assert.equal(words(last.result), "slow_compute(stream) done after 1.5s");
    assert.equal(last.result._meta["io.modelcontextprotocol/related-task"].taskId, messages[0].task.taskId);
  });

  test("a question is asked and answered while the task waits", LIMIT, async () => {
    const messages = await run("confirm_delete", { filename: "a.txt" });
    assert.match(words(messages.at(-1).result), /^confirm_delete\(a\.txt\): action=accept confirmed=True/);
    assert.equal(asked.length, 1);
    assert.equal(asked[0]._meta["io.modelcontextprotocol/related-task"].taskId, messages[0].task.taskId);
  });

  test("a tool's own error is its result", LIMIT, async () => {
    const { type, result, error } = (await run("failing_job", {})).at(-1);
    assert.equal(type, "result", `${error}`);
    assert.equal(result.isError, true);
  });

  test("cancel ends the task and the call behind it", LIMIT, async () => {
    const before = await ran();
    const messages = await run("slow_compute", { seconds: 60, label: "cancel me" }, async (message) => {
      if (message.type !== "taskCreated") return;
      await upstream("started", before.started + 1);
      const task = await client.experimental.tasks.cancelTask(message.task.taskId);
      assert.equal(task.status, "cancelled");
      await assert.rejects(client.experimental.tasks.cancelTask(message.task.taskId), { code: -32602 });
    });
    assert.equal(messages.at(-1).type, "error");
    await upstream("cancelled", before.cancelled + 1);
  });

  test("a call that asks for no task gets its plain result", LIMIT, async () => {
    const result = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
    assert.equal(words(result), "Hello, Ada!");
    assert.equal(result._meta?.["io.modelcontextprotocol/related-task"], undefined);
  });
});

describe("ext-tasks 0.2.2 on a legacy session", () => {
  let session;
  before(async () => {
    session = await connectLegacy(RAINCHECK_URL, {
      elicitation: () => ({ action: "accept", content: { confirm: true } }),
    });
  }, LIMIT);
  after(() => session?.close());

  test("a slow call is a task and completes", LIMIT, async () => {
    assert.equal(session.client.getProtocolEra(), "legacy");
    const execution = await session.callTool("slow_compute", { seconds: 1.5, label: "legacy" });
    assert.equal(execution.kind, "task");
    const { outcome } = await settle(execution);
    assert.equal(outcome.status, "completed");
    assert.equal(text(outcome), "slow_compute(legacy) done after 1.5s");
  });

  test("a question comes without tasks/result being open", LIMIT, async () => {
    const { outcome } = await settle(await session.callTool("confirm_delete", { filename: "a.txt" }));
    assert.match(text(outcome), /action=accept confirmed=True/);
    assert.equal(session.asked.length, 1);
  });

  test("cancel ends the task and the call behind it", LIMIT, async () => {
    const before = await ran();
    const execution = await session.callTool("slow_compute", { seconds: 60, label: "cancel me" });
    await upstream("started", before.started + 1);
    const settled = settle(execution);
    await execution.cancel();
    assert.equal((await settled).outcome.status, "cancelled");
    await upstream("cancelled", before.cancelled + 1);
  });
});

describe("mcpdo 2.12.0", () => {
  const program = `${RAINCHECK_TEST_CACHE}/npm-interop/node_modules/@modelcontextprotocol/inspector/clients/mcpdo/build/mcp-bin.js`;
  // A home of its own: it keeps a daemon and a catalog there.
  const env = { ...process.env, HOME: SCRATCH_DIR, MCP_INSPECTOR_SECRET_STORE: "memory", MCP_STORAGE_DIR: SCRATCH_DIR };
  const mcpdo = async (...args) => {
    const { stdout } = await promisify(execFile)(process.execPath, [program, "--format", "json", ...args], { env });
    return JSON.parse(stdout);
  };
  after(() => mcpdo("daemon", "stop").catch(() => {}), LIMIT);

  test("a call as a task gives its result", LIMIT, async () => {
    await mcpdo("connect", RAINCHECK_URL);
    const { connections } = await mcpdo("connections/list");
    const name = connections[0].name;
    const said = await mcpdo("--connection", name, "tools/call", "slow_compute", "seconds:=1", "label:=mcpdo", "--task");
    assert.match(JSON.stringify(said), /slow_compute\(mcpdo\) done after 1s/);
  });
});

/** What became of the calls of slow_compute at the upstream. */
async function ran() {
  const stats = await (await fetch(new URL("/_stats", UPSTREAM_URL))).json();
  return stats.slow_compute ?? { started: 0, cancelled: 0 };
}

/** Until the upstream counts that many; what it did can only be asked for, so this looks again. */
async function upstream(what, wanted) {
  const deadline = Date.now() + 3_000;
  while ((await ran())[what] < wanted) {
    assert.ok(Date.now() < deadline, `${wanted} ${what} at the upstream`);
    await sleep(50);
  }
}
