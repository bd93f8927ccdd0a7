// The videos of MiniMax, behind minimax-mcp.

import { byHand } from "./service.mjs";

/** The service knows no cancellation. */
const WORDS = { running: "Processing", finished: "Success", failed: "Fail" };
const FINE = { status_code: 0, status_msg: "success" };
const UNKNOWN = { status_code: 2013, status_msg: "invalid params, task_id not found" };

export const routes = {
  start: ["POST", /^\/v1\/video_generation$/, (_, service) => {
    const { id } = service.start(`${176_844_028_768_320 + service.jobs.size}`);
    return [200, { task_id: id, base_resp: FINE }];
  }],
  status: ["GET", /^\/v1\/query\/video_generation$/, ({ query }, service) => {
    const job = service.look(query.get("task_id"));
    if (job === undefined) return [200, { base_resp: UNKNOWN }];
    const { id, state } = job;
    const file = state === "finished" ? { file_id: `file-${id}`, video_width: 1366, video_height: 768 } : {};
    return [200, { task_id: id, status: WORDS[state], ...file, base_resp: FINE }];
  }],
  result: ["GET", /^\/v1\/files\/retrieve$/, ({ query }) => {
    const id = query.get("file_id");
    return [200, { file: { file_id: id, download_url: `https://videos.test/${id}.mp4` }, base_resp: FINE }];
  }],
};

await byHand(import.meta, routes);
