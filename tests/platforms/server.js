// A scripted MCP server of 2025-06-18 over standard input and output, as programs on Windows are: its lines end with CRLF.
//
// server.js [--child MARK]..: with --child it starts a process that stays, and has MARK in its arguments.
const { spawn } = require("node:child_process");
const lines = require("node:readline").createInterface({ input: process.stdin });

const tools = {
  // Progress for each of `steps`, and a tenth of a second between two.
  slow: async ({ steps }, token) => {
    console.error(`${steps} steps begin`);
    for (let step = 1; step <= steps; step++) {
      await new Promise((next) => setTimeout(next, 100));
      if (token !== undefined) {
        say({ method: "notifications/progress", params: { progressToken: token, progress: step, total: steps } });
      }
    }
    return `${steps} steps`;
  },
  about: async () => JSON.stringify({ arguments: process.argv.slice(2), folder: process.cwd(), variables: Object.keys(process.env) }),
  echo: async ({ text }) => text,
};

function say(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\r\n`);
}

async function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "scripted", version: "1" } };
    case "ping":
      return {};
    case "tools/list":
      return { tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: "object" } })) };
    case "tools/call": {
      const text = await tools[params.name](params.arguments ?? {}, params._meta?.progressToken);
      return { content: [{ type: "text", text }] };
    }
  }
}

const child = process.argv.indexOf("--child");
if (child > 0) {
  spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)", process.argv[child + 1]], { stdio: "ignore" });
}
lines.on("line", async (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const result = await answer(message);
  say(result ? { id: message.id, result } : { id: message.id, error: { code: -32601, message: "Method not found" } });
});
lines.on("close", () => process.exit(0));
