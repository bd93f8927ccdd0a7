// Where the reader is: filters, page and task, in the hash of the address. So links and the back button work.

const KEYS = ["state", "outcome", "tool", "caller", "replica", "id", "since", "reason", "effect", "older", "sort", "past", "period", "offset", "after", "task"];
/** What begins a list anew from its first page. */
export const FIRST = { offset: "", after: "" };
export const PAGE = 100;

export function place() {
  const said = new URLSearchParams(location.hash.slice(1));
  const here = Object.fromEntries(KEYS.map((key) => [key, said.get(key) ?? ""]));
  // A state in which a task has ended is an outcome here.
  if (!here.outcome && ["completed", "failed", "cancelled"].includes(here.state)) [here.outcome, here.state] = [here.state, ""];
  return here;
}

/** The address of this place with some changes. */
export function hrefOf(changes) {
  const there = Object.entries({ ...place(), ...changes }).filter(([, value]) => value !== "");
  return `#${new URLSearchParams(there)}`;
}

export function go(changes) {
  location.hash = hrefOf(changes);
}

/**
 * What to ask the list for here. Counts of ended tasks are wanted, whatever the filter is. A list of the past ("all": that have ended,
 * "open": failures that nobody has acknowledged) goes back as far as the history, and has no counts.
 */
export function queryOf({ task, period, sort, past, offset, after, state, outcome, ...filters }) {
  const ofPast = past === "open" ? { state: "failed", acknowledged: "false" } : { state: outcome ? "" : "ended", outcome };
  const ofNow = { state, outcome, sort: sort || "stuck", offset, counts: "all" };
  const all = { ...filters, ...(past ? { ...ofPast, after } : ofNow), limit: PAGE };
  return new URLSearchParams(Object.entries(all).filter(([, value]) => value !== ""));
}

/** What to ask for the view over time: the same tools as in the list. */
export const statsOf = ({ period, tool }) => new URLSearchParams({ since: period || "86400", ...(tool && { tool }) });
