// launch.js FILE SERVER: launches a server of a client's settings as clients do, by CreateProcess and without a shell, and joins
// its standard input and output with those of this process.
const fs = require("node:fs");
const { spawn } = require("node:child_process");
const { mcpServers } = JSON.parse(fs.readFileSync(process.argv[2], "utf8").replace(/^\ufeff/, ""));
const { command, args, env } = mcpServers[process.argv[3]];
const server = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "inherit"], windowsHide: true });
server.on("error", (error) => {
  console.error(`not launched: ${error.message}`);
  process.exit(1);
});
server.on("exit", (code) => process.exit(code ?? 1));
server.stdout.on("data", (bytes) => fs.writeSync(1, bytes));
// Not `process.stdin` and `process.stdout`, which take no pipe of Linux.
const input = fs.createReadStream(null, { fd: 0 });
input.on("data", (bytes) => server.stdin.write(bytes));
input.on("end", () => server.stdin.end());
