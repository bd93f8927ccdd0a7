// An official TypeScript client calls a tool that says nothing: defaults.mjs URL MODE HOW, the call in the environment as for the
// agents. HOW is "default", "progress" where the application lets progress start the client's clock anew, or "tasks": ext-tasks.
// Prints what it heard as JSON.

import { connect } from "./official.mjs";
import { connect as connectTasks, settle, text } from "../session.mjs";

const [url, mode, how] = process.argv.slice(2);
const { AGENT_TOOL, AGENT_ARGUMENTS } = process.env;
const args = JSON.parse(AGENT_ARGUMENTS);
const client = how === "tasks" ? await connectTasks(url) : await connect(url, mode);
console.error("calling");
const began = performance.now();
const heard = how === "tasks" ? text((await settle(await client.callTool(AGENT_TOOL, args))).outcome) : await plain();
console.log(JSON.stringify({ heard: [heard], took: (performance.now() - began) / 1000 }));
await client.close();

function plain() {
  const options = how === "progress" ? { onprogress: () => {}, resetTimeoutOnProgress: true } : undefined;
  return client.call(AGENT_TOOL, args, options);
}
