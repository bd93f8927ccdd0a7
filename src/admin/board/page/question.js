// A question of the server as a form, from its schema to the answer.

import { el } from "./dom.js";

/** More fields than this are no form that a person can fill in. */
const FIELDS_MAX = 64;

/** The form of one open question. `send` takes the answer, and says why it was not taken. */
export function questionForm(question, send) {
  const { method, params = {} } = question.request ?? {};
  const wrong = el("p", { class: "wrong", role: "alert" });
  const title = el("h4", {}, params.message ?? method ?? "A question");
  const give = async (answer) => {
    wrong.textContent = "";
    set(true);
    const why = await send(question.key, answer);
    set(false);
    if (why) wrong.textContent = why;
  };
  const form = el("form", { class: "question", novalidate: true });
  const set = (isBusy) => form.querySelectorAll("button").forEach((one) => (one.disabled = isBusy));
  const inputs = method === "elicitation/create" ? elicitation(params, question.fields ?? []) : [jsonAnswer(method, params)];
  const isElicitation = method === "elicitation/create";
  form.append(
    title,
    ...inputs.map((input) => input.element),
    wrong,
    el("p", { class: "buttons acts" },
      el("button", { type: "submit", class: "main" }, isElicitation ? "Answer" : "Send this answer"),
      isElicitation ? el("button", { type: "button", onclick: () => give({ action: "decline" }) }, "Decline") : null,
      isElicitation ? el("button", { type: "button", onclick: () => give({ action: "cancel" }) }, "Dismiss") : null),
    el("p", { class: "note" }, isElicitation
      ? "Decline tells the server no. Dismiss tells it that nobody answered. The task goes on in both cases."
      : "This is not a question for a person: write the result that the server's client would send."),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const content = {};
    let first;
    for (const input of inputs) {
      const { value, why } = input.read();
      input.say(why ?? "");
      if (why) first ??= input;
      else if (value !== undefined) content[input.name] = value;
    }
    if (first) return first.focus();
    if (!isElicitation) return give(content[""]);
    return give(params.mode === "url" ? { action: "accept" } : { action: "accept", content });
  });
  return form;
}

/** `order`: the names of the fields as the server wrote them, which JSON on its way here does not keep. */
function elicitation(params, order) {
  if (params.mode === "url") return [visit(params.url)];
  const schema = params.requestedSchema ?? {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  return Object.entries(schema.properties ?? {})
    .sort(([one], [other]) => order.indexOf(one) - order.indexOf(other))
    .slice(0, FIELDS_MAX)
    .map(([name, property]) => field(name, property ?? {}, required.includes(name)));
}

/** An address to open is shown as text: a page with a token in it follows no link of a server. */
function visit(url) {
  const element = el("p", {}, "The server asks for a visit of ", el("code", {}, `${url}`), ". Answer when that is done.");
  return { name: "", element, read: () => ({}), say() {}, focus() {} };
}

function jsonAnswer(method, params) {
  const asked = el("pre", {}, JSON.stringify(params, null, 2));
  const input = jsonField("", { title: `The result of ${method}` }, true);
  input.element = el("div", {}, asked, input.element);
  return input;
}

let made = 0;

/** The parts that all fields share: label, description, place for what is wrong. */
function shell(name, schema, isRequired, control, read) {
  const id = `field-${(made += 1)}`;
  control.id = id;
  const wrong = el("span", { class: "wrong", id: `${id}-wrong` });
  const description = schema.description ? el("span", { class: "note", id: `${id}-note` }, `${schema.description}`) : null;
  control.setAttribute("aria-describedby", `${id}-note ${id}-wrong`);
  if (isRequired && control.tagName !== "FIELDSET") control.required = true;
  const label = `${schema.title ?? name}${isRequired ? "" : " (optional)"}`;
  const isGroup = control.tagName === "FIELDSET";
  if (isGroup) control.prepend(el("legend", {}, label));
  const element = el("div", { class: "field" }, isGroup ? null : el("label", { for: id }, label), description, control, wrong);
  const say = (why) => {
    wrong.textContent = why;
    for (const one of isGroup ? control.querySelectorAll("input") : [control]) one.setAttribute("aria-invalid", `${why !== ""}`);
  };
  const focus = () => (isGroup ? control.querySelector("input") : control)?.focus();
  return { name, element, isRequired, read, say, focus };
}

function field(name, schema, isRequired) {
  const choices = choicesOf(schema);
  if (choices) return choiceField(name, schema, isRequired, choices);
  if (schema.type === "boolean") return choiceField(name, schema, isRequired, [{ value: true, title: "Yes" }, { value: false, title: "No" }]);
  if (schema.type === "array" && choicesOf(schema.items ?? {})) return severalField(name, schema, isRequired, choicesOf(schema.items));
  if (["string", "number", "integer"].includes(schema.type)) return lineField(name, schema, isRequired);
  return jsonField(name, schema, isRequired);
}

function choicesOf(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled) && titled.every((one) => one && "const" in one)) {
    return titled.map((one) => ({ value: one.const, title: `${one.title ?? one.const}` }));
  }
  if (!Array.isArray(schema.enum)) return undefined;
  return schema.enum.map((value, at) => ({ value, title: `${schema.enumNames?.[at] ?? value}` }));
}

