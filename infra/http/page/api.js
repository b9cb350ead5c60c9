// Requests to the API below /v1: an answer is kept with its tag, and asked for again by it.

// The token of this server is in the address that the command printed. It is kept for this origin,
// which has the port in it: a cookie would go to the servers of all ports.
const TOKEN = "token";
const given = new URLSearchParams(location.search).get(TOKEN);
if (given) {
  localStorage.setItem(TOKEN, given);
  history.replaceState(null, "", location.pathname + location.hash);
}

const known = new Map();
const KNOWN_MAX = 200;
// After which the page says that it waits for an answer, and after which it tries again.
export const SLOW_MS = 4000;
const TIMEOUT_MS = 30_000;
export const last = { answerAt: null };

/** A request that was refused or failed, as the API says it. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `status ${status}`);
    this.status = status;
    this.slug = String(document.type ?? "").split(":").pop();
  }

  /** The stack does not answer, or this page's server has ended: what is shown may be old. */
  get gone() {
    return this.slug === "server-gone" || this.slug === "unreachable" || this.status >= 502;
  }
}

/** A counter's name in a path; gateways change these characters, whether they are encoded or not. */
export function segment(name) {
  const plain = name.replaceAll("~", "~0").replaceAll("/", "~1");
  return encodeURIComponent(plain.replaceAll("?", "~2").replaceAll("%", "~3"));
}

/** What is below /v1 at this path; `query` leaves out what is undefined. */
export async function get(path, query = {}, signal = undefined) {
  const fields = Object.entries(query).flatMap(([key, value]) => [value].flat().map((one) => [key, one]))
    .filter(([, value]) => value !== undefined && value !== null && value !== "");
  const address = `/v1${path}${fields.length ? `?${new URLSearchParams(fields)}` : ""}`;
  const before = known.get(address);
  const headers = { Authorization: `Bearer ${localStorage.getItem(TOKEN) ?? ""}` };
  if (before?.tag) headers["If-None-Match"] = before.tag;
  const late = AbortSignal.timeout(TIMEOUT_MS);
  let answer, text;
  try {
    const until = signal ? AbortSignal.any([signal, late]) : late;
    answer = await fetch(address, { headers, signal: until, cache: "no-store" });
    text = await answer.text();
  } catch (error) {
    if (late.aborted) {
      throw new Problem(0, { type: ":unreachable", detail: `No answer came within ${TIMEOUT_MS / 1000} seconds.` });
    }
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { type: ":server-gone", detail: "The server of this page has ended." });
  }
  const unchanged = answer.status === 304 && before;
  if (!answer.ok && !unchanged) throw new Problem(answer.status, parsed(text));
  last.answerAt = Date.now();
  if (unchanged) return before.document;
  const document = JSON.parse(text);
  document.readUnits = Number(answer.headers.get("Countledger-Read-Units") ?? 0);
  known.delete(address);
  const tag = answer.headers.get("ETag");
  if (tag) known.set(address, { tag, document });
  if (known.size > KNOWN_MAX) known.delete(known.keys().next().value);
  return document;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { detail: text.slice(0, 300) };
  }
}
