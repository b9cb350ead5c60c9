// Alerts: the rules, and what they raised.

import { get } from "./api.js";
import { command, empty, h, link, part, reading, show, table } from "./dom.js";
import { amount, moment } from "./format.js";

export function alerts() {
  const rules = h("div", {}, reading());
  const log = h("div", {}, reading());

  return {
    title: "Alerts",
    every: 3000,
    element: h("div", {}, h("h1", {}, "Alerts"), part("Raised, newest first", log), part("Rules", rules)),
    async refresh(signal) {
      const [found, raised] = await Promise.all([
        get("/alerts/rules", {}, signal), get("/alerts/log", { limit: 50 }, signal)]);
      show(rules, found.items.length
        ? table("Rules", ["Rule", "Watches", ["Threshold", "number"], "Direction", ["Effective", "short"]],
          found.items.map((one) => [one.name, one.counter ?? `${one.prefix}*`,
            one.threshold ? amount(one.threshold) : `every ${amount(one.step)}`, one.direction,
            moment(one.effective_from)]))
        : empty("There is no rule yet.",
          h("p", {}, "A rule raises an alert each time a total crosses a threshold, once:"),
          command("countledger alert create popular --prefix likes: --threshold 100 --direction rising")));
      show(log, raised.items.length
        ? table("Raised alerts", [["When", "short"], "Counter", "Rule", ["From", "number"], ["To", "number"]],
          raised.items.map(({ alert: one }) => [moment(one.at),
            link(`#/counter/${encodeURIComponent(one.counter)}`, one.counter),
            one.rule, amount(one.old), amount(one.new)]))
        : h("p", { class: "quiet" }, "No alert has been raised yet."));
    },
  };
}
