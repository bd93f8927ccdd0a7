// The TypeScript SDK with its OAuth client: it finds out where to sign in, signs in, makes a task, and renews its token meanwhile.
// `node typescript.mjs URL NAME SECONDS`: a task of so many seconds. Prints what it has seen.

import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { CALLBACK, agree } from "./user.mjs";

const [url, name, seconds] = process.argv.slice(2);

class SignIn {
  seen = [];
  redirectUrl = CALLBACK;
  get clientMetadata() {
    return {
      client_name: name,
      redirect_uris: [CALLBACK],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }
  clientInformation = () => this.information;
  saveClientInformation(information) {
    this.information = information;
  }
  tokens = () => this.saved;
  saveTokens(tokens) {
    this.saved = tokens;
    this.seen.push(tokens.access_token);
  }
  codeVerifier = () => this.verifier;
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  async redirectToAuthorization(address) {
    this.asked = address.searchParams;
    this.code = (await agree(address)).searchParams.get("code");
  }
}

const authProvider = new SignIn();
const connect = async () => {
  const client = new Client({ name, version: "1.0.0" }, { capabilities: {} });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  try {
    await client.connect(transport);
    return client;
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(authProvider.code);
    return undefined;
  }
};

const client = (await connect()) ?? (await connect());
await client.listTools();
const args = { seconds: Number(seconds), label: name };
const said = [];
let result;
for await (const message of client.experimental.tasks.callToolStream({ name: "slow_compute", arguments: args }, CallToolResultSchema)) {
  said.push(message.type);
  if (message.type === "error") throw message.error;
  if (message.type === "result") result = message.result.content[0].text;
}
await client.close();
console.log(JSON.stringify({
  made: said[0],
  result,
  tokens: authProvider.seen,
  resource: authProvider.asked.get("resource"),
  scope: authProvider.asked.get("scope"),
}));
