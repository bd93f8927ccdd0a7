// The words of the page: states, outcomes, effects, times.

/** The filters by state or by outcome, in the order of the buttons; what waits for somebody comes first. */
export const STATES = [
  ["", "All", "state"],
  ["input_required", "Waiting for an answer", "state"],
  ["working", "Working", "state"],
  ["completed", "Completed", "outcome"],
  ["tool_error", "Tool error", "outcome"],
  ["failed", "Failed", "outcome"],
  ["cancelled", "Cancelled", "outcome"],
];

/** The state of a task as people say it. A completed task whose tool says `isError` is told apart. */
export function stateOf(task) {
  const word = task.outcome ?? task.state;
  const known = STATES.find(([other]) => other === word);
  return { word, label: known ? known[1] : word };
}

/** What is not in order, by the words of the readiness probe. */
export const HEALTH = {
  draining: "This replica drains: it takes no new calls, and ends when its calls have ended.",
  store: "The store was not reached yet.",
  store_away: "The store does not answer: tasks can neither be made nor read.",
  store_full: "The store is full: no new task is made.",
  store_may_evict: "The store may evict tasks: its eviction policy is not noeviction.",
  upstream: "The server was not reached yet.",
  upstream_away: "The server does not answer.",
  upstream_cannot_run: "The server's program cannot be run.",
  upstream_not_mcp: "What answers at the server's address is no MCP server.",
  issuer_keys: "The keys of the issuer were not fetched yet: no client can be known.",
};

/** What the effect of a failure means for whoever wants to call again. */
export const EFFECTS = {
  none: "The tool did not run. Calling it again is safe.",
  unknown: "The tool may have run. Look at what it changes before you call it again.",
};

/** Seconds as people say them: 42 s, 3 min 5 s, 2 h 10 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds < 10 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  const [unit, size] = units[first];
  const rest = units[first + 1] && Math.floor((whole % size) / units[first + 1][1]);
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${units[first + 1][0]}` : ""}`;
}

/** A time of the API in the clock of the reader. */
export function clock(text, options) {
  const at = new Date(text);
  return Number.isNaN(at.valueOf()) ? text : at.toLocaleString([], options);
}

/** The same with its zone, for who compares it with other clocks. */
export const zoned = (text) => clock(text, { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" });

/** The first part of an id, as the log has it. */
export const short = (id) => id.split("-")[0];

export const plural = (count, one, many) => `${count.toLocaleString()} ${count === 1 ? one : many}`;

/** How far a task is, if its server says so. */
export function progressOf(task) {
  if (!task.progress) return undefined;
  const { progress, total } = task.progress;
  const round = (number) => Number(number.toFixed(2)).toLocaleString();
  if (!(total > 0)) return { text: round(progress) };
  const percent = Math.min(100, Math.max(0, Math.round((100 * progress) / total)));
  return { text: `${round(progress)} of ${round(total)}`, percent };
}
