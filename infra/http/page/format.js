// Numbers and times as people read them. An amount is a text of digits and stays exact: it is
// never turned into a floating-point number, except for the height of a bar.

/** An amount with its thousands in groups. */
export function amount(text) {
  const [, sign, whole, rest] = /^(-?)(\d+)(.*)$/.exec(String(text ?? "")) ?? [null, "", String(text ?? ""), ""];
  return `${sign === "-" ? "\u2212" : ""}${whole.replace(/\B(?=(\d{3})+$)/g, "\u202f")}${rest}`;
}

/** A change with its sign. */
export function signed(text) {
  return String(text).startsWith("-") ? amount(text) : `+${amount(text)}`;
}

const SCALE = 10n ** 20n;

function scaled(text) {
  const [, sign, whole, rest = ""] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  const value = BigInt(whole) * SCALE + BigInt(rest.slice(0, 20).padEnd(20, "0"));
  return sign ? -value : value;
}

function plain(value) {
  const size = value < 0n ? -value : value;
  const rest = String(size % SCALE).padStart(20, "0").replace(/0+$/, "");
  return `${value < 0n ? "-" : ""}${size / SCALE}${rest ? `.${rest}` : ""}`;
}

/** The exact sum of amounts with up to 20 decimals. */
export function sum(texts) {
  return plain(texts.reduce((all, one) => all + scaled(one), 0n));
}

/** One amount less another one. */
export function difference(one, other) {
  return plain(scaled(one) - scaled(other));
}

/** How many: `3 entries`. */
export function many(number, one, several = `${one}s`) {
  return `${amount(String(number))} ${number === 1 ? one : several}`;
}

/** A duration in its largest unit. */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const units = [["day", 86_400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [name, size] = units.find(([, length]) => seconds >= length) ?? units[3];
  return many(Math.floor(seconds / size), name);
}

/** A moment with its age, as an element's text and title. */
export function ago(moment, now = Date.now()) {
  if (!moment) return "never";
  const age = now - Date.parse(moment);
  if (age < -1500) return `in ${duration(-age)}`;
  return age < 1500 ? "now" : `${duration(age)} ago`;
}

const RATE = /^rate\((\d+) (minute|hour|day)s?\)$/;
const UNITS_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

/** When a schedule runs next, as far as its expression and its last run say. */
export function next(expression, last, now = Date.now()) {
  const [, number, unit] = RATE.exec(expression) ?? [];
  if (!unit) return "as the expression says";
  if (!last) return `within ${number} ${unit}${number === "1" ? "" : "s"}`;
  const at = Date.parse(last) + number * UNITS_MS[unit];
  return at > now ? `in ${duration(at - now)}` : "now";
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A moment in the time zone of the reader. */
export function moment(text) {
  if (!text) return "never";
  const date = new Date(text);
  return (Date.now() - date < 43_200_000 ? CLOCK : DATE).format(date);
}

/** A window as the name says it, which is in the zone of the windows, not of the reader. */
export function windowLabel(name, options) {
  const [, day, hour] = /^(\d{4}-\d\d-\d\d)(?:T(\d\d))?/.exec(name);
  return new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" })
    .format(Date.parse(`${day}T${hour ?? "00"}:00Z`));
}
