// Dialogs for what an operator does to one task, or to many.

import { post } from "./api.js";
import { byId } from "./dom.js";
import { plural, short } from "./words.js";

/** The most requests at the same time. */
const AT_ONCE = 8;
/** The most tasks that a dialog names. */
const NAMED_MAX = 5;

let changed = () => {};
/** The question that the operator answers now. One that was left writes nothing into the dialog of the next one. */
let asked;

/** `onChange` is called when the operator did something. */
export function onChange(listener) {
  changed = listener;
}

export const didChange = () => changed();

/** Opens a dialog, and does what its form says to each of these tasks, until that is done or left. What is refused can be tried again. */
function asking(id, title, tasks, path, done) {
  const dialog = byId(id);
  const form = dialog.querySelector("form");
  const wrong = form.querySelector(".wrong");
  const go = form.querySelector('[type="submit"]');
  const mine = { left: tasks.map((task) => task.id), answers: [], isOpen: true };
  asked = mine;
  form.reset();
  form.querySelector("h2").textContent = title;
  form.querySelector(".which").textContent = names(tasks);
  wrong.textContent = "";
  go.disabled = false;
  form.querySelector('[value="no"]').onclick = () => dialog.close();
  dialog.onclose = () => { mine.isOpen = false; };
  form.onsubmit = async (event) => {
    event.preventDefault();
    const fields = [...form.elements].filter(({ name }) => name).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]);
    const body = fields.length > 0 ? Object.fromEntries(fields) : undefined;
    go.disabled = true;
    const why = await toEach(mine, (one) => post(`tasks/${encodeURIComponent(one)}/${path}`, body));
    changed();
    if (asked !== mine || !mine.isOpen) return;
    go.disabled = false;
    if (mine.left.length === 0) {
      dialog.close();
      done(mine.answers);
    } else {
      wrong.textContent = tasks.length === 1 ? why : `${plural(mine.left.length, "task is", "tasks are")} left. ${why}`;
    }
  };
  dialog.showModal();
}

/** Does it to each task that is left, until the dialog is. Returns why the first of those was refused that are left now. */
async function toEach(mine, act) {
  const [waiting, refused] = [[...mine.left], []];
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (mine.isOpen && waiting.length > 0) {
      const one = waiting.shift();
      try {
        mine.answers.push(await act(one));
      } catch (error) {
        refused.push([one, error.message]);
      }
    }
  }));
  mine.left = [...refused.map(([one]) => one), ...waiting];
  return refused[0]?.[1] ?? "";
}

/** The first of the tasks by their tools and ids. */
function names(tasks) {
  const some = tasks.slice(0, NAMED_MAX).map(({ id, tool }) => `${tool} ${short(id)}`);
  const more = tasks.length - some.length;
  return some.join(", ") + (more > 0 ? `, and ${more.toLocaleString()} more` : "");
}

export function cancel(tasks, done) {
  const isOne = tasks.length === 1;
  byId("ask-cancel").querySelector('[type="submit"]').textContent = isOne ? "Cancel the task" : `Cancel ${tasks.length.toLocaleString()} tasks`;
  asking("ask-cancel", isOne ? "Cancel this task?" : `Cancel ${tasks.length.toLocaleString()} tasks?`, tasks, "cancel", done);
}

export const acknowledge = (tasks, done) => asking("ask-acknowledge", tasks.length === 1 ? "Acknowledge this failure" : `Acknowledge ${tasks.length.toLocaleString()} failures`, tasks, "ack", done);

/** A call that surely did not run is run again without a question. */
export function runAgain(tasks, done) {
  byId("may-run-twice").hidden = tasks.every(({ effect }) => effect === "none");
  asking("ask-rerun", tasks.length === 1 ? "Run this call again?" : `Run ${tasks.length.toLocaleString()} calls again?`, tasks, "rerun", done);
}
