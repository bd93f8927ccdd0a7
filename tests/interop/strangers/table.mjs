// The servers and clients that no other lane runs. A server:
//   is, in              its package, and what it is written in
//   command(dir, port)  what runs it; `dir` is a folder of its own
//   url(port)           where it listens; without it, it is a program on standard input and output
//   env, prepare(dir)   what it finds in its environment, and before anything starts
//   calls(dir)          [tool, arguments], each repeatable
//   volatile, why       what is never twice the same, and why
// A client:
//   is, command(url)    its package, and a program of strangers/ that prints what it saw, or, with `bridge`, a program that is the
//                       server at that address to a client on its standard input and output
//   modern              it speaks 2026-07-28 with raincheck, and 2025-11-25 with the server itself

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";

const CACHE = process.env.RAINCHECK_TEST_CACHE;
const NODE = process.execPath;
const NPM = `${CACHE}/npm-strangers/node_modules`;
const PYTHON = `${CACHE}/python-strangers`;

const manifest = (name) => JSON.parse(readFileSync(`${NPM}/${name}/package.json`, "utf8"));
const npm = (name, ...args) => {
  const { bin } = manifest(name);
  return [NODE, `${NPM}/${name}/${typeof bin === "string" ? bin : Object.values(bin)[0]}`, ...args];
};
const inside = (name, path, ...args) => [`${NPM}/${name}/${path}`, ...args];
const python = (program, ...args) => [`${PYTHON}/bin/${program}`, ...args];
const here = (name) => new URL(name, import.meta.url).pathname;
const mcp = (port) => `http://127.0.0.1:${port}/mcp`;
/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:9";

/** The version that is installed. */
export function version(name) {
  if (existsSync(`${NPM}/${name}`)) return manifest(name).version.replace(/^v/, "");
  const [site] = readdirSync(`${PYTHON}/lib`);
  const begin = `${name.replaceAll("-", "_")}-`;
  const info = readdirSync(`${PYTHON}/lib/${site}/site-packages`).find((it) => it.startsWith(begin) && it.endsWith(".dist-info"));
  return info.slice(begin.length, -".dist-info".length);
}

const KUBECONFIG = `
apiVersion: v1
kind: Config
current-context: none
clusters: [{ name: none, cluster: { server: "${NOWHERE}" } }]
contexts: [{ name: none, context: { cluster: none, user: none } }]
users: [{ name: none, user: {} }]
`;

