// What every view is made of: elements, text from records, requests, states and dialogs.
//
// Text never becomes markup: elements are made by `el`, which only takes nodes and text, and the page's policy forbids the
// browser to read markup from a string at all.

// Elements

/** Makes an element. `props` are attributes; `on` holds listeners. Children are nodes, text, or nothing. */
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  put(node, ...children);
  return node;
}

export function put(node, ...children) {
  for (const child of children.flat(Infinity)) if (child !== undefined && child !== null && child !== false) node.append(child);
  return node;
}

export function show(node, ...children) { node.replaceChildren(); return put(node, ...children); }
export function span(kind, ...children) { return el("span", { class: kind || undefined }, children); }
export function div(kind, ...children) { return el("div", { class: kind || undefined }, children); }
export function code(...children) { return el("code", {}, children); }

export function button(text, listener, props) { return el("button", { type: "button", ...props, on: { click: listener } }, text); }
/** A copy of a template of the page, with its controls and parts by their names. */
export function made(id) {
  const node = document.getElementById(id).content.cloneNode(true);
  return { node, ...Object.fromEntries([...node.querySelectorAll("[name], [data-part]")].map((one) => [one.name ?? one.dataset.part, one])) };
}
/** A link of the list at the side, with a number. */
export function sideLink(to, label, number, isAt, { title, trouble } = {}) {
  return el("a", { href: to, "aria-current": isAt ? "true" : undefined, title: title ?? words(label) },
    span("grow", text(label)), trouble && span("bad", "!"), dim(count(number)));
}

