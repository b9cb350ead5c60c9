// All counters: one is found by its whole name at once, several by the beginning of their names, in
// parts of the table. A person sees what a search has read, and can stop it.

import { get } from "./api.js";
import { command, empty, h, link, named, reading, show, speak, table } from "./dom.js";
import { ago, amount, many } from "./format.js";

const PAGE = 50;
const LIVE_MAX = 25;
const PAUSE_MS = 300;
// A search goes on by itself until it has read so many items; then a person decides.
const ITEMS_MAX = 250_000;
// A table of so few items is read again as a whole, so that new counters appear by themselves.
const SMALL = 200;

export function counters() {
  let prefix = sessionStorage.getItem("prefix") ?? "";
  let search = begun();
  const list = h("div", { id: "list" }, reading());
  const field = h("input", { id: "search", type: "search", value: prefix, autocomplete: "off",
    autocapitalize: "off", spellcheck: "false", placeholder: "likes: or likes:post-1", maxlength: 1024 });
  const form = h("form", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (name) location.hash = address(name);
  } }, h("label", { for: "search" }, "Find a counter by the beginning of its name", field),
  h("button", { type: "submit", class: "main" }, "Open"));
  let later;
  field.addEventListener("input", () => {
    clearTimeout(later);
    later = setTimeout(() => {
      prefix = field.value.trim();
      sessionStorage.setItem("prefix", prefix);
      again(begun());
    }, PAUSE_MS);
  });

  /** What a search knows: `wanted` is how many counters it looks for, `left` how many items it may read. */
  function begun() {
    return { exact: null, found: [], cursor: undefined, items: 0, units: 0, wanted: PAGE,
      left: ITEMS_MAX, state: "running", turn: new AbortController() };
  }

  function again(next) {
    search.turn.abort();
    search = next;
    draw();
    view.wake();
  }

  function goOn(more) {
    again({ ...search, ...more, left: ITEMS_MAX, state: "running", turn: new AbortController() });
  }

  function stop() {
    search.state = "stopped";
    search.turn.abort();
    draw();
  }

  /** Reads until the search is over: the whole name first, then part after part. */
  async function run(mine, signal) {
    const both = AbortSignal.any([signal, mine.turn.signal]);
    if (prefix && mine.items === 0) mine.exact = await whole(prefix, both);
    while (mine.state === "running") {
      if (mine === search) draw();
      const part = await get("/counters", { prefix, limit: PAGE, cursor: mine.cursor }, both);
      mine.found.push(...part.items);
      mine.items += part.items_read;
      mine.left -= part.items_read;
      mine.units += part.readUnits;
      mine.cursor = part.next ?? undefined;
      if (!mine.cursor) mine.state = "complete";
      else if (mine.found.length >= mine.wanted || mine.left <= 0) mine.state = "partial";
    }
  }

  /** The counter of exactly this name, if it has a total. Half a read unit. */
  async function whole(name, signal) {
    try {
      const { items: [one] } = await get("/totals", { counter: [name] }, signal);
      return one.updated_at || one.method ? one : null;
    } catch (problem) {
      if (problem.status === 422) return null; // a beginning that is no whole name
      throw problem;
    }
  }

  function rows() {
    const { exact, found } = search;
    return exact ? [exact, ...found.filter((one) => one.counter !== exact.counter)] : found;
  }

  /** The values of the counters on the page, which move; the list itself is not read again. */
  async function refreshValues(signal) {
    const names = rows().slice(0, LIVE_MAX).map((one) => one.counter);
    if (names.length === 0) return;
    const mine = search;
    const { items: totals } = await get("/totals", { counter: names }, signal);
    const by = new Map(totals.map((one) => [one.counter, one]));
    mine.found = mine.found.map((one) => by.get(one.counter) ?? one);
    mine.exact &&= by.get(mine.exact.counter) ?? mine.exact;
    draw();
  }

  function draw() {
    const found = rows();
    const shown = found.length
      ? table("Counters", ["Counter", ["Value", "number"], ["Changed", "short"], ["Events", "number"], ["Kind", "short"]],
        found.map((one) => [link(address(one.counter), one.counter), amount(one.value), ago(one.updated_at),
          one.method ? "" : amount(String(one.events)), one.method ? `strict (${one.method})` : "ledger"]))
      : search.state === "complete" ? nothing() : null;
    const more = ["partial", "stopped"].includes(search.state)
      ? button("more", prefix ? "Search on" : "Show more", () => goOn({ wanted: search.found.length + PAGE })) : null;
    show(list, progress(found.length), shown, more);
  }

  function progress(count) {
    const { state, items, units } = search;
    const spent = `Read${state === "complete" ? "" : " so far"}: ${many(items, "item")} of the table, ${many(units, "read unit")}.`;
    if (state === "running") {
      return h("p", { class: "cost" }, prefix
        ? ["Searching for names that begin with ", named(prefix), `: ${amount(String(count))} found. ${spent} `]
        : `Reading\u2026 ${items ? spent : ""} `,
      items || prefix ? button("stop", "Stop", stop) : null);
    }
    if (state === "complete") {
      return h("p", { class: "cost" }, count ? `${many(count, "counter")}, all of them. ` : "", spent);
    }
    return h("p", { class: "cost" }, `${many(count, "counter")} so far; the table has not been read to its end. ${spent}`);
  }

  function nothing() {
    if (prefix) {
      return empty(["No counter begins with ", named(prefix), "."],
        h("p", {}, "Names are compared letter by letter, with capitals. A counter appears here ",
          "with its first entry, usually within a second."));
    }
    return empty("Nothing has been counted yet.",
      h("p", {}, "Count something, and it appears here within a second or two:"),
      command("countledger emit likes:post-1 3"));
  }

  const view = {
    title: "Counters",
    every: 2000,
    element: h("div", {}, h("h1", {}, "Counters"), form, list),
    wake() {},
    async refresh(signal) {
      const mine = search;
      if (mine.state === "running") {
        await run(mine, signal);
        if (mine === search) draw();
        if (prefix) speak(`${many(rows().length, "counter")} found`, { answer: true });
      } else if (mine.state === "complete" && mine.items <= SMALL) {
        const next = begun();
        await run(next, signal);
        if (mine !== search) return;
        search = next;
        draw();
      } else await refreshValues(signal);
    },
  };
  return view;
}

function address(name) {
  return `#/counter/${encodeURIComponent(name)}`;
}

function button(id, text, act) {
  return h("button", { type: "button", id, onclick: act }, text);
}