/** The slowest start first. */
export const SERVERS = [
  {
    is: "@azure/mcp-linux-x64", in: ".NET",
    command: () => inside("@azure/mcp-linux-x64", "dist/azmcp", "server", "start"),
    env: { AZURE_MCP_COLLECT_TELEMETRY: "false" },
    calls: () => [["get_azure_bestpractices", { intent: "list", learn: true }], ["get_azure_bestpractices", {}]],
  },
  {
    is: "@playwright/mcp", in: "TypeScript",
    command: () => npm("@playwright/mcp", "--headless", "--isolated", "--no-sandbox", "--executable-path", "/usr/bin/chromium"),
    calls: () => [
      ["browser_navigate", { url: "about:blank" }],
      ["browser_evaluate", { function: "() => 6 * 7" }],
      ["browser_click", { target: "nothing", element: "nothing" }],
    ],
    volatile: /page-[\dTZ-]+\.yml/g, why: "its files are named by the time",
  },
  {
    is: "mcp-server-sqlite", in: "Python",
    command: (dir) => python("mcp-server-sqlite", "--db-path", `${dir}/rain.db`),
    calls: () => [["list_tables", {}], ["read_query", { query: "SELECT 19 + 23 AS sum" }], ["read_query", {}]],
  },
  {
    is: "excel-mcp-server", in: "Python",
    command: () => python("excel-mcp-server", "stdio"),
    calls: (dir) => [["create_workbook", { filepath: `${dir}/rain.xlsx` }], ["create_workbook", {}]],
  },
  {
    is: "mcp-server-calculator", in: "Python",
    command: () => python("mcp-server-calculator"),
    calls: () => [["calculate", { expression: "19 + 23" }], ["calculate", {}]],
  },
  {
    is: "mcp-server-fetch", in: "Python",
    command: () => python("mcp-server-fetch", "--ignore-robots-txt"),
    calls: () => [["fetch", {}], ["fetch", { url: NOWHERE }]],
  },
  {
    is: "mcp-grafana", in: "Go",
    command: (_dir, port) => python("mcp-grafana", "-t", "streamable-http", "--address", `127.0.0.1:${port}`),
    url: mcp,
    env: { GRAFANA_URL: NOWHERE },
    calls: () => [["list_datasources", {}], ["get_datasource", {}]],
  },
  {
    is: "kubernetes-mcp-server-linux-amd64", in: "Go",
    prepare: (dir) => writeFile(`${dir}/kube.yaml`, KUBECONFIG),
    command: (dir, port) =>
      inside("kubernetes-mcp-server-linux-amd64", "bin/kubernetes-mcp-server-linux-amd64", "--kubeconfig", `${dir}/kube.yaml`,
        "--bind-address", "127.0.0.1", "--port", `${port}`),
    url: mcp,
    calls: () => [["configuration_view", {}], ["pods_list", {}]],
    volatile: /\d{4}-\d\d-\d\dT[\d:]+Z/g, why: "its prompt says the time",
  },
  {
    is: "mcp-time-linux-x64", in: "Go",
    command: (_dir, port) => inside("mcp-time-linux-x64", "bin/mcp-time", "--transport", "stream", "--address", mcp(port)),
    url: mcp,
    calls: () => [
      ["convert_timezone", { time: "2026-01-01T12:00:00Z", input_timezone: "UTC", output_timezone: "Asia/Tokyo" }],
      ["add_time", { duration: "wet" }],
    ],
  },
  {
    is: "mcp-prometheus-linux-amd64", in: "Go",
    command: () => inside("mcp-prometheus-linux-amd64", "bin/mcp-prometheus-linux-amd64"),
    env: { PROMETHEUS_URL: NOWHERE },
    calls: () => [["getPrometheusStatus", {}], ["query", { promql: "up" }]],
  },
  {
    is: "@vaulttools/mcp-linux-x64", in: "Rust",
    command: (dir) => inside("@vaulttools/mcp-linux-x64", "bin/vaulttools-mcp", "--allowed-dir", dir),
    calls: (dir) => [
      ["vaulttools_dev_color_convert", { color: "#ff0000", to_format: "rgb" }],
      ["vaulttools_file_checksum", { path: `${dir}/none` }],
    ],
  },
  {
    is: "@temporal-cortex/cortex-mcp-linux-x64", in: "Rust",
    command: () => inside("@temporal-cortex/cortex-mcp-linux-x64", "bin/cortex-mcp"),
    calls: () => [
      ["compute_duration", { start: "2026-01-01T00:00:00Z", end: "2026-01-02T00:00:00Z" }],
      ["convert_timezone", { datetime: "wet", target_timezone: "Asia/Tokyo" }],
    ],
  },
  {
    is: "scrybe-mcp-server", in: "Rust",
    command: () => python("scrybe-mcp-server", "stdio"),
    calls: () => [["lint", { source: "# rain\n\n- wet\n" }], ["render", { source: "# rain" }], ["read", { path: "none.md" }]],
  },
  {
    is: "tailwindcss-mcp-server", in: "TypeScript",
    command: () => npm("tailwindcss-mcp-server"),
    calls: () => [["get_tailwind_colors", { colorName: "blue" }], ["generate_color_palette", { baseColor: 7 }]],
  },
  {
    is: "lucide-icons-mcp", in: "TypeScript",
    command: () => npm("lucide-icons-mcp", "--stdio"),
    calls: () => [["search_icons", { query: "rain", limit: 3 }], ["search_icons", {}]],
  },
  {
    is: "@drawio/mcp", in: "JavaScript",
    command: () => npm("@drawio/mcp"),
    prepare: (dir) => writeFile(`${dir}/rain.drawio`, '<mxfile><diagram id="1" name="Rain"><mxGraphModel/></diagram></mxfile>'),
    calls: (dir) => [["list_pages", { path: `${dir}/rain.drawio` }], ["list_pages", { path: `${dir}/none.drawio` }]],
  },
  {
    is: "@discourse/mcp", in: "TypeScript",
    command: () => npm("@discourse/mcp"),
    calls: () => [["discourse_select_site", { site: NOWHERE }], ["discourse_search", { query: "rain" }]],
  },
  {
    is: "time-mcp", in: "TypeScript",
    command: () => npm("time-mcp"),
    calls: () => [["days_in_month", { date: "2026-02-01" }], ["convert_time", { time: 7 }]],
  },
  {
    is: "mcp-hello-world", in: "TypeScript",
    command: () => npm("mcp-hello-world"),
    calls: () => [["echo", { message: "rain" }], ["add", { a: 19, b: 23 }], ["add", { a: "wet" }]],
  },
  {
    is: "mcp-server-commands", in: "TypeScript",
    command: () => npm("mcp-server-commands"),
    calls: (dir) => [["run_command", { command: "echo rain", workdir: dir }], ["run_command", { command: "exit 3" }]],
  },
];

export const CLIENTS = [
  { is: "@ai-sdk/mcp", modern: true, command: (url) => [NODE, here("client.mjs"), "ai-sdk", url] },
  { is: "@langchain/mcp-adapters", command: (url) => [NODE, here("client.mjs"), "langchain", url] },
  { is: "mcporter", command: (url) => [NODE, here("client.mjs"), "mcporter", url] },
  { is: "mcp-remote", bridge: true, command: (url) => npm("mcp-remote", url, "--transport", "http-only") },
  { is: "mcp-use", command: (url) => python("python", here("client.py"), "mcp-use", url) },
  { is: "smolagents", command: (url) => python("python", here("client.py"), "smolagents", url) },
  { is: "mcp-proxy", bridge: true, command: (url) => python("mcp-proxy", "--transport", "streamablehttp", url) },
];
