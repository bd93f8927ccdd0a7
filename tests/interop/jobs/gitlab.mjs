// The pipelines of GitLab, behind @zereight/mcp-gitlab.

import { byHand } from "./service.mjs";

const WORDS = { running: "running", finished: "success", failed: "failed", cancelled: "canceled" };
const WHEN = "2026-01-01T12:00:00.000Z";
const PIPELINES = String.raw`^/api/v4/projects/[^/]+/pipelines/(\d+)`;

/** `word` is a state of GitLab's own that a test may name, such as `manual`. */
function pipeline({ id, state, ref, word = WORDS[state] }) {
  return {
    id: Number(id), iid: 1, project_id: 7, sha: "8f2c1d", ref, status: word, source: "api", created_at: WHEN, updated_at: WHEN,
    web_url: `https://gitlab.test/rain/check/-/pipelines/${id}`, duration: state === "finished" ? 61 : null,
    detailed_status: { icon: `status_${word}`, text: word, label: `${word} as it may be`, group: word, has_details: true },
  };
}

const start = ({ body }, service) => [201, pipeline(service.start(`${4_700 + service.jobs.size}`, { ref: body.ref ?? "main" }))];

export const routes = {
  start: ["POST", /^\/api\/v4\/projects\/[^/]+\/(?:trigger\/)?pipeline$/, start],
  status: ["GET", new RegExp(`${PIPELINES}$`), ({ id }, service) => {
    const found = service.look(id);
    return found && [200, pipeline(found)];
  }],
  cancel: ["POST", new RegExp(`${PIPELINES}/cancel$`), ({ id }, service) => {
    if (!service.jobs.has(id)) return undefined;
    service.control({ job: id, state: "cancelled" });
    return [200, pipeline(service.jobs.get(id))];
  }],
};

await byHand(import.meta, routes);
