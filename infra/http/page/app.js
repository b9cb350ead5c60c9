// The frame of the page: which view is shown, how often it reads, and what is said when nothing
// answers any more. A view has `title`, `element`, `every` (ms) and `refresh(signal)`; its `wake`,
// if it has one, is replaced by what makes it refresh at once.

import { alerts } from "./alerts.js";
import { get, last, SLOW_MS } from "./api.js";
import { counter } from "./counter.js";
import { counters } from "./counters.js";
import { command, h, said, show } from "./dom.js";
import { many, moment } from "./format.js";
import { health } from "./health.js";
import { top } from "./top.js";

const VIEWS = { "": counters, counter, top, alerts, health };
const RETRY_MAX_MS = 8000;
const FINDINGS_MS = 60_000;
const HIDDEN_MS = 60_000;

const main = document.getElementById("main");
const link = document.getElementById("link");
const gone = document.getElementById("gone");
let current = null;

/** Shows the view that the address names, and reads for it until another one is shown. */
async function navigate() {
  current?.abort();
  const turn = new AbortController();
  current = turn;
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const make = Object.hasOwn(VIEWS, name) ? VIEWS[name] : counters;
  const view = make(rest.map(decoded).join("/"));
  document.title = `${view.title} \u2013 countledger`;
  for (const one of document.querySelectorAll("nav a")) {
    const here = one.hash === `#/${name === "counter" ? "" : name}`;
    if (here) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  main.replaceChildren(view.element);
  if (navigate.again) main.focus({ preventScroll: true });
  navigate.again = true;
  scrollTo(0, 0);
  await follow(view, turn.signal);
}

/** A part of the address as text; what is no text stays as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Refreshes a view again and again: one refresh at a time, and none while nobody looks. */
async function follow(view, signal) {
  const pause = pauses(signal);
  view.wake = pause.end;
  document.addEventListener("visibilitychange", pause.end, { signal });
  let wait = 0;
  while (!signal.aborted) {
    const turn = new AbortController();
    if (!document.hidden) {
      const slow = setTimeout(waiting, SLOW_MS);
      try {
        await view.refresh(AbortSignal.any([signal, turn.signal]));
        answered();
        wait = 0;
      } catch (problem) {
        if (signal.aborted) return;
        if (problem.name === "AbortError") continue; // the view has something else to read
        wait = Math.min(RETRY_MAX_MS, Math.max(1000, wait * 2));
        failed(problem);
      } finally {
        clearTimeout(slow);
        turn.abort(); // of several requests one has failed: the others end with it
      }
    }
    await pause.of(document.hidden ? HIDDEN_MS : wait || view.every);
  }
}

/** Pauses that end by themselves, by `end`, or with the view. */
function pauses(signal) {
  let end = () => {};
  signal.addEventListener("abort", () => end(), { once: true });
  return {
    end: () => end(),
    of: (milliseconds) => new Promise((done) => {
      const timer = setTimeout(done, milliseconds);
      end = () => {
        clearTimeout(timer);
        done();
      };
    }),
  };
}

function waiting() {
  link.textContent = "waiting";
  link.className = "link slow";
}

function answered() {
  link.textContent = "live";
  link.className = "link live";
  link.title = `last answer ${moment(new Date().toISOString())}`;
  gone.hidden = true;
  gone.replaceChildren();
  main.classList.remove("old");
}

function failed(problem) {
  link.className = "link lost";
  main.classList.toggle("old", last.answerAt !== null);
  if (problem.status === 401) {
    link.textContent = "signed out";
    say("This browser is not signed in to this server any more.",
      ["Open the whole address again that the command printed. It has a new token each time."]);
  } else if (problem.slug === "server-gone") {
    link.textContent = "no connection";
    say("The server of this page has ended.", [
      "The stack of this machine was stopped, or `countledger serve` was ended. Start it again and open the address that it prints:",
      command('eval "$(countledger up)"'), command("countledger serve")]);
  } else if (problem.gone || problem.slug === "stack-not-found") {
    link.textContent = "no connection";
    say("The stack does not answer.", [problem.message,
      "The page tries again by itself. Whether the stack runs, and what it needs:",
      command("countledger status"), command("countledger doctor")]);
  } else {
    link.textContent = "error";
    main.classList.remove("old");
    say("That did not work.", [problem.message]);
  }
}

function say(title, lines) {
  gone.hidden = false;
  const since = last.answerAt
    ? [`What is shown is from ${moment(new Date(last.answerAt).toISOString())}.`] : [];
  show(gone, h("p", {}, h("strong", {}, title)),
    ...[...lines, ...since].map((one) => (typeof one === "string" ? h("p", {}, said(one)) : one)));
}

async function countFindings() {
  const badge = document.getElementById("findings");
  try {
    const { findings } = await get("/status");
    badge.hidden = findings.length === 0;
    badge.textContent = findings.length ? String(findings.length) : "";
    badge.setAttribute("aria-label", `${many(findings.length, "finding")}, action required`);
  } catch {
    badge.hidden = true;
  }
  setTimeout(countFindings, document.hidden ? 5 * FINDINGS_MS : FINDINGS_MS);
}

addEventListener("hashchange", navigate);
navigate();
countFindings();
