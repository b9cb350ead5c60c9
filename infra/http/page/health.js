// The state of the stack: what needs action and which, then the facts behind it.

import { get } from "./api.js";
import { empty, h, part, reading, show, table } from "./dom.js";
import { ago, amount, duration, many, moment } from "./format.js";

export function health() {
  const body = h("div", {}, reading());

  return {
    title: "Health",
    every: 10_000,
    element: h("div", {}, h("h1", {}, "Health"), body),
    async refresh(signal) {
      const [found, fresh] = await Promise.all([
        get("/status", {}, signal), get("/freshness", {}, signal)]);
      show(body, needed(found), ...facts(found, fresh).filter(Boolean));
    },
  };
}

function needed({ findings }) {
  if (findings.length === 0) {
    return part("Action", h("p", { class: "well" }, "No action is required."));
  }
  return part(`Action required: ${findings.length}`, ...findings.map((one) =>
    h("div", { class: "finding" }, h("h3", {}, one.subject), h("p", {}, one.says),
      h("p", {}, h("strong", {}, "What to do: "), one.do))));
}

function facts(found, fresh) {
  const at = Date.parse(found.at);
  const part_ = (title, caption, columns, rows) => (rows.length
    ? part(title, table(caption, columns, rows)) : null);
  const ages = new Map((found.iterators ?? []).map((one) => [one.name.replace(/Function$/, ""), one.age_ms]));
  return [
    part("Freshness", freshness(found.freshness, at)),
    part_("Stream shards", "Stream shards", ["Shard", "Last change handled", "Since then"], [
      ...fresh.shards.map((one) => [one.shard, moment(one.handled_through),
        duration(at - Date.parse(one.handled_through))]),
      ...fresh.idle.map((one) => [one, "never had a change", ""])]),
    part_("Functions that read streams", "Event source mappings",
      ["Mapping", "State", "Age of the last record", "Last result"],
      (found.mappings ?? []).map((one) => {
        const name = one.name.replace(/Mapping$/, "");
        const age = ages.get(name);
        return [name, one.played ? "played by a pump here" : one.state,
          age === null || age === undefined ? "unknown" : duration(age), one.result];
      })),
    part("Quarantine", found.quarantined?.length
      ? table("Quarantine", ["Source", ["Waiting", "number"], "Oldest"], found.quarantined.map((one) =>
        [one.source, atMost(one.waiting, one.waiting_max), duration(one.oldest_ms)]))
      : empty("No record is in quarantine.")),
    part_("Queues", "Queues", ["Queue", ["Waiting", "number"], ["In flight", "number"]],
      (found.queues ?? []).map((one) => [one.name, amount(String(one.waiting)), amount(String(one.in_flight))])),
    part("Schedules of compaction", found.schedules?.length
      ? table("Schedules", ["Namespace", "When", "Trigger", ["Due", "number"], "Last run", ["Merged", "number"]],
        found.schedules.map((one) => [one.schedule.namespace, one.schedule.expression, one.state,
          atMost(one.due, one.due_max), one.last ? ago(one.last.ticked_at) : "never",
          one.last ? amount(String(one.last.work.merged)) : ""]))
      : empty("No schedule.", h("p", { class: "quiet" }, "Old entries are merged by a schedule, or by hand: ",
        h("code", {}, "countledger schedule create NAMESPACE --every 1h")))),
    found.alarms?.length ? part("Alarms", alarms(found.alarms)) : null,
    part_("Regions", "Regions", ["Region", "Replica", "State", "Handled through"],
      (found.regions ?? []).map((one) => [one.home ? `${one.name} (home)` : one.name, one.replica, one.state,
        one.freshness ? moment(one.freshness.handled_through) : "unknown"])),
    found.region ? part("Region", h("dl", {}, h("dt", {}, "This region"), h("dd", {}, found.region.name),
      h("dt", {}, "Home region"), h("dd", {}, found.region.home),
      h("dt", {}, "Totals"), h("dd", {}, found.region.phase))) : null,
    part_("Could not be read", "Could not be read", ["What", "Why"], Object.entries(found.unseen ?? {})),
  ];
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

function freshness(fresh, at) {
  if (!fresh) return empty("It could not be read how fresh the totals are.");
  const behind = fresh.waiting_since ? Date.parse(fresh.waiting_since) : null;
  return h("dl", {},
    h("dt", {}, "Totals"),
    h("dd", {}, behind === null ? "complete: no change is waiting" : `${duration(at - behind)} behind`),
    h("dt", {}, "Last change handled"), h("dd", {}, moment(fresh.handled_through)),
    h("dt", {}, "Idle shards"), h("dd", {}, many(fresh.idle, "shard")));
}

function atMost(number, most) {
  return number < most ? amount(String(number)) : `${amount(String(number))} or more`;
}
