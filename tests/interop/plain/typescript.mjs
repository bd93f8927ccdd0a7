// An official TypeScript client without Tasks: typescript.mjs URL sdk|legacy|auto. Prints what it saw as JSON.

import { connect } from "./official.mjs";

const [url, mode] = process.argv.slice(2);
const seen = { asked: [], progress: [] };
const timeout = 30_000;
const client = await connect(url, mode, ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: { confirm: true } };
});

seen.version = client.version;
seen.tools = await client.tools();
seen.quick = await client.call("greet", { name: "Ada" }, { timeout });
const onprogress = ({ message }) => seen.progress.push(message);
seen.slow = await client.call("slow_compute", { seconds: 1.5, label: "plain" }, { timeout, onprogress });
seen.answered = await client.call("confirm_delete", { filename: "a.txt" }, { timeout });

const enough = new AbortController();
try {
  const onprogress = () => enough.abort("enough");
  await client.call("slow_compute", { seconds: 60, label: "cancel me" }, { timeout, signal: enough.signal, onprogress });
} catch (error) {
  seen.cancelled = enough.signal.aborted && String(error);
}
// Closing at once would cut off what tells the server.
await client.tools();
await client.close();
console.log(JSON.stringify(seen));
