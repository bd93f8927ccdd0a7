// A plain upstream of tests/conformance and raincheck in front of it.

import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, RAINCHECK_TEST_CACHE: CACHE } = process.env;

export const python = (environment) => `${CACHE}/python-${environment}/bin/python`;
export const here = (path) => new URL(path, import.meta.url).pathname;

/** The plain upstream of that era; `started` takes its process, `dir` its log. */
export async function serve(era, dir, started) {
  await mkdir(dir);
  const port = await freePort();
  const script = here(`../conformance/upstream_${era}.py`);
  const server = start([python(era), script, "--port", `${port}`], `${dir}/server.log`);
  started.push(server);
  await listening(server, port);
  return port;
}

/** Raincheck in front of the upstream on the port `inner`, on that port or any; returns the address for clients. */
export async function front(inner, config, dir, started, environment = {}, port = undefined, store = "memory:") {
  port ??= await freePort();
  const proxy = start(
    [RAINCHECK, "run", "--config", config, "--store", store, "--listen", `127.0.0.1:${port}`,
      "--upstream", `http://127.0.0.1:${inner}/mcp`],
    `${dir}/raincheck.log`,
    { HOME: dir, ...environment },
  );
  started.push(proxy);
  await listening(proxy, port);
  return `http://127.0.0.1:${port}/mcp`;
}

/** What the upstream on that port counts of a tool. */
export async function ran(inner, tool) {
  const all = await (await fetch(`http://127.0.0.1:${inner}/_stats`)).json();
  return all[tool] ?? { started: 0, finished: 0, cancelled: 0 };
}

/** Has a program of plain/ do all the runs of `job` at the same time; what each saw. */
export async function perform([path, ...args], job, timeout) {
  const child = spawn(path, args, { stdio: ["pipe", "pipe", "inherit"], timeout });
  child.stdin.end(JSON.stringify(job));
  return JSON.parse(await text(child.stdout));
}
