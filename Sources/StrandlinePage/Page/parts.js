// What every view is made of: elements, text from records, requests, states, dialogs and the table that scrolls by pages.
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

/** Appends nodes and text. */
export function put(node, ...children) {
  for (const child of children.flat(Infinity)) if (child !== undefined && child !== null && child !== false) node.append(child);
  return node;
}

/** Shows only these. */
export function show(node, ...children) { node.replaceChildren(); return put(node, ...children); }

export function button(text, listener, props) { return el("button", { type: "button", ...props, on: { click: listener } }, text); }

export function link(to, ...children) { return el("a", { href: to }, children); }
export function dim(...children) { return el("span", { class: "dim" }, children); }
export function hint(...children) { return el("p", { class: "dim" }, children); }
export function trouble(...children) { return el("div", { class: "note bad" }, children); }

/** An address within the page: a view and its parameters. */
export function address(view, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null && one !== "") query.append(name, one);
  }
  const text = query.toString();
  return "#" + view + (text ? "?" + text : "");
}

export function go(view, params) { location.hash = address(view, params); }

// Text from records

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
    bdi.append(el("span", { class: "ctl" }, "\\u{" + character.codePointAt(0).toString(16) + "}"));
  }
  if (plain) bdi.append(plain);
  return bdi;
}

/** The same for a place that takes no nodes: a title, a label. */
export function words(string) { return Array.from(String(string), (c) => hidden.test(c) ? "\\u{" + c.codePointAt(0).toString(16) + "}" : c).join(""); }

// Numbers, as the command writes them

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

const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time of this machine's zone; UTC under the pointer. */
export function time(milliseconds) {
  const date = new Date(Number(milliseconds));
  if (Number.isNaN(date.getTime())) return el("span", {}, count(milliseconds) + " ms");
  return el("time", { datetime: date.toISOString(), title: date.toISOString() + " (UTC)" }, day.format(date));
}

// Values

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
    const item = (one) => el("span", { class: "chip" },
      shown(one !== null && typeof one === "object" && "type" in one ? one : { type: kind.slice(0, -5), value: one }, open, isWhole));
    return [inner.slice(0, most).map(item), inner.length > most && dim("and " + count(inner.length - most) + " more")];
  }
  switch (kind) {
    case "STRING": return inner === "" ? dim("empty") : text(isWhole ? inner : inner.slice(0, 300), isWhole);
    case "INT64": case "DOUBLE": return String(inner);
    case "TIMESTAMP": return time(inner);
    case "BYTES": return [dim(plural(Math.floor(String(inner).replace(/=+$/, "").length * 3 / 4), "byte") + " "),
      el("code", {}, text(String(inner).slice(0, isWhole ? 2_000 : 24)))];
    case "REFERENCE": {
      const name = inner?.recordName ?? "";
      const label = [text(name), inner?.action && inner.action !== "NONE" ? el("span", { class: "kind" }, " " + inner.action) : null];
      return open ? link(open(name, inner?.zoneID?.zoneName), label) : label;
    }
    case "LOCATION": return text(`${inner?.latitude}, ${inner?.longitude}`);
    default: return el("code", {}, text(JSON.stringify(inner, null, isWhole ? 2 : 0), isWhole));
  }
}

/** Reads JSON. A whole number that a script would round is kept exact, and written as it was. */
export function parse(string) {
  const exact = (key, value, context) => Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? BigInt(context.source) : value;
  return JSON.parse(string, /\d{16}/.test(string) ? exact : undefined);
}

BigInt.prototype.toJSON = function () { return JSON.rawJSON(String(this)); };

// Requests

/** What the server refused, or that it is gone: then the status is 0. */
export function refused(message, status, more) { return Object.assign(new Error(message), { status, ...more }); }

export const session = {};

async function ask(name, params, options) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params ?? {})) for (const one of [value].flat()) if (one !== undefined && one !== null) query.append(key, one);
  let answer;
  try { answer = await fetch("/api/" + name + (options?.form || !query.size ? "" : "?" + query),
    { ...options, body: options?.form ? query.toString() : options?.body }); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw refused("The command does not answer. It may have ended.", 0);
  }
  let body;
  try { body = parse(await answer.text()); } catch { throw refused("The answer was cut off.", answer.status); }
  if (!answer.ok && options?.takes !== "all") throw refused(body?.error ?? "The command refused this.", answer.status);
  return options?.takes === "all" ? { status: answer.status, body } : body;
}

