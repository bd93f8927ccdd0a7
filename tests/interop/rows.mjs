// The table of wrapped servers. A row:
//   command(dir, port)   what runs the server; `dir` is a folder of the row's own
//   url(port)            where it listens; without it raincheck runs the command over standard input and output
//   calls(way, dir)      [tool, arguments, what it says], called once with way "plain" and once as "task"
//   slow                 the same for a tool that tells its progress, and what a client sees of it
//   asks                 a tool that asks: { tool, args, question, answer, says }
//   prepare(dir), environment(dir)   before anything starts, and what else raincheck hears

import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";

const CACHE = process.env.RAINCHECK_TEST_CACHE;
const NODE = process.execPath;

const python = (environment, program = "python") => `${CACHE}/python-${environment}/bin/${program}`;
const npm = (path) => `${CACHE}/npm-interop/node_modules/${path}`;
const official = (name) => npm(`@modelcontextprotocol/server-${name}/dist/index.js`);
const here = (name) => new URL(`servers/${name}`, import.meta.url).pathname;
const mcp = (port) => `http://127.0.0.1:${port}/mcp`;

const BAKERY = {
  calls: () => [["price", { loaves: 4 }, /^4 loaves are 12 euros$/]],
  slow: ["bake", { loaves: 3 }, /^3 loaves baked$/, /loaf \d is in the oven/],
  asks: {
    tool: "order",
    args: { bread: "rye" },
    question: /^How many loaves of rye\?$/,
    answer: { value: 5 },
    says: /^5 loaves of rye ordered$/,
  },
};
/** Asks in the middle of the tool, which fastmcp 4 refuses a modern client. */
const RESERVING = { ...BAKERY.asks, tool: "reserve", says: /^5 loaves of rye reserved$/ };

/** Over standard input and output, or at a port. */
const bakery = (environment, file) => (_dir, port) =>
  [python(environment), here(file), ...(port === undefined ? [] : [`${port}`])];

const EVERYTHING = {
  calls: (way) => [
    ["echo", { message: `as a ${way}` }, new RegExp(`^Echo: as a ${way}$`)],
    ["get-sum", { a: 19, b: 23 }, /42/],
  ],
  slow: ["trigger-long-running-operation", { duration: 2, steps: 4 }, /^Long running operation completed/, /^\d of 4$/],
};
const EVERYTHING_ASKS = {
  tool: "trigger-elicitation-request",
  args: {},
  question: /Please provide inputs/,
  answer: { name: "Ada Lovelace", integer: 7 },
  says: /- Name: Ada Lovelace\n- Favorite Integer: 7/,
};

