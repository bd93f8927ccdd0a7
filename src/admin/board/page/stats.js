// What ended in a period: over time, and by tool with durations. From the history, which all replicas share.

import { byId, el, svg } from "./dom.js";
import { FIRST, hrefOf, place } from "./place.js";
import { clock, duration, plural, zoned } from "./words.js";

const OUTCOMES = [["completed", "completed"], ["tool_error", "with a tool error"], ["failed", "failed"], ["cancelled", "cancelled"]];
const [WIDTH, HEIGHT] = [720, 120];
const [LINE_WIDTH, LINE_HEIGHT] = [140, 24];

/** The samples of a metric in the text format of Prometheus: labels and a value each. */
function samples(text, name) {
  const found = [];
  for (const line of text.split("\n")) {
    if (!line.startsWith(`${name}{`)) continue;
    const labels = {};
    for (const [, key, value] of line.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[key] = value.replace(/\\(.)/g, (_, one) => (one === "n" ? "\n" : one));
    }
    found.push({ labels, value: Number(line.slice(line.lastIndexOf(" ") + 1)) });
  }
  return found;
}

let shown;

/** Shows one answer of `GET /tools/stats`; the times after which clients give up are in the metrics. */
export function showStats(stats, metrics) {
  const clocks = new Map(samples(metrics, "raincheck_client_clock_seconds").map(({ labels, value }) => [labels.tool, value]));
  byId("tools").replaceChildren(...stats.tools.filter(({ tool }) => tool).map(({ tool }) => el("option", { value: tool })));
  const notes = [
    !stats.history && "No history is kept (history.keep): only tasks that run are here.",
    stats.history_begins && `The history goes back to ${zoned(stats.history_begins)}.`,
    stats.partial && "There are more open tasks than are counted here.",
    stats.lost && "The store has lost some of the tasks that ended.",
    stats.more_tools > 0 && `${plural(stats.more_tools, "more tool", "more tools")}, of which less ended.`,
  ].filter(Boolean);
  byId("stats-note").textContent = notes.join(" ");
  byId("stats-note").hidden = notes.length === 0;
  // What did not change stays, so that a reader keeps the focus, and an open table stays open.
  const seen = JSON.stringify([stats.steps, stats.tools, [...clocks], place().tool]);
  if (seen === shown) return;
  shown = seen;
  const isOpen = byId("over-time").querySelector("details")?.open ?? false;
  byId("over-time").replaceChildren(legend(), bars(stats), numbers(stats, isOpen));
  byId("by-tool").replaceChildren(...byTool(stats, clocks));
}

const count = (one, word) => one[word] ?? 0;
const say = (one) => OUTCOMES.filter(([word]) => count(one, word) > 0).map(([word, label]) => `${count(one, word).toLocaleString()} ${label}`).join(", ");
/** A step is named by the time of its beginning; in a day or less the date says nothing. */
const timeOf = ({ at }, seconds) => (seconds < 3600 ? new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : clock(at));

const legend = () => el("p", { class: "legend" },
  OUTCOMES.map(([word, label]) => el("span", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, class: `fill ${word}` }), marks(word, 0, 0, 12, 12)), ` ${label}`)),
  el("span", {}, svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("path", { d: "M0 6H12", class: "line" })), " began"));

/** What tells outcomes apart without colours: stripes over the plain bars. The page has the patterns. */
const marks = (word, x, y, width, height) => (word === "completed" ? undefined : svg("rect", { x, y, width, height, fill: `url(#mark-${word})` }));

/** The ends of each step as a bar, and what began as a line. */
function bars({ steps, step_seconds }) {
  const most = Math.max(1, ...steps.map(({ ended, began }) => Math.max(ended, began)));
  const width = WIDTH / steps.length;
  const high = (number) => (HEIGHT * number) / most;
  const rects = steps.flatMap((step, at) => {
    let y = HEIGHT;
    const [x, wide] = [at * width + 0.5, Math.max(1, width - 1)];
    return OUTCOMES.filter(([word]) => count(step, word) > 0).flatMap(([word]) => {
      const height = high(count(step, word));
      y -= height;
      return [svg("rect", { x, y, width: wide, height, class: `fill ${word}` }), marks(word, x, y, wide, height)];
    });
  });
  const areas = steps.map((step, at) => svg("rect", { x: at * width, width, height: HEIGHT, class: "area" }, svg("title", {}, `${timeOf(step, step_seconds)}: ${step.began} began, ${step.ended} ended${step.ended ? ` (${say(step)})` : ""}`)));
  const line = steps.map(({ began }, at) => `${at ? "L" : "M"}${(at + 0.5) * width} ${HEIGHT - high(began)}`).join("");
  const sums = Object.fromEntries(["began", "ended", ...OUTCOMES.map(([word]) => word)].map((word) => [word, steps.reduce((all, step) => all + count(step, word), 0)]));
  const words = `${plural(sums.began, "call", "calls")} began, ${sums.ended.toLocaleString()} ended${sums.ended ? `: ${say(sums)}` : ""}`;
  return el("figure", { class: "over-time" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, preserveAspectRatio: "none" }, rects, svg("path", { d: line, class: "line" }), areas),
    el("figcaption", {}, el("span", {}, timeOf(steps[0], step_seconds)), el("span", {}, `${words}; at most ${most.toLocaleString()} in ${duration(step_seconds)}`), el("span", {}, "now")));
}

