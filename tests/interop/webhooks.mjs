// Webhooks as the library of Standard Webhooks verifies them: the messages of a task in front of server-everything, under a new and
// a previous secret, and none under another one.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { end, freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, SCRATCH, EVERYTHING } = process.env;
const secret = (letter) => `whsec_${Buffer.from(letter.repeat(32)).toString("base64")}`;

test("a message is verified under both secrets, and under no other", { timeout: 90_000 }, async () => {
  const dir = `${SCRATCH}/webhooks`;
  await mkdir(dir);
  const [port, hooks] = [await freePort(), await freePort()];
  const got = received(hooks);
  const lines = [
    "[tasks]",
    'mode = "always"',
    "[[notify]]",
    `url = "http://127.0.0.1:${hooks}/in"`,
    `secret = "${secret("n")}"`,
    `secret_previous = "${secret("p")}"`,
    "allow_private = true",
  ];
  await writeFile(`${dir}/raincheck.toml`, `${lines.join("\n")}\n`);
  const server = [process.execPath, EVERYTHING, "stdio"];
  const options = ["--config", `${dir}/raincheck.toml`, "--store", "memory:", "--listen", `127.0.0.1:${port}`];
  const proxy = start([RAINCHECK, "run", ...options, "--", ...server], `${dir}/raincheck.log`, { XDG_STATE_HOME: dir });
  try {
    await listening(proxy, port);
    const call = start([RAINCHECK, "call", "--url", `http://127.0.0.1:${port}/mcp`, "echo", '{"message":"private"}'], `${dir}/call.log`);
    await call.over;
    assert.equal(call.exitCode, 0);
    const { headers, body } = await got;
    for (const known of ["n", "p"]) {
      const message = new Webhook(secret(known)).verify(body, headers);
      assert.equal(message.type, "raincheck.task.updated");
      assert.equal(message.data.state, "completed");
      assert.equal(message.data.tool, "echo");
    }
    assert.throws(() => new Webhook(secret("x")).verify(body, headers), WebhookVerificationError);
    assert.throws(() => new Webhook(secret("n")).verify(`${body} `, headers), WebhookVerificationError);
    assert.ok(!body.includes("private"));
  } finally {
    await end(proxy);
  }
});

/** The first message that comes to `port`. */
async function received(port) {
  const server = createServer().listen(port, "127.0.0.1");
  const [request, response] = await once(server, "request");
  const parts = await request.toArray();
  response.end();
  server.close();
  return { headers: request.headers, body: Buffer.concat(parts).toString() };
}
