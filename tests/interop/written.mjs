// Tables of docs/clients.md and docs/servers.md that a lane measures: each stands between two comments that name it.

import { readFile, writeFile } from "node:fs/promises";
import { here } from "./house.mjs";

/** RAINCHECK_RENEW=1, as for all pages that are generated. */
export const RENEWS = process.env.RAINCHECK_RENEW === "1";

const CLIENTS_PAGE = here("../../docs/clients.md");
export const SERVERS_PAGE = here("../../docs/servers.md");

/** Puts a table where the comments `NAME: generated` and `NAME: end` are. */
export async function write(name, head, rows, path = CLIENTS_PAGE) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const table = [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
  const page = await readFile(path, "utf8");
  const place = new RegExp(`(<!-- ${name}: generated[^>]*-->\n)[^]*?(<!-- ${name}: end -->)`);
  if (!place.test(page)) throw new Error(`${path} has no place for ${name}`);
  await writeFile(path, page.replace(place, (_, begin, end) => `${begin}\n${measured()}\n\n${table}\n${end}`));
}

/** When, and with what. */
function measured() {
  return `Measured on ${new Date().toISOString().slice(0, 10)} with a debug build, on a virtual machine with two cores.`;
}
