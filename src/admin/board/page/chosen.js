// The tasks that the operator chose on this page, and what can be done to all of them.

import { acknowledge, cancel, runAgain } from "./ask.js";
import { announce, byId, el } from "./dom.js";
import { plural } from "./words.js";

const ENDED = ["completed", "failed", "cancelled"];

const chosen = new Set();
let tasks = [];
let shown = "";

/** Shows the choice among the tasks of this page. What is not on it any more is not chosen. */
export function showChosen(listed) {
  tasks = listed;
  const ids = new Set(tasks.map(({ id }) => id));
  for (const id of chosen) if (!ids.has(id)) chosen.delete(id);
  show();
}

/** Chooses nothing. */
export function chooseNone() {
  chosen.clear();
  show();
}

function show() {
  for (const row of document.querySelectorAll("#rows tr")) {
    const box = row.querySelector("input");
    if (box) box.checked = chosen.has(row.dataset.id);
  }
  const all = byId("choose-all");
  all.checked = chosen.size > 0 && chosen.size === tasks.length;
  all.indeterminate = chosen.size > 0 && !all.checked;
  all.disabled = tasks.length === 0;
  const bar = byId("chosen");
  bar.hidden = chosen.size === 0;
  // Buttons stay while what they do does, so that a reader keeps the focus.
  const there = tasks.filter(({ id }) => chosen.has(id));
  const now = JSON.stringify(there.map(({ id, state, acknowledged }) => [id, state, acknowledged]));
  if (now === shown) return;
  shown = now;
  const [before] = bar.contains(document.activeElement) ? document.activeElement.textContent.split(" ") : [];
  bar.replaceChildren(el("span", {}, `${plural(chosen.size, "task", "tasks")} chosen`), ...actions(there), button("Choose none", chooseNone));
  if (before) [...bar.querySelectorAll("button")].find((one) => one.textContent.startsWith(before))?.focus();
}

function actions(there) {
  const open = there.filter(({ state }) => !ENDED.includes(state));
  const failed = there.filter(({ state, acknowledged }) => state === "failed" && !acknowledged);
  const ended = there.filter(({ state }) => ENDED.includes(state));
  const done = (words) => ({ length }) => {
    announce(`${plural(length, "task", "tasks")} ${words}`);
    chooseNone();
  };
  return [
    open.length > 0 && button(`Cancel ${open.length}…`, () => cancel(open, done("cancelled")), true),
    failed.length > 0 && button(`Acknowledge ${failed.length}…`, () => acknowledge(failed, done("acknowledged"))),
    ended.length > 0 && button(`Run ${ended.length} again…`, () => runAgain(ended, done("begun"))),
  ].filter(Boolean);
}

const button = (label, onclick, isHard) => el("button", { type: "button", class: isHard && "danger", onclick }, label);

byId("rows").addEventListener("change", ({ target }) => {
  const { id } = target.closest("tr").dataset;
  if (target.checked) chosen.add(id);
  else chosen.delete(id);
  show();
});

byId("choose-all").addEventListener("change", ({ target }) => {
  chosen.clear();
  if (target.checked) for (const { id } of tasks) chosen.add(id);
  show();
});
