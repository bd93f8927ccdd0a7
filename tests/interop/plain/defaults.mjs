// An official TypeScript client calls a tool that says nothing: defaults.mjs URL SECONDS MODE HOW. HOW is "default", or "progress"
// where the application lets progress start the client's clock anew. Prints what the tool said.

import { connect } from "./official.mjs";

const [url, seconds, mode, how] = process.argv.slice(2);
const client = await connect(url, mode);
const options = how === "progress" ? { onprogress: () => {}, resetTimeoutOnProgress: true } : undefined;
console.log(await client.call("quiet_compute", { seconds: Number(seconds) }, options));
await client.close();
