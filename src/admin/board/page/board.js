// The page: reads lists, one task and the metrics, again at each event and after a pause.

import { events, getJson, getText, Refused, token } from "./api.js";
import { onChange } from "./ask.js";
import { chooseNone } from "./chosen.js";
import { byId } from "./dom.js";
import { beginList, showList, showPlace } from "./list.js";
import { onPause, showPauses } from "./pauses.js";
import { FIRST, go, hrefOf, place, queryOf, statsOf } from "./place.js";
import { showStats } from "./stats.js";
import { isOpen, showTask } from "./task.js";
import { HEALTH, plural, zoned } from "./words.js";

/** The pause between two lists, if no event comes: other replicas and progress have no events here. */
const LIST_MS = 5_000;
const TASK_MS = 2_000;
const STATS_MS = 15_000;
const ABOUT_MS = 5_000;
/** The shortest pause between two lists. A list of many tasks costs the server more, and is asked for less often. */
const PAUSE_MIN_MS = 500;
const PAUSE_FACTOR = 3;

const loops = {
  list: loop(readList, LIST_MS),
  task: loop(readTask, TASK_MS),
  stats: loop(readStats, STATS_MS),
  about: loop(readAbout, ABOUT_MS),
};
let asking;
let stream = { text: "loading", isLive: false };
let isListed = true;

/** Repeats `read` after `pauseMs`, or sooner when it is woken. One read at a time. */
function loop(read, pauseMs) {
  let [timer, isReading, isWanted, notBefore] = [undefined, false, false, 0];
  const run = async () => {
    clearTimeout(timer);
    if (isReading || document.hidden || asking) {
      isWanted = true;
      return;
    }
    [isReading, isWanted] = [true, false];
    const began = performance.now();
    try {
      await read();
    } catch (error) {
      fail(error);
    }
    isReading = false;
    const took = performance.now() - began;
    notBefore = performance.now() + Math.max(PAUSE_MIN_MS, PAUSE_FACTOR * took);
    timer = setTimeout(run, isWanted ? notBefore - performance.now() : Math.max(pauseMs, PAUSE_FACTOR * took));
  };
  return {
    now: run,
    /** Something changed: again, when the pause is over. */
    wake() {
      if (isReading || isWanted) {
        isWanted = true;
        return;
      }
      isWanted = true;
      clearTimeout(timer);
      timer = setTimeout(run, Math.max(0, notBefore - performance.now()));
    },
  };
}

let reading;

async function readList() {
  reading?.abort();
  reading = new AbortController();
  const mine = reading;
  const list = await getJson(`tasks?${queryOf(place())}`, mine.signal);
  if (mine.signal.aborted) return;
  byId("trouble").hidden = true;
  isListed = true;
  showLive();
  byId("forget").hidden = !token.get();
  showList(list);
}

async function readTask() {
  const { task } = place();
  if (task === shownTask && task && !isOpen()) return;
  shownTask = task;
  await showTask(task);
}

let shownTask;

async function readStats() {
  const [stats, metrics] = await Promise.all([getJson(`tools/stats?${statsOf(place())}`), getText("metrics")]);
  showStats(stats, metrics);
}

/** Which raincheck this is, and what is not in order. */
async function readAbout() {
  const { version, operator, reloaded, replica, replicas, namespace, upstream, readiness, paused, unacknowledged } = await getJson("about");
  const mayRead = operator?.role === "read";
  // The style hides what such an operator may not do, and the names that the token says already.
  document.body.classList.toggle("may-read", mayRead);
  document.body.classList.toggle("named", Boolean(operator?.name));
  showPauses(paused);
  byId("failures").hidden = !unacknowledged;
  byId("failures").firstElementChild.textContent = `${plural(unacknowledged, "failure that nobody has", "failures that nobody has")} acknowledged`;
  byId("failures").firstElementChild.href = hrefOf({ past: "open", state: "", outcome: "", ...FIRST });
  const others = replicas && replicas.length > 1 ? ` of ${replicas.length.toLocaleString()}` : "";
  byId("which").textContent = [operator?.name && `${operator.name}${mayRead ? ", who may only read" : ""}`, namespace, upstream, `replica ${replica}${others}`, version].filter(Boolean).join(" · ");
  byId("which").title = replicas ? `Replicas: ${replicas.join(", ")}` : "";
  const reload = reloaded?.outcome === "failed" && `The settings could not be reloaded (${zoned(reloaded.at)}), and those of before count: ${reloaded.error}`;
  const wrong = [readiness.draining && "draining", readiness.degraded, ...(readiness.missing ?? []), reload].filter(Boolean);
  byId("degraded").hidden = wrong.length === 0;
  byId("degraded").textContent = wrong.map((word) => HEALTH[word] ?? word).join(" ");
}

function fail(error) {
  if (error.name === "AbortError") return;
  isListed = false;
  showLive();
  if (error instanceof Refused && error.status === 401) {
    askToken();
    return;
  }
  const trouble = byId("trouble");
  if (trouble.hidden || trouble.textContent !== error.message) trouble.textContent = error.message;
  trouble.hidden = false;
}