export function get(name, params, signal) { return ask(name, params, { signal }); }

// Only this page has the secret.
const headers = (type) => ({ "Content-Type": type, "X-Strandline-Token": session.changeToken });

/** Changes something. */
export function post(name, params) { return ask(name, params, { method: "POST", form: true, headers: headers("application/x-www-form-urlencoded") }); }

/** Sends a body, and takes an answer of any status. */
export function send(name, params, body) { return ask(name, params, { method: "POST", takes: "all", body, headers: headers("application/json") }); }

/** What a verb of the command prints: its lines, and in words what it said besides. */
export async function run(verb, args, signal) { return checked(await get("run", { verb, w: args ?? [] }, signal)); }

/** A verb that changes the store. */
export async function change(verb, args) { return checked(await post("run", { verb, w: args })); }

/** An answer with an error line has still the lines that were printed before it: a damaged record hides no other. */
function checked(answer) {
  const said = (kind) => answer.notes.filter((note) => note.startsWith(kind)).map((note) => note.slice(kind.length));
  const errors = said("error: "), { command, isCut } = answer;
  if (errors.length && (!answer.lines.length || isCut)) throw refused(errors[0], answer.code, { remedy: said("try: ")[0], command, isCut });
  return { ...answer, errors };
}

// States

export function loading(what) { return el("div", { class: "loading", role: "status" }, el("span", { class: "spin", "aria-hidden": "true" }), what ?? "Reading …"); }
export function empty(title, ...hints) { return el("div", { class: "state small" }, el("h2", {}, title), hints.map((hint) => el("p", {}, hint))); }

export function failed(error, again) {
  return el("div", { class: "state small failed", role: "alert" }, el("h2", {}, text(error.message)),
    error.remedy && el("p", {}, "Try ", el("code", {}, text(error.remedy))), again && button("Try again", again));
}

let turns = 0;

/** Runs `read` and shows in `node` that it is under way, its result, or its failure with a button. */
export async function into(node, read, what) {
  const turn = node.turn = ++turns;
  const wait = setTimeout(() => { if (node.turn === turn) show(node, loading(what)); }, 150);
  try {
    const nodes = await read();
    if (node.turn === turn && nodes !== undefined) show(node, nodes);
  } catch (error) {
    if (node.turn === turn && error.name !== "AbortError") show(node, failed(error, () => into(node, read, what)));
  } finally { clearTimeout(wait); }
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
  const cell = control.closest("tr")?.cells[0], row = cell?.contains(control) ? "" : cell?.querySelector("a")?.href ?? cell?.textContent;
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
  const buttons = Object.entries(titles).map(([name, title]) =>
    button(title, () => choose(name), { role: "tab", "data-name": name, "aria-controls": panel.id }));
  const bar = el("div", { class: "tabs", role: "tablist", on: { keydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  } } }, buttons);
  bar.at = (name) => { for (const one of buttons) {
    one.setAttribute("aria-selected", String(one.dataset.name === name));
    one.tabIndex = one.dataset.name === name ? 0 : -1;
  } };
  return bar;
}

/** Lays a view with a table out: tools and notes over it, a foot, and a panel and perhaps a list beside it. */
export function layOut(view, node, title, panelTitle, side) {
  Object.assign(view, { tools: el("div", { class: "tools" }), notes: el("div", { class: "notes" }), foot: el("div", {}) });
  view.detail = el("section", { class: "detail", "aria-label": panelTitle, hidden: true });
  const middle = el("section", { class: "middle", "aria-label": title }, view.tools, view.notes, view.grid.node, view.foot);
  view.frame = el("div", { class: side ? "split" : "split solo" }, side, middle, view.detail);
  put(node, view.frame);
}

/** Opens or closes the panel beside a view's table. The focus of a closed one goes back to the table. */
export function openPanel(view, isOpen) {
  if (!isOpen && view.detail.contains(document.activeElement)) view.grid.node.focus();
  view.frame.classList.toggle("open", isOpen);
  view.detail.hidden = !isOpen;
  view.grid.frame();
}

