// Requests to the API below /v1: an answer is kept with its tag, and asked for again by it.

const known = new Map();
const KNOWN_MAX = 200;
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

/** A counter's name in a path. */
export function segment(name) {
  return encodeURIComponent(name.replaceAll("~", "~0").replaceAll("/", "~1"));
}

/** What is below /v1 at this path; `query` leaves out what is undefined. */
export async function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).flatMap(([key, value]) => [value].flat().map((one) => [key, one]))
    .filter(([, value]) => value !== undefined && value !== null && value !== "");
  const address = `/v1${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  const before = known.get(address);
  const headers = before?.tag ? { "If-None-Match": before.tag } : {};
  let answer;
  try {
    answer = await fetch(address, { headers, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { type: ":server-gone", detail: "The server of this page has ended." });
  }
  const text = await answer.text();
  const unchanged = answer.status === 304 && before;
  if (!answer.ok && !unchanged) throw new Problem(answer.status, parsed(text));
  last.answerAt = Date.now();
  if (unchanged) return before.document;
  const document = JSON.parse(text);
  document.readUnits = Number(answer.headers.get("Countledger-Read-Units") ?? 0);
  known.delete(address);
  known.set(address, { tag: answer.headers.get("ETag"), document });
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
