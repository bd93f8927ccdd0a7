// One task: what it is, its questions, its timeline, and what to type elsewhere.

import { getJson, post, Refused, token } from "./api.js";
import { acknowledge, cancel, didChange, runAgain } from "./ask.js";
import { announce, byId, el } from "./dom.js";
import { badge, bar } from "./list.js";
import { FIRST, go, hrefOf } from "./place.js";
import { questionForm } from "./question.js";
import { clock, duration, EFFECTS, plural, short, zoned } from "./words.js";

const ENDED = ["completed", "failed", "cancelled"];
let shown;

export const isOpen = () => shown !== undefined && !shown.isEnded;

/** Shows the task with this id, or none. An open form stays as the operator left it. */
export async function showTask(id) {
  const pane = byId("task");
  if (!id) {
    const before = shown;
    shown = undefined;
    pane.hidden = true;
    document.body.classList.remove("with-task");
    if (before) document.querySelector(`tr[data-id="${CSS.escape(before.id)}"] a.id`)?.focus();
    return;
  }
  const isNew = shown?.id !== id;
  if (isNew) shown = start(id);
  const mine = shown;
  try {
    const task = await getJson(`tasks/${encodeURIComponent(id)}?tree=true`);
    if (shown === mine) update(mine, task);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) throw error;
    if (shown === mine) mine.facts.replaceChildren(el("p", { class: "wrong" }, error.message));
  }
  if (isNew && shown === mine) mine.title.focus();
}

function start(id) {
  const asked = el("h3");
  const parts = {
    id,
    asked,
    forms: new Map(),
    isEnded: false,
    title: el("h2", { tabindex: "-1" }, `Task ${short(id)}`),
    facts: el("div"),
    questions: el("div", { hidden: true }, asked),
    related: el("div"),
    timeline: el("div"),
    payloads: el("div"),
    actions: el("p", { class: "buttons acts" }),
    commands: el("div"),
  };
  const close = el("a", { class: "close", "data-key": "task", "data-value": "", href: hrefOf({ task: "" }), "aria-label": "Close the task" }, "Close");
  byId("task").replaceChildren(close, parts.title, parts.facts, parts.questions, parts.actions, parts.related, parts.timeline, parts.payloads, parts.commands);
  byId("task").hidden = false;
  document.body.classList.add("with-task");
  return parts;
}

function update(parts, task) {
  const isEnded = ENDED.includes(task.state);
  const wasOpen = parts.seen !== undefined && !parts.isEnded;
  if (wasOpen && isEnded) announce(`Task ${short(task.id)} has ended: ${task.state}`);
  parts.isEnded = isEnded;
  parts.title.textContent = task.tool;
  parts.facts.replaceChildren(facts(task, isEnded));
  showQuestions(parts, task);
  // What did not change stays, so that a reader keeps the focus and the selection.
  const seen = JSON.stringify([task.state, task.acknowledged, task.timeline, task.messages, task.arguments, task.result, task.open_questions, task.related, task.named_by]);
  if (parts.seen === seen) return;
  parts.seen = seen;
  parts.related.replaceChildren(...others("Related to", task.related), ...others("Tasks that name this one", task.named_by));
  parts.timeline.replaceChildren(el("h3", {}, "Timeline"), timeline(task.timeline), ...messages(task));
  parts.payloads.replaceChildren(...payloads(task));
  parts.actions.replaceChildren(...actions(task, isEnded));
  parts.commands.replaceChildren(el("h3", {}, "In a terminal"), ...commands(task, isEnded).map(command));
}

function facts(task, isEnded) {
  const all = [
    ["State", badge(task)],
    ["Task", el("code", {}, task.id)],
    ["Tool", el("a", { "data-key": "tool", "data-value": task.tool, href: hrefOf({ tool: task.tool, ...FIRST, task: "" }), title: "only this tool" }, task.tool)],
    ["Progress", bar(task)],
    [isEnded ? "Took" : "Runs for", duration(task.seconds)],
    ["Usually", usually(task.usual)],
    ["Caller", el("code", {}, task.caller)],
    ["Replica", task.waits_for_client ? "none: it waits for the next request of its client" : task.replica],
    ["If that is lost", IF_LOST[task.if_lost]],
    ["At the server", { queued: "not yet: it waits for its turn", sent: "sent", parked: "waits for the answer" }[task.leg]],
    ["Job", task.job && el("code", {}, task.job)],
    ["Attempts", task.attempts > 1 ? `${task.attempts}` : undefined],
    ["Owners", task.owners > 1 ? `${task.owners}: other replicas had it before` : undefined],
    ["Client", task.announced ? undefined : "has not heard of the task"],
    ["Must end by", isEnded ? undefined : zoned(task.deadline)],
    ["Kept until", task.expires && zoned(task.expires)],
    ["Kept", task.kept],
    ["Acknowledged", task.acknowledged && acknowledged(task.acknowledged)],
    ["Message", task.message],
  ];
  const rows = all.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  return el("div", {}, failure(task), el("dl", { class: "facts" }, rows.flat()));
}

/** What becomes of a call whose replica is lost. */
const IF_LOST = {
  resumed: "another replica fetches the answer",
  sent: "another replica sends the call",
  waits_for_client: "it waits for the next request of its client, whose credentials it needs",
  awaits_answer: "nothing is lost: it waits for an answer",
  fails: "it fails: no other replica can carry it on",
};

