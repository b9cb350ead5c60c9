// One counter: its total as it moves, its hours and days, its changes, alerts and holds.

import { get, segment } from "./api.js";
import { bars, line } from "./chart.js";
import { command, empty, fill, h, named, part, reading, said, show, speak, table } from "./dom.js";
import { ago, amount, difference, many, moment, signed, sum, windowLabel } from "./format.js";

const SPAN_MS = 180_000;
const HOUR_MS = 3_600_000;
const LISTS_MS = 4000;
const CHART_MS = 15_000;
const ENTRIES = 100;
const CHARTS = {
  hour: { name: "Sum per hour, last 48 hours", back: 48 * HOUR_MS, label: { hour: "2-digit", minute: "2-digit" } },
  day: { name: "Sum per day, last 30 days", back: 30 * 24 * HOUR_MS, label: { day: "numeric", month: "short" } },
};

export function counter(name) {
  const path = `/counters/${segment(name)}`;
  const points = [];
  const places = Object.fromEntries(
    ["total", "chart", "entries", "holds", "alerts"].map((one) => [one, h("div", { id: one }, reading())]));
  let per = "hour";
  let strict = false;
  let entries = null;
  let listsAt = 0;
  let chartAt = 0;

  function drawTotal(found) {
    const last = points.at(-1);
    if (last && last.value !== found.value) {
      const moved = signed(difference(found.value, last.value));
      places.moved = h("span", { class: "moved" }, moved);
      speak(`${name} is now ${amount(found.value)}`);
    }
    points.push({ at: Date.now(), value: found.value });
    while (points.length > 2 && points[1].at < Date.now() - SPAN_MS) points.shift();
    const facts = found.method ? `strict, method ${found.method}`
      : `${many(found.events, "event")} in ${many(found.entries, "entry", "entries")}`;
    show(places.total,
      h("p", { class: "total" }, h("strong", { id: "value" }, amount(found.value)),
        places.moved ?? null,
        h("span", { class: "quiet" }, facts),
        h("span", { class: "quiet" }, `changed ${ago(found.updated_at)}`)),
      line(points),
      found.updated_at ? null : empty("This counter has no entry yet.",
        h("p", {}, "Record one, and the number above moves within a second or two:"),
        command(`countledger emit ${quoted(name)} 1`)));
  }

  async function drawChart(signal) {
    const asked = per;
    const shape = CHARTS[asked];
    const since = new Date(Date.now() - shape.back).toISOString().slice(0, 13);
    try {
      const { items: windows } = await get(`${path}/windows`, { per: asked, since: `${since}:00:00Z` }, signal);
      if (asked !== per) return; // the other chart was chosen meanwhile
      const zone = windows[0]?.time_zone;
      show(places.chart, bars(zone ? `${shape.name}, ${zone}` : shape.name, windows.map((one) => ({
        label: windowLabel(one.name, shape.label), long: one.name, value: one.value,
        events: one.events, open: !one.complete }))),
      h("p", { class: "quiet" }, windows.some((one) => Number(one.value) !== 0) ? "Light bars may still grow."
        : "Nothing was counted in this period since windows are kept: from a minute after they were switched on."));
    } catch (problem) {
      if (problem.gone || problem.status === 401 || problem.name === "AbortError") throw problem;
      if (asked !== per) return;
      show(places.chart, ...fromEntries(problem, shape));
    }
  }

  /** Without windows: the sums of the entries that were read, in the zone of the reader, and how to get all. */
  function fromEntries(problem, shape) {
    const short = new Intl.DateTimeFormat(undefined, shape.label);
    const namespace = name.includes(":") ? name.split(":")[0] : "default";
    const how = [problem.slug === "no-windows" ? null : h("p", { class: "quiet" }, said(problem.message)),
      h("p", {}, "To keep sums for each hour and day, from now on:"),
      command(`countledger windows enable ${quoted(namespace)} --by hour`)];
    if (!entries?.length) return how;
    const size = per === "hour" ? HOUR_MS : 24 * HOUR_MS;
    const begin = (at) => {
      const date = new Date(at);
      return per === "hour" ? date.setMinutes(0, 0, 0) : date.setHours(0, 0, 0, 0);
    };
    const groups = new Map();
    for (const one of entries) {
      const start = begin(one.occurred_at ?? one.at);
      groups.set(start, [...(groups.get(start) ?? []), one]);
    }
    const last = begin(Date.now());
    const first = Math.max(Math.min(...groups.keys(), last - 11 * size), last - 47 * size);
    const rows = [];
    for (let start = begin(first); start <= last; start = begin(start + size * 1.5)) {
      const inside = groups.get(start) ?? [];
      rows.push({ label: short.format(start), long: moment(new Date(start).toISOString()),
        value: sum(inside.map((one) => one.delta)), events: inside.length, open: start === last });
    }
    const shown = `of the newest ${many(entries.length, "entry", "entries")}, ${short.resolvedOptions().timeZone}`;
    return [bars(`${shape.name.split(",")[0]}, ${shown}`, rows), ...how];
  }

  async function drawLists(signal) {
    if (strict) await fill(places.holds, () => drawHolds(signal));
    else await fill(places.entries, () => drawEntries(signal));
  }

  async function drawEntries(signal) {
    ({ items: entries } = await get(`${path}/entries`, { limit: ENTRIES }, signal));
    const shown = entries.slice(0, 20);
    show(places.entries, shown.length
      ? table("Newest entries", [["Recorded", "short"], ["Change", "number"], "Key", "Note"],
        shown.map((one) => [moment(one.at), signed(one.delta), one.key ?? "", noteOf(one.note)]))
      : empty("No entries are waiting.", h("p", {},
        "Either nothing was recorded, or all entries were merged by compaction.")),
    entries.length > shown.length
      ? h("p", { class: "quiet" }, `The newest ${shown.length}. All of them: countledger entries ${quoted(name)}`) : null);
  }

  async function drawHolds(signal) {
    const found = await get(`/strict/${segment(name)}`, {}, signal);
    // Counters of the other methods have no holds.
    const { items: open } = found.method === "marker"
      ? await get(`/strict/${segment(name)}/holds`, {}, signal) : { items: [] };
    const bound = (value) => (value === null ? "none" : amount(value));
    show(places.holds,
      h("dl", {}, ...[["Lower bound", bound(found.lower)], ["Upper bound", bound(found.upper)],
        ["Held", amount(found.held)], ["Available", amount(found.available)]].flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])),
      found.lower !== null && found.upper !== null
        ? h("meter", { min: found.lower, max: found.upper, value: found.value,
          "aria-label": `between its bounds: ${found.value}` }) : null,
      open.length
        ? table("Open holds", [["Amount", "number"], ["Until", "short"], "Key", "Note"], open.map((one) =>
          [amount(one.amount), moment(one.expires_at), one.key ?? "", noteOf(one.note)]))
        : h("p", { class: "quiet" }, "No hold is open."));
  }

  async function drawAlerts(signal) {
    const { rules } = await get("/alerts/rules", {}, signal);
    const mine = rules.filter((one) => one.counter === name
      || (one.prefix !== null && one.prefix !== undefined && name.startsWith(one.prefix)));
    if (mine.length === 0) {
      show(places.alerts, empty("No alert watches this counter.",
        command(`countledger alert create my-alert --counter ${quoted(name)} --threshold 100 --direction rising`)));
      return;
    }
    const { alerts } = await get("/alerts/log", { counter: name, limit: 10 }, signal);
    show(places.alerts,
      h("ul", {}, mine.map((one) => h("li", {}, h("strong", {}, one.name), ` at ${
        one.threshold ? amount(one.threshold) : `every ${amount(one.step)}`}, ${one.direction}`))),
      alerts.length
        ? table("Alerts of this counter", [["When", "short"], "Rule", ["From", "number"], ["To", "number"]],
          alerts.map(({ alert }) => [moment(alert.at), alert.rule, amount(alert.old), amount(alert.new)]))
        : h("p", { class: "quiet" }, "None has been raised yet."));
  }

  const choices = h("div", { class: "choices", role: "group", "aria-label": "Bars per" },
    Object.keys(CHARTS).map((one) => h("button", { type: "button", "aria-pressed": String(one === per),
      onclick: () => {
        per = one;
        for (const button of choices.children) {
          button.setAttribute("aria-pressed", String(button.textContent.toLowerCase() === one));
        }
        drawChart().catch(() => {});
      } }, one[0].toUpperCase() + one.slice(1))));
  const chart = part("Per hour and day", choices, places.chart);
  const changes = part("Changes", places.entries);
  const bounds = part("Bounds and holds", places.holds);
  bounds.hidden = true;

  return {
    title: name,
    every: 1000,
    element: h("div", {},
      h("p", {}, h("a", { href: "#/" }, "All counters")),
      h("h1", {}, named(name)), h("section", { "aria-label": "Total" }, places.total),
      bounds, chart, changes, part("Alerts", places.alerts)),
    async refresh(signal) {
      const found = await get(path, {}, signal);
      strict = Boolean(found.method);
      chart.hidden = strict;
      changes.hidden = strict;
      bounds.hidden = !strict || found.method === "sequence";
      drawTotal(found);
      const now = Date.now();
      if (now - listsAt > LISTS_MS) {
        listsAt = now;
        await Promise.all([drawLists(signal), fill(places.alerts, () => drawAlerts(signal))]);
      }
      if (!strict && now - chartAt > CHART_MS) {
        chartAt = now;
        await drawChart(signal);
      }
    },
  };
}

function noteOf(note) {
  return Object.entries(note ?? {}).map(([key, value]) => `${key}: ${value}`).join(", ");
}

/** A name as a shell takes it. */
function quoted(text) {
  return /^[\w:.@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
