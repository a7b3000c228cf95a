// Starts the page: asks what it is of, follows what happens there, and shows the view that the address names.

import { el, get, here, into, session, show, span, words } from "./parts.js";
import { serverViews } from "./server.js";
import { storeViews } from "./store.js";

const [main, lost, live, keys] = ["main", "lost", "live", "keys"].map((id) => document.getElementById(id));

// The theme is the browser's, until the switch is used.

const root = document.documentElement;
function switchTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
}

let views = [];
let current;

/** Shows what the address names: a view and its parameters. */
function route() {
  const { view: name, params } = here(), view = views.find((one) => one.name === name) ?? views[0];
  if (current?.view !== view) {
    current?.shown.close?.();
    show(main);
    current = { view, shown: view.open(main, params) };
    document.title = `${view.title}: ${words(session.path.split("/").pop())} – Strandline`;
    nav();
  } else current.shown.update?.(params);
}

const badges = {};

/** A view's number beside its name. */
function badge(name, number, isBad) {
  if (badges[name]?.number === number) return;
  badges[name] = { number, isBad };
  nav();
}

function nav() {
  const list = document.getElementById("views");
  const had = document.activeElement?.dataset?.view;
  show(list, views.map(({ name, title }) => {
    const { number, isBad } = badges[name] ?? {}, isCurrent = current?.view.name === name;
    return el("a", { href: "#" + name, "data-view": name, "aria-current": isCurrent ? "page" : undefined },
      title, number ? span("badge" + (isBad ? " bad" : ""), number) : null);
  }));
  if (had) list.querySelector(`[data-view="${had}"]`)?.focus();
}

function say(kind, short, long) {
  show(live, el("span", { class: "dot " + kind, "aria-hidden": "true" }), span("", short, long && span("long", long)));
}

let source, rest, isLost = false, isAsking = false, heardAt = 0;
// The command sends something every ten seconds. One that is stopped, or behind a dead line, closes nothing and sends nothing.
const silenceMilliseconds = 25_000;
setInterval(() => { if (source && !isLost && Date.now() - heardAt > silenceMilliseconds) { source.close(); lose(); } }, 2_000);

function follow() {
  source?.close();
  source = new EventSource("/api/events");
  [heardAt, session.moment] = [Date.now(), undefined];
  source.onopen = () => { if (isLost) found(); };
  source.onerror = () => { source?.close(); lose(); };
  for (const name of ["moment", "request", "faults"]) {
    source.addEventListener(name, (event) => {
      const data = JSON.parse(event.data);
      heardAt = Date.now();
      if (name === "moment") say(data.error ? "off" : "on", data.error ? "unreadable" : "event " + data.lsn.toLocaleString("en"),
        data.isWritten ? " · an app has it open" : data.error ? "" : " · no app has it open");
      if (name === "moment") session.moment = data;
      if (name === "faults") badge("faults", Object.values(data).filter(Boolean).length || "", true);
      current?.shown.heard?.(name, data);
    });
  }
}

// A browser has few connections to one address: a page that is not seen leaves its own to others, and says that it is there.
document.addEventListener("visibilitychange", () => {
  clearInterval(rest);
  if (!document.hidden && !source && !isLost) { isLost = true; follow(); }
  if (document.hidden) rest = setInterval(() => {
    source?.close();
    source = undefined;
    get("session", { rest: "" }).catch(() => {});
  }, 20_000);
});

/** The command has gone: said at once, and asked again every second until it is there. */
async function lose() {
  isLost = true;
  if (isAsking) return;
  isAsking = true;
  say("off busy", "not connected");
  document.body.dataset.lost = "";
  lost.hidden = false;
  show(lost, "The command has ended or does not answer, or its machine sleeps. What is shown stays; "
    + "this page goes on when the command is there again.");
  for (let pause = 500; isAsking; pause = 1_000) {
    await new Promise((done) => setTimeout(done, pause));
    try {
      Object.assign(session, await get("session", {}, AbortSignal.timeout(5_000)));
      isAsking = false;
      follow();
    } catch (error) {
      if (error.status) show(lost, error.status !== 401 ? error.message
        : "The command was started again, with a new token. Open the address that it printed; then this page goes on too.");
    }
  }
}

function found() {
  isLost = false;
  delete document.body.dataset.lost;
  lost.hidden = true;
  if (session.kind === "server") say("on", "serving");
  current?.shown.found?.();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") return current?.shown.escape?.();
  if (event.target.closest("input, textarea, select")) return;
  if (event.key === "/") main.querySelector("input[type=search]")?.focus();
  else if (event.key === "?") keys.showModal();
  else if (event.key === "t") switchTheme();
  else if (event.key === "r") current?.shown.found?.();
  else if (/^[1-9]$/.test(event.key) && views[event.key - 1]) location.hash = views[event.key - 1].name;
  else return;
  event.preventDefault();
});
// The address names a view: so this link only moves the focus.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", () => keys.showModal());
keys.querySelector("button").addEventListener("click", () => keys.close());

into(main, async () => {
  Object.assign(session, await get("session"));
  const path = document.getElementById("path");
  path.title = words(session.path);
  show(path, words(session.path));
  views = session.kind === "store" ? storeViews(badge) : serverViews();
  if (session.kind === "server") say("on", "serving");
  addEventListener("hashchange", route);
  follow();
  route();
}, "Opening …");