/** How long tasks of the same tool take. */
function usually(usual) {
  if (!usual) return undefined;
  const [half, most] = [usual.median_ms, usual.p90_ms].map((ms) => duration(ms / 1000));
  return `half end within ${half}, 9 of 10 within ${most} (of ${plural(usual.tasks, "task", "tasks")})`;
}

function failure(task) {
  if (task.outcome === "tool_error") return el("p", { class: "failure" }, el("strong", {}, "The tool says that it failed."), " Its answer is the result of the task.");
  if (task.state !== "failed") return null;
  if (!task.reason) return el("p", { class: "failure" }, el("strong", {}, `The server answered with an error${task.code === undefined ? "" : `, ${task.code}`}.`));
  return el("p", { class: "failure" }, el("strong", {}, `${task.reason}, effect ${task.effect}. `), EFFECTS[task.effect]);
}

/** A form stays as long as its question is open: somebody may be typing into it. */
function showQuestions(parts, task) {
  const open = task.open_questions ?? [];
  const keys = open.map((question) => question.key);
  for (const [key, form] of parts.forms) {
    if (keys.includes(key)) continue;
    form.remove();
    parts.forms.delete(key);
  }
  for (const question of open) {
    if (parts.forms.has(question.key)) continue;
    const form = el("div", {}, el("p", { class: "note" }, `Asked ${clock(question.asked)}`), questionForm(question, (key, answer) => give(task.id, key, answer)));
    parts.forms.set(question.key, form);
    parts.questions.append(form);
  }
  parts.asked.textContent = open.length === 1 ? "A question waits for an answer" : `${open.length} questions wait for an answer`;
  parts.questions.hidden = open.length === 0;
}

function actions(task, isEnded) {
  const button = (label, onclick, isHard) => el("button", { type: "button", class: isHard && "danger", onclick }, label);
  if (!isEnded) return [button("Cancel the task", () => cancel([task], () => announce("The task is cancelled")), true)];
  const isOpen = task.state === "failed" && !task.acknowledged;
  // Its arguments are gone with its record.
  const canRun = !task.kept;
  return [isOpen && button("Acknowledge…", () => acknowledgeIt(task)), canRun && button("Run again…", () => runItAgain(task))].filter(Boolean);
}

const acknowledged = ({ at, by, note }) => [zoned(at), by && `by ${by}`, note].filter(Boolean).join(", ");

function acknowledgeIt(task) {
  acknowledge([task], () => announce("The failure is acknowledged"));
}

function runItAgain(task) {
  runAgain([task], ([begun]) => {
    announce(`The call runs again as ${short(begun.id)}`);
    go({ task: begun.id });
  });
}

async function give(id, key, answer) {
  const why = await act(`tasks/${encodeURIComponent(id)}/answer`, { [key]: answer });
  if (!why) announce("The answer was taken");
  return why;
}

/** Says why it was not done. */
async function act(path, body) {
  try {
    await post(path, body);
    return undefined;
  } catch (error) {
    return error.message;
  } finally {
    didChange();
  }
}

const timeline = (events) => el("ol", { class: "timeline" }, events.map(({ at, what, after_ms }) => el("li", {}, el("time", { datetime: at }, zoned(at)), ` ${what}`, after_ms > 0 && el("small", {}, ` after ${duration(after_ms / 1000)}`))));

/** Other tasks, with a link to each. */
function others(title, tasks) {
  if (!tasks?.length) return [];
  const line = ({ id, state, tool }) => el("li", {}, el("a", { href: hrefOf({ task: id }) }, short(id)), ` ${tool}, ${state}`);
  return [el("h3", {}, title), el("ul", {}, tasks.map(line))];
}

/** What the server said last, where operators may see it. */
function messages(task) {
  if (!task.messages?.length) return [];
  return [el("h3", {}, "Messages of the server"), timeline(task.messages.map(({ at, text }) => ({ at, what: text })))];
}

function payloads(task) {
  return [["Arguments", task.arguments], ["Result", task.result]]
    .filter(([, value]) => value !== undefined && value !== null)
    .flatMap(([name, value]) => [el("h3", {}, name), el("pre", { tabindex: "0" }, JSON.stringify(value, null, 2))]);
}

function commands(task, isEnded) {
  const at = `--admin ${location.host}`;
  const header = token.get() ? '--header "Authorization: Bearer $RAINCHECK_ADMIN__TOKEN" ' : "";
  const all = [`raincheck tasks show ${task.id} ${at}`];
  if (task.state === "input_required") all.push(`raincheck tasks answer ${task.id} --decline ${at}`);
  if (task.named_by?.length) all.push(`raincheck tasks cancel ${task.id} --tree ${at}`);
  if (!isEnded) all.push(`raincheck tasks watch ${task.id} ${at}`, `raincheck tasks cancel ${task.id} ${at}`);
  all.push(`curl ${header}${location.origin}/tasks/${task.id}`);
  return all;
}

function command(text) {
  const code = el("code", { tabindex: "0" }, text);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied");
      button.textContent = "Copied";
    } catch {
      // Not every address may use the clipboard: the text is marked, for Ctrl-C.
      getSelection().selectAllChildren(code);
    }
  };
  const button = el("button", { type: "button", onclick: copy, "aria-label": `Copy ${text}` }, "Copy");
  return el("p", { class: "command" }, code, button);
}
