// Elements without any HTML text: what a counter is named can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `attributes` may have functions for events (`onclick`) and booleans. */
export function h(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children);
}

/** The same in the namespace of SVG. */
export function s(tag, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children);
}

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return element;
}

/** Shows children in a place only if they differ, and keeps the focus where it was. */
export function show(place, ...children) {
  const next = h("div", {}, ...children);
  if (place.childNodes.length === next.childNodes.length && same(place, next)) return;
  const open = [...place.querySelectorAll("details[open]")].map((one) => one.dataset.name);
  const focused = place.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  place.replaceChildren(...next.childNodes);
  for (const one of place.querySelectorAll("details")) one.open ||= open.includes(one.dataset.name);
  if (focused !== null) {
    const again = [...place.querySelectorAll("a, button, summary, input, select, [tabindex]")];
    again.find((one) => keyOf(one) === focused)?.focus({ preventScroll: true });
  }
}

function same(one, other) {
  const open = (node) => node.outerHTML?.replaceAll(' open=""', "") ?? node.nodeValue;
  return [...one.childNodes].every((node, at) => open(node) === open(other.childNodes[at]));
}

function keyOf(element) {
  if (element.id) return element.id;
  return `${element.tagName} ${element.getAttribute("href") ?? element.textContent}`;
}

/** A table with a caption; a column is a heading, or a heading and "number". */
export function table(caption, columns, rows) {
  const heads = columns.map((one) => [one].flat());
  const cell = (content, at) => h("td", { class: heads[at][1] }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map(([name, kind]) =>
        h("th", { scope: "col", class: kind }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

/** A name inside a sentence: apart from it, also if it is written from right to left. */
export function named(name) {
  return h("bdi", { class: "name" }, name);
}

/** A text with its commands set apart: they are between backquotes. */
export function said(text) {
  return text.split("`").map((one, at) => (at % 2 ? h("code", {}, one) : one));
}

/** A link whose text is a name. */
export function link(address, name) {
  return h("a", { href: address }, h("bdi", {}, name));
}

/** A part of a page with its heading. */
export function part(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

/** A command to copy, with what it does. */
export function command(text) {
  const copy = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  return h("div", { class: "command" }, h("code", {}, text), copy);
}

/** What is shown until the first answer. */
export function reading() {
  return h("p", { class: "quiet" }, "Reading\u2026");
}

/** What is shown where there is nothing: why, and what to do. */
export function empty(title, ...children) {
  return h("div", { class: "empty" }, h("p", { class: "title" }, title), ...children);
}

/**
 * Fills a place; a refusal is shown in it, and only a stack that is gone concerns the whole page.
 * What else depends on the same answer is emptied.
 */
export async function fill(place, read, ...others) {
  try {
    await read();
  } catch (problem) {
    if (problem.gone || problem.status === 401 || problem.name === "AbortError") throw problem;
    show(place, h("p", { class: "error" }, said(problem.message)));
    for (const one of others) one.replaceChildren();
  }
}

/** Says something to a screen reader: an answer to a person at once, other news every few seconds. */
export function speak(text, { answer = false } = {}) {
  const now = Date.now();
  if (!answer && now - speak.last < 10_000) return;
  if (!answer) speak.last = now;
  document.getElementById("spoken").textContent = text;
}
speak.last = 0;
