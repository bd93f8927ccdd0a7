// What a user's browser does with the address that a client sends it to: it follows the redirects, with cookies, until one leads back
// to the client. As a program: `node user.mjs ADDRESS` prints where that is.

import { pathToFileURL } from "node:url";

/** Where clients are called back: nobody listens there, and nobody asks. */
export const CALLBACK = "http://127.0.0.1:1/callback";

export async function agree(address) {
  const jar = new Map();
  for (let url = new URL(address), hop = 0; hop < 20; hop++) {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(";");
      const at = pair.indexOf("=");
      jar.set(pair.slice(0, at), pair.slice(at + 1));
    }
    const next = response.headers.get("location");
    if (next === null) throw new Error(`no way back from ${url}: ${response.status} ${await response.text()}`);
    if (next.startsWith(CALLBACK)) return new URL(next);
    url = new URL(next, url);
  }
  throw new Error("the redirects do not end");
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) console.log(`${await agree(process.argv[2])}`);
