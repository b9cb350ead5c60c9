// Top lists: the highest counters of ranked namespaces and groups.

import { get, segment } from "./api.js";
import { command, empty, h, link, part, reading, show, table } from "./dom.js";
import { amount } from "./format.js";

const LIMIT = 20;
const NAMESPACES = 50;
const PLACES_MS = 30_000;

/** The rankings: of groups by their list, of namespaces by the answer to the question. */
async function ranked(signal) {
  const [{ items: namespaces }, { items: groups }] = await Promise.all([
    get("/namespaces", {}, signal), get("/groups", {}, signal)]);
  const found = groups.filter((one) => one.ranked)
    .map((one) => ({ ...one, kind: "group", path: `/groups/${segment(one.name)}/top` }));
  for (const one of namespaces.slice(0, NAMESPACES)) {
    const path = `/namespaces/${segment(one.name)}/top`;
    try {
      await get(path, { limit: LIMIT }, signal);
      found.unshift({ ...one, kind: "namespace", path });
    } catch (problem) {
      if (problem.slug !== "not-ranked") throw problem;
    }
  }
  return found;
}

export function top() {
  const body = h("div", {}, reading());
  let placesAt = 0;
  let places = [];

  return {
    title: "Top lists",
    every: 2000,
    element: h("div", {}, h("h1", {}, "Top lists"), body),
    async refresh(signal) {
      if (Date.now() - placesAt > PLACES_MS) {
        places = await ranked(signal);
        placesAt = Date.now();
      }
      if (places.length === 0) {
        show(body, empty("No namespace and no group is ranked yet.",
          h("p", {}, "A ranking keeps the counters of a namespace in the order of their totals. ",
            "Its top is then one cheap read:"),
          command("countledger namespace rank likes"),
          h("p", {}, "The same for a group of counters:"),
          command("countledger group rank GROUP")));
        return;
      }
      const tops = await Promise.all(places.map((one) =>
        get(one.path, { limit: LIMIT }, signal)));
      show(body, ...places.map((one, at) => part(`${one.name} (${one.kind})`,
        tops[at].items.length
          ? table(`Top of ${one.name}`, [["Rank", "number"], "Counter", ["Value", "number"]],
            tops[at].items.map((row) => [String(row.rank),
              link(`#/counter/${encodeURIComponent(row.counter)}`, row.counter),
              amount(row.value)]))
          : h("p", { class: "quiet" }, "No counter is in it yet."))));
    },
  };
}
