// All counters: find one by the beginning of its name, page by page.

import { get } from "./api.js";
import { command, empty, h, reading, show, table } from "./dom.js";
import { ago, amount, many } from "./format.js";

const PAGE = 50;
const LIVE_MAX = 25;
const PAUSE_MS = 300;

export function counters() {
  let prefix = sessionStorage.getItem("prefix") ?? "";
  let found = null;
  let cursor;
  let cost = 0;
  let pending = null;
  const list = h("div", {}, reading());
  const field = h("input", { id: "search", type: "search", value: prefix, autocomplete: "off",
    spellcheck: "false", placeholder: "likes: or likes:post-1", maxlength: 1024 });
  const form = h("form", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (name) location.hash = `#/counter/${encodeURIComponent(name)}`;
  } }, h("label", { for: "search" }, "Find a counter by the beginning of its name", field),
  h("button", { type: "submit", class: "main" }, "Open"));
  let later;
  field.addEventListener("input", () => {
    clearTimeout(later);
    later = setTimeout(() => {
      prefix = field.value.trim();
      sessionStorage.setItem("prefix", prefix);
      found = null;
      read().catch(() => {});
    }, PAUSE_MS);
  });

  /** The next page, or the first one. */
  async function read(signal) {
    const first = found === null;
    const asked = prefix;
    pending = get("/counters", { prefix, limit: PAGE, cursor: first ? undefined : cursor }, signal);
    const page = await pending.finally(() => { pending = null; });
    if (asked !== prefix) return;
    found = [...(first ? [] : found), ...page.totals];
    cost = (first ? 0 : cost) + page.readUnits;
    cursor = page.next;
    draw();
  }

  /** The values of the counters on the page, which move; the list itself is not read again. */
  async function refreshValues(signal) {
    const names = found.slice(0, LIVE_MAX).map((one) => one.counter);
    if (names.length === 0) return;
    const { totals } = await get("/totals", { counter: names }, signal);
    const by = new Map(totals.map((one) => [one.counter, one]));
    found = found.map((one) => by.get(one.counter) ?? one);
    draw();
  }

  function draw() {
    if (found.length === 0) {
      show(list, cursor ? further(`None so far begins with \u201c${prefix}\u201d.`) : nothing());
      return;
    }
    show(list,
      table("Counters", ["Counter", "Kind", ["Value", "number"], ["Events", "number"], "Changed"],
        found.map((one) => [
          h("a", { href: `#/counter/${encodeURIComponent(one.counter)}` }, one.counter),
          one.method ? `strict (${one.method})` : "ledger",
          amount(one.value), one.method ? "" : amount(String(one.events)), ago(one.updated_at)])),
      further(many(found.length, "counter")));
  }

  function further(text) {
    const spent = `Read so far: ${amount(String(cost))} read units.`;
    const more = h("button", { type: "button", id: "more", onclick: () => read().catch(() => {}) },
      "Show more");
    return h("p", { class: "cost" }, `${text}${cursor ? " and perhaps more" : ", all of them"}. ${spent} `,
      cursor ? more : null);
  }

  function nothing() {
    if (prefix) {
      return empty(`No counter begins with \u201c${prefix}\u201d.`,
        h("p", {}, "Names are compared letter by letter, with capitals. A counter appears here ",
          "with its first entry, usually within a second."));
    }
    return empty("Nothing has been counted yet.",
      h("p", {}, "Count something, and it appears here within a second or two:"),
      command("countledger emit likes:post-1 3"));
  }

  return {
    title: "Counters",
    every: 2000,
    element: h("div", {}, h("h1", {}, "Counters"), form, list),
    async refresh(signal) {
      if (pending) await pending;
      else if (found === null || (found.length === 0 && !cursor)) {
        found = null;
        await read(signal);
      } else await refreshValues(signal);
    },
  };
}
