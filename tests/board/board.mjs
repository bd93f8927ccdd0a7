// The board of the admin listener in a real browser (Debian's Chromium, by Playwright): the built program in front of the plain
// legacy server, whose tools ask and report progress. BOARD_SHOTS=FOLDER also keeps pictures, to look at.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { front, serve } from "../interop/house.mjs";
import { pictureOfDemo, picturesOfBoard } from "./pictures.mjs";
import { end, freePort, listening, start } from "../interop/processes.mjs";

const { SCRATCH, BOARD_SHOTS, RAINCHECK } = process.env;
const LIMIT = { timeout: 60_000 };
/** What a change may take to be seen: an event wakes the page at once, a busy machine does not. */
const SOON = { timeout: 15_000 };
const CROWD = 10_000;
const TOKEN = "a-token-that-nobody-guesses";
const READER = "a-token-that-may-only-read";
const SECRET = "arguments-are-secret";
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
/** Checks of accessibility that others wrote (axe). */
const AXE = await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const PHONE = { width: 390, height: 844 };

/** A raincheck with an admin listener: where clients and where operators ask. */
async function raincheck(inner, name, started, environment = {}, store = undefined, more = "") {
  const dir = `${SCRATCH}/${name}`;
  await mkdir(dir);
  const port = await freePort();
  const settings = `${dir}/board.toml`;
  await writeFile(settings, `${await readFile(new URL("board.toml", import.meta.url), "utf8")}\n${more}`);
  const mcp = await front(inner, settings, dir, started,
    { RAINCHECK_ADMIN__LISTEN: `127.0.0.1:${port}`, ...environment }, undefined, store);
  return { mcp, admin: `http://127.0.0.1:${port}`, log: `${dir}/raincheck.log` };
}

/** Makes a task, as a client with Tasks does; its id. */
async function task(mcp, name, args = {}) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "board", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": { elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } },
  };
  const response = await fetch(mcp, {
    method: "POST",
    headers: {
      "content-type": "application/json", accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args, _meta: meta } }),
  });
  const text = await response.text();
  const data = text.split("\n").findLast((line) => line.startsWith("data: "));
  const { result, error } = JSON.parse(data ? data.slice(6) : text);
  assert.ok(result?.taskId, `${name} becomes a task: ${JSON.stringify(error ?? result)}`);
  return result.taskId;
}

const short = (id) => id.split("-")[0];

