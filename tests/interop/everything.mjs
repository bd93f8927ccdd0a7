// server-everything 2026.8.31, wrapped by raincheck: a server that knows nothing of this revision's tasks gets them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connect, settle, text } from "./session.mjs";

const LIMIT = { timeout: 30_000 };
let session;

before(async () => {
  session = await connect(process.env.RAINCHECK_URL, {
    elicitation: () => ({ action: "accept", content: { name: "Ada Lovelace", integer: 7 } }),
    sampling: ({ messages }) => ({
      model: "nobody",
      role: "assistant",
      stopReason: "endTurn",
      content: { type: "text", text: `heard: ${messages[0].content.text}` },
    }),
  });
}, LIMIT);
after(() => session?.close());

test("a long operation is a task that shows its progress", LIMIT, async () => {
  const execution = await session.callTool("trigger-long-running-operation", { duration: 3, steps: 5 });
  assert.equal(execution.kind, "task");
  const { outcome, seen } = await settle(execution);
  assert.equal(outcome.status, "completed");
  assert.equal(text(outcome), "Long running operation completed. Duration: 3 seconds, Steps: 5.");
  const shown = new Set(seen.map((task) => task.statusMessage).filter((message) => /\d/.test(message ?? "")));
  assert.ok(shown.size >= 2, `progress moves: ${JSON.stringify([...shown])}`);
});

test("the server's question to the user waits in the task", LIMIT, async () => {
  const execution = await session.callTool("trigger-elicitation-request", {});
  assert.equal(execution.kind, "task");
  const { outcome } = await settle(execution);
  assert.equal(outcome.status, "completed");
  assert.match(text(outcome), /- Name: Ada Lovelace\n- Favorite Integer: 7/);
  asked("elicitation", /Please provide inputs/);
});

test("the server's question to the model waits in the task", LIMIT, async () => {
  const execution = await session.callTool("trigger-sampling-request", { prompt: "how are you", maxTokens: 20 });
  assert.equal(execution.kind, "task");
  const { outcome } = await settle(execution);
  assert.equal(outcome.status, "completed");
  assert.match(text(outcome), /heard: Resource trigger-sampling-request context: how are you/);
  asked("sampling", /how are you/);
});

test("what is no tool call passes through", LIMIT, async () => {
  const { prompts } = await session.client.listPrompts();
  assert.ok(prompts.length > 0);
  const { resources } = await session.client.listResources();
  const { contents } = await session.client.readResource({ uri: resources[0].uri });
  assert.equal(contents[0].uri, resources[0].uri);
});

/** The last question came inside the task, said this, and was answered with tasks/update. */
function asked(kind, words) {
  const question = session.asked.at(-1);
  assert.equal(question.kind, kind);
  assert.equal(question.delivery, "task-update");
  assert.match(JSON.stringify(question.params), words);
  assert.ok(session.sent.includes("tasks/update"));
}
