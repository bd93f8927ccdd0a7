// Clients for the command line: each command is run again as long as it ends with a timeout, as a script does that has it in a loop.
// Takes a job in JSON on standard input: { runs: [{ mode, program, url, seconds, tries, options }] }, mode being inspector or mcpc, each
// in a home of its own. Prints what became of each run as JSON, as patience.mjs does.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { promisify } from "node:util";

const { runs } = await json(process.stdin);

const CLIENTS = {
  /** A session for each command. */
  inspector: {
    connect: () => [],
    call: (url, args, options) =>
      [["--cli", url, ...options, "--method", "tools/call", "--tool-name", "quiet_compute", "--tool-args-json", args]],
    close: () => [],
  },
  /** A session that a process of its own holds, for all its commands. */
  mcpc: {
    connect: (url, options) => [["connect", url, "@server", ...options]],
    call: (_url, args) => [["--json", "@server", "tools-call", "quiet_compute", args]],
    close: () => [["close", "@server"]],
  },
};

async function go({ mode, program, url, seconds, tries, options = [] }) {
  const home = await mkdtemp(join(tmpdir(), `${mode}-`));
  const { connect, call, close } = CLIENTS[mode];
  const env = { ...process.env, HOME: home };
  const all = async (commands) => {
    let printed = "";
    for (const words of commands) printed = (await promisify(execFile)(process.execPath, [program, ...words], { env })).stdout;
    return printed;
  };
  const seen = { tries: 0 };
  try {
    await all(connect(url, options));
    const began = performance.now();
    while (seen.said === undefined && seen.tries < tries) {
      seen.tries += 1;
      try {
        const printed = await all(call(url, JSON.stringify({ seconds }), options));
        [seen.said = printed] = /quiet_compute done after [0-9.]+s/.exec(printed) ?? [];
      } catch (error) {
        seen.last = `${error.stdout}${error.stderr}`.trim();
        if (!/timed out/i.test(seen.last)) throw error;
      }
    }
    seen.took = (performance.now() - began) / 1000;
    if (seen.said === undefined) seen.gave_up = "no try got the result";
  } catch (error) {
    seen.gave_up = `${error.message}\n${seen.last ?? ""}`;
  } finally {
    await all(close()).catch(() => {});
    await rm(home, { recursive: true, force: true });
  }
  return seen;
}

console.log(JSON.stringify(await Promise.all(runs.map(go))));