/** Nothing is chosen beforehand but the server's own default: an operator answers for somebody else. */
function choiceField(name, schema, isRequired, choices) {
  const nothing = el("option", { value: "" }, isRequired ? "choose" : "leave it out");
  const control = el("select", {}, nothing, choices.map(({ title }, at) => el("option", { value: at }, title)));
  const given = choices.findIndex(({ value }) => value === schema.default);
  if (given >= 0) control.value = `${given}`;
  return shell(name, schema, isRequired, control, () => {
    if (control.value !== "") return { value: choices[Number(control.value)].value };
    return isRequired ? { why: "Choose one." } : {};
  });
}

function severalField(name, schema, isRequired, choices) {
  const given = Array.isArray(schema.default) ? schema.default : [];
  const boxes = choices.map(({ value }) => {
    const box = el("input", { type: "checkbox" });
    box.checked = given.includes(value);
    return box;
  });
  const control = el("fieldset", {}, choices.map(({ title }, at) => el("label", { class: "box" }, boxes[at], ` ${title}`)));
  return shell(name, schema, isRequired, control, () => {
    const value = choices.filter((_, at) => boxes[at].checked).map((choice) => choice.value);
    if (value.length === 0 && !isRequired) return {};
    if (value.length < (schema.minItems ?? 0)) return { why: `Choose at least ${schema.minItems}.` };
    if (value.length > (schema.maxItems ?? Infinity)) return { why: `Choose at most ${schema.maxItems}.` };
    return { value };
  });
}

const TYPES = { email: "email", uri: "url", date: "date" };

function lineField(name, schema, isRequired) {
  const isNumber = schema.type !== "string";
  const control = el("input", {
    type: isNumber ? "number" : TYPES[schema.format] ?? "text",
    autocomplete: "off",
    step: isNumber ? (schema.type === "integer" ? 1 : "any") : undefined,
    min: schema.minimum,
    max: schema.maximum,
    minlength: schema.minLength,
    maxlength: schema.maxLength,
    placeholder: schema.format === "date-time" ? "2026-11-23T12:00:00Z" : undefined,
  });
  if (schema.default !== undefined) control.value = `${schema.default}`;
  return shell(name, schema, isRequired, control, () => {
    if (!control.checkValidity()) return { why: control.validationMessage };
    if (control.value.length < (schema.minLength ?? 0) && control.value !== "") return { why: `At least ${schema.minLength} characters.` };
    if (control.value === "") return {};
    return { value: isNumber ? Number(control.value) : control.value };
  });
}

function jsonField(name, schema, isRequired) {
  const control = el("textarea", { rows: 4, spellcheck: "false" });
  if (schema.default !== undefined) control.value = JSON.stringify(schema.default);
  return shell(name, schema, isRequired, control, () => {
    if (control.value.trim() === "") return isRequired ? { why: "Write JSON here." } : {};
    try {
      return { value: JSON.parse(control.value) };
    } catch (error) {
      return { why: `This is not JSON: ${error.message}` };
    }
  });
}