export function link(to, ...children) { return el("a", { href: to }, children); }
/** A link in a row of a table, which has the focus as a whole. */
export function cellLink(to, label) { return el("a", { href: to, tabindex: -1 }, text(label)); }
export function dim(...children) { return span("dim", ...children); }
export function hint(...children) { return el("p", { class: "dim" }, children); }
export function trouble(...children) { return div("note bad", children); }
/** Names and values as they stand in an address; several values of a name each by itself. */
function queryOf(params, keepsEmpty) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    const isSaid = (one) => one !== undefined && one !== null && (keepsEmpty || one !== "");
    for (const one of [value].flat().filter(isSaid)) query.append(name, one);
  }
  return query.toString();
}
/** An address within the page: a view and its parameters. */
export function address(view, params) {
  const query = queryOf(params);
  return "#" + view + (query ? "?" + query : "");
}
/** What the page's address says: a view and its parameters. */
export function here() {
  const [view, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { view, params: new URLSearchParams(query ?? "") };
}
/** The address of a view with what `params` has under these names, but for the changes. */
export function changed(view, params, names, changes) {
  return address(view, { ...Object.fromEntries(names.map((name) => [name, params.getAll(name)])), ...changes });
}

// Characters that are not seen, or that change how the text around them is read.
const hidden = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;

/** Text of a record, with what cannot be seen made visible as the command prints it, and its direction kept to itself. */
export function text(string, keepsLines) {
  const bdi = el("bdi", { dir: "ltr" });
  let plain = "";
  for (const character of String(string)) {
    if (!hidden.test(character) || (keepsLines && (character === "\n" || character === "\t"))) { plain += character; continue; }
    if (plain) bdi.append(plain);
    plain = "";
    bdi.append(span("ctl", escaped(character)));
  }
  if (plain) bdi.append(plain);
  return bdi;
}
/** The same for a place that takes no nodes: a title, a label. */
export function words(string) { return Array.from(String(string), (one) => hidden.test(one) ? escaped(one) : one).join(""); }
function escaped(character) { return "\\u{" + character.codePointAt(0).toString(16) + "}"; }

export function count(number) { return String(number).replace(/\B(?=(\d{3})+$)/g, ","); }
export function plural(number, one, many) { return count(number) + " " + (number === 1 ? one : many ?? one + "s"); }

export function bytes(number) {
  if (number < 10_000) return count(number) + " bytes";
  if (number < 10_000_000) return count(Math.floor(number / 1_000)) + " kB";
  return count(Math.floor(number / 1_000_000)) + " MB";
}

export function duration(milliseconds) {
  const seconds = Math.floor(Math.max(0, milliseconds) / 1_000);
  if (seconds < 120) return seconds + " s";
  if (seconds < 7_200) return Math.floor(seconds / 60) + " min";
  if (seconds < 172_800) return Math.floor(seconds / 3_600) + " h";
  return Math.floor(seconds / 86_400) + " d";
}

const day = new Intl.DateTimeFormat(undefined,
  { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time of this machine's zone; UTC under the pointer. */
export function time(milliseconds) {
  const date = new Date(Number(milliseconds));
  if (Number.isNaN(date.getTime())) return span("", count(milliseconds) + " ms");
  return el("time", { datetime: date.toISOString(), title: date.toISOString() + " (UTC)" }, day.format(date));
}
/** The kind of a field's value in a line of the command, and the value itself. */
export function typed(value) {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && "type" in value) return [value.type, value.value];
  if (typeof value === "string") return ["STRING", value];
  if (isNumber(value)) return ["INT64", value];
  if (Array.isArray(value)) return [isNumber(value[0]) ? "INT64_LIST" : "STRING_LIST", value];
  return ["", value];
}

export function isNumber(value) { return typeof value === "number" || typeof value === "bigint"; }
export function isNumeric(kind) { return kind === "INT64" || kind === "DOUBLE"; }
/** A value as nodes. `open` says where a reference leads; `isWhole` shows all of it. */
export function shown(value, open, isWhole) {
  const [kind, inner] = typed(value);
  if (inner === null || inner === undefined) return dim("null");
  if (kind.endsWith("_LIST") && Array.isArray(inner)) {
    if (!inner.length) return dim("empty list");
    const most = isWhole ? 500 : 8;
    const isTyped = (one) => one !== null && typeof one === "object" && "type" in one;
    const item = (one) => span("chip", shown(isTyped(one) ? one : { type: kind.slice(0, -5), value: one }, open, isWhole));
    return [inner.slice(0, most).map(item), inner.length > most && dim("and " + count(inner.length - most) + " more")];
  }
  switch (kind) {
    case "STRING": return inner === "" ? dim("empty") : text(isWhole ? inner : inner.slice(0, 300), isWhole);
    case "INT64": case "DOUBLE": return String(inner);
    case "TIMESTAMP": return time(inner);
    case "BYTES": return [dim(plural(Math.floor(String(inner).replace(/=+$/, "").length * 3 / 4), "byte") + " "),
      code(text(String(inner).slice(0, isWhole ? 2_000 : 24)))];
    case "REFERENCE": {
      const name = inner?.recordName ?? "";
      const label = [text(name), inner?.action && inner.action !== "NONE" ? span("kind", " " + inner.action) : null];
      return open ? link(open(name, inner?.zoneID?.zoneName), label) : label;
    }
    case "LOCATION": return text(`${inner?.latitude}, ${inner?.longitude}`);
    default: return code(text(JSON.stringify(inner, null, isWhole ? 2 : 0), isWhole));
  }
}
/** Reads JSON. A whole number that a script would round is kept exact, and written as it was. */
export function parse(string) {
  const exact = (key, value, context) => {
    const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
    return isRounded ? BigInt(context.source) : value;
  };
  return JSON.parse(string, /\d{16}/.test(string) ? exact : undefined);
}

BigInt.prototype.toJSON = function () { return JSON.rawJSON(String(this)); };

/** What the server refused, or that it is gone: then the status is 0. */
function refused(message, status, more) { return Object.assign(new Error(message), { status, ...more }); }
export const session = {};

/** Asks for `name`. With a type it is a POST, of `body` or else of the parameters as a form. */
async function ask(name, params, { type, body, takesAll, signal } = {}) {
  const query = queryOf(params, true), isForm = type && body === undefined;
  const path = "/api/" + name + (isForm || !query ? "" : "?" + query);
  // Only this page has the secret.
  const headers = type && { "Content-Type": type, "X-Strandline-Token": session.changeToken };
  let answer, said;
  try { answer = await fetch(path, type ? { method: "POST", headers, body: body ?? query } : { signal }); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw refused("The command does not answer. It may have ended.", 0);
  }
  try { said = parse(await answer.text()); } catch { throw refused("The answer was cut off.", answer.status); }
  if (takesAll) return { status: answer.status, body: said };
  if (!answer.ok) throw refused(said?.error ?? "The command refused this.", answer.status);
  return said;
}

export function get(name, params, signal) { return ask(name, params, { signal }); }
export function post(name, params) { return ask(name, params, { type: "application/x-www-form-urlencoded" }); }
/** Sends a body, and takes an answer of any status. */
export function send(name, params, body) { return ask(name, params, { type: "application/json", body, takesAll: true }); }
/** The words of a verb: operands, then options. No name is taken for an option, also if it begins as one. */
export function named(operands, options) {
  return operands.some((one) => one.startsWith("-")) ? [...options, "--", ...operands] : [...operands, ...options];
}
/** What a verb of the command prints: its lines, and in words what it said besides. */
export async function run(verb, args, signal) { return checked(await get("run", { verb, w: args ?? [] }, signal)); }
export async function change(verb, args) { return checked(await post("run", { verb, w: args })); }
/** An answer with an error line has still the lines that were printed before it: a damaged record hides no other. */
function checked(answer) {
  const said = (kind) => answer.notes.filter((note) => note.startsWith(kind)).map((note) => note.slice(kind.length));
  const errors = said("error: "), { command, isCut } = answer;
  if (errors.length && (!answer.lines.length || isCut)) {
    throw refused(errors[0], answer.code, { remedy: said("try: ")[0], command, isCut });
  }
  return { ...answer, errors };
}

function loading(what = "Reading …") {
  return el("div", { class: "loading", role: "status" }, el("span", { class: "spin", "aria-hidden": "true" }), what);
}

export function empty(title, ...hints) { return div("state small", el("h2", {}, title), hints.map((hint) => el("p", {}, hint))); }

export function failed(error, again) {
  return el("div", { class: "state small failed", role: "alert" }, el("h2", {}, text(error.message)),
    error.remedy && el("p", {}, "Try ", code(text(error.remedy))), again && button("Try again", again));
}

let turns = 0;

/** Runs `read` and shows in `node` that it is under way, its result, or its failure with a button. */
export async function into(node, read, what) {
  const turn = node.turn = ++turns, isCurrent = () => node.turn === turn;
  try {
    const nodes = await waiting(node, what, read, isCurrent);
    if (isCurrent() && nodes !== undefined) show(node, nodes);
  } catch (error) { if (isCurrent() && error.name !== "AbortError") show(node, failed(error, () => into(node, read, what))); }
}
/** Says in `notes` that `read` is under way, if it takes a while. */
export async function waiting(notes, what, read, isWanted = () => true) {
  const wait = setTimeout(() => { if (isWanted()) show(notes, loading(what)); }, 200);
  try { return await read(); } finally { clearTimeout(wait); }
}
/** Runs `read` while what was shown stays, and shows its result unless it is older than what is shown by then. */
export async function refresh(board, read) {
  const turn = ++turns, nodes = await read();
  if (turn < (board.turn ?? 0)) return;
  board.turn = turn;
  renew(board, nodes);
}
/** What a control is of, so that it is found again among others. */
function keyOf(control) {
  const cell = control.closest("tr")?.cells[0];
  const row = cell?.contains(control) ? "" : cell?.querySelector("a")?.href ?? cell?.textContent;
  return [row, control.getAttribute("href") ?? control.getAttribute("aria-label") ?? control.textContent].join("\n");
}
/** Shows new facts, and leaves open, scrolled and focused what was. The focus of what is gone goes to the board. */
export function renew(board, ...nodes) {
  const all = (selector) => [...board.querySelectorAll(selector)];
  const wasOpen = new Map(all("details").map((one) => [one.dataset.key, [one.open, one.querySelector(".list")?.scrollTop ?? 0]]));
  const was = document.activeElement, focused = board.contains(was) && board !== was && keyOf(was);
  show(board, nodes);
  for (const one of all("details")) if (wasOpen.has(one.dataset.key)) {
    const list = one.querySelector(".list"), [isOpen, top] = wasOpen.get(one.dataset.key);
    one.open = isOpen;
    if (list) list.scrollTop = top;
  }
  if (focused === false) return;
  if (!board.hasAttribute("tabindex")) board.tabIndex = -1;
  const again = all("a, button, summary, input, select").find((one) => keyOf(one) === focused) ?? board;
  if ("value" in again) again.value = was.value;
  again.focus({ preventScroll: true });
}
/** Tabs over a panel: the arrows go from one to the next. */
export function tabs(titles, panel, choose) {
  panel.id ||= "panel";
  panel.setAttribute("role", "tabpanel");
  const props = (name) => ({ role: "tab", "data-name": name, "aria-controls": panel.id });
  const buttons = Object.entries(titles).map(([name, title]) => button(title, () => choose(name), props(name)));
  const keydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key], next = buttons.at((buttons.indexOf(document.activeElement) + step) % buttons.length);
    if (step) { next.focus(); next.click(); }
  };
  const bar = el("div", { class: "tabs", role: "tablist", on: { keydown } }, buttons);
  bar.at = (name) => buttons.forEach((one) => {
    one.setAttribute("aria-selected", String(one.dataset.name === name));
    one.tabIndex = one.dataset.name === name ? 0 : -1;
  });
  return bar;
}

