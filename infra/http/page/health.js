// The state of the stack: what needs action and which, then the facts behind it.

import { get } from "./api.js";
import { command, empty, fill, h, link, part, reading, said, show, table } from "./dom.js";
import { ago, amount, duration, many, moment, next } from "./format.js";

const QUARANTINED = 50;

export function health() {
  const places = Object.fromEntries(
    ["needed", "shards", "quarantine", "regions", "facts"].map((one) => [one, h("div", { id: one }, reading())]));

  return {
    title: "Health",
    every: 10_000,
    element: h("div", {}, h("h1", {}, "Health"), places.needed,
      part("Freshness of totals", places.shards), part("Quarantine", places.quarantine),
      part("Regions", places.regions), places.facts),
    async refresh(signal) {
      await Promise.all([
        fill(places.needed, async () => {
          const found = await get("/status", {}, signal);
          show(places.needed, needed(found));
          show(places.facts, ...facts(found).filter(Boolean));
        }, places.facts),
        fill(places.shards, async () => show(places.shards, ...shards(await get("/shards", {}, signal)))),
        fill(places.quarantine, async () =>
          show(places.quarantine, ...quarantine(await get("/quarantine", { limit: QUARANTINED }, signal)))),
        fill(places.regions, async () => show(places.regions, regions(await get("/regions", {}, signal)))),
      ]);
    },
  };
}

function needed({ findings, stack }) {
  const known = stack ? h("p", { class: "quiet" }, `Stack ${stack.name}: ${stack.status.toLowerCase().replaceAll("_", " ")}, changed ${
    ago(stack.changed_at)}.`) : null;
  if (findings.length === 0) {
    return part("Action", h("p", { class: "well" }, "No action is required."), known);
  }
  return part(`Action required: ${findings.length}`, findings.map((one) =>
    h("div", { class: "finding" }, h("h3", {}, one.subject), h("p", {}, one.says),
      h("p", {}, h("strong", {}, "What to do: "), said(one.do)))), known);
}

/** How far something is that waits since a moment, in words. */
function lag(since, through, at) {
  if (since) return `${duration(Date.parse(at) - Date.parse(since))} behind`;
  return through ? "up to date" : "up to date: no change yet";
}

function shards({ at, items: found }) {
  const oldest = found.map((one) => one.waiting_since).filter(Boolean).sort()[0];
  const words = oldest
    ? `Totals are ${duration(Date.parse(at) - Date.parse(oldest))} behind the ledger, in ${
      many(found.filter((one) => one.waiting_since).length, "stream shard")}.`
    : "Totals are up to date: they include every change.";
  return [h("p", { class: oldest ? "" : "well" }, words),
    table("Stream shards", ["Shard", ["State", "short"], ["Last change handled", "short"]], found.map((one) =>
      [h("code", {}, one.shard), lag(one.waiting_since, one.handled_through, at), moment(one.handled_through)]))];
}

function quarantine({ items: records }) {
  if (records.length === 0) return [empty("No record is in quarantine.")];
  return [
    h("p", {}, `${records.length < QUARANTINED ? many(records.length, "record") : `The newest ${QUARANTINED} records`
    }: each could not be applied, and waits until somebody handles it. Look at one, remove its cause, and `,
    "then resend or discard it:"),
    command(`countledger quarantine show ${records[0].id}`),
    command(`countledger quarantine resend ${records[0].id}`),
    command(`countledger quarantine discard ${records[0].id}`),
    table("Records in quarantine", [["Since", "short"], "What", "Why", "Counter", "Id"], records.map((one) =>
      [`${moment(one.at)} (${ago(one.at)})`, `${one.kind}, from ${SOURCES[one.source] ?? one.source}`, one.reason,
        one.counter ? link(`#/counter/${encodeURIComponent(one.counter)}`, one.counter) : "unknown",
        h("code", {}, one.id)])),
  ];
}

const SOURCES = { ledger: "the ledger: it is in no total", counters: "the totals: no alert rule saw it",
  kinesis: "Kinesis: it is not in the ledger" };

function regions({ at, items: found }) {
  const state = (one) => (one.state === "ready" ? lag(one.waiting_since, one.handled_through, at) : REGIONS[one.state] ?? one.state);
  return table("Regions", [["Region", "short"], "Totals", "Replica of the ledger", ["Last change handled", "short"]], found.map((one) =>
    [one.home ? `${one.name} (home)` : one.name, state(one), one.replica.toLowerCase(), moment(one.handled_through)]));
}

const REGIONS = { rebuilding: "rebuilding: not readable until they are proven", "no stack": "no stack reads this replica" };

function facts(found) {
  const part_ = (title, caption, columns, rows) => (rows.length
    ? part(title, table(caption, columns, rows)) : null);
  const ages = new Map((found.iterators ?? []).map((one) => [one.name.replace(/Function$/, ""), one.age_ms]));
  return [
    part("Schedules of compaction", found.schedules?.length
      ? table("Schedules", ["Namespace", "When", ["Due", "number"], ["Last run", "short"], "Outcome", ["Next run", "short"]],
        found.schedules.map((one) => [one.schedule.namespace, trigger(one), atMost(one.due, one.due_max),
          one.last ? ago(one.last.ticked_at) : "never", outcome(one.last), next(one.schedule.expression, one.last?.ticked_at)]))
      : empty("No schedule.", h("p", { class: "quiet" }, "Old entries are merged by a schedule, or by hand:"),
        command("countledger schedule create likes --every 1h"))),
    part_("Functions that read streams", "Event source mappings",
      [["Mapping", "short"], "State", "Age of the last record", "Last result"],
      (found.mappings ?? []).map((one) => {
        const name = one.name.replace(/Mapping$/, "");
        const age = ages.get(name);
        return [name, one.played ? "played by a pump here" : one.state,
          age === null || age === undefined ? "unknown" : duration(age), one.result];
      })),
    part_("Queues", "Queues", [["Queue", "short"], ["Waiting", "number"], ["In flight", "number"]],
      (found.queues ?? []).map((one) => [one.name, amount(String(one.waiting)), amount(String(one.in_flight))])),
    found.alarms?.length ? part("Alarms", alarms(found.alarms)) : null,
    part_("Could not be read", "Could not be read", ["What", "Why"], Object.entries(found.unseen ?? {})),
  ];
}

function trigger({ schedule, state }) {
  return state === "enabled" ? schedule.expression : `${schedule.expression}: ${state}, nothing is compacted`;
}

/** What the last run of a schedule did, in words. */
function outcome(last) {
  if (!last) return "";
  const { counters, merged, failed, tampered } = last.work;
  const wrong = [failed ? `${many(failed, "counter")} failed` : "", tampered ? `${tampered} tampered` : ""].filter(Boolean);
  return [`${many(counters, "counter")} compacted, ${many(merged, "entry", "entries")} merged`, ...wrong].join("; ");
}

function alarms(found) {
  const of = (state) => found.filter((one) => one.state === state);
  const raised = of("ALARM");
  return h("div", {},
    h("p", {}, `${many(raised.length, "alarm")} raised, ${of("OK").length} OK, ${
      of("INSUFFICIENT_DATA").length} without data.`),
    raised.length ? table("Alarms", ["Alarm", "Since", "Meaning"], raised.map((one) =>
      [one.name, moment(one.since), one.description])) : null);
}

function atMost(number, most) {
  return number < most ? amount(String(number)) : `${amount(String(number))} or more`;
}
