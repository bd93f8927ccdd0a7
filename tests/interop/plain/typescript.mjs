// The official TypeScript client without Tasks: typescript.mjs URL legacy|auto. Prints what it saw as JSON.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode] = process.argv.slice(2);
const seen = { asked: [], progress: [] };
const client = new Client(
  { name: "plain", version: "1.0.0" },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
);
client.setRequestHandler("elicitation/create", ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: { confirm: true } };
});

async function call(name, args, options = {}) {
  const result = await client.callTool({ name, arguments: args }, { timeout: 30_000, ...options });
  return result.content[0].text;
}

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
seen.era = client.getProtocolEra();
seen.tools = (await client.listTools()).tools.map(({ name }) => name);
seen.quick = await call("greet", { name: "Ada" });
const onprogress = ({ message }) => seen.progress.push(message);
seen.slow = await call("slow_compute", { seconds: 1.5, label: "plain" }, { onprogress });
seen.answered = await call("confirm_delete", { filename: "a.txt" });

const enough = new AbortController();
try {
  const onprogress = () => enough.abort("enough");
  await call("slow_compute", { seconds: 60, label: "cancel me" }, { signal: enough.signal, onprogress });
} catch (error) {
  seen.cancelled = enough.signal.aborted && String(error);
}
// Closing at once would cut off what tells the server.
await client.listTools();
await client.close();
console.log(JSON.stringify(seen));
