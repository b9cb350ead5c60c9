// All counters: find one by the beginning of its name, page by page.

import { get } from "./api.js";
import { command, empty, h, reading, show, table } from "./dom.js";
import { ago, amount, many } from "./format.js";

const PAGE = 50;
const LIVE_MAX = 25;
const PAUSE_MS = 300;
// A table that is read again by itself until a counter appears: an empty one, or nearly so.
const SMALL = 2;

export function counters() {
  let prefix = sessionStorage.getItem("prefix") ?? "";
  let found = null;
  let cursor;
  let cost = 0;
  let pending = null;
  let search = null;
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
      search?.abort();
      read().catch(() => {});
    }, PAUSE_MS);
  });

  /** The next page, or the first one. */
  async function read(signal) {
    const first = found === null;
    const asked = prefix;
    search = new AbortController();
    signal?.addEventListener("abort", () => search.abort(), { once: true });
    const query = { prefix, limit: PAGE, cursor: first ? undefined : cursor };
    const mine = get("/counters", query, search.signal);
    pending = mine;
    if (first) show(list, searching());
    else draw();
    const page = await mine.finally(() => {
      if (pending === mine) pending = null;
    });
    if (asked !== prefix) return;
    found = [...(first ? [] : found), ...page.totals];
    cost = (first ? 0 : cost) + page.readUnits;
    cursor = page.next;
    draw();
  }

  function searching() {
    return h("p", { class: "quiet", role: "status" }, prefix
      ? `Searching for names that begin with \u201c${prefix}\u201d, in a part of the table. Enter opens a counter at once, by its whole name.`
      : "Reading\u2026");
  }

  /** The values of the counters on the page, which move; the list itself is not read again. */
  async function refreshValues(signal) {
    const names = found.slice(0, LIVE_MAX).map((one) => one.counter);
    if (names.length === 0) return;
    const { totals } = await get("/totals", { counter: names }, signal);
    if (found === null) return; // another search has begun
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
    const more = h("button", { type: "button", id: "more", "aria-disabled": String(Boolean(pending)),
      onclick: () => { if (!pending) read().catch(() => {}); } },
    pending ? "Reading\u2026" : "Show more");
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
      if (pending) await pending.catch(() => {});
      else if (found === null || (found.length === 0 && !cursor && cost <= SMALL)) {
        found = null;
        await read(signal);
      } else await refreshValues(signal);
    },
  };
}
