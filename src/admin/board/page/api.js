// Asks the admin listener. The token is kept in sessionStorage, so it ends with the tab.

const TOKEN = "raincheck-admin-token";

/** An answer that is no success; `status` 0: there was no answer. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (text) => sessionStorage.setItem(TOKEN, text),
  forget: () => sessionStorage.removeItem(TOKEN),
};

async function ask(path, options = {}) {
  const headers = token.get() ? { authorization: `Bearer ${token.get()}` } : {};
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "raincheck does not answer. The page asks again.");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(response.status, said.error ?? `raincheck answered ${response.status}`);
}

export const getJson = async (path, signal) => (await ask(path, { signal })).json();
export const getText = async (path) => (await ask(path)).text();

export async function post(path, body) {
  const answer = await ask(path, { method: "POST", body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.json();
}

/** Calls `onEvent` with each event and `onOpen` at the beginning of the stream, until the stream ends. */
export async function events(onOpen, onEvent, signal) {
  const response = await ask("events", { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  onOpen();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) onEvent(JSON.parse(data.slice(6)));
    }
  }
}
