// Outcomes and durations by tool, from the metrics of this replica.

import { byId, el, svg } from "./dom.js";
import { duration, plural } from "./words.js";

const TOOLS_MAX = 20;
const OUTCOMES = [["completed", "completed"], ["tool_error", "with a tool error"], ["failed", "failed"], ["cancelled", "cancelled"]];
const WIDTH = 240;
const HEIGHT = 12;

/** The samples of a metric in the text format of Prometheus: labels and a value each. */
export function samples(text, name) {
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

/** The bound below which so large a part of the values lies, from the cumulative counts of a histogram. */
export function quantile(part, buckets) {
  const sorted = [...buckets].sort(([one], [other]) => one - other);
  const all = sorted.at(-1)?.[1] ?? 0;
  if (all === 0) return undefined;
  return sorted.find(([, count]) => count >= part * all)?.[0];
}

/** Shows the charts of these metrics. */
export function showCharts(text) {
  const tools = new Map();
  const of = (tool) => {
    if (!tools.has(tool)) tools.set(tool, { tool, outcomes: {}, buckets: new Map() });
    return tools.get(tool);
  };
  for (const { labels, value } of samples(text, "raincheck_tasks_ended_total")) {
    const { outcomes } = of(labels.tool);
    outcomes[labels.outcome] = (outcomes[labels.outcome] ?? 0) + value;
  }
  for (const { labels, value } of samples(text, "raincheck_task_duration_seconds_bucket")) {
    const { buckets } = of(labels.tool);
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  for (const { labels, value } of samples(text, "raincheck_client_clock_seconds")) of(labels.tool).clock = value;
  const rows = [...tools.values()].map((one) => ({ ...one, sum: Object.values(one.outcomes).reduce((all, count) => all + count, 0) }));
  const shown = rows.filter(({ sum }) => sum > 0).sort((one, other) => other.sum - one.sum).slice(0, TOOLS_MAX);
  byId("tools").replaceChildren(...rows.map(({ tool }) => el("option", { value: tool })));
  byId("charts").hidden = shown.length === 0;
  const slowest = Math.max(1, ...shown.map(({ buckets }) => finite(quantile(0.95, buckets), buckets)));
  byId("chart").replaceChildren(legend(), el("table", { class: "charts" },
    el("thead", {}, el("tr", {}, ["Tool", "Outcomes", "Half and 95 % end within"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, shown.map((row) => el("tr", {}, el("th", { scope: "row" }, row.tool), el("td", {}, outcomesOf(row)), el("td", {}, timesOf(row, slowest), clockOf(row)))))));
}

const legend = () => el("p", { class: "legend" }, OUTCOMES.map(([word, label]) => el("span", {}, svg("svg", { width: 10, height: 10, "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, class: `fill ${word}` })), ` ${label}`)));

function outcomesOf({ outcomes, sum }) {
  const there = OUTCOMES.filter(([word]) => outcomes[word] > 0);
  const words = there.map(([word, label]) => `${outcomes[word].toLocaleString()} ${label}`).join(", ");
  let x = 0;
  const rects = there.map(([word, label]) => {
    const width = (WIDTH * outcomes[word]) / sum;
    const rect = svg("rect", { x, width, height: HEIGHT, class: `fill ${word}` }, svg("title", {}, `${outcomes[word]} ${label}`));
    x += width;
    return rect;
  });
  return [chart(words, rects), el("small", {}, words)];
}

/** The time after which a client gives calls of the tool up, where that was learned. */
const clockOf = ({ clock }) => (clock ? el("small", {}, `a client gives up after ${duration(clock)}`) : "");

/** Both times on one scale, which is logarithmic: tools take from a second to a day. */
function timesOf({ buckets, sum }, slowest) {
  const [half, most] = [quantile(0.5, buckets), quantile(0.95, buckets)];
  if (half === undefined) return el("small", {}, plural(sum, "task", "tasks"));
  const at = (bound) => Math.max(2, (WIDTH * Math.log1p(finite(bound, buckets))) / Math.log1p(slowest));
  const say = (bound) => (bound === Infinity ? `more than ${duration(finite(bound, buckets))}` : duration(bound));
  const words = `half ${say(half)}, 95 % ${say(most)}`;
  const rects = [
    svg("rect", { width: at(most), height: HEIGHT, class: "fill most" }),
    svg("rect", { width: at(half), height: HEIGHT, class: "fill half" }),
  ];
  return [chart(words, rects), el("small", {}, words)];
}

const chart = (words, rects) => svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": words, preserveAspectRatio: "none" }, rects);

/** The last bucket has no bound: the one before it stands for it. */
function finite(bound, buckets) {
  if (bound === undefined) return 0;
  return bound === Infinity ? Math.max(0, ...[...buckets.keys()].filter(Number.isFinite)) : bound;
}
