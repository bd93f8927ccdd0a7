// The commands that the pages show, run as a reader runs them: in a folder of their own, with what the page assumes, and with
// the output that the page shows. `pages/table.mjs` says what each block needs. Ports are those of the pages, so this runs in a
// network of its own (the lane `pages` of all.sh makes it).

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { after, describe, test } from "node:test";
import { here } from "./house.mjs";
import { blocksOf, pattern } from "./pages/find.mjs";
import { TABLE } from "./pages/table.mjs";
import { end, listening, start } from "./processes.mjs";

const { RAINCHECK, SCRATCH, EVERYTHING, RAINCHECK_TEST_CACHE: CACHE } = process.env;
const ROOT = here("../..").replace(/\/$/, "");
const LIMIT = { timeout: 60_000 };
const PATH = [dirname(RAINCHECK), dirname(process.execPath), `${CACHE}/python-kubernetes/bin`, process.env.PATH].join(":");
const isThere = (tool) => PATH.split(":").some((folder) => existsSync(`${folder}/${tool}`));

const folders = (...names) => names.flatMap((name) => readdirSync(`${ROOT}/${name}`).map((file) => `${name}/${file}`));
const PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ...folders("docs", "docs/design", "examples", "deploy", "benches")]
  .filter((file) => file.endsWith(".md"));
const BLOCKS = PAGES.flatMap((page) => blocksOf(ROOT, page));

/** The longest beginning counts: `raincheck run` begins several blocks. */
const entryOf = (block) => TABLE.filter((entry) => entry.page === block.page && block.text.startsWith(entry.begins))
  .sort((a, b) => b.begins.length - a.begins.length)[0];

test("each block is in the table, and each entry of the table is a block", () => {
  const unknown = BLOCKS.filter((block) => !entryOf(block)).map(({ page, line }) => `${page}:${line}`);
  assert.deepEqual(unknown, [], "say in pages/table.mjs what these blocks need");
  const used = new Set(BLOCKS.map(entryOf));
  assert.deepEqual(TABLE.filter((entry) => !used.has(entry)), [], "these entries are stale");
  assert.deepEqual(TABLE.filter((entry) => entry.instead !== undefined && !entry.why), [], "these do not say why");
});

const started = [];
after(() => Promise.all(started.map(end)));
let folderCount = 0;

async function runs(block, entry) {
  const folder = `${SCRATCH}/block-${(folderCount += 1)}`;
  const house = new House(folder);
  try {
    const replaced = new Map();
    for (const fixture of entry.with ?? []) Object.entries((await house[fixture]()) ?? {}).forEach(([k, v]) => replaced.set(k, v));
    let script = entry.instead ?? block.text;
    for (const [from, to] of entry.change ?? []) script = script.replaceAll(from instanceof RegExp ? new RegExp(from, "g") : from, to);
    const scripts = entry.lines ? script.split("\n") : [script];
    let said = "";
    for (const [place, line] of scripts.entries()) {
      const serves = entry.lines ? entry.serves?.[place] : entry.serves;
      const task = entry.lines ? [...replaced].filter(([key]) => key.startsWith(`${place}:`)) : [];
      const own = task.reduce((text, [key, value]) => text.replaceAll(key.slice(2), value), line);
      const heard = await house.run(own, serves, entry.code ?? 0);
      const says = entry.lines && Array.isArray(entry.says) ? entry.says[place] : entry.says;
      if (says !== undefined) assert.match(heard, says instanceof RegExp ? says : new RegExp(literally(says)), own);
      said += heard;
    }
    for (const shown of entry.shows ? [block.next] : block.shown) {
      assert.match(`${said}\n`, pattern(shown), `${block.page}:${block.line} shows\n${shown}\nand it said\n${said}`);
    }
  } finally {
    await house.end();
  }
}

const literally = (text) => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");

/** What a reader has: a folder with the servers' packages, this program on the PATH, and what the page assumes. */
class House {
  constructor(folder) {
    this.home = folder;
    this.folder = `${folder}/project`;
    this.children = [];
    folder = this.folder;
    mkdirSync(`${folder}/node_modules/.bin`, { recursive: true });
    // `npx -y NAME` takes what is here, so nothing is fetched.
    const packages = `${CACHE}/npm-interop/node_modules`;
    for (const name of ["@modelcontextprotocol"]) symlinkSync(`${packages}/${name}`, `${folder}/node_modules/${name}`);
    symlinkSync(`${packages}/.bin/mcp-server-everything`, `${folder}/node_modules/.bin/mcp-server-everything`);
    cpSync(here("pages/some-server"), `${folder}/node_modules/some-server`, { recursive: true });
    chmodSync(`${folder}/node_modules/some-server/server.mjs`, 0o755);
    symlinkSync("../some-server/server.mjs", `${folder}/node_modules/.bin/some-server`);
    writeFileSync(`${folder}/package.json`, '{"private": true}');
    for (const name of ["deploy", "examples"]) symlinkSync(`${ROOT}/${name}`, `${folder}/${name}`);
    this.environment = { PATH, HOME: this.home, SHELL: "/bin/sh", TERM: "dumb", npm_config_update_notifier: "false" };
  }