describe("board", () => {
  const started = [];
  let browser;
  let ours;

  before(async () => {
    const inner = await serve("legacy", `${SCRATCH}/legacy`, started);
    ours = { inner, plain: await raincheck(inner, "plain", started) };
    ours.guarded = await raincheck(inner, "guarded", started, { RAINCHECK_ADMIN__TOKEN: TOKEN, RAINCHECK_ADMIN__SHOW_PAYLOADS: "true" });
    const operator = (name, token, role) => `[[admin.operators]]\nname = "${name}"\ntoken = "${token}"\nrole = "${role}"\n`;
    ours.named = await raincheck(inner, "named", started, {}, undefined, operator("ada", TOKEN, "act") + operator("rita", READER, "read"));
    browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  }, LIMIT);

  after(async () => {
    await browser?.close();
    for (const child of started.reverse()) await end(child);
  });

  /** A page that must not complain: the content policy, a wrong script or a lost file would. */
  async function open(url, options = {}) {
    const page = await (await browser.newContext(options)).newPage();
    page.setDefaultTimeout(SOON.timeout);
    page.complaints = [];
    page.on("pageerror", (error) => page.complaints.push(error.message));
    page.on("console", (line) => line.type() === "error" && page.complaints.push(line.text()));
    await page.goto(url);
    return page;
  }

  async function close(page, allowed = /^$/) {
    const complaints = page.complaints.filter((text) => !allowed.test(text));
    await page.context().close();
    assert.deepEqual(complaints, []);
  }

  async function shot(page, name) {
    if (BOARD_SHOTS) await page.screenshot({ path: `${BOARD_SHOTS}/${name}.png`, fullPage: true });
  }

  const row = (page, id) => page.locator(`#rows tr[data-id="${id}"]`);
  const count = (page, word) => page.locator(`.count.${word} strong`);
  const live = (page) => page.locator("#live.on").waitFor();

  test("what happens is seen live, and counts are filters", LIMIT, async () => {
    const { plain } = ours;
    const page = await open(plain.admin);
    await live(page);
    const slow = await task(plain.mcp, "slow_compute", { seconds: 300, label: SECRET });
    const failing = await task(plain.mcp, "protocol_error_job");
    const asking = await task(plain.mcp, "confirm_delete", { filename: "a.txt" });
    await row(page, slow).locator(".badge.working").waitFor();
    await row(page, failing).locator(".badge.failed").waitFor();
    await row(page, asking).locator(".badge.input_required").waitFor();
    await row(page, slow).locator("progress").waitFor();
    // What waits for somebody is the first row.
    await page.locator(`#rows tr:first-child[data-id="${asking}"]`).waitFor();
    await page.locator(".count.failed").click();
    await row(page, slow).waitFor({ state: "detached" });
    await row(page, failing).waitFor();
    assert.equal(await count(page, "input_required").textContent(), "1", "counts leave the state out");
    assert.equal(await count(page, "tool_error").textContent(), "0");
    // Which raincheck this is.
    await page.locator("#which", { hasText: /mcp · replica .+ · \d+\.\d+\.\d+/ }).waitFor();
    assert.ok(await page.locator("#degraded").isHidden());
    // A row opens its task, wherever it is clicked.
    await row(page, failing).locator(".age").click();
    await page.locator("#task .badge.failed").waitFor();
    await page.keyboard.press("Escape");
    await page.getByLabel("Tool", { exact: true }).fill("no such tool");
    await page.getByRole("button", { name: "Filter" }).click();
    await page.getByText("No task is as the filters ask.").waitFor();
    await page.getByRole("button", { name: "Clear" }).click();
    await row(page, slow).waitFor();
    await page.goBack();
    await page.getByText("No task is as the filters ask.").waitFor();
    await page.goto(`${plain.admin}/board#state=working&tool=slow_compute`);
    await row(page, slow).waitFor();
    assert.equal(await page.locator("#rows tr").count(), 1);
    await close(page);
  });

  test("a question is answered from its form, and the task completes", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "confirm_delete", { filename: "<img src=x onerror=alert(1)>.txt" });
    const page = await open(`${plain.admin}/#task=${id}`);
    const form = page.locator("form.question");
    await form.getByText("Delete <img src=x onerror=alert(1)>.txt?").waitFor();
    assert.equal(await page.locator("#task img").count(), 0, "text of a server is never HTML");
    await form.getByRole("button", { name: "Answer" }).click();
    await form.getByText("Choose one.").waitFor();
    await shot(page, "question");
    await form.getByRole("combobox").selectOption("Yes");
    await form.getByRole("button", { name: "Answer" }).click();
    await page.locator("#task .badge.completed").waitFor();
    await form.waitFor({ state: "detached" });
    await audited(plain, "answer", id);
    await close(page);
  });

  async function audited({ log }, action, id) {
    const text = await readFile(log, "utf8");
    const line = text.split("\n").find((line) => line.includes("an operator acted") && line.includes(short(id)));
    assert.match(line ?? text, new RegExp(action));
  }

  test("the board of another replica answers, too", LIMIT, async () => {
    const port = await freePort();
    const redis = start(["redis-server", "--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--maxmemory-policy", "noeviction"], `${SCRATCH}/redis.log`);
    started.push(redis);
    await listening(redis, port);
    const [one, other] = await Promise.all(["one", "other"].map((name) => raincheck(ours.inner, name, started,
      { RAINCHECK_STORE__NAMESPACE: "board", RAINCHECK_REPLICA__ID: name, RAINCHECK_UPSTREAM__SHARED: "true" }, `redis://127.0.0.1:${port}`)));
    const id = await task(one.mcp, "confirm_delete", { filename: "d.txt" });
    const page = await open(other.admin);
    await row(page, id).getByRole("link", { name: "one", exact: true }).waitFor();
    await row(page, id).locator("a.id").click();
    const form = page.locator("form.question");
    await form.getByRole("combobox").selectOption("Yes");
    await form.getByRole("button", { name: "Answer" }).click();
    await page.locator("#task .badge.completed").waitFor();
    await audited(other, "answer", id);
    await close(page);
  });

  test("tools are paused and resumed", LIMIT, async () => {
    const { plain } = ours;
    const page = await open(`${plain.admin}/#tool=add`);
    await page.getByRole("button", { name: "Pause tools" }).click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.getByLabel("Tool, or a glob").inputValue(), "add", "the tool of the filter");
    await dialog.getByLabel("Tool, or a glob").fill("slow_*");
    await dialog.getByLabel("Reason").fill("<b>disk</b>");
    await shot(page, "pause");
    await dialog.getByRole("button", { name: "Pause", exact: true }).click();
    const paused = page.locator("#pauses li");
    await paused.getByText("slow_* is paused until").waitFor();
    await paused.getByText(/\((30 min|29 min \d+ s) left\): <b>disk<\/b>/).waitFor();
    await assert.rejects(task(plain.mcp, "slow_compute", { seconds: 0 }), /An operator has paused this tool: until .+ \(<b>disk<\/b>\)/);
    await audited(plain, "pause", "slow_*");
    await page.getByRole("button", { name: "Resume slow_*" }).click();
    await paused.waitFor({ state: "detached" });
    await task(plain.mcp, "slow_compute", { seconds: 0 });
    await close(page);
  });

  test("failures are acknowledged, and a call is run again", LIMIT, async () => {
    const { guarded } = ours;
    const page = await open(guarded.admin);
    await enter(page, TOKEN);
    const [first, second] = [await task(guarded.mcp, "protocol_error_job"), await task(guarded.mcp, "protocol_error_job")];
    await page.getByRole("link", { name: /2 failures that nobody has acknowledged/ }).click();
    await page.getByRole("heading", { name: "Failures that nobody has acknowledged" }).waitFor();
    await row(page, first).waitFor();
    await row(page, second).locator("a.id").click();
    await page.getByRole("button", { name: "Acknowledge…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Your name").fill("Ada");
    await dialog.getByLabel("Note").fill("<i>seen</i>");
    await shot(page, "acknowledge");
    await dialog.getByRole("button", { name: "Acknowledge" }).click();
    await page.locator("#task dd").filter({ hasText: /by Ada, <i>seen<\/i>$/ }).waitFor();
    await row(page, second).waitFor({ state: "detached" });
    await audited(guarded, "acknowledge", second);

    await row(page, first).locator("a.id").click();
    await page.getByRole("button", { name: "Run again…" }).click();
    await dialog.getByRole("button", { name: "Run it again" }).click();
    await dialog.getByText(/the tool is not declared safe to repeat/).waitFor();
    await dialog.getByLabel(/may run twice/).check();
    await dialog.getByRole("button", { name: "Run it again" }).click();
    await page.locator("#task h3", { hasText: "Related to" }).waitFor();
    await page.locator("#task .badge.failed").waitFor();
    await row(page, first).waitFor({ state: "detached" });
    await audited(guarded, "rerun", first);
    // The past, by the beginning of an id.
    await page.goto(`${guarded.admin}/board#past=all&id=${short(first)}`);
    await page.getByRole("heading", { name: "Tasks that have ended" }).waitFor();
    await row(page, first).waitFor();
    assert.equal(await page.locator("#rows tr").count(), 1);
    assert.ok(await page.locator("#trouble").isHidden(), await page.locator("#trouble").textContent());
    await live(page);
    await page.getByRole("link", { name: "Back to the tasks of now" }).click();
    await page.getByRole("heading", { name: "Tasks", exact: true }).waitFor();
    await close(page, /401|409/);
  });

  test("the commands that it shows are good", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "slow_compute", { seconds: 300 });
    const page = await open(`${plain.admin}/#task=${id}`);
    const command = page.locator(".command code");
    await command.filter({ hasText: "curl" }).waitFor();
    const words = (text) => command.filter({ hasText: text }).textContent().then((line) => line.split(" ").slice(1));
    const ran = await promisify(execFile)(RAINCHECK, await words("tasks show"));
    assert.ok(ran.stdout.includes(id), ran.stdout);
    const url = (await words("curl")).at(-1);
    assert.equal((await (await fetch(url)).json()).id, id);
    await promisify(execFile)(RAINCHECK, await words("tasks cancel"));
    await page.locator("#task .badge.cancelled").waitFor();
    await close(page);
  });

  test("two questions are each answered or declined", LIMIT, async () => {
    const { guarded } = ours;
    const id = await task(guarded.mcp, "multi_input");
    const page = await open(guarded.admin);
    await enter(page, TOKEN);
    await page.goto(`${guarded.admin}/#task=${id}`);
    const one = page.locator("form.question").filter({ hasText: "Provide value a" });
    const other = page.locator("form.question").filter({ hasText: "Provide value b" });
    await other.getByRole("textbox").fill("half of an ans");
    await one.getByRole("textbox").fill("Ada");
    await one.getByRole("button", { name: "Answer" }).click();
    await one.waitFor({ state: "detached" });
    assert.equal(await other.getByRole("textbox").inputValue(), "half of an ans", "what was typed stays");
    await other.getByRole("button", { name: "Decline" }).click();
    await page.locator("#task .badge.completed").waitFor();
    await page.locator("#task pre").filter({ hasText: "multi_input: a=Ada b=decline" }).waitFor();
    await close(page, /401/);
  });

  test("a task is cancelled, but only when that is confirmed", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "slow_compute", { seconds: 300 });
    const page = await open(plain.admin);
    await row(page, id).getByRole("link", { name: `Task ${short(id)}` }).click();
    const cancel = page.getByRole("button", { name: "Cancel the task" });
    await cancel.first().click();
    await page.getByRole("button", { name: "Leave it" }).click();
    assert.equal(await page.locator("#task .badge").textContent(), "Working");
    await page.locator("#task").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("dialog").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("#task .badge.cancelled").waitFor();
    await row(page, id).locator(".badge.cancelled").waitFor();
    await audited(plain, "cancel", id);
    await close(page);
  });

  test("a failure says what its effect means", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "test_tool_with_task");
    const page = await open(`${plain.admin}/#task=${id}`);
    await page.locator("#task .badge.failed").waitFor();
    await page.locator("#task .failure").getByText("deadline, effect unknown.").waitFor();
    await page.locator("#task .failure").getByText("The tool may have run.").waitFor();
    await shot(page, "failure");
    await close(page);
  });

  test("links lead from where the reader is, also while raincheck does not answer", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "test_tool_with_task");
    const page = await open(plain.admin);
    const completed = page.locator("a.count.completed");
    const filters = () => completed.getAttribute("href");
    await row(page, id).getByRole("link", { name: `Task ${short(id)}` }).click();
    await page.locator("#task .badge").waitFor();
    assert.ok((await filters()).includes(`task=${id}`), "a filter leaves the task open");
    await page.route("**/tasks?*", (asked) => asked.abort());
    await page.keyboard.press("Escape");
    await page.locator("#task").waitFor({ state: "hidden" });
    assert.ok(!(await filters()).includes(id), "and closed, where it was closed");
    await close(page, /Failed to load resource/);
  });

  test("it is used by keyboard, and says what it is to a screen reader", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "confirm_delete", { filename: "b.txt" });
    const page = await open(plain.admin);
    const link = row(page, id).getByRole("link", { name: `Task ${short(id)}, confirm_delete, Waiting for an answer` });
    await link.evaluate((it) => { it.isFirst = true; });
    await link.focus();
    await page.keyboard.press("Enter");
    const heading = page.getByRole("complementary", { name: "One task" }).getByRole("heading", { name: "confirm_delete", exact: true });
    await heading.waitFor();
    assert.ok(await heading.evaluate((it) => it === document.activeElement), "the task has the focus");
    await page.keyboard.press("Escape");
    await page.locator("#task").waitFor({ state: "hidden" });
    assert.ok(await link.evaluate((it) => it === document.activeElement), "the row has it back");
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.name), "tool");
    for (const [role, name] of [["navigation", "Tasks by state"], ["search", "Filters"], ["table", "Tasks"], ["navigation", "Pages"]]) {
      await page.getByRole(role, { name }).waitFor();
    }
    // The focus of a row outlives the lists that are read meanwhile.
    await link.focus();
    const another = await task(plain.mcp, "confirm_delete", { filename: "c.txt" });
    await row(page, another).waitFor();
    await page.getByRole("status").filter({ hasText: "wait for an answer" }).waitFor();
    assert.ok(await link.evaluate((it) => it.isFirst), "a row that says the same is not made anew");
    assert.ok(await link.evaluate((it) => it === document.activeElement), "it stays");
    // One question comes while another ends: as many wait as before, and still one is new.
    let read;
    const done = new Promise((resolve) => { read = resolve; });
    await page.route("**/tasks?*", (asked) => done.then(() => asked.continue()).catch(() => {}));
    await page.evaluate(() => { document.getElementById("said").textContent = ""; });
    await fetch(`${plain.admin}/tasks/${another}/cancel`, { method: "POST" });
    const third = await task(plain.mcp, "confirm_delete", { filename: "e.txt" });
    await asks(plain, third);
    read();
    await row(page, third).waitFor();
    await page.getByRole("status").filter({ hasText: "wait for an answer" }).waitFor();
    await close(page);
  });

  /** Waits until a task asks its caller something. */
  async function asks({ admin }, id) {
    for (;;) {
      const { state } = await (await fetch(`${admin}/tasks/${id}`)).json();
      if (state === "input_required") return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Types the token that the page asks for. */
  async function enter(page, text) {
    await page.getByLabel("Token", { exact: true }).fill(text);
    await page.getByRole("button", { name: "Go on" }).click();
  }

  test("a wrong token gets nowhere, and the right one is kept in the tab only", LIMIT, async () => {
    const { guarded } = ours;
    const id = await task(guarded.mcp, "slow_compute", { seconds: 300, label: SECRET });
    const page = await open(guarded.admin);
    await enter(page, "not-the-token");
    await page.getByText("That token is not the right one.").waitFor();
    assert.equal(await page.locator("#rows tr").count(), 0);
    await enter(page, TOKEN);
    await row(page, id).waitFor();
    await live(page);
    const kept = await page.evaluate(() => [Object.values(sessionStorage), localStorage.length, document.cookie]);
    assert.deepEqual(kept, [[TOKEN], 0, ""]);
    assert.ok(!page.url().includes(TOKEN));
    await page.reload();
    await row(page, id).waitFor();
    await page.getByRole("button", { name: "Forget the token" }).click();
    await page.getByLabel("Token", { exact: true }).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    await close(page, /401/);
  });

  test("who may read is offered nothing that acts, and who acts is named", LIMIT, async () => {
    const { named } = ours;
    const id = await task(named.mcp, "confirm_delete", { filename: "r.txt" });
    const buttons = (page) => ["Pause tools…", "Cancel the task", "Answer", "Decline"].map((name) => page.getByRole("button", { name, exact: true }).first());
    const reader = await open(`${named.admin}/#task=${id}`);
    await enter(reader, READER);
    await reader.locator("#which", { hasText: /^rita, who may only read · / }).waitFor();
    await reader.locator("#task form.question").waitFor();
    for (const button of buttons(reader)) assert.equal(await button.isVisible(), false, `${button}`);
    await shot(reader, "reader");
    await close(reader, /401/);
    const page = await open(`${named.admin}/#task=${id}`);
    await enter(page, TOKEN);
    await page.locator("#which", { hasText: /^ada · / }).waitFor();
    await page.locator("#task form.question").waitFor();
    for (const button of buttons(page)) await button.waitFor();
    await page.locator("#task").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("dialog").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("#task .timeline", { hasText: "cancelled by the operator ada" }).waitFor();
    await close(page, /401/);
  });

  test("payloads are shown only where the settings say so", LIMIT, async () => {
    for (const [ours_, isShown] of [[ours.plain, false], [ours.guarded, true]]) {
      const id = await task(ours_.mcp, "failing_job", { why: SECRET });
      const page = await open(`${ours_.admin}/#task=${id}`);
      if (isShown) await enter(page, TOKEN);
      await page.locator("#task .badge.tool_error").waitFor();
      await page.locator("#task").getByText(`raincheck tasks show ${id}`).first().waitFor();
      const text = await page.locator("body").innerText();
      assert.equal(text.includes("intentional tool execution error"), isShown, text);
      assert.equal(text.includes(SECRET) && !isShown, false, text);
      // It ended, and not well.
      await page.locator(".count.tool_error").click();
      await row(page, id).waitFor();
      await page.locator(".count.completed").click();
      await row(page, id).waitFor({ state: "detached" });
      await close(page, /401/);
    }
  });

  test("what ended is drawn by tool and over time", LIMIT, async () => {
    const { plain } = ours;
    const page = await open(plain.admin);
    const stats = page.locator("#stats");
    const failures = stats.locator(".charts tr", { has: page.getByRole("rowheader", { name: "protocol_error_job" }) });
    await failures.locator('td[data-label="Failed"]', { hasText: /^1$/ }).waitFor();
    await stats.getByRole("img", { name: /^\d+ calls began, \d+ ended: .*\d failed/ }).waitFor();
    // The same in numbers, for who cannot see the bars.
    await stats.getByText("The numbers").click();
    await stats.getByRole("columnheader", { name: "Tool errors" }).first().waitFor();
    // A tool answered, so its median is drawn, too.
    await stats.getByRole("img", { name: /^median / }).first().waitFor();
    await stats.getByLabel("In the last").selectOption("hour");
    await page.waitForURL(/period=3600/);
    await stats.getByRole("link", { name: "protocol_error_job" }).click();
    await stats.locator(".charts tbody tr").nth(1).waitFor({ state: "detached" });
    await stats.getByRole("img", { name: /^1 call began, 1 ended: 1 failed$/ }).waitFor();
    await close(page);
  });

  test("many tasks are chosen, and cancelled, acknowledged and run again together", LIMIT, async () => {
    const { guarded } = ours;
    const name = "slow_compute";
    const slow = [await task(guarded.mcp, name, { seconds: 301 }), await task(guarded.mcp, name, { seconds: 302 })];
    const page = await open(`${guarded.admin}/#tool=${name}&state=working`);
    await enter(page, TOKEN);
    for (const id of slow) await row(page, id).getByRole("checkbox").check();
    await page.getByText("2 tasks chosen").waitFor();
    await shot(page, "chosen");
    await page.getByRole("button", { name: "Cancel 2…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("heading", { name: "Cancel 2 tasks?" }).waitFor();
    await dialog.getByRole("button", { name: "Leave it" }).click();
    await page.getByRole("button", { name: "Cancel 2…" }).click();
    await dialog.getByRole("button", { name: "Cancel 2 tasks" }).click();
    for (const id of slow) await row(page, id).waitFor({ state: "detached" });
    await page.locator("#chosen").waitFor({ state: "hidden" });
    const headers = { authorization: `Bearer ${TOKEN}` };
    const state = async (id) => (await (await fetch(`${guarded.admin}/tasks/${id}`, { headers })).json()).state;
    for (const id of slow) assert.equal(await state(id), "cancelled");

    const failed = [await task(guarded.mcp, "protocol_error_job"), await task(guarded.mcp, "protocol_error_job")];
    await page.goto(`${guarded.admin}/#past=open&tool=protocol_error_job`);
    for (const id of failed) await row(page, id).waitFor();
    await page.getByRole("checkbox", { name: "Choose all tasks of this page" }).check();
    await page.getByRole("button", { name: /^Acknowledge \d+…$/ }).click();
    await dialog.getByLabel("Note").fill("seen");
    await dialog.getByRole("button", { name: "Acknowledge" }).click();
    await page.getByText("No task is as the filters ask.").waitFor();

    await page.goto(`${guarded.admin}/#past=all&tool=protocol_error_job`);
    for (const id of failed) await row(page, id).getByRole("checkbox").check();
    await page.getByRole("button", { name: "Run 2 again…" }).click();
    await dialog.getByRole("button", { name: "Run it again" }).click();
    await dialog.getByText(/^2 tasks are left\. .*not declared safe to repeat/).waitFor();
    await dialog.getByLabel(/may run twice/).check();
    await dialog.getByRole("button", { name: "Run it again" }).click();
    await dialog.waitFor({ state: "hidden" });
    await close(page, /401|409/);
  });

  test("the heads sort, and a reason and an effect are filters", LIMIT, async () => {
    const { plain } = ours;
    const page = await open(plain.admin);
    await page.locator("#rows tr").nth(1).waitFor();
    const tools = () => page.locator("#rows td.tool").allTextContents();
    await page.getByRole("button", { name: "Tool", exact: true }).click();
    await page.locator('th[aria-sort="ascending"]', { hasText: "Tool" }).waitFor();
    await page.waitForFunction(() => {
      const names = [...document.querySelectorAll("#rows td.tool")].map((cell) => cell.textContent);
      return names.every((name, at) => at === 0 || names[at - 1] <= name);
    });
    assert.ok(new Set(await tools()).size > 1);
    await page.getByRole("button", { name: "Started" }).click();
    await page.locator('th[aria-sort="descending"]', { hasText: "Started" }).waitFor();
    await page.getByRole("button", { name: "Started" }).click();
    await page.locator('th[aria-sort="ascending"]', { hasText: "Started" }).waitFor();
    await page.getByLabel("Reason", { exact: true }).fill("owner_lost");
    await page.getByLabel("Effect").selectOption("may have run");
    await page.waitForURL(/reason=owner_lost&effect=unknown/);
    await page.getByText("No task is as the filters ask.").waitFor();
    await close(page);
  });

  test("no page of another origin acts or asks, under whatever name", LIMIT, async () => {
    const { plain } = ours;
    const id = await task(plain.mcp, "slow_compute", { seconds: 300 });
    const evil = createServer((_, response) => response.setHeader("content-type", "text/html").end("<title>evil</title>"));
    await once(evil.listen(0, "127.0.0.1"), "listening");
    const port = evil.address().port;
    const statuses = [];
    const page = await open(`http://127.0.0.1:${port}`);
    page.on("response", (response) => statuses.push(response.status()));
    const tried = await page.evaluate(async ([admin, task]) => {
      const ask = (path, options) => fetch(admin + path, { mode: "no-cors", ...options }).then(() => 0, () => 0);
      await ask(`/tasks/${task}/cancel`, { method: "POST" });
      await ask("/drain", { method: "POST" });
      await ask("/tasks");
      await ask("/events");
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.src = admin;
      await new Promise((resolve) => (frame.onload = resolve));
      return frame.contentDocument === null;
    }, [plain.admin, id]);
    assert.ok(tried, "the frame shows nothing of the board");
    assert.deepEqual(statuses.slice(0, 4), [403, 403, 403, 403]);
    // A name of an attacker that leads to loopback (DNS rebinding): the origin is the same, the name is not ours.
    const rebound = await chromium.launch({ executablePath: "/usr/bin/chromium", args: [...FLAGS, "--host-resolver-rules=MAP evil.example 127.0.0.1"] });
    try {
      const there = await rebound.newPage();
      const answer = await there.goto(plain.admin.replace("127.0.0.1", "evil.example"));
      assert.equal(answer.status(), 403);
    } finally {
      await rebound.close();
    }
    const still = await (await fetch(`${plain.admin}/tasks/${id}`)).json();
    assert.equal(still.state, "working");
    evil.close();
    await page.context().close();
  });

  test("the first paint comes within 300 ms", LIMIT, async (t) => {
    const { plain } = ours;
    const paints = [];
    for (let turn = 0; turn < 5; turn += 1) {
      const page = await open(plain.admin);
      await page.locator("#rows tr").first().waitFor();
      paints.push(await page.evaluate(() => performance.getEntriesByName("first-paint")[0].startTime));
      await close(page);
    }
    paints.sort((one, other) => one - other);
    t.diagnostic(`first paint: ${paints.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}`);
    // The best of five: other tests share the machine.
    assert.ok(paints[0] < 300, `${paints}`);
  });

  for (const [name, options] of Object.entries({
    light: { colorScheme: "light", viewport: { width: 1280, height: 900 } },
    dark: { colorScheme: "dark", viewport: { width: 1280, height: 900 } },
    phone: { colorScheme: "light", viewport: PHONE, hasTouch: true, isMobile: true },
    "phone-dark": { colorScheme: "dark", viewport: PHONE, hasTouch: true, isMobile: true },
  })) {
    test(`nothing is cut off or faint: ${name}`, LIMIT, async () => {
      const { plain } = ours;
      const id = await task(plain.mcp, "multi_input");
      const page = await open(plain.admin, options);
      await row(page, id).locator(".badge.input_required").waitFor();
      await page.locator("#over-time svg").first().waitFor();
      await shot(page, `list-${name}`);
      await fits(page);
      await accessible(page);
      await row(page, id).locator("a.id").click();
      await page.locator("form.question").first().waitFor();
      await shot(page, `task-${name}`);
      await fits(page);
      await accessible(page);
      await close(page);
    });
  }

  /** Nothing is wider than the window, and every text has a contrast of 4.5 to what is behind it (WCAG AA). */
  async function fits(page) {
    // A phone shows a page that is too wide smaller: its own width counts, not that of the page's window.
    const { wide, faint } = await page.evaluate((width) => {
      const wide = document.documentElement.scrollWidth - width;
      const parse = (color) => color.match(/[\d.]+/g).map(Number);
      const light = ([r, g, b]) => {
        const [x, y, z] = [r, g, b].map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
      };
      const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
          const color = parse(getComputedStyle(at).backgroundColor);
          if (color[3] !== 0) return color;
        }
        return [255, 255, 255];
      };
      const faint = [];
      for (const element of document.querySelectorAll("body *")) {
        const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!hasText || !element.checkVisibility() || element.closest(":disabled, svg")) continue;
        const [one, other] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
        if ((one + 0.05) / (other + 0.05) < 4.5) faint.push(`${element.tagName} ${element.className}: ${element.textContent}`);
      }
      return { wide, faint };
    }, page.viewportSize().width);
    assert.ok(wide <= 0, `${wide} px wider than the window`);
    assert.deepEqual(faint, []);
  }

  async function accessible(page) {
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    assert.deepEqual(violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`)), []);
  }

  test("the pictures in the documents are of this page, and of this demo", LIMIT, async () => {
    const shown = await raincheck(ours.inner, "shown", started, { RAINCHECK_REPLICA__ID: "web-0", RAINCHECK_STORE__NAMESPACE: "weather" });
    const done = ["failing_job", "protocol_error_job", "test_tool_with_task"];
    for (const name of done) await task(shown.mcp, name);
    for (const seconds of [1, 2]) await task(shown.mcp, "slow_compute", { seconds });
    await task(shown.mcp, "slow_compute", { seconds: 90 });
    const asking = await task(shown.mcp, "confirm_delete", { filename: "report-2025.pdf" });
    await picturesOfBoard(async (options) => {
      const page = await open(`${shown.admin}/board#period=3600`, options);
      await row(page, asking).locator(".badge.input_required").waitFor();
      await page.locator(".count.completed strong", { hasText: "2" }).waitFor();
      await page.locator("#over-time svg").first().waitFor();
      return page;
    });
    await pictureOfDemo();
  });

  test(`${CROWD} tasks come by pages`, { timeout: 300_000 }, async (t) => {
    const crowd = await raincheck(ours.inner, "crowd", started);
    const began = performance.now();
    let left = CROWD;
    await Promise.all(Array.from({ length: 32 }, async () => {
      while (left > 0) {
        left -= 1;
        await task(crowd.mcp, "quiet_compute", { seconds: 900 });
      }
    }));
    const made = performance.now();
    const page = await open(crowd.admin);
    page.setDefaultTimeout(60_000);
    await page.getByText("1 to 100 of 10,000 tasks").waitFor();
    const shown = performance.now();
    t.diagnostic(`made in ${((made - began) / 1000).toFixed(1)} s, shown in ${((shown - made) / 1000).toFixed(1)} s`);
    assert.equal(await count(page, "working").textContent(), "10,000");
    assert.equal(await page.locator("#rows tr").count(), 100);
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("101 to 200 of 10,000 tasks").waitFor();
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByText("1 to 100 of 10,000 tasks").waitFor();
    await page.goto(`${crowd.admin}/#offset=9900`);
    await page.getByText("9,901 to 10,000 of 10,000 tasks").waitFor();
    assert.ok(await page.getByRole("button", { name: "Next" }).isDisabled());
    // It still answers to the operator while it is that full.
    const id = await page.locator("#rows tr").first().getAttribute("data-id");
    await row(page, id).locator("a.id").click();
    await page.locator("#task").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("dialog").getByRole("button", { name: "Cancel the task" }).click();
    await page.locator("#task .badge.cancelled").waitFor();
    await page.locator('.count.cancelled strong:text("1")').waitFor();
    // All of them end: the history shows them page by page, finds one, and chooses a page of them.
    const ids = [];
    for (let offset = 0; ids.length < CROWD - 1; offset += 1000) {
      const list = await (await fetch(`${crowd.admin}/tasks?state=open&sort=oldest&limit=1000&offset=${offset}`)).json();
      ids.push(...list.tasks.map((one) => one.id));
    }
    const waiting = [...ids];
    await Promise.all(Array.from({ length: 32 }, async () => {
      for (let one = waiting.pop(); one; one = waiting.pop()) await fetch(`${crowd.admin}/tasks/${one}/cancel`, { method: "POST" });
    }));
    const ended = performance.now();
    await page.goto(`${crowd.admin}/#past=all`);
    await page.getByRole("heading", { name: "Tasks that have ended" }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll("#rows tr .badge.cancelled").length === 100);
    t.diagnostic(`the history of them shown in ${((performance.now() - ended) / 1000).toFixed(1)} s`);
    const first = await page.locator("#rows tr").first().getAttribute("data-id");
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("Further back").waitFor();
    await page.locator(`#rows tr[data-id="${first}"]`).waitFor({ state: "detached" });
    await page.getByRole("checkbox", { name: "Choose all tasks of this page" }).check();
    await page.getByText("100 tasks chosen").waitFor();
    await page.goto(`${crowd.admin}/#past=all&id=${ids[0].slice(0, 13)}`);
    await row(page, ids[0]).waitFor();
    assert.equal(await page.locator("#rows tr").count(), 1);
    await page.getByRole("img", { name: /10,000 cancelled/ }).first().waitFor();
    await close(page);
  });
});
