// The blocks of a page that are commands for a shell, and the output that the page shows for them.

import { readFileSync } from "node:fs";

const SHELLS = ["sh", "bash", "console", "shell"];

/** Each block of commands of the page: where it begins, its text, the outputs right below it, and the next output of all. */
export function blocksOf(root, page) {
  const lines = readFileSync(`${root}/${page}`, "utf8").split("\n");
  const all = [];
  for (let at = 0; at < lines.length; at += 1) {
    const fence = lines[at].match(/^( *)```([^ ]*)/);
    const begins = at;
    if (fence) {
      while (!/^ *```\s*$/.test(lines[(at += 1)])) if (at >= lines.length) throw new Error(`${page}:${begins + 1} does not end`);
      const text = lines.slice(begins + 1, at).map((line) => line.slice(fence[1].length)).join("\n");
      all.push({ line: begins + 1, end: at, kind: fence[2], text });
    } else if (isIndented(lines[at]) && !(lines[at - 1] ?? "").trim()) {
      while (isIndented(lines[at + 1] ?? "")) at += 1;
      all.push({ line: begins + 1, end: at, kind: "sh", text: dedent(lines.slice(begins, at + 1)) });
    }
  }
  return all.flatMap((block, place) => {
    if (!SHELLS.includes(block.kind)) return [];
    const shown = [];
    const isOutput = (other) => ["text", "diff"].includes(other?.kind);
    for (let last = place; isOutput(all[last + 1]) && isNear(lines, all[last], all[last + 1]); last += 1) shown.push(all[last + 1].text);
    const next = all.slice(place + 1).find(isOutput)?.text;
    return [{ page, line: block.line, text: block.text, shown, next }];
  });
}

const isIndented = (line) => /^ {4,}\S/.test(line);

/** Nothing but empty lines is between them. */
const isNear = (lines, one, other) => lines.slice(one.end + 1, other.line - 1).every((line) => !line.trim());

function dedent(lines) {
  const margin = Math.min(...lines.filter((line) => line.trim()).map((line) => line.match(/^ */)[0].length));
  return lines.map((line) => line.slice(margin)).join("\n");
}

/** What a page shows, as an expression: ids, times and folders differ from run to run, and `...` stands for anything. */
export function pattern(shown) {
  const lines = shown.split("\n").map((line) => {
    if (line.trim() === "...") return "(?:.*\\n)*?";
    const escaped = line.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/\\\.\\\.\\\.|(?<="owner=)[^"]*/g, ".*");
    return `${escaped
      .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "[0-9a-f-]{36}")
      .replace(/\b[0-9a-f]{8}(?=\\\.\\\.)/g, "[0-9a-f]{8}")
      .replace(/\b[0-9a-f]{16}(?=\\\.redb)/g, "[0-9a-f]{16}")
      .replace(/\d+(?:\\\.\d+)? (ms|s)\b/g, "[\\d.]+ $1")}.*\\n`;
  });
  return new RegExp(`^[^\\n]*${lines.join("")}`, "m");
}
