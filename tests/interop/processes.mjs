// The processes of a row: servers and raincheck in front of them, each with its group ended by the pid that was started.

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** Python needs seconds to start where both cores are busy. */
const START_MS = 30_000;
/** After SIGTERM; then nothing is asked any more. */
const END_MS = 10_000;

/** The ports that this run has given away; by hand the folder of the logs. */
const GIVEN_PORTS = process.env.GIVEN_PORTS ?? process.env.SCRATCH;

const running = new Set();

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
process.on("exit", () => running.forEach((child) => kill(child, "SIGKILL")));

/** Start `command` with its output in the file `log`; `environment` adds to ours, and its folder is ours or `cwd`. */
export function start(command, log, environment = {}, cwd = undefined) {
  const [program, ...args] = command;
  // A group of its own: what a server starts ends with it.
  const child = spawn(program, args, {
    cwd,
    detached: true,
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const file = createWriteStream(log);
  child.stdout.pipe(file, { end: false });
  child.stderr.pipe(file, { end: false });
  child.over = once(child, "exit").catch(() => {});
  running.add(child);
  return child;
}

/** Until `child` accepts connections on `port`. */
export async function listening(child, port) {
  const deadline = Date.now() + START_MS;
  while (!(await accepts(port))) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`${child.spawnargs.join(" ")} ended`);
    if (Date.now() > deadline) throw new Error(`nothing listens on port ${port}`);
    await sleep(100);
  }
}

/** End `child` and what it started. */
export async function end(child) {
  kill(child, "SIGTERM");
  await Promise.race([child.over, sleep(END_MS, undefined, { ref: false })]);
  kill(child, "SIGKILL");
  running.delete(child);
}

/** A port that nothing else has or was given, as `free_port` in tests/lib.sh. */
export async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
    } catch {
      continue;
    }
    server.close();
    await once(server, "close");
    try {
      await mkdir(`${GIVEN_PORTS}/${port}`);
    } catch (error) {
      if (error.code === "EEXIST") continue;
      throw error;
    }
    return port;
  }
}

function kill(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // it is gone
  }
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    const say = (answer) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once("connect", () => say(true)).once("error", () => say(false));
  });
}
