// The pictures of the documents: the board in both colour schemes, and the demo as an animated SVG. RAINCHECK_RENEW=1 makes them from
// this page and from a real run; without it they are compared with what they were made from, so that they cannot grow old.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { once } from "node:events";

const { RAINCHECK, RAINCHECK_RENEW } = process.env;
const ROOT = new URL("../../", import.meta.url);
const PICTURES = new URL("docs/pictures/", ROOT);
const PAGE = new URL("src/admin/board/page/", ROOT);
const MADE_FROM = new URL("made-from.txt", PICTURES);
const RENEW = "the pictures are of another page: RAINCHECK_RENEW=1 tests/interop/all.sh board makes them anew";

/** A digest of all files of the page. */
async function digest() {
  const hash = createHash("sha256");
  for (const name of (await readdir(PAGE)).sort()) hash.update(`${name}\0`).update(await readFile(new URL(name, PAGE)));
  return hash.digest("hex");
}

/** Takes pictures of the page that `open` opens in a colour scheme, or checks that they are of this page. */
export async function picturesOfBoard(open) {
  if (!RAINCHECK_RENEW) {
    const made = await readFile(MADE_FROM, "utf8");
    assert.equal(made.trim(), await digest(), RENEW);
    return;
  }
  await mkdir(PICTURES, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    const page = await open({ colorScheme, viewport: { width: 1240, height: 720 } });
    await page.screenshot({ path: new URL(`board-${colorScheme}.png`, PICTURES).pathname, fullPage: true });
    await page.context().close();
  }
  await writeFile(MADE_FROM, `${await digest()}\n`);
}

/** Runs the demo. Returns its lines, each with the second in which it came. */
async function runDemo() {
  const demo = spawn(RAINCHECK, ["demo"], { stdio: ["ignore", "pipe", "inherit"] });
  const began = performance.now();
  const lines = [];
  let rest = "";
  demo.stdout.setEncoding("utf8").on("data", (text) => {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    for (const part of parts) lines.push({ text: part, at: (performance.now() - began) / 1000 });
  });
  const [code] = await once(demo, "close");
  assert.equal(code, 0, "the demo succeeds");
  return lines;
}

/** What of the lines does not differ between two runs. */
const words = (lines) => lines.map(({ text }) => text.replace(/[0-9a-f]{8}\.\.|\d+(\.\d+)?/g, "N").replace(/#+\.*/, "#").trim()).filter((text) => text && !text.startsWith("#"));

/** Makes the animated picture of a run of the demo, or checks that it shows what the program prints. */
export async function pictureOfDemo() {
  const lines = await runDemo();
  const file = new URL("demo.svg", PICTURES);
  if (RAINCHECK_RENEW) {
    await mkdir(PICTURES, { recursive: true });
    await writeFile(file, svg(lines.slice(1)));
  }
  const shown = [...(await readFile(file, "utf8")).matchAll(/<text [^>]*>([^<]*)<\/text>/g)];
  const unescaped = shown.map(([, text]) => ({ text: text.replaceAll("&lt;", "<").replaceAll("&amp;", "&") }));
  assert.deepEqual(words(unescaped), words(lines), "docs/pictures/demo.svg is of another demo: RAINCHECK_RENEW=1 makes it anew");
}

/** A terminal whose lines come as they came. A bar of progress stands in the place of the one before. */
function svg(lines) {
  const [ROW, CHAR, PAUSE] = [18, 7.8, 5];
  const end = lines.at(-1).at + PAUSE;
  const isBar = ({ text }) => /^ *#/.test(text);
  let row = 0;
  const placed = lines.map((line, at) => {
    if (at > 0 && !(isBar(line) && isBar(lines[at - 1]))) row += 1;
    const isReplaced = isBar(line) && isBar(lines[at + 1] ?? { text: "" });
    return { ...line, row, until: isReplaced ? lines[at + 1].at : undefined };
  });
  const percent = (at) => Math.min(99, (100 * at) / end).toFixed(1);
  const frames = placed.map(({ at, until }, n) => `@keyframes l${n}{0%{opacity:0}${percent(at)}%{opacity:1}${until === undefined ? "" : `${percent(until)}%{opacity:0}`}}`);
  const uses = placed.map((_, n) => `#l${n}{animation-name:l${n}}`);
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const texts = placed.map(({ text, row: at, until }, n) => `<text id="l${n}" x="14" y="${26 + at * ROW}"${until === undefined ? "" : ' class="was"'}${/^\d\./.test(text) ? ' font-weight="700"' : ""}>${escaped(text)}</text>`);
  const width = Math.ceil(28 + CHAR * Math.max(...lines.map(({ text }) => text.length)));
  const height = 44 + row * ROW;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="What raincheck demo prints">
<style>
rect{fill:#f6f7f9;stroke:#d9dee6}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1a2230;white-space:pre;animation:${end.toFixed(1)}s steps(1) infinite}
@media(prefers-color-scheme:dark){rect{fill:#12161d;stroke:#313a48}text{fill:#e6eaf1}}
${frames.join("\n")}
${uses.join("\n")}
@media(prefers-reduced-motion:reduce){text{animation:none!important}.was{opacity:0}}
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
${texts.join("\n")}
</svg>
`;
}