/** Asks the operator for the token, and begins anew with it. */
function askToken() {
  if (asking) return;
  asking = true;
  byId("token-wrong").textContent = token.get() ? "That token is not the right one." : "";
  token.forget();
  const dialog = byId("ask-token");
  const form = dialog.querySelector("form");
  form.reset();
  form.onsubmit = () => {
    token.set(form.elements.token.value.trim());
    form.reset();
  };
  dialog.oncancel = (event) => event.preventDefault();
  dialog.onclose = () => {
    asking = false;
    begin();
  };
  dialog.showModal();
}

function begin() {
  for (const one of Object.values(loops)) one.now();
  wakeStream();
}

// --- what happens ---

let wakeStream = () => {};

/** Reads events for ever. Between two streams everything is read anew, because a gap has no events. */
async function follow() {
  for (;;) {
    const isStopped = asking || document.hidden;
    if (!isStopped) {
      const stopping = new AbortController();
      const stop = () => document.hidden && stopping.abort();
      document.addEventListener("visibilitychange", stop);
      try {
        await events(() => say("live", true), onEvent, stopping.signal);
      } catch (error) {
        if (error instanceof Refused && error.status === 401) askToken();
      }
      document.removeEventListener("visibilitychange", stop);
      say("not live, trying again", false);
    }
    await new Promise((resolve) => {
      wakeStream = resolve;
      setTimeout(resolve, 3_000);
    });
    if (!asking && !document.hidden) loops.list.wake();
  }
}

function onEvent(event) {
  loops.list.wake();
  if (event.id === place().task) {
    shownTask = undefined;
    loops.task.wake();
  }
}

function say(text, isLive) {
  stream = { text, isLive };
  showLive();
}

/** The page is live where events come and the list can be read. */
function showLive() {
  const live = byId("live");
  const isStale = stream.isLive && !isListed;
  live.textContent = isStale ? "not live: the list cannot be read" : stream.text;
  live.classList.toggle("on", stream.isLive && !isStale);
}

// --- what the operator does ---

const filters = byId("filters");

function showFilters() {
  const here = place();
  for (const name of ["tool", "caller", "replica", "id", "since", "reason", "effect", "older", "sort"]) filters.elements[name].value = here[name] || (name === "sort" ? "stuck" : "");
  byId("period").value = here.period || "86400";
}

filters.addEventListener("submit", (event) => {
  event.preventDefault();
  const said = Object.fromEntries([...new FormData(filters)].map(([name, value]) => [name, value.trim()]));
  go({ ...said, sort: said.sort === "stuck" ? "" : said.sort, ...FIRST });
});
filters.addEventListener("change", (event) => event.target.tagName === "SELECT" && filters.requestSubmit());
filters.addEventListener("reset", (event) => {
  event.preventDefault();
  go({ state: "", outcome: "", tool: "", caller: "", replica: "", id: "", since: "", reason: "", effect: "", older: "", sort: "", past: "", ...FIRST });
});

// A row opens its task, wherever it is clicked but on a link.
byId("rows").addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row && !event.target.closest("a, .choose") && getSelection().isCollapsed) go({ task: row.dataset.id });
});

// A head sorts the list; one that has two orders changes between them.
for (const head of document.querySelectorAll("th[data-sorts]")) {
  head.firstElementChild.addEventListener("click", () => {
    const orders = head.dataset.sorts.split(" ");
    const next = orders[(orders.indexOf(place().sort || "stuck") + 1) % orders.length];
    go({ sort: next === "stuck" ? "" : next, ...FIRST });
  });
}

byId("period").addEventListener("change", ({ target }) => go({ period: target.value === "86400" ? "" : target.value }));

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("tasks").focus();
});

byId("forget").addEventListener("click", () => {
  token.forget();
  location.reload();
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select, dialog");
  if (event.key === "Escape" && place().task && !document.querySelector("dialog[open]")) go({ task: "" });
  else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    filters.elements.tool.focus();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.matches("a.id")) {
    const links = [...document.querySelectorAll("a.id")];
    const next = links[links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    event.preventDefault();
    next?.focus();
  }
});

let before = place();

addEventListener("hashchange", () => {
  const here = place();
  const isSameList = Object.keys(here).every((key) => ["task", "period"].includes(key) || here[key] === before[key]);
  if (here.tool !== before.tool || here.period !== before.period) loops.stats.now();
  before = here;
  showFilters();
  showPlace();
  if (!isSameList) {
    reading?.abort();
    chooseNone();
    beginList();
  }
  loops.list.now();
  loops.task.now();
});

document.addEventListener("visibilitychange", () => document.hidden || begin());
onPause(() => loops.about.now());

onChange(() => {
  loops.about.now();
  shownTask = undefined;
  loops.list.now();
  loops.task.now();
});

showFilters();
begin();
follow();
