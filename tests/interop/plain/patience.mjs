// The official TypeScript clients with a limit of their own on each call. Takes a job in JSON on standard input, times in seconds:
// { patience, seconds, again_seconds, runs: [{ way, mode, url }] }, mode being sdk, legacy or auto; without `patience`, the limit is the
// client's own. A run may say `seconds` and `tries` for the way "again". Prints what became of each run as JSON.

import { json } from "node:stream/consumers";
import { inspect } from "node:util";
import { connect } from "./official.mjs";

const { patience, seconds, again_seconds, runs } = await json(process.stdin);
const timeout = patience === undefined ? undefined : patience * 1000;

/** Reads what it is told, as a model would, and calls the tool that it is told to call. */
async function companion(client, seen) {
  Object.assign(seen, { tools: await client.tools(), called: [], longest: 0 });
  const call = async (name, args) => {
    const began = performance.now();
    const said = await client.call(name, args, { timeout });
    seen.longest = Math.max(seen.longest, (performance.now() - began) / 1000);
    seen.called.push(name);
    return said;
  };
  let said = await call("slow_compute", { seconds, label: "patience" });
  const [, ticket] = /Ticket ([0-9a-f-]{36})/.exec(said) ?? [];
  for (let next; ticket && (next = /Call (\w+) with this ticket/.exec(said)); ) said = await call(next[1], { ticket });
  return said;
}

/** Hears of progress all the time; its clock begins anew with it, or does not. */
const waiting = (resetTimeoutOnProgress) => (client, seen) => {
  seen.progress = 0;
  const onprogress = () => (seen.progress += 1);
  return client.call("quiet_compute", { seconds }, { timeout, onprogress, resetTimeoutOnProgress });
};

/** Asks for no progress, and makes the same call again each time that its clock ends, as a program or a model does. */
async function again(client, seen, { seconds: takes = again_seconds, tries = 2 * (seconds / patience) - 1 }) {
  for (seen.tries = 0; seen.tries < tries; ) {
    seen.tries += 1;
    try {
      return await client.call("quiet_compute", { seconds: takes }, { timeout });
    } catch (error) {
      if (!/timed out/i.test(inspect(error))) throw error;
      seen.last = error.message;
    }
  }
  throw new Error("no try got the result");
}

const WAYS = { companion, heartbeat: waiting(true), both: waiting(true), alone: waiting(false), again };

async function go({ way, mode, url, ...own }) {
  const seen = {};
  try {
    const client = await connect(url, mode);
    seen.version = client.version;
    // Whatever a client does before its first call is no part of that call's time.
    await client.call("greet", { name: "Ada" });
    const began = performance.now();
    try {
      seen.said = await WAYS[way](client, seen, own);
    } finally {
      seen.took = (performance.now() - began) / 1000;
      await client.close();
    }
  } catch (error) {
    seen.gave_up = inspect(error);
  }
  return seen;
}

console.log(JSON.stringify(await Promise.all(runs.map(go))));
