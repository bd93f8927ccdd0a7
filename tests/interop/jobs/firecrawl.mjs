// The agents of Firecrawl, behind firecrawl-mcp.

import { randomUUID } from "node:crypto";
import { byHand } from "./service.mjs";

const WORDS = { running: "processing", finished: "completed", failed: "failed", cancelled: "cancelled" };
const EXPIRES = "2030-01-01T00:00:00.000Z";

export const routes = {
  start: ["POST", /^\/v2\/agent$/, ({ body }, service) => {
    const { id } = service.start(randomUUID(), { prompt: body.prompt });
    return [200, { success: true, id }];
  }],
  status: ["GET", /^\/v2\/agent\/([^/]+)$/, ({ id }, service) => {
    const job = service.look(id);
    if (job === undefined) return [404, { success: false, error: "Agent job not found" }];
    const said = { success: job.state !== "failed", status: WORDS[job.state], expiresAt: EXPIRES };
    if (job.state === "finished") Object.assign(said, { data: { answer: `about ${job.prompt}` }, creditsUsed: 7 });
    if (job.state === "failed") said.error = "The agent gave up";
    return [200, said];
  }],
};

await byHand(import.meta, routes);
