// The official TypeScript clients without Tasks, spoken to alike.

import { Client as Client2, StreamableHTTPClientTransport as Transport2 } from "@modelcontextprotocol/client";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as Transport1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const PLAIN = { name: "plain", version: "1.0.0" };
const capabilities = { elicitation: { form: {} } };

/** Connect to `url`; `mode` is "sdk", the SDK 1.x, or the client 2.x's "legacy" or "auto". `elicit` answers questions. */
export async function connect(url, mode, elicit) {
  return await (mode === "sdk" ? sdk(new URL(url), elicit) : client(new URL(url), mode, elicit));
}

async function sdk(url, elicit) {
  const client = new Client1(PLAIN, { capabilities });
  if (elicit !== undefined) client.setRequestHandler(ElicitRequestSchema, elicit);
  const transport = new Transport1(url);
  await client.connect(transport);
  return official(client, transport.protocolVersion, (params, options) => client.callTool(params, undefined, options));
}

async function client(url, mode, elicit) {
  const client = new Client2(PLAIN, { capabilities, versionNegotiation: { mode } });
  if (elicit !== undefined) client.setRequestHandler("elicitation/create", elicit);
  await client.connect(new Transport2(url));
  return official(client, client.getNegotiatedProtocolVersion(), (params, options) => client.callTool(params, options));
}

function official(client, version, callTool) {
  return {
    version,
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    /** What the tool says. */
    call: async (name, args, options) => (await callTool({ name, arguments: args }, options)).content[0].text,
    close: () => client.close(),
  };
}
