// A fake of the service behind a server: it keeps jobs that end when a test says so, and counts what was asked of it. Each file beside
// this one has the paths of one service. `node FILE.mjs PORT` runs a service by hand: POST /control then says what a test says, and
// GET /counts what it looks at.

import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

/** What a test waits for comes with the next poll or two; a server in Python needs seconds for each where both cores are busy. */
const PATIENCE_MS = 30_000;
/** AWS says in a header what is asked. */
const TARGET = "x-amz-target";

/**
 * Opens a service on that port of loopback, or any. `routes` has by name (start, status, result, cancel) a [method, path, answer]: the
 * regular expression `path` reads the path and, where AWS asks, "#" and its target. `answer({ id, query, body, headers, response },
 * service)` returns [status, body], undefined if there is no such job, or null if it answers `response` itself. `id` is the path's group.
 */
export async function open(routes, port = 0) {
  const service = new Service(routes);
  const server = createServer((request, response) => service.take(request, response).catch(() => response.destroy()));
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  service.url = `http://127.0.0.1:${server.address().port}`;
  service.close = async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  };
  return service;
}

/** A service, where the file that has its routes was started by hand. */
export async function byHand({ filename }, routes) {
  if (process.argv[1] === filename) console.log((await open(routes, Number(process.argv[2] ?? 0))).url);
}

class Service {
  /** By id: {id, state, looks, ..}, where `state` is running, finished, failed or cancelled, whatever the service calls it, and `looks`
   *  says how often somebody asked for it. A route may add `end`, which is called when a test has said something of the job. */
  jobs = new Map();
  /** How often each route was asked, and every Authorization that came. */
  asked = { start: 0, status: 0, result: 0, cancel: 0, other: 0 };
  authorizations = new Set();
  /** How requests are refused: not at all, "closed" without an answer, or with that status of HTTP. */
  down = undefined;
  #routes;
  #news = new EventEmitter().setMaxListeners(0);

  constructor(routes) {
    this.#routes = Object.entries(routes);
  }

  /** A route starts a job. */
  start(id, about = {}) {
    this.jobs.set(id, { id, state: "running", looks: 0, ...about });
    return this.jobs.get(id);
  }

  /** A route looks at a job, if there is one of that id. */
  look(id) {
    const job = this.jobs.get(id);
    if (job !== undefined) job.looks += 1;
    return job;
  }

  /** A test says how a job is: {job, state, ..}; or, without a job, how the service is: {down}. */
  control({ job, ...change }) {
    if (job === undefined) this.down = change.down;
    else Object.assign(this.jobs.get(job), change).end?.();
    this.#news.emit("news");
  }

  counts() {
    const { asked, authorizations, jobs } = this;
    return { asked, authorizations: [...authorizations], jobs: [...jobs.values()].map(({ id, state, looks }) => ({ id, state, looks })) };
  }

  /** Until `condition` holds; looks again with every request. Returns what it returned. */
  async until(what, condition) {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = condition(this);
      if (found) return found;
      const late = () => new Error(`not within ${PATIENCE_MS / 1000} s: ${what}; ${JSON.stringify(this.counts())}`);
      await once(this.#news, "news", { signal }).catch(() => Promise.reject(late()));
    }
  }

  async take(request, response) {
    const { method, headers } = request;
    const { pathname, searchParams: query } = new URL(request.url, "http://service");
    const body = readable(await text(request));
    const say = (status, answer) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
    if (pathname === "/control") return say(200, this.control(body) ?? {});
    if (pathname === "/counts") return say(200, this.counts());

    const path = headers[TARGET] === undefined ? pathname : `${pathname}#${headers[TARGET]}`;
    const [name, route] = this.#routes.find(([, [how, where]]) => how === method && where.test(path)) ?? ["other"];
    this.asked[name] += 1;
    if (headers.authorization !== undefined) this.authorizations.add(headers.authorization);
    try {
      if (route === undefined) return say(404, { message: `no route for ${method} ${path}` });
      if (this.down === "closed") return response.destroy();
      if (this.down !== undefined) return say(this.down, { message: "the service is down" });
      const [, where, answer] = route;
      const [, id] = where.exec(path);
      const said = answer({ id, query, body, headers, response }, this);
      if (said !== null) say(...(said ?? [404, { message: "404 Not found" }]));
    } finally {
      this.#news.emit("news");
    }
  }
}

function readable(body) {
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}