  async server() {
    await this.begin("server", 8000, [process.execPath, EVERYTHING, "streamableHttp"], { PORT: "8000" });
  }

  async proxy() {
    await this.server();
    writeFileSync(`${this.folder}/proxy.toml`, '[admin]\nlisten = "127.0.0.1:8442"\n');
    const run = [RAINCHECK, "run", "--config", `${this.folder}/proxy.toml`, "--upstream", "http://127.0.0.1:8000/mcp"];
    await this.begin("proxy", 8440, [...run, "--store", "memory:"]);
  }

  /** A raincheck in front of a program with a tool `build`, and a header in a file. */
  async builds() {
    writeFileSync(`${this.folder}/token`, "Authorization: Bearer of-mine\n");
    await this.begin("builds", 8440, [RAINCHECK, "run", "--store", "memory:", "--", process.execPath, here("pages/some-server/server.mjs")]);
  }

  async redis() {
    await this.begin("redis", 6379, ["redis-server", "--port", "6379", "--bind", "127.0.0.1", "--save", "", "--dir", this.folder]);
  }

  settings() {
    writeFileSync(`${this.folder}/raincheck.toml`, '[upstream]\nurl = "http://127.0.0.1:8000/mcp"\n');
  }

  client() {
    const everything = { command: "npx", args: ["-y", "@modelcontextprotocol/server-everything"] };
    const servers = `{
  "mcpServers": {
    "everything": {
      "type": "stdio",
      "command": "npx",
      "args": ${JSON.stringify(everything.args).replace(",", ", ")}
    },
    "docs": {"type": "http", "url": "https://docs.example.com"}
  }
}
`;
    writeFileSync(`${this.folder}/.mcp.json`, servers);
  }

  /** A task that runs and one that waits for an answer. Which line of the block means which. */
  async tasks() {
    await this.proxy();
    const detached = async (tool, input) => (await this.run(`raincheck call ${tool} '${input}' --detach`)).match(/[0-9a-f]{8}-/)[0].slice(0, 8);
    const runs = await detached("trigger-long-running-operation", '{"duration": 60, "steps": 60}');
    const asks = await detached("trigger-elicitation-request", "{}");
    return Object.fromEntries([runs, runs, runs, runs, asks].map((id, place) => [`${place}:0a1b2c3d`, id]));
  }

  async begin(name, port, command, environment = {}) {
    const child = start(command, `${this.folder}/${name}.log`, { ...this.environment, XDG_STATE_HOME: "", ...environment });
    this.children.push(child);
    started.push(child);
    await listening(child, port);
  }

  /** What the script says. One that serves is ended when it has said that it does. */
  async run(script, serves, code = 0) {
    const child = spawn("bash", ["--norc", "-euo", "pipefail", "-c", script], {
      cwd: this.folder, detached: true, env: this.environment, stdio: ["pipe", "pipe", "pipe"],
    });
    child.over = once(child, "close");
    this.children.push(child);
    started.push(child);
    if (script.startsWith("raincheck stdio")) {
      const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "pages", version: "1" } };
      child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: hello })}\n`);
    } else {
      child.stdin.end();
    }
    let said = "";
    const isUp = () => (serves instanceof RegExp ? serves.test(said) : said.includes(serves));
    const up = new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (text) => {
          said += text.replaceAll(`${this.folder}/`, "").replaceAll(this.home, "~");
          if (serves && isUp()) resolve();
        });
      }
    });
    await Promise.race([up, child.over]);
    if (serves) {
      assert.ok(isUp(), `${script}\ndid not say ${serves}:\n${said}`);
      await end(child);
      await child.over;
    } else {
      await child.over;
      assert.equal(child.exitCode, code, `${script}\n${said}`);
    }
    return said.replace(/^\d{4}-\d\d-\d\dT[\d:.]+Z +/gm, "");
  }

  async end() {
    for (const child of this.children.reverse()) await end(child);
  }
}

for (const page of new Set(BLOCKS.map((block) => block.page))) {
  describe(page, () => {
    for (const block of BLOCKS.filter((block) => block.page === page)) {
      const entry = entryOf(block);
      if (!entry || (entry.why && !entry.instead)) continue;
      const tool = block.text.match(/^(kubectl|helm|curl)/)?.[1];
      const skip = tool && !isThere(tool) ? `${tool} is missing` : false;
      test(`line ${block.line}: ${entry.begins}`, { ...LIMIT, skip }, () => runs(block, entry));
    }
  });
}
