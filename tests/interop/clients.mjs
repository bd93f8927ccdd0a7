// ext-tasks 0.2.2 on client 2.4.0 through raincheck, in front of the plain upstream that UPSTREAM_URL names.
// Its own result checks are part of the test: it fails a task whose shape is not the specification's.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, settle, text, watch } from "./session.mjs";

const { RAINCHECK_URL, UPSTREAM_URL } = process.env;
const LIMIT = { timeout: 30_000 };
let session;

before(async () => {
  session = await connect(RAINCHECK_URL, {
    elicitation: ({ message }) => ({ action: "accept", content: ANSWERS[message] }),
    sampling: ({ messages }) => ({
      model: "nobody",
      role: "assistant",
      content: { type: "text", text: `an answer to ${messages[0].content.text}` },
    }),
  });
}, LIMIT);
after(() => session?.close());

const ANSWERS = {
  "Delete a.txt?": { confirm: true },
  "Provide value a": { name: "first" },
  "Provide value b": { name: "second" },
};

test("the server offers Tasks and its own tools", LIMIT, async () => {
  assert.equal(session.client.getProtocolEra(), "modern");
  assert.deepEqual(session.client.getServerCapabilities().extensions["io.modelcontextprotocol/tasks"], {});
  const { tools } = await session.client.listTools();
  for (const name of ["greet", "slow_compute", "confirm_delete"]) {
    assert.ok(tools.some((tool) => tool.name === name), `${name} is listed`);
  }
});

test("a quick call is answered at once", LIMIT, async () => {
  const execution = await session.callTool("greet", { name: "Ada" });
  assert.equal(execution.kind, "immediate");
  const { outcome } = await settle(execution);
  assert.equal(text(outcome), "Hello, Ada!");
});

test("a slow call becomes a task and completes", LIMIT, async () => {
  const execution = await session.callTool("slow_compute", { seconds: 1.5, label: "interop" });
  assert.equal(execution.kind, "task");
  const { outcome, seen } = await watch(session, execution);
  assert.equal(outcome.status, "completed");
  assert.equal(text(outcome), "slow_compute(interop) done after 1.5s");
  assert.ok(seen.some((task) => task.status === "working"));
  assert.ok(seen.some((task) => task.statusMessage?.includes("interop: ")), "the upstream's progress is shown");
  assert.ok(seen.every((task) => Number.isInteger(task.retentionMs)), "ttlMs is an integer");
  assert.ok(seen.every((task) => task.taskId === execution.handle.taskId));
});

test("a question in the task is answered with tasks/update", LIMIT, async () => {
  const from = mark();
  const execution = await session.callTool("confirm_delete", { filename: "a.txt" });
  assert.equal(execution.kind, "task");
  const { outcome } = await settle(execution);
  assert.equal(outcome.status, "completed");
  assert.match(text(outcome), /^confirm_delete\(a\.txt\): action=accept confirmed=True/);
  assert.deepEqual(from.asked().map(({ kind, delivery }) => [kind, delivery]), [["elicitation", "task-update"]]);
  assert.ok(from.sent().includes("tasks/update"));
});

test("two questions at once are told apart", LIMIT, async () => {
  const from = mark();
  const { outcome } = await settle(await session.callTool("multi_input", {}));
  assert.equal(text(outcome), "multi_input: a=first b=second");
  assert.equal(new Set(from.asked().map(({ key }) => key)).size, 2);
});

test("a model is asked as a person is", LIMIT, async () => {
  const { outcome } = await settle(await session.callTool("sample_it", { prompt: "why" }));
  assert.equal(text(outcome), "model said: an answer to why");
});

test("a tool's own error completes the task", LIMIT, async () => {
  const { outcome } = await settle(await session.callTool("failing_job", {}));
  assert.equal(outcome.status, "completed");
  assert.equal(outcome.result.isError, true);
  assert.match(text(outcome), /^Error executing tool failing_job/);
});

test("a protocol error fails the task, word for word", LIMIT, async () => {
  const { outcome } = await settle(await session.callTool("protocol_error_job", {}));
  assert.equal(outcome.status, "failed");
  assert.equal(outcome.error.code, -32603);
  assert.equal(outcome.error.message, "protocol_error_job: intentional protocol-level failure");
  assert.deepEqual(outcome.error.data, { why: "fixture" });
});

test("cancel ends the task and the call behind it", LIMIT, async () => {
  const before = await ran();
  const execution = await session.callTool("slow_compute", { seconds: 60, label: "cancel me" });
  await upstream("started", before.started + 1, "the call reaches the upstream");
  const settled = settle(execution);
  await execution.cancel();
  const { outcome } = await settled;
  assert.equal(outcome.status, "cancelled");
  await upstream("cancelled", before.cancelled + 1, "the upstream is told within two seconds");
});

/** What the session sent and was asked from here on. */
function mark() {
  const [sent, asked] = [session.sent.length, session.asked.length];
  return { sent: () => session.sent.slice(sent), asked: () => session.asked.slice(asked) };
}

/** What became of the calls of slow_compute at the upstream: {started, finished, cancelled, failed}. */
async function ran() {
  const stats = await (await fetch(new URL("/_stats", UPSTREAM_URL))).json();
  return stats.slow_compute ?? { started: 0, cancelled: 0 };
}

/** Until the upstream counts that many; two seconds at most. What it did can only be asked for, so this looks again. */
async function upstream(what, wanted, promise) {
  const deadline = Date.now() + 2_000;
  while ((await ran())[what] !== wanted) {
    assert.ok(Date.now() < deadline, promise);
    await sleep(50);
  }
}
