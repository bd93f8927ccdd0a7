// Dialogs for what an operator does to one task, or to many.

import { post } from "./api.js";
import { byId } from "./dom.js";
import { plural } from "./words.js";

/** The most requests at the same time. */
const AT_ONCE = 8;

let changed = () => {};

/** `onChange` is called when the operator did something. */
export function onChange(listener) {
  changed = listener;
}

export const didChange = () => changed();

/** Opens a dialog, and does what its form says to each of these tasks, until that is done or left. What is refused can be tried again. */
export function asking(id, title, ids, path, done) {
  const dialog = byId(id);
  const form = dialog.querySelector("form");
  const wrong = form.querySelector(".wrong");
  const go = form.querySelector('[type="submit"]');
  form.reset();
  form.querySelector("h2").textContent = title;
  wrong.textContent = "";
  form.querySelector('[value="no"]').onclick = () => dialog.close();
  let left = ids;
  form.onsubmit = async (event) => {
    event.preventDefault();
    const fields = [...form.elements].filter(({ name }) => name).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]);
    const body = fields.length > 0 ? Object.fromEntries(fields) : undefined;
    go.disabled = true;
    const { answers, refused } = await toEach(left, (one) => post(`tasks/${encodeURIComponent(one)}/${path}`, body));
    go.disabled = false;
    left = refused.map(([one]) => one);
    if (left.length === 0) {
      dialog.close();
      done(answers);
    } else {
      const [[, why]] = refused;
      wrong.textContent = ids.length === 1 ? why : `${plural(left.length, "task is", "tasks are")} left. ${why}`;
    }
    changed();
  };
  dialog.showModal();
}

async function toEach(ids, act) {
  const [waiting, answers, refused] = [[...ids], [], []];
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
      try {
        answers.push(await act(one));
      } catch (error) {
        refused.push([one, error.message]);
      }
    }
  }));
  return { answers, refused };
}

export const cancel = (ids, done) => {
  const title = ids.length === 1 ? "Cancel this task?" : `Cancel ${plural(ids.length, "task", "tasks")}?`;
  byId("ask-cancel").querySelector('[type="submit"]').textContent = ids.length === 1 ? "Cancel the task" : `Cancel ${plural(ids.length, "task", "tasks")}`;
  asking("ask-cancel", title, ids, "cancel", done);
};

export const acknowledge = (ids, done) => asking("ask-acknowledge", ids.length === 1 ? "Acknowledge this failure" : `Acknowledge ${plural(ids.length, "failure", "failures")}`, ids, "ack", done);

/** `mayHaveRun`: the operator must say that a tool may run twice. */
export function runAgain(ids, mayHaveRun, done) {
  byId("may-run-twice").hidden = !mayHaveRun;
  asking("ask-rerun", ids.length === 1 ? "Run this call again?" : `Run ${plural(ids.length, "call", "calls")} again?`, ids, "rerun", done);
}