export function toast(message) {
  const node = div("toast", text(message));
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), 6_000);
}

export function copy(string) {
  navigator.clipboard.writeText(string).then(() => toast("Copied"), () => toast("The browser did not let the page copy; select the text instead"));
}
/** A line of the command that says the same. */
export function says(command) {
  return div("says", span("only-reader", "The same on the command line:"), el("code", { title: words(command) }, text(command)),
    button("Copy", () => copy(command), { "aria-label": "Copy the command" }));
}
/** Asks before something is changed. Answers whether it was agreed to. */
export function confirm(title, sentences, action, isDanger) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const dialog = el("dialog", { "aria-labelledby": "asks", on: { cancel: () => close(false) } },
      el("h2", { id: "asks" }, title), sentences.map((sentence) => el("p", {}, sentence)),
      div("row", button("Leave it", () => close(false), { autofocus: true }),
        button(action, () => close(true), { class: isDanger ? "danger" : "main" })));
    document.body.append(dialog);
    dialog.showModal();
  });
}
/** Parts of a whole to scale: of each its class, its title, its size in bytes, and what is marked in it. */
export function bar(label, parts) {
  return el("div", { class: "bar", role: "img", "aria-label": label }, parts.map(([kind, title, size, marks]) => {
    const part = el("div", { class: kind, title }, marks);
    part.style.flex = `${size} 0 0`;
    return part;
  }));
}
/** What the colours of a bar mean: the same parts. */
export function legend(parts) {
  const swatch = (kind) => el("i", { class: kind + " swatch" });
  return div("legend", parts.map(([kind, title, size]) => span("", swatch(kind), title + " ", el("b", {}, bytes(size)))));
}

export function row(name, ...value) { return el("tr", {}, el("th", { scope: "row", title: name.textContent }, name), el("td", {}, value)); }
/** A table of texts and nodes. The columns whose head begins with "#" are numbers. */
export function plainTable(label, heads, rows) {
  const kinds = heads.map((head) => head.startsWith("#") ? "num" : undefined);
  const head = heads.map((head, at) => el("th", { scope: "col", class: kinds[at] }, head.replace(/^#/, "")));
  const cell = (value, at) => value instanceof HTMLTableCellElement ? value : el("td", { class: kinds[at] }, value);
  return div("scroll-x", el("table", { class: "plain", "aria-label": label }, el("thead", {}, el("tr", {}, head)),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map(cell))))));
}
/** After the last of several calls, and at most so often. */
export function calmly(milliseconds, body) {
  let timer, last = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => { last = Date.now(); body(...args); }, Math.max(20, last + milliseconds - Date.now()));
  };
}
