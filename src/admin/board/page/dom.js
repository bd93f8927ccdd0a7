// Makes elements. Every string goes in as text: nothing here, or anywhere in the page, reads HTML.

/** An element with properties (`on…` are listeners, the rest are attributes) and children. */
export function el(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** The same for SVG. */
export function svg(name, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Tells users of screen readers something that others see. */
export function announce(text) {
  byId("said").textContent = text;
}
