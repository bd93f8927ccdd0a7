// The programs in examples/, as a reader runs them, in front of server-everything: each follows a task to its end, and answers a
// question in one.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { here, python } from "./house.mjs";

const { RAINCHECK_URL, RMCP_CLIENT } = process.env;
const LIMIT = { timeout: 60_000 };
const example = (name) => here(`../../examples/${name}`);

const CLIENTS = {
  "rmcp_client.rs": [RMCP_CLIENT],
  "tasks.py": [python("modern"), example("tasks.py")],
};

// They wait more than they work.
describe("examples", { concurrency: true }, () => {
  for (const [name, words] of Object.entries(CLIENTS)) {
    test(`${name} follows a task`, LIMIT, async () => {
      const said = await run(...words, RAINCHECK_URL, "trigger-long-running-operation", '{"duration": 5, "steps": 9}');
      assert.match(said, /^task [0-9a-f-]{36}\n/);
      assert.match(said, /\n\d of 9\n/);
      assert.match(said, /\nLong running operation completed\. Duration: 5 seconds, Steps: 9\.\n$/);
    });
    test(`${name} answers a question`, LIMIT, async () => {
      const said = await run(...words, RAINCHECK_URL, "trigger-elicitation-request");
      assert.match(said, /\nasked: /);
      assert.match(said, /User provided the requested information/);
    });
  }

  test("wire.sh calls, polls, answers and cancels", { ...LIMIT, skip: !hasCurl() }, async () => {
    const said = await run(example("wire.sh"), RAINCHECK_URL);
    const answers = said.split("\n").filter((line) => line.startsWith("<-- "));
    const states = answers.map((line) => JSON.parse(line.slice(4)).result.status);
    assert.deepEqual(states.filter((state, place) => state && state !== states[place - 1]), [
      "working", "completed", "input_required", "completed", "working", "cancelled",
    ]);
    assert.match(said, /- Name: Ada Lovelace/);
  });
});

async function run(program, ...words) {
  const { stdout } = await promisify(execFile)(program, words, LIMIT);
  return stdout;
}

function hasCurl() {
  try {
    execFileSync("curl", ["--version"]);
    return true;
  } catch {
    return false;
  }
}
