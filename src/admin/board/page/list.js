// The counts that are filters, the table, and its pages.

import { showChosen } from "./chosen.js";
import { announce, byId, el } from "./dom.js";
import { FIRST, go, hrefOf, PAGE, place } from "./place.js";
import { clock, duration, plural, progressOf, short, STATES, stateOf } from "./words.js";

const rows = new Map();
/** The tasks of the list before that waited for an answer: their count, and the ids of those on the page. */
let waitingBefore;

/** Shows one answer of `GET /tasks`. */
export function showList(list) {
  const here = place();
  showPast(list, here);
  if (list.counts) showCounts(list.counts, here.past ? undefined : here.outcome || here.state);
  keepFocus(() => {
    showRows(list.tasks);
    showPlace();
    showChosen(list.tasks);
  });
  showOrder(here);
  const reasons = new Set(list.tasks.map(({ reason }) => reason).filter(Boolean));
  byId("reasons").replaceChildren(...[...reasons].sort().map((reason) => el("option", { value: reason })));
  byId("partial").hidden = !list.partial;
  byId("lost").hidden = !list.lost;
  byId("fails").hidden = !list.fail_if_lost;
  byId("fails").textContent = `${plural(list.fail_if_lost ?? 0, "task", "tasks")} would fail with a lost replica.`;
  byId("none").hidden = list.tasks.length > 0;
  if (!list.counts) return;
  const offset = Number(here.offset) || 0;
  const last = offset + list.tasks.length;
  const page = list.total === 0 ? "" : `${(offset + 1).toLocaleString()} to ${last.toLocaleString()} of ${plural(list.total, "task", "tasks")}`;
  byId("page").textContent = page;
  button("back", offset > 0, Math.max(0, offset - PAGE));
  button("next", list.next_offset !== null, list.next_offset);
  const count = list.counts.input_required;
  document.title = count > 0 ? `(${count}) raincheck: tasks` : "raincheck: tasks";
  // One question may come while another ends: the count alone does not show that.
  const ids = new Set(list.tasks.filter((task) => stateOf(task).word === "input_required").map((task) => task.id));
  const isMore = waitingBefore && (count > waitingBefore.count || [...ids].some((id) => !waitingBefore.ids.has(id)));
  if (isMore) announce(`${plural(count, "task waits", "tasks wait")} for an answer`);
  waitingBefore = { count, ids };
}

/** Which list this is, and the way to the other one. A page of the past leads to the next one only: the browser goes back. */
function showPast(list, { past, after }) {
  const TITLES = { open: "Failures that nobody has acknowledged", all: "Tasks that have ended", "": "Tasks" };
  byId("tasks").textContent = TITLES[past] ?? TITLES[""];
  const more = byId("more");
  more.hidden = !past && !list.more_ended;
  more.firstElementChild.textContent = past ? "Back to the tasks of now" : "More tasks have ended before these: show all that have ended";
  more.firstElementChild.href = hrefOf({ past: past ? "" : "all", state: "", ...FIRST });
  if (list.counts) return;
  byId("page").textContent = after ? "Further back" : "";
  byId("back").disabled = !after;
  byId("back").onclick = () => history.back();
  byId("next").disabled = list.next === null;
  byId("next").onclick = () => {
    go({ after: list.next });
    byId("tasks").focus();
  };
}

/** The heads that sort show the order. A page of the past has one order: the last end first. */
function showOrder({ sort, past }) {
  for (const head of document.querySelectorAll("th[data-sorts]")) {
    const isHere = head.dataset.sorts.split(" ").includes(sort || "stuck");
    head.firstElementChild.disabled = past !== "";
    if (isHere && !past) head.setAttribute("aria-sort", SORTED[sort] ?? "other");
    else head.removeAttribute("aria-sort");
  }
}

const SORTED = { newest: "descending", longest: "descending", oldest: "ascending", tool: "ascending", caller: "ascending" };

/** Begins a list of other filters: what waits in it did not begin to wait just now. */
export function beginList() {
  waitingBefore = undefined;
  announce("The list is filtered");
}

function button(id, isThere, offset) {
  const it = byId(id);
  it.disabled = !isThere;
  it.onclick = () => {
    go({ offset: offset ? `${offset}` : "" });
    byId("tasks").focus();
  };
}

