// The servers of jobs.mjs. A row:
//   is, routes, preset       its package, the paths of the fake service behind it, and the preset that is its rule
//   command, env(url)        what runs it, and how it is told of the service at `url`
//   starts(url)              [tool, arguments] of what starts a job: one, or several that start the same
//   status(id), result(id)   [tool, arguments] of what says how a job is, and what has its result where that is another tool
//   cancels                  it has a tool that cancels
//   ends                     how a job can end in the service without success
//   shows                    [what the test says of a job, what the state of the task must then match]
//   refused                  what the start answers while the service is away; without it, no tool needs the service
//   gone                     what the server says when the service has forgotten a job means so to the rule
//   signs                    what the service must see of who asks

import { readFileSync } from "node:fs";
import { routes as background } from "./background.mjs";
import { routes as cloudwatch } from "./cloudwatch.mjs";
import { routes as firecrawl } from "./firecrawl.mjs";
import { routes as gitlab } from "./gitlab.mjs";
import { routes as minimax } from "./minimax.mjs";

const CACHE = process.env.RAINCHECK_TEST_CACHE;
const NODE = process.execPath;
const here = (name) => new URL(name, import.meta.url).pathname;
const python = (program) => [`${CACHE}/python-jobs/bin/${program}`];
const npm = (name) => {
  const folder = `${CACHE}/npm-jobs/node_modules/${name}`;
  return [NODE, `${folder}/${Object.values(JSON.parse(readFileSync(`${folder}/package.json`, "utf8")).bin)[0]}`];
};

const PROJECT = { project_id: "rain/check" };
const HOUR = { start_time: "2026-01-01T00:00:00+00:00", end_time: "2026-01-01T01:00:00+00:00" };
/** Not the region of the environment: the other tools must be given it, too. */
const REGION = { region: "eu-north-1" };

export const SERVERS = [
  {
    is: "awslabs.cloudwatch-mcp-server", routes: cloudwatch, preset: "aws-cloudwatch",
    command: python("awslabs.cloudwatch-mcp-server"),
    env: (url) => ({
      AWS_ENDPOINT_URL: url, AWS_ACCESS_KEY_ID: "rain", AWS_SECRET_ACCESS_KEY: "check", AWS_REGION: "us-east-1",
      // It would try again by itself for seconds, in which it answers nobody.
      AWS_MAX_ATTEMPTS: "1",
    }),
    starts: () => [["execute_log_insights_query", { log_group_names: ["rain"], query_string: "fields @message", ...HOUR, ...REGION }]],
    status: (id) => ["get_logs_insight_query_results", { query_id: id, ...REGION }],
    cancels: true,
    ends: ["failed", "cancelled"],
    shows: [{ scanned: 4_700 }, { _meta: { "io.raincheck/progress": { progress: 4_700 } } }],
    refused: /Error executing CloudWatch Logs Insights query/,
    signs: /^AWS4-HMAC-SHA256 Credential=rain\/\d+\/eu-north-1\/logs\//,
  },
  {
    is: "mcp-background-job", routes: background, preset: "background-job",
    command: python("mcp-background-job"),
    env: () => ({}),
    starts: (url) => [["execute_command", { command: `'${NODE}' '${here("background.mjs")}' work ${url}` }]],
    status: (id) => ["get_job_status", { job_id: id }],
    result: (id) => ["get_job_output", { job_id: id }],
    cancels: true,
    ends: ["failed", "cancelled"],
  },
  {
    is: "minimax-mcp", routes: minimax, preset: "minimax",
    command: python("minimax-mcp"),
    env: (url) => ({ MINIMAX_API_HOST: url, MINIMAX_API_KEY: "mm-rain", MINIMAX_API_RESOURCE_MODE: "url" }),
    starts: () => [["generate_video", { prompt: "rain" }]],
    status: (id) => ["query_video_generation", { task_id: id }],
    ends: ["failed"],
    refused: /^Failed to generate video: Request failed/,
    signs: /^Bearer mm-rain$/,
  },
  {
    is: "firecrawl-mcp", routes: firecrawl, preset: "firecrawl",
    command: npm("firecrawl-mcp"),
    env: (url) => ({ FIRECRAWL_API_URL: url, FIRECRAWL_API_KEY: "fc-rain" }),
    starts: () => [["firecrawl_agent", { prompt: "rain" }]],
    status: (id) => ["firecrawl_agent_status", { id }],
    ends: ["failed", "cancelled"],
    refused: /'firecrawl_agent' execution failed/,
    signs: /^Bearer fc-rain$/,
  },
  {
    is: "@zereight/mcp-gitlab", routes: gitlab, preset: "gitlab",
    command: npm("@zereight/mcp-gitlab"),
    env: (url) => ({ GITLAB_API_URL: `${url}/api/v4`, GITLAB_PERSONAL_ACCESS_TOKEN: "gl-rain", GITLAB_TOOLSETS: "all" }),
    starts: () => [
      ["create_pipeline", { ref: "main", ...PROJECT }],
      ["trigger_pipeline", { ref: "main", token: "glptt-rain", ...PROJECT }],
    ],
    status: (id) => ["get_pipeline", { pipeline_id: id, ...PROJECT }],
    cancels: true,
    ends: ["failed", "cancelled"],
    shows: [{ word: "waiting_for_resource" }, { statusMessage: "waiting_for_resource as it may be" }],
    refused: /fetch failed/,
    gone: true,
    signs: /^Bearer gl-rain$/,
  },
];