/** The head of a panel. */
export function heading(title, more, close, label) {
  return el("header", {}, el("div", { class: "grow" }, el("h1", {}, title), more && dim(more)), button("×", close, { class: "quiet", "aria-label": label }));
}

export function toast(message) {
  const node = el("div", { class: "toast" }, text(message));
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), 6_000);
}

export async function copy(string) {
  try { await navigator.clipboard.writeText(string).then(() => toast("Copied")); } catch { toast("The browser did not let the page copy; select the text instead"); }
}

/** A line of the command that says the same. */
export function says(command) {
  return el("div", { class: "says" }, el("span", { class: "only-reader" }, "The same on the command line:"), el("code", { title: words(command) }, text(command)),
    button("Copy", () => copy(command), { "aria-label": "Copy the command" }));
}

/** Asks before something is changed. Answers whether it was agreed to. */
export function confirm(title, sentences, action, isDanger) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const dialog = el("dialog", { "aria-labelledby": "asks", on: { cancel: () => close(false) } },
      el("h2", { id: "asks" }, title), sentences.map((sentence) => el("p", {}, sentence)),
      el("div", { class: "row" }, button("Leave it", () => close(false), { autofocus: true }),
        button(action, () => close(true), { class: isDanger ? "danger" : "main" })));
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function card(label, title, isWide, ...children) {
  return el("section", { class: "card" + (isWide ? " wide" : ""), "aria-label": label }, el("header", {}, el("h2", {}, title)), children);
}

/** One row of a table of names and values. */
export function row(name, ...value) { return el("tr", {}, el("th", { scope: "row", title: name.textContent }, name), el("td", {}, value)); }

