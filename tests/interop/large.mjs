// A result of 2 MiB after 3 s, for clients that refuse an event of more than 1 MiB (mcp 2.3 and fastmcp 4 in both eras), in front of
// a server that answers in JSON bodies and of a program. `node large.mjs CLIENT..` runs some.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { here, python } from "./house.mjs";
import { end, freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, SCRATCH } = process.env;
const LIMIT = { timeout: 60_000 };
const QUIET = { FASTMCP_CHECK_FOR_UPDATES: "off" };
const CLIENTS = {
  "mcp 2.3": ["modern", "auto"],
  "mcp 2.3, legacy": ["modern", "legacy"],
  "fastmcp 4": ["fastmcp4", "auto"],
  "fastmcp 4, legacy": ["fastmcp4", "legacy"],
};
const SERVER = [python("legacy"), here("servers/large.py")];

const wanted = new Set(process.argv.slice(2));
describe("large", { concurrency: 2 }, () => {
  for (const kind of ["JSON bodies", "a program"]) {
    describe(`in front of ${kind}`, { concurrency: 2 }, () => {
      const started = [];
      let url;
      before(async () => {
        const dir = `${SCRATCH}/${kind.split(" ")[1]}`;
        await mkdir(dir);
        const [port, inner] = [await freePort(), await freePort()];
        if (kind === "JSON bodies") {
          const server = start([...SERVER, `${inner}`], `${dir}/server.log`);
          started.push(server);
          await listening(server, inner);
        }
        const upstream = kind === "JSON bodies" ? ["--upstream", `http://127.0.0.1:${inner}/mcp`] : ["--", ...SERVER];
        const proxy = start(
          [RAINCHECK, "run", "--store", "memory:", "--listen", `127.0.0.1:${port}`, ...upstream],
          `${dir}/raincheck.log`,
          { HOME: dir },
        );
        started.push(proxy);
        await listening(proxy, port);
        url = `http://127.0.0.1:${port}/mcp`;
      }, LIMIT);
      after(async () => {
        for (const child of started.reverse()) await end(child);
      });
      for (const [name, [environment, mode]] of Object.entries(CLIENTS)) {
        if (wanted.size > 0 && !wanted.has(name)) continue;
        test(name, LIMIT, async () => {
          const client = [here("plain/large.py"), url, mode];
          const { stdout } = await promisify(execFile)(python(environment), client, { ...LIMIT, env: { ...process.env, ...QUIET } });
          assert.equal(Number(stdout), 2 << 20);
        });
      }
    });
  }
});
