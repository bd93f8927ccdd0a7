// mcpc, a client for the command line, calls a tool that says nothing: mcpc.mjs URL PROGRAM [OPTION..], the call in the environment
// as for the agents, in a home of its own. Prints what it heard as JSON.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const [url, program, ...options] = process.argv.slice(2);
const { AGENT_TOOL, AGENT_ARGUMENTS } = process.env;
const home = await mkdtemp(join(tmpdir(), "mcpc-"));
const mcpc = (...words) => promisify(execFile)(process.execPath, [program, ...words], { env: { ...process.env, HOME: home } });

try {
  await mcpc("connect", url, "@server");
  console.error("calling");
  const began = performance.now();
  const { stdout } = await mcpc("--json", "@server", "tools-call", AGENT_TOOL, AGENT_ARGUMENTS, ...options);
  const heard = JSON.parse(stdout).content[0].text;
  // It prints the same where it knows no more than that the task has ended.
  if (heard === "Task completed") throw new Error("it lost the result");
  console.log(JSON.stringify({ heard: [heard], took: (performance.now() - began) / 1000 }));
} finally {
  // How this ended is not the answer.
  await mcpc("close", "@server").catch(() => {});
  await rm(home, { recursive: true, force: true });
}