export function plainTable(label, heads, rows) {
  const numeric = heads.map((head) => head.startsWith("#"));
  return el("div", { class: "scroll-x" }, el("table", { class: "plain", "aria-label": label },
    el("thead", {}, el("tr", {}, heads.map((head, at) => el("th", { scope: "col", class: numeric[at] && "num" }, head.replace(/^#/, ""))))),
    el("tbody", {}, rows.map((row) => el("tr", {},
        row.map((cell, at) => cell instanceof HTMLTableCellElement ? cell : el("td", { class: numeric[at] && "num" }, cell)))))));
}

/** After the last of several calls, and at most so often. */
export function calmly(milliseconds, body) {
  let timer, last = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => { last = Date.now(); body(...args); }, Math.max(20, last + milliseconds - Date.now()));
  };
}

// The table

const rowHeight = 26;
// Browsers have a limit to the height of an element; what is higher scrolls faster than it is shown.
const heightMax = 15_000_000;
export const noRows = { length: 0, at: () => undefined, near: () => {} };

/**
 * A table of which only the rows in sight are elements. `rows` has `length`, `at(i)` (undefined while it is not there, which
 * asks for it) and `near(i)`, called with the last row in sight.
 */
export class Grid {
  constructor(label, { open, sort, at }) {
    Object.assign(this, { open, sort, isAt: at ?? (() => false), columns: [], rows: noRows, current: -1, first: 0, last: 0 });
    this.head = el("div", { class: "grid-head", role: "row", "aria-rowindex": 1 });
    this.body = el("div", { class: "grid-body", role: "rowgroup" });
    this.node = el("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": label, on: { scroll: () => this.frame(), keydown: (event) => this.key(event) } },
      this.head, this.body);
    this.watcher = new ResizeObserver(() => this.frame());
    this.watcher.observe(this.node);
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest(".grid-row");
      if (row && !event.target.closest("a")) this.choose(Number(row.dataset.at), true);
    });
  }

  /** Columns have `name`, `width` in characters, `isNumeric`, `field` (if it sorts), `order` ("asc", "desc") and `cell(row)`. */
  setColumns(columns) {
    this.columns = columns;
    this.template = columns.map((column, at) => at === columns.length - 1 ? `minmax(${column.width}ch, 1fr)` : column.width + "ch").join(" ");
    this.head.style.gridTemplateColumns = this.template;
    renew(this.head, columns.map((column) => {
      const mark = column.order === "asc" ? " ↑" : column.order === "desc" ? " ↓" : "";
      const label = [text(column.name), mark];
      return el("div", {
        class: "cell" + (column.isNumeric ? " num" : ""), role: "columnheader", title: words(column.name),
        "aria-sort": column.order === "asc" ? "ascending" : column.order === "desc" ? "descending" : undefined,
      }, column.field && this.sort ? button(label, () => this.sort(column), { "aria-label": "Sort by " + words(column.name) }) : label);
    }));
    this.draw();
  }

  setRows(rows, keepsPlace) {
    this.rows = rows;
    if (!keepsPlace) { this.node.scrollTop = 0; this.current = -1; }
    this.draw();
  }

  frame() { this.asked ??= requestAnimationFrame(() => { this.asked = undefined; this.draw(); }); }

  /** How many pixels of rows one of the scroll bar is. */
  get scale() {
    const view = this.node.clientHeight, height = this.rows.length * rowHeight;
    return height > heightMax ? (height - view) / (heightMax - view) : 1;
  }

  draw() {
    const length = this.rows.length, scale = this.scale;
    this.node.setAttribute("aria-rowcount", (this.rows.total ?? length) + 1);
    this.body.style.height = Math.min(heightMax, length * rowHeight) + "px";
    this.body.style.width = Math.max(this.head.scrollWidth, this.node.clientWidth) + "px";
    const top = Math.max(0, this.node.scrollTop) * scale, offset = top - top / scale;
    const first = Math.max(0, Math.floor(top / rowHeight) - 8);
    const last = Math.min(length, Math.ceil((top + this.node.clientHeight) / rowHeight) + 8);
    this.rows.near(last);
    const old = new Map();
    for (const node of this.body.children) old.set(node.row, node);
    const nodes = [];
    for (let at = first; at < last; at++) {
      const row = this.rows.at(at);
      let node = row && old.get(row);
      if (!node || node.template !== this.template) node = this.row(row);
      node.style.transform = `translateY(${at * rowHeight - offset}px)`;
      node.dataset.at = at;
      node.id = "row-" + at;
      node.setAttribute("aria-rowindex", at + 2);
      const isAt = at === this.current || (row !== undefined && this.isAt(row));
      node.classList.toggle("at", isAt);
      node.setAttribute("aria-selected", String(isAt));
      nodes.push(node);
    }
    this.body.replaceChildren(...nodes);
    this.first = Math.floor(top / rowHeight);
    this.last = Math.min(length, Math.floor((top + this.node.clientHeight - rowHeight) / rowHeight));
    if (this.current >= first && this.current < last) this.node.setAttribute("aria-activedescendant", "row-" + this.current);
    else this.node.removeAttribute("aria-activedescendant");
    this.moved?.();
  }

  row(row) {
    const node = el("div", { class: "grid-row" + (row?.isNew ? " new" : ""), role: "row" });
    node.row = row;
    node.template = this.template;
    node.style.gridTemplateColumns = this.template;
    for (const column of this.columns) {
      put(node, el("div", { class: "cell" + (column.isNumeric ? " num" : ""), role: "gridcell" }, row ? column.cell(row) : dim("…")));
    }
    if (row) row.isNew = false;
    return node;
  }

  choose(at, isOpening) {
    if (!this.rows.length) return;
    this.current = Math.max(0, Math.min(this.rows.length - 1, at));
    const top = this.current * rowHeight, height = this.node.clientHeight - this.head.offsetHeight, scale = this.scale;
    if (top < this.node.scrollTop * scale) this.node.scrollTop = top / scale;
    else if (top + rowHeight > this.node.scrollTop * scale + height) this.node.scrollTop = (top + rowHeight - height) / scale;
    this.draw();
    const row = this.rows.at(this.current);
    if (isOpening && row) this.open(row);
  }

  key(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / rowHeight) - 2);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) this.choose(this.current + steps[event.key]);
    else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(this.rows.length - 1);
    else if (event.key === "Enter" && this.current >= 0) this.choose(this.current, true);
    else return;
    event.preventDefault();
  }
}

/** The width of a column in characters, by what is in it. */
export function widthOf(name, samples, most) {
  const longest = Math.max(name.length + 2, ...samples.map((sample) => sample.length));
  return Math.max(6, Math.min(most ?? 36, longest) + 3);
}
