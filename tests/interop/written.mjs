// Tables of docs/clients.md that a lane measures: each stands between two comments that name it.

import { readFile, writeFile } from "node:fs/promises";
import { here } from "./house.mjs";

/** RAINCHECK_RENEW=1, as for all pages that are generated. */
export const RENEWS = process.env.RAINCHECK_RENEW === "1";

const PAGE = here("../../docs/clients.md");

/** Puts a table where the comments `NAME: generated` and `NAME: end` are. */
export async function write(name, head, rows) {
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const table = [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
  const page = await readFile(PAGE, "utf8");
  const place = new RegExp(`(<!-- ${name}: generated[^>]*-->\n)[^]*?(<!-- ${name}: end -->)`);
  if (!place.test(page)) throw new Error(`${PAGE} has no place for ${name}`);
  await writeFile(PAGE, page.replace(place, (_, begin, end) => `${begin}\n${measured()}\n\n${table}\n${end}`));
}

/** When, and with what. */
function measured() {
  return `Measured on ${new Date().toISOString().slice(0, 10)} with a debug build, on a virtual machine with two cores.`;
}
