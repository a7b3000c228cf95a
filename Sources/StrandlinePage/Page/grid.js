// The table that scrolls by pages, and what a view with such a table consists of.

import { button, dim, div, el, put, renew, show, text, words } from "./parts.js";

export const rowHeight = 26;
// Browsers limit the height of an element: a longer table scrolls by more rows than its scroll bar moves.
const heightMax = 15_000_000;
export const noRows = rowsOf([]);

/** The rows of a list; `near` reads more of them. */
export function rowsOf(list, near) { return { length: list.length, at: (index) => list[index], near: near ?? (() => {}) }; }

const cellClass = (column) => "cell" + (column.isNumeric ? " num" : "");

/**
 * A table of which only the rows in sight are elements. `rows` has `length`, `at(i)` (undefined while it is not there, which
 * asks for it) and `near(i)`, called with the last row in sight.
 */
export class Grid {
  constructor(label, { open, sort, at }) {
    Object.assign(this, { open, sort, isAt: at ?? (() => false), columns: [], rows: noRows, current: -1, first: 0, last: 0 });
    this.head = el("div", { class: "grid-head", role: "row", "aria-rowindex": 1 });
    this.body = el("div", { class: "grid-body", role: "rowgroup" });
    const on = { scroll: () => this.frame(), keydown: (event) => this.key(event) };
    this.node = el("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": label, on }, this.head, this.body);
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
    const widths = columns.map((column) => column.width + "ch");
    this.template = [...widths.slice(0, -1), ...widths.slice(-1).map((last) => `minmax(${last}, 1fr)`)].join(" ");
    this.head.style.gridTemplateColumns = this.template;
    renew(this.head, columns.map((column) => {
      const [mark, order] = { asc: [" ↑", "ascending"], desc: [" ↓", "descending"] }[column.order] ?? [];
      const label = [text(column.name), mark], props = { "aria-label": "Sort by " + words(column.name) };
      return el("div", { class: cellClass(column), role: "columnheader", title: words(column.name), "aria-sort": order },
        column.field && this.sort ? button(label, () => this.sort(column), props) : label);
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
      put(node, el("div", { class: cellClass(column), role: "gridcell" }, row ? column.cell(row) : dim("…")));
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
/** A view with a table: tools and notes over it, a foot, and a panel beside it that shows one row. */
export class TableView {
  /** `side` is a list on the left; the other options are those of the table. */
  constructor(node, title, panelTitle, { side, ...options } = {}) {
    this.grid = new Grid(title, { open: (row) => this.pick(row), at: (row) => row === this.picked, ...options });
    [this.tools, this.notes, this.foot] = [div("tools"), div("notes"), div("")];
    this.detail = el("section", { class: "detail", "aria-label": panelTitle, hidden: true });
    this.middle = el("section", { class: "middle", "aria-label": title }, this.tools, this.notes, this.grid.node, this.foot);
    this.frame = div(side ? "split" : "split solo", side, this.middle, this.detail);
    put(node, this.frame);
  }

  escape() { this.pick(undefined); }
  /** Shows a row in the panel; without one the panel is closed. */
  pick(row) {
    this.picked = row;
    this.openPanel(Boolean(row));
    if (row) show(this.detail, this.panel(row));
  }
  /** Opens or closes the panel. The focus of a closed one goes back to the table. */
  openPanel(isOpen) {
    if (!isOpen && this.detail.contains(document.activeElement)) this.grid.node.focus();
    this.frame.classList.toggle("open", isOpen);
    this.detail.hidden = !isOpen;
    this.grid.frame();
  }

  heading(title, more, what) {
    const close = button("×", () => this.escape(), { class: "quiet", "aria-label": "Close the " + what });
    return el("header", {}, div("grow", el("h1", {}, title), more && dim(more)), close);
  }
}
/** The width of a column in characters, by what is in it. */
export function widthOf(name, samples, most) {
  const longest = Math.max(name.length + 2, ...samples.map((sample) => sample.length));
  return Math.max(6, Math.min(most ?? 36, longest) + 3);
}