function showCounts(counts, state) {
  const sum = Object.values(counts).reduce((all, one) => all + one, 0);
  const items = byId("counts");
  STATES.forEach(([word, label, key], at) => {
    let link = items.children[at]?.firstElementChild;
    if (!link) {
      link = el("a", { class: `count ${word || "all"}`, "data-key": key, "data-value": word }, el("strong"), el("span", {}, label));
      items.append(el("li", {}, link));
    }
    if (word === state) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    link.firstElementChild.textContent = (word ? counts[word] ?? 0 : sum).toLocaleString();
  });
}

function showRows(tasks) {
  const wanted = new Set(tasks.map((task) => task.id));
  for (const [id, row] of rows) {
    if (wanted.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  const body = byId("rows");
  tasks.forEach((task, at) => {
    const row = rows.get(task.id) ?? el("tr", { "data-id": task.id });
    rows.set(task.id, row);
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
    fillRow(row, task);
  });
}

/** A row is made anew only if something in it changed: a page has a hundred of them, once a second, and what has the focus stays. */
function fillRow(row, task) {
  const state = stateOf(task);
  const age = duration(task.seconds);
  const seen = JSON.stringify([state.word, task.progress, task.reason, task.effect, task.replica, task.waits_for_client, task.acknowledged]);
  if (row.dataset.seen === seen) {
    row.querySelector(".age").textContent = age;
    return;
  }
  row.dataset.seen = seen;
  row.className = state.word;
  const filter = (key, value, label) => value && el("a", { "data-key": key, "data-value": value, title: `only this ${key}` }, label ?? value);
  row.replaceChildren(
    el("td", { class: "choose" }, el("input", { type: "checkbox", "aria-label": `Choose task ${short(task.id)}` })),
    el("td", { class: "state" }, badge(task), reasonOf(task) && el("small", { class: "reason" }, reasonOf(task)), task.acknowledged && el("small", { class: "reason" }, "acknowledged")),
    el("td", { class: "tool" }, el("a", { "data-key": "task", "data-value": task.id }, task.tool)),
    el("td", {}, el("a", { class: "id", "data-key": "task", "data-value": task.id, title: task.id, "aria-label": `Task ${short(task.id)}, ${task.tool}, ${state.label}` }, short(task.id))),
    el("td", { "data-label": "Progress" }, bar(task)),
    el("td", { "data-label": "Started", class: "started" }, clock(task.began)),
    el("td", { class: "number age", "data-label": "Time" }, age),
    el("td", { "data-label": "Caller", class: "caller" }, filter("caller", task.label ?? task.caller)),
    el("td", { "data-label": "Replica", class: "replica" }, task.waits_for_client ? "waits for its client" : filter("replica", task.replica)),
  );
}

/** Why it failed, in a few words. */
function reasonOf({ reason, effect, code }) {
  if (reason) return effect === "unknown" ? `${reason}, may have run` : reason;
  return code === undefined ? undefined : `the server's error ${code}`;
}

/** Shows where the reader is now: which task is open, and where each link leads, which changes one thing of it. A filter begins with its first page. */
export function showPlace() {
  const { task } = place();
  for (const [id, row] of rows) row.classList.toggle("open", id === task);
  for (const link of document.querySelectorAll("#counts a, #rows a, #by-tool a, #task a[data-key]")) {
    const { key, value } = link.dataset;
    const isEnd = key === "state" || key === "outcome";
    // On a phone the open task hides the list.
    const closes = link.closest("#task") && { task: "" };
    const href = hrefOf(key === "task" ? { task: value } : { ...(isEnd && { state: "", outcome: "", past: "" }), ...closes, [key]: value, ...FIRST });
    if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  }
}

export function badge(task) {
  const { word, label } = stateOf(task);
  return el("span", { class: `badge ${word}` }, label);
}

export function bar(task) {
  const progress = progressOf(task);
  if (!progress) return undefined;
  const text = el("small", {}, progress.text);
  if (progress.percent === undefined) return text;
  return el("span", { class: "progress" }, el("progress", { max: 100, value: progress.percent, "aria-label": `Progress ${progress.percent} %` }), text);
}

/** Moving or remaking a row takes the focus away: it is given back to what stands there now. */
function keepFocus(change) {
  const before = document.activeElement;
  const row = before?.closest("#rows tr");
  const place = row && [...row.querySelectorAll("a, input")].indexOf(before);
  change();
  if (row?.isConnected && document.activeElement !== before) row.querySelectorAll("a, input")[place]?.focus({ preventScroll: true });
}