/** The same in numbers. */
function numbers({ steps, step_seconds }, isOpen) {
  const heads = ["From", "Began", "Ended", "Failed", "Tool errors", "Cancelled", "Median", "90 %"];
  const rows = steps.filter(({ began, ended }) => began || ended).map((step) => el("tr", {},
    el("th", { scope: "row" }, timeOf(step, step_seconds)),
    [step.began, step.ended, step.failed, step.tool_error, step.cancelled].map((number) => el("td", { class: "number" }, number.toLocaleString())),
    [step.median_seconds, step.p90_seconds].map((seconds) => el("td", { class: "number" }, time(seconds)))));
  return el("details", { open: isOpen }, el("summary", {}, "The numbers"), el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "The numbers over time" }, el("table", {},
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at > 0 && "number" }, head)))), el("tbody", {}, rows))));
}

function time(seconds) {
  if (seconds === null) return "";
  return seconds < 1 ? `${Math.round(1000 * seconds)} ms` : duration(seconds);
}

function byTool({ tools, steps, step_seconds }, clocks) {
  if (tools.length === 0) return [el("p", { class: "note" }, "Nothing runs, and nothing ended.")];
  const heads = ["Tool", "Running", "Waiting", "Ended", "Failed", "Tool errors", "Cancelled", "Median", "90 %", "Median over time"];
  const number = (label, value) => el("td", { class: "number", "data-label": label }, value);
  const rows = tools.map((one) => el("tr", {},
    el("th", { scope: "row" }, nameOf(one), one.paused && el("small", {}, "paused"), clocks.has(one.tool) && el("small", {}, `a client gives up after ${duration(clocks.get(one.tool))}`)),
    [["Running", one.running], ["Waiting", one.waiting], ["Ended", one.ended], ["Failed", one.failed], ["Tool errors", one.tool_error], ["Cancelled", one.cancelled]].map(([label, value]) => number(label, value.toLocaleString())),
    number("Median", time(one.median_seconds)), number("90 %", time(one.p90_seconds)),
    el("td", {}, medians(one, steps, step_seconds))));
  return [el("table", { class: "charts" }, el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: at > 0 && at < 9 && "number" }, head)))), el("tbody", {}, rows))];
}

function nameOf({ tool }) {
  if (!tool) return "other tools";
  const isOnly = place().tool === tool;
  const value = isOnly ? "" : tool;
  return el("a", { href: hrefOf({ tool: value, ...FIRST }), title: isOnly ? "all tools" : "only this tool", "data-key": "tool", "data-value": value }, tool);
}

/** The median of each step as a line, with gaps where nothing ended. */
function medians({ medians: values }, steps, seconds) {
  const there = values.map((value, at) => [value, at]).filter(([value]) => value !== null);
  if (there.length === 0) return undefined;
  const most = Math.max(0.001, ...there.map(([value]) => value));
  const x = (at) => ((at + 0.5) * LINE_WIDTH) / values.length;
  const y = (value) => LINE_HEIGHT - 2 - ((LINE_HEIGHT - 4) * value) / most;
  const isThere = (at) => values[at] !== null && values[at] !== undefined;
  const line = there.map(([value, at]) => `${isThere(at - 1) ? "L" : "M"}${x(at)} ${y(value)}`).join("");
  const alone = there.filter(([, at]) => !isThere(at - 1) && !isThere(at + 1));
  const dots = alone.map(([value, at]) => svg("circle", { cx: x(at), cy: y(value), r: 2 }));
  const [first, last] = [there[0], there.at(-1)];
  const highest = there.find(([value]) => value === most) ?? first;
  const when = ([value, at]) => `${time(value)} (${timeOf(steps[at], seconds)})`;
  const words = there.length === 1 ? `median ${when(first)}` : `median ${when(first)} at first, ${when(last)} at last, at most ${when(highest)}`;
  return svg("svg", { viewBox: `0 0 ${LINE_WIDTH} ${LINE_HEIGHT}`, width: LINE_WIDTH, height: LINE_HEIGHT, role: "img", "aria-label": words }, svg("title", {}, words), svg("path", { d: line, class: "line" }), dots);
}
