// Charts as SVG: bars of sums, and the line of a moving number. Heights are approximate; every
// number beside them is exact, and the table below a chart says the same in text.

import { h, s, table } from "./dom.js";
import { amount, moment, signed } from "./format.js";

const HEIGHT = 160;

/** How wide a chart is drawn: as wide as it is shown on a narrow screen, so that its text is readable. */
function wide() {
  return Math.min(720, Math.max(240, document.documentElement.clientWidth - 80));
}

/** Bars of sums; a bar has `label`, `long`, `value` (a text), and `open` while it may still grow. */
export function bars(name, rows) {
  const width = wide();
  const heights = rows.map((row) => Number(row.value));
  const top = Math.max(0, ...heights);
  const bottom = Math.min(0, ...heights);
  const span = top - bottom || 1;
  // Without any value the axis is the bottom line.
  const y = (value) => (top === bottom ? HEIGHT : ((top - value) / span) * HEIGHT);
  const step = width / Math.max(rows.length, 1);
  const highest = rows[heights.indexOf(top)];
  const said = highest && top > 0
    ? `${name}: ${rows.length} bars, highest ${amount(highest.value)} at ${highest.long}`
    : `${name}: ${rows.length} bars, none above zero`;
  const every = Math.ceil(rows.length / (width / 90));
  const drawn = rows.map((row, at) => {
    const value = heights[at];
    const size = Math.max(value === 0 ? 0 : 2, Math.abs(y(value) - y(0)));
    return s("rect", {
      class: row.open ? "bar open" : "bar",
      x: (at * step + step * 0.1).toFixed(2),
      width: (step * 0.8).toFixed(2),
      y: (value >= 0 ? y(0) - size : y(0)).toFixed(2),
      height: size.toFixed(2),
    }, s("title", {}, `${row.long}: ${signed(row.value)}`));
  });
  const labels = rows.map((row, at) => (at % every ? null : s("text", {
    // The first label begins at the edge, so that it is not cut off.
    x: (at ? at * step + step / 2 : 0).toFixed(2), y: HEIGHT + 18, "text-anchor": at ? "middle" : "start",
  }, row.label)));
  return h("figure", { class: "chart" },
    h("figcaption", { class: "quiet" }, name),
    s("svg", { viewBox: `-4 -18 ${width + 8} ${HEIGHT + 42}`, role: "img", "aria-label": said },
      s("line", { class: "grid", x1: 0, x2: width, y1: y(top), y2: y(top) }),
      s("line", { class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0) }),
      s("text", { x: 0, y: y(top) - 5 }, top > 0 && highest ? amount(highest.value) : ""),
      ...drawn, ...labels),
    h("details", { "data-name": "table" }, h("summary", {}, "The same as a table"),
      table(name, ["From", ["Sum", "number"], ["Events", "number"]],
        [...rows].reverse().map((row) => [row.long, signed(row.value), String(row.events ?? "")]))));
}

/** The line of a number that moves, over at least a minute; `points` have `at` (ms) and `value` (a text). */
export function line(points) {
  if (points.every((point) => point.value === points[0].value)) return null;
  const width = wide();
  const values = points.map((point) => Number(point.value));
  const low = Math.min(...values);
  const high = Math.max(...values);
  const now = points.at(-1).at;
  const span = Math.max(60_000, now - points[0].at);
  const x = (at) => (width * (1 - (now - at) / span)).toFixed(1);
  const y = (value) => (high === low ? 30 : 56 - ((value - low) / (high - low)) * 52).toFixed(1);
  // A step at each change: between two readings the number stood still.
  const path = points.map((point, at) => (at
    ? `H${x(point.at)}V${y(values[at])}`
    : `M${x(point.at)},${y(values[at])}`)).join("");
  return h("figure", { class: "chart" },
    h("figcaption", { class: "quiet" }, `How it moved since ${moment(points[0].at)}`), s("svg", { class: "line", viewBox: `0 0 ${width} 60`, preserveAspectRatio: "none",
    role: "img", "aria-label": `the last minutes: from ${amount(points[0].value)} to ${
      amount(points.at(-1).value)}` }, s("path", { d: path })));
}
