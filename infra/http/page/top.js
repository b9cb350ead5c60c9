// Top lists: the highest counters of ranked namespaces and groups.

import { get } from "./api.js";
import { command, empty, h, part, show, table } from "./dom.js";
import { amount } from "./format.js";

const LIMIT = 20;
const PLACES_MS = 30_000;

export function top() {
  const body = h("div");
  let placesAt = 0;
  let places = [];

  return {
    title: "Top lists",
    every: 2000,
    element: h("div", {}, h("h1", {}, "Top lists"), body),
    async refresh(signal) {
      if (Date.now() - placesAt > PLACES_MS) {
        ({ items: places } = await get("/rankings", {}, signal));
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
        get(`/rankings/${one.kind}/${encodeURIComponent(one.name)}`, { limit: LIMIT }, signal)));
      show(body, ...places.map((one, at) => part(`${one.name} (${one.kind})`,
        tops[at].items.length
          ? table(`Top of ${one.name}`, [["Rank", "number"], "Counter", ["Value", "number"]],
            tops[at].items.map((row) => [String(row.rank),
              h("a", { href: `#/counter/${encodeURIComponent(row.counter)}` }, row.counter),
              amount(row.value)]))
          : h("p", { class: "quiet" }, "No counter is in it yet."))));
    },
  };
}
