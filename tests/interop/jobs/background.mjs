// The commands that mcp-background-job runs. `node background.mjs work URL` is such a command: it tells the service below that it runs, and
// for which process of the server, and ends when and how a test says so; the service sees when it is killed.

import { byHand } from "./service.mjs";

const ENDS = { finished: { says: "it rains", code: 0 }, failed: { says: "it does not rain", code: 3 }, cancelled: { signal: "SIGKILL" } };

export const routes = {
  start: ["POST", /^\/work$/, ({ body, response }, service) => {
    const job = service.start(`${service.jobs.size + 1}`, {
      server: body.server,
      end() {
        if (job.state !== "running") response.end(JSON.stringify(ENDS[job.state]));
      },
    });
    // A command that is gone before a test said so was killed.
    response.on("close", () => job.state === "running" && service.control({ job: job.id, state: "cancelled" }));
    return null;
  }],
};

async function work(url) {
  console.log("at work");
  const { says, code, signal } = await (await fetch(`${url}/work`, { method: "POST", body: JSON.stringify({ server: process.ppid }) })).json();
  if (signal !== undefined) return process.kill(process.pid, signal);
  process.exitCode = code;
  (code === 0 ? console.log : console.error)(says);
}

if (process.argv[2] === "work") await work(process.argv[3]);
else await byHand(import.meta, routes);
