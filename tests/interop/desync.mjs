// Where a request ends, in front of a real Node server that answers before it reads, as every Express application does
// where nothing reads the body: a client announces bytes that never come, and the next caller's request, with its own
// credentials, goes out on the same connection. Over HTTP/1.1, HTTP/2 in clear text and TLS, 100 rounds each.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import tls from "node:tls";
import { after, before, describe, test } from "node:test";
import { end, freePort, listening, start } from "./processes.mjs";

const { RAINCHECK, SCRATCH } = process.env;
const ROUNDS = 100;
const LIMIT = { timeout: 120_000 };
const SECRET = "Bearer victim";

/** As far as the server needs to read its caller's words to give away what follows them. */
const HEAD = "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:00000\r\n".length;

/** It keeps its connections, and no body is ever read. */
class Early {
  seen = [];
  #server = http.createServer((request, response) => {
    // At its start raincheck looks whether the server is there.
    const isLook = request.headers["mcp-method"] === "server/discover";
    if (!isLook) this.seen.push({ line: `${request.method} ${request.url}`, headers: request.headers });
    if (request.method !== "POST") {
      response.writeHead(405).end();
      return;
    }
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ jsonrpc: "2.0", id: 1, result: {} }));
  });

  async listen() {
    // What is no request tells of a desync, too.
    this.#server.on("clientError", (error, socket) => {
      if (error.code !== "ECONNRESET") this.seen.push({ line: `no request: ${error.code}`, headers: {} });
      socket.destroy();
    });
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return this.#server.address().port;
  }

  close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Everything that comes on a connection until it is closed. */
async function exchange(socket, text) {
  let answer = "";
  socket.setEncoding("utf8");
  socket.on("data", (data) => (answer += data));
  socket.on("error", () => {});
  socket.write(text);
  await once(socket, "close");
  return answer;
}

const status = (answer) => Number(answer.split(" ")[1]);

function attack(method, length) {
  return (
    `${method} /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: s\r\n` +
    `mcp-protocol-version: 2025-11-25\r\ncontent-length: ${length}\r\n\r\n`
  );
}

function honest(number) {
  const message = JSON.stringify({ jsonrpc: "2.0", id: number, method: "ping" });
  return (
    "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" +
    "accept: application/json, text/event-stream\r\nmcp-session-id: v\r\nmcp-protocol-version: 2025-11-25\r\n" +
    `authorization: ${SECRET}\r\nx-caller: ${number}\r\nconnection: close\r\n` +
    `content-length: ${message.length}\r\n\r\n${message}`
  );
}

async function attackOverHttp2(port, method, length) {
  const session = http2.connect(`http://127.0.0.1:${port}`);
  session.on("error", () => {});
  const stream = session.request(
    {
      ":method": method,
      ":path": "/mcp",
      accept: "text/event-stream",
      "mcp-session-id": "s",
      "mcp-protocol-version": "2025-11-25",
      "content-length": length,
    },
    { endStream: false },
  );
  stream.on("error", () => {});
  const [headers] = await once(stream, "response");
  session.destroy();
  return headers[":status"];
}

/** How a caller connects, and what raincheck is told. */
const WIRES = {
  "HTTP/1.1": { connect: (port) => net.connect(port, "127.0.0.1") },
  "HTTP/2": { connect: (port) => net.connect(port, "127.0.0.1"), attack: attackOverHttp2, config: "[listen]\nh2c = true\n" },
  TLS: {
    connect: (port) => tls.connect({ port, host: "127.0.0.1", servername: "localhost", rejectUnauthorized: false }),
    config: `[listen.tls]\ncertificate = "${SCRATCH}/certificate.pem"\nkey = "${SCRATCH}/key.pem"\n`,
  },
};

before(() => {
  const files = ["-keyout", `${SCRATCH}/key.pem`, "-out", `${SCRATCH}/certificate.pem`];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  execFileSync("openssl", ["req", ...kind, "-subj", "/CN=localhost", ...files], { stdio: "ignore" });
});

for (const [name, wire] of Object.entries(WIRES)) {
  describe(name, () => {
    const server = new Early();
    let proxy;
    let port;

    before(async () => {
      const dir = `${SCRATCH}/${name.replace("/", "")}`;
      await mkdir(dir);
      await writeFile(`${dir}/raincheck.toml`, `[upstream]\nera = "legacy"\n[tasks]\nmode = "never"\n${wire.config ?? ""}`);
      const inner = await server.listen();
      port = await freePort();
      const command = [RAINCHECK, "run", "--config", `${dir}/raincheck.toml`, "--store", "memory:"];
      const places = ["--listen", `127.0.0.1:${port}`, "--upstream", `http://127.0.0.1:${inner}/mcp`];
      proxy = start([...command, ...places], `${dir}/raincheck.log`, { HOME: dir });
      await listening(proxy, port);
    });

    after(async () => {
      if (proxy) await end(proxy);
      server.close();
    });

    test(`no caller's bytes are another one's body in ${ROUNDS} rounds`, LIMIT, async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const method = round % 2 ? "DELETE" : "GET";
        const refused = wire.attack
          ? await wire.attack(port, method, HEAD)
          : status(await exchange(wire.connect(port), attack(method, HEAD)));
        assert.equal(refused, 400, `${method} in round ${round}`);
        const answer = await exchange(wire.connect(port), honest(round));
        assert.equal(status(answer), 200, answer);
      }
      const callers = server.seen.map(({ line, headers }) => `${line} ${headers.authorization} ${headers["x-caller"]}`);
      assert.deepEqual(
        callers,
        Array.from({ length: ROUNDS }, (_, round) => `POST /mcp ${SECRET} ${round}`),
      );
    });
  });
}
