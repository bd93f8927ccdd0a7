// The tools that operators paused, and the dialog that pauses more.

import { post } from "./api.js";
import { announce, byId, el } from "./dom.js";
import { place } from "./place.js";
import { clock, duration } from "./words.js";

let changed = () => {};
let shown = "";

/** `onPause` is called when the operator paused or resumed tools. */
export function onPause(listener) {
  changed = listener;
}

/** Shows the pauses. Their buttons stay while the pauses do, so that a reader keeps the focus. */
export function showPauses(paused = []) {
  const list = byId("pauses");
  const now = JSON.stringify(paused.map(({ tools, until, reason, by, known }) => [tools, until, reason, by, known]));
  if (now !== shown) list.replaceChildren(...paused.map(line));
  shown = now;
  list.hidden = paused.length === 0;
  paused.forEach(({ seconds_left }, number) => {
    list.children[number].querySelector(".left").textContent = `${duration(seconds_left)} left`;
  });
}

function line({ tools, until, reason, by, known }) {
  const end = el("button", { type: "button", class: "acts", onclick: () => resume(tools), "aria-label": `Resume ${tools}` }, "Resume");
  const why = `${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}`;
  return el("li", {}, el("span", {}, el("code", {}, tools), known === false && " (the server has listed no tool of this name)", ` is paused until ${clock(until)} (`, el("span", { class: "left" }), `)${why}`), end);
}

async function resume(tools) {
  const wrong = byId("resume-wrong");
  wrong.textContent = "";
  try {
    await post("tools/resume", { tools });
    announce(`${tools} is resumed`);
  } catch (error) {
    wrong.textContent = error.message;
  }
  changed();
}

const dialog = byId("ask-pause");
const form = dialog.querySelector("form");

byId("pause").addEventListener("click", () => {
  form.reset();
  byId("pause-wrong").textContent = "";
  form.elements.tools.value = place().tool;
  dialog.showModal();
});

form.querySelector('[value="no"]').addEventListener("click", () => dialog.close());

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { tools, seconds, reason } = Object.fromEntries(new FormData(form));
  try {
    await post("tools/pause", { tools: tools.trim(), seconds: Number(seconds), reason });
  } catch (error) {
    byId("pause-wrong").textContent = error.message;
    return;
  }
  dialog.close();
  announce(`${tools} is paused`);
  changed();
});