/** A tool that runs as a task of 2025-11-25 and in no other way. */
const RESEARCH = {
  calls: () => [["simulate-research-query", { topic: "rain" }, /^# Research Report: rain\n/]],
  slow: ["simulate-research-query", { topic: "rain" }, /^# Research Report: rain\n/, /Gathering|Analyzing|Synthesizing|Generating/],
  asks: {
    tool: "simulate-research-query",
    args: { topic: "rain", ambiguous: true },
    question: /"rain" could have multiple interpretations/,
    answer: { interpretation: "historical" },
    says: /\*\*Clarification\*\*: historical/,
  },
};

const supergateway = (...options) => (_dir, port) =>
  [NODE, npm("supergateway/dist/index.js"), "--stdio", `${NODE} ${official("everything")} stdio`,
    "--outputTransport", "streamableHttp", "--port", `${port}`, "--logLevel", "none", ...options];

/** The slowest start first. */
export const ROWS = {
  "supergateway, stateful": { ...EVERYTHING, asks: EVERYTHING_ASKS, command: supergateway("--stateful"), url: mcp },
  // A program for each request, and no way back: the server hides its tools that ask.
  "supergateway, stateless": { ...EVERYTHING, command: supergateway(), url: mcp },
  "server-filesystem": {
    command: (dir) => [NODE, official("filesystem"), dir],
    calls: (way, dir) => [
      ["write_file", { path: `${dir}/${way}.txt`, content: `written by a ${way}` }, /^Successfully wrote to/],
      ["read_text_file", { path: `${dir}/${way}.txt` }, new RegExp(`^written by a ${way}$`)],
    ],
  },
  "server-memory": {
    command: () => [NODE, official("memory")],
    // It would write beside its own code.
    environment: (dir) => ({ RAINCHECK_UPSTREAM__ENV__MEMORY_FILE_PATH: `${dir}/memory.jsonl` }),
    calls: (way) => [
      ["create_entities", { entities: [{ name: `rain ${way}`, entityType: "weather", observations: ["wet"] }] }, /"wet"/],
      ["search_nodes", { query: `rain ${way}` }, new RegExp(`"rain ${way}"`)],
    ],
  },
  "server-sequential-thinking": {
    command: () => [NODE, official("sequential-thinking")],
    calls: () => [
      ["sequentialthinking", { thought: "Rain is wet.", thoughtNumber: 1, totalThoughts: 2, nextThoughtNeeded: true },
        /"thoughtNumber": 1,\s+"totalThoughts": 2/],
    ],
  },
  memorygraph: {
    command: () => [python("memorygraph", "memorygraph")],
    calls: (way) => [
      ["store_memory", { type: "solution", title: `Umbrella ${way}`, content: `An umbrella, by ${way}.` }, /stored/i],
      ["search_memories", { query: `Umbrella ${way}` }, new RegExp(`Umbrella ${way}`)],
    ],
  },
  "mcp-server-time": {
    command: () => [python("servers", "mcp-server-time"), "--local-timezone", "UTC"],
    calls: () => [
      ["convert_time", { source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" }, /T21:00:00\+09:00/],
    ],
  },
  "mcp-server-git": {
    command: () => [python("servers", "mcp-server-git")],
    prepare: async (dir) => {
      execFileSync("git", ["init", "--quiet", "--initial-branch", "rain", `${dir}/tree`]);
      await writeFile(`${dir}/tree/umbrella.txt`, "open\n");
    },
    calls: (_way, dir) => [["git_status", { repo_path: `${dir}/tree` }, /On branch rain[^]*umbrella\.txt/]],
  },
  "fastmcp 2, program": { ...BAKERY, command: bakery("fastmcp2", "bakery_ctx.py") },
  "fastmcp 2, HTTP": { ...BAKERY, command: bakery("fastmcp2", "bakery_ctx.py"), url: mcp },
  "fastmcp 3, program": { ...BAKERY, command: bakery("fastmcp3", "bakery_ctx.py") },
  "fastmcp 3, HTTP": { ...BAKERY, command: bakery("fastmcp3", "bakery_ctx.py"), url: mcp },
  "fastmcp 4, program": { ...BAKERY, command: bakery("fastmcp4", "bakery_mrtr.py") },
  "fastmcp 4, HTTP": { ...BAKERY, command: bakery("fastmcp4", "bakery_mrtr.py"), url: mcp },
  "fastmcp 4, HTTP, legacy": {
    ...BAKERY,
    asks: RESERVING,
    command: bakery("fastmcp4", "bakery_mrtr.py"),
    url: mcp,
    environment: () => ({ RAINCHECK_UPSTREAM__ERA: "legacy" }),
  },
  "server-everything, HTTP+SSE": {
    ...EVERYTHING,
    asks: EVERYTHING_ASKS,
    command: (_dir, port) => ["env", `PORT=${port}`, NODE, official("everything"), "sse"],
    url: (port) => `http://127.0.0.1:${port}/sse`,
  },
  "server-everything, a task of its own, program": {
    ...RESEARCH,
    command: () => [NODE, official("everything"), "stdio"],
  },
  "server-everything, a task of its own, HTTP": {
    ...RESEARCH,
    command: (_dir, port) => ["env", `PORT=${port}`, NODE, official("everything"), "streamableHttp"],
    url: mcp,
  },
};
