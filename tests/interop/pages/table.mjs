// What each block of commands in the pages needs, and how it is run. A block that is not run says why.
//
//   page, begins   the block: its page and how its first line begins
//   with           what the page assumes: "server" (server-everything at port 8000), "proxy" (raincheck in front of it, with
//                  a listener for operators), "builds" (raincheck in front of a server with a tool `build`), "redis", "settings"
//                  (raincheck.toml), "client" (.mcp.json), "tasks" (two tasks of the proxy)
//   lines          true: each line is a command line of its own; else the block is one script
//   serves         what a server among the commands says when it is up; it is then ended with SIGTERM. A list, if `lines`
//   code           the exit code, 0 unless it is given
//   shows          true: it prints the next output of the page, though there is text in between
//   says           what the output has to contain, beside what the page shows
//   change         pairs: what a reader replaces in the block by their own, and by what
//   instead, why   what is run in place of the block, and why; without `instead`, why nothing is

const MINUTES = "it builds for minutes; CI builds the same";
const EXAMPLES = "tests/interop/examples.mjs runs this program";
const MEASURES = "it measures for minutes or hours; CI tests the programs that measure";

export const TABLE = [
  { page: "README.md", begins: "cargo install", instead: "raincheck demo", why: MINUTES, shows: true },
  { page: "README.md", begins: "raincheck check", with: ["server"], serves: "serving" },
  {
    page: "README.md", begins: "raincheck run --", with: ["client"], lines: true, serves: ["serving", undefined],
    change: [["github", "everything --yes"]],
  },
  { page: "CONTRIBUTING.md", begins: "cargo build", why: MINUTES },
  { page: "benches/README.md", begins: "benches/run --quick", why: MEASURES },
  { page: "benches/README.md", begins: "python3 -m venv", why: MEASURES },
  { page: "benches/README.md", begins: "benches/instructions", why: "CI counts instructions, as a step of its own" },
  { page: "benches/README.md", begins: "benches/scale --quick", why: MEASURES },
  { page: "benches/README.md", begins: "benches/train", why: "CI runs this command, as a step of its own" },
  { page: "deploy/package.md", begins: "raincheck demo", with: ["server"], serves: "serving" },
  {
    page: "docs/clients.md", begins: "raincheck call build", with: ["builds"], lines: true, says: ["built all", "built all", "hi"],
    change: [["https://mcp.example/mcp", "http://127.0.0.1:8440/mcp"]],
  },
  { page: "docs/configuration.md", begins: "raincheck run", with: ["server", "settings"], lines: true, serves: ["serving", undefined] },
  { page: "docs/jobs.md", begins: "raincheck check", why: "it fetches a server, and tests/interop/jobs.mjs runs it with its preset" },
  { page: "docs/metrics.md", begins: "curl", with: ["proxy"], says: "raincheck_build_info" },
  {
    page: "docs/operations.md", begins: "export RAINCHECK_STORE", with: ["server", "redis"],
    serves: /serving address=127.0.0.1:84[45]0[^]*serving address=127.0.0.1:84[45]0/,
  },
  {
    page: "docs/operations.md", begins: "raincheck tasks list", with: ["tasks"], lines: true,
    serves: [undefined, undefined, "working", undefined, undefined],
  },
  { page: "docs/operations.md", begins: "raincheck tasks list --failed", with: ["tasks"], lines: true },
  { page: "docs/operations.md", begins: "raincheck tools stats", with: ["tasks"], lines: true },
  { page: "docs/operations.md", begins: "raincheck tasks list --unacknowledged", why: "it takes a task that failed; tests/suite/history.rs has one" },
  { page: "docs/operations.md", begins: "raincheck tasks rerun", why: "it takes a task that has ended; tests/suite/history.rs has one" },
  { page: "docs/operations.md", begins: "raincheck tools pause", with: ["tasks"], says: "nothing is paused" },
  { page: "docs/performance.md", begins: "benches/run", why: MEASURES },
  { page: "docs/quickstart.md", begins: "PORT=8000", serves: "listening on port 8000" },
  { page: "docs/quickstart.md", begins: "raincheck check --upstream", with: ["server"] },
  { page: "docs/quickstart.md", begins: "raincheck run --upstream", with: ["server"], serves: "serving" },
  { page: "docs/quickstart.md", begins: "raincheck check --", with: [] },
  { page: "docs/quickstart.md", begins: "raincheck run --", serves: "serving" },
  { page: "docs/quickstart.md", begins: "raincheck stdio", with: ["server"], lines: true, serves: ["serverInfo", "serverInfo"] },
  { page: "docs/quickstart.md", begins: "raincheck wrap .mcp.json", with: ["client"] },
  { page: "docs/quickstart.md", begins: "raincheck wrap .mcp.json everything", with: ["client"], change: [["everything", "everything --yes"]] },
  {
    page: "docs/quickstart.md", begins: "raincheck wrap .mcp.json everything --undo", with: ["client"],
    change: [[/^/, "raincheck wrap .mcp.json everything --yes && "], [/$/, " --yes"]],
  },
  {
    page: "docs/quickstart.md", begins: "kubectl create secret", says: "seal-key:",
    change: [[/$/, " --dry-run=client --output=yaml"]],
  },
  {
    page: "docs/quickstart.md", begins: "kubectl apply", says: "kind: Deployment",
    instead: "kubectl kustomize deploy/kubernetes/example", why: "there is no cluster",
  },
  { page: "docs/quickstart.md", begins: "helm install", says: "kind: Deployment", change: [["helm install", "helm template"]] },
  { page: "docs/quickstart.md", begins: "curl", with: ["proxy"], says: '"resultType":"task"' },
  {
    page: "docs/security.md", begins: "token=", change: [["/etc/raincheck/tokens", "tokens"], [/$/, "\ncat tokens"]],
    says: /^ci: [0-9a-f]{64}$/m,
  },
  { page: "docs/webhooks.md", begins: "echo", says: /^whsec_[A-Za-z0-9+/]{43}=$/m },
  { page: "examples/README.md", begins: "raincheck run", serves: "serving" },
  { page: "examples/README.md", begins: "cargo run", why: EXAMPLES },
  { page: "examples/README.md", begins: "pip install", why: EXAMPLES },
  { page: "examples/README.md", begins: "examples/wire.sh", why: EXAMPLES },
];
