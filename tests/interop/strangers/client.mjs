// Clients of npm: client.mjs CLIENT URL prints which tools each lists and what it makes of a slow call and of one that fails.

const [, , name, url] = process.argv;

const CLIENTS = {
  "ai-sdk": async () => {
    const { createMCPClient } = await import("@ai-sdk/mcp");
    const client = await createMCPClient({ transport: { type: "http", url } });
    const tools = await client.tools();
    return { tools: Object.keys(tools), call: (tool, args) => tools[tool].execute(args, {}), close: () => client.close() };
  },
  langchain: async () => {
    const { MultiServerMCPClient } = await import("@langchain/mcp-adapters");
    const client = new MultiServerMCPClient({ mcpServers: { stranger: { transport: "http", url } } });
    const tools = await client.getTools();
    const call = (tool, args) => tools.find((it) => it.name === tool).invoke(args);
    return { tools: tools.map((it) => it.name), call, close: () => client.close() };
  },
  mcporter: async () => {
    const { createRuntime } = await import("mcporter");
    const runtime = await createRuntime({ servers: [{ name: "stranger", command: { kind: "http", url: new URL(url) } }] });
    const tools = (await runtime.listTools("stranger")).map((it) => it.name);
    return { tools, call: (tool, args) => runtime.callTool("stranger", tool, { args }), close: () => runtime.close() };
  },
};

const { tools, call, close } = await CLIENTS[name]();
const slow = await call("slow_compute", { seconds: 3, label: "stranger" });
const failed = await call("failing_job", {}).catch((error) => ({ thrown: `${error}` }));
console.log(JSON.stringify({ tools, slow, failed }));
await close();
process.exit(0);
