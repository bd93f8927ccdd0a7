// A real authorization server (oidc-provider): clients register themselves, every user agrees at once, and access tokens are JWTs
// for the one resource. `node authorization.mjs PORT RESOURCE SECONDS`; a token is good for so many seconds. New keys at each start.

import { createServer } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";

const [port, resource, seconds] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const SCOPE = "tools:run";

async function signingKey() {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid: crypto.randomUUID() };
}

const provider = new Provider(issuer, {
  jwks: { keys: [await signingKey()] },
  cookies: { keys: [crypto.randomUUID()] },
  scopes: ["openid", "offline_access", SCOPE],
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
  issueRefreshToken: (_context, client) => client.grantTypeAllowed("refresh_token"),
  ttl: { AccessToken: Number(seconds), AuthorizationCode: 60, Grant: 600, Interaction: 60, RefreshToken: 600, Session: 600 },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo(_context, asked) {
        if (asked !== resource) throw new Error(`no resource here: ${asked}`);
        return {
          scope: SCOPE,
          audience: resource,
          accessTokenTTL: Number(seconds),
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        };
      },
    },
  },
});
provider.on("server_error", (_context, error) => console.error(error));
for (const what of ["authorization.error", "grant.error", "registration_create.error"]) {
  provider.on(what, (_context, error) => console.error(what, error.message, error.error_description ?? ""));
}

/** The user is who the client is called, and agrees. */
async function agree(request, response) {
  const { params, prompt } = await provider.interactionDetails(request, response);
  const { clientName } = await provider.Client.find(params.client_id);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: clientName } });
  }
  const grant = new provider.Grant({ accountId: clientName, clientId: params.client_id });
  grant.addOIDCScope(`openid offline_access ${SCOPE}`);
  grant.addResourceScope(resource, SCOPE);
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

const answer = provider.callback();
createServer((request, response) => {
  if (!request.url.startsWith("/interaction/")) return answer(request, response);
  agree(request, response).catch((error) => {
    console.error(error);
    response.writeHead(500).end();
  });
}).listen(Number(port), "127.0.0.1");
