// The views of a store, the first of them: its records, and one record with its story.

import { TableView, noRows, widthOf } from "./grid.js";
import { LogView, Space } from "./log.js";
import {
  address, button, calmly, cellLink, changed, code, count, dim, div, el, empty, failed, here, hint, into, isNumeric, link, named,
  plainTable, plural, refresh, renew, row, run, says, session, show, shown, sideLink, span, tabs, text, time, trouble, typed, waiting, words,
} from "./parts.js";
import { Sync } from "./sync.js";

// A page of records, and how far from the top of a table (in pixels) it still follows what happens.
const pageLength = 200, rowsInSight = 200;
// What an address says of the table.
const tableParams = ["type", "zone", "sort", "where"];

export function storeViews(badge) {
  return [{ name: "records", title: "Records", open: (node, params) => new Records(node, params) },
    { name: "sync", title: "Sync", open: (node) => new Sync(node, badge) },
    { name: "log", title: "Log", open: (node, params) => new LogView(node, params, "store") },
    { name: "space", title: "Space", open: (node) => new Space(node) }];
}

function recordAddress(zone, name) {
  const { view, params } = here();
  return changed("records", ["records", ""].includes(view) ? params : new URLSearchParams(), tableParams, { in: zone, name });
}

const zoned = (zone) => zone ? ["--zone", zone] : [];
const keyOf = (record) => record.zoneName + "\n" + record.recordName;

/** The pages of a query that were read, by their number. A page that was read long ago is read again when it is in sight. */
class Pages {
  constructor(args, size, total, changed) {
    Object.assign(this, { args, size, total, changed, length: 0, cursors: [null], pages: new Map(), unreadable: new Map() });
    this.columns = { kinds: new Map(), zones: new Set(), hasParent: false };
    this.stopper = new AbortController();
  }
  /** Reads no more: another table takes its place, and it is shown until then. */
  stop() { this.stopper.abort(); }
  get isStopped() { return this.stopper.signal.aborted; }

  at(index) {
    const number = Math.floor(index / this.size), page = this.pages.get(number);
    if (page) return page[index % this.size];
    // What draws asks again when this has failed: so not until somebody tries again.
    if (!this.failure && number < this.cursors.length) this.read(number).catch(() => {});
    return undefined;
  }
  /** Reads on before the end is in sight. */
  near(index) {
    const isMore = this.cursors.length > this.pagesRead && index + 3 * this.size > this.length;
    if (isMore && !this.failure && !this.reading) this.read(this.pagesRead).catch(() => {});
  }

  get pagesRead() { return Math.ceil(this.length / this.size); }
  get isWhole() { return this.length > 0 && this.cursors.length <= this.pagesRead; }

  async read(number) {
    if (this.reading || this.isStopped) return this.reading;
    this.reading = this.readNow(number);
    try { return await this.reading; } finally {
      this.reading = undefined;
      // The table that draws these pages asks them for missing ones. Pages that were stopped would fail at once and draw again.
      if (!this.isStopped) this.changed(this);
    }
  }
  /** Which columns these records have. */
  learn(records) {
    const { kinds, zones } = this.columns;
    for (const record of records) {
      zones.add(record.zoneName);
      this.columns.hasParent ||= Boolean(record.parent);
      for (const [name, value] of Object.entries(record.fields)) if (!kinds.has(name)) kinds.set(name, typed(value)[0]);
    }
    this.shape = [kinds.size, zones.size > 1, this.columns.hasParent].join();
  }

  async readNow(number) {
    const cursor = this.cursors[number], begun = performance.now();
    try {
      const args = this.args("--limit", String(this.size), ...(cursor ? ["--after", cursor] : []));
      const answer = await run("query", args, this.stopper.signal);
      const end = answer.lines.pop();
      // The last line says what follows; where it is missing the verb has ended within the page.
      if (!end?.unreadable) throw new Error(answer.errors[0] ?? "The answer has no end.");
      for (const one of end.unreadable) this.unreadable.set(keyOf(one), one);
      this.pages.set(number, answer.lines);
      this.learn(answer.lines);
      const length = number * this.size + answer.lines.length;
      if (end.cursor) this.cursors[number + 1] = end.cursor;
      this.length = end.cursor ? Math.max(this.length, length) : length;
      // This is the end, also where a cursor was given for more.
      if (!end.cursor) this.cursors.length = this.pagesRead;
      // The pages that were used last stay: 20,000 records.
      const farFirst = (a, b) => Math.abs(b - number) - Math.abs(a - number);
      if (this.pages.size > 100) this.pages.delete([...this.pages.keys()].sort(farFirst)[0]);
      this.command ??= answer.command;
      this.failure = undefined;
    } catch (error) {
      if (error.name !== "AbortError") this.failure = error;
      throw error;
    } finally { this.milliseconds = performance.now() - begun; }
  }
}

class Records extends TableView {
  constructor(node, params) {
    const side = el("nav", { class: "side", "aria-label": "Types and zones" });
    super(node, "Records", "One record", {
      side, open: (record) => { location.hash = recordAddress(record.zoneName, record.recordName); },
      sort: ({ field, order }) => this.with({ sort: order === "desc" ? null : field + (order === "asc" ? ":desc" : ":asc") }),
      at: (record) => this.params.get("name") === record.recordName && this.params.get("in") === record.zoneName,
    });
    this.side = side;
    this.grid.moved = () => this.position();
    [this.where, this.lsn] = [span("dim where"), session.moment?.lsn];
    this.again = calmly(700, () => this.refresh());
    this.update(params);
  }

  close() { this.pages?.stop(); }
  found() { this.read(); }
  heard(name, data) { if (name === "moment" && data.lsn !== this.lsn) { this.lsn = data.lsn; this.again(); } }
  escape() { if (this.params.get("name") !== null) { this.with({}); this.grid.node.focus(); } }

  with(changes) { location.hash = changed("records", this.params, tableParams, changes); }

  update(params) {
    this.params = params;
    const key = changed("records", params, tableParams);
    if (key !== this.key) this.read();
    this.key = key;
    this.showRecord();
  }

  showRecord() {
    const name = this.params.get("name"), zone = this.params.get("in") ?? "Main";
    this.openPanel(name !== null);
    const key = name === null ? null : zone + "\n" + name;
    if (key === this.recordKey) return;
    this.recordKey = key;
    this.record?.close();
    this.record = key === null ? undefined : new RecordDetail(this, zone, name);
  }

  async read() {
    this.pages?.stop();
    this.size = pageLength;
    try { await waiting(this.notes, undefined, () => this.readSide()); } catch (error) {
      return show(this.notes, failed(error, () => this.read()));
    }
    this.isEmpty = this.grid.node.hidden = !this.types.length;
    if (this.isEmpty) {
      for (const node of [this.tools, this.foot]) show(node);
      this.grid.setColumns([]);
      this.grid.setRows(noRows);
      return show(this.notes, empty("No record lives here", "When an app saves one, it is shown at once.", code("strandline import STORE FILE")));
    }
    this.type = this.params.get("type") ?? this.types.reduce((most, one) => one.records > most.records ? one : most).type;
    this.showSide();
    this.showTools();
    await this.readTable();
  }

  async readSide() {
    const answers = await Promise.all([run("types", zoned(this.params.get("zone"))), run("zones")]);
    [this.types, this.zones] = answers.map((answer) => answer.lines);
  }

  get total() { return this.types.find((one) => one.type === this.type)?.records ?? 0; }

  showSide() {
    const zone = this.params.get("zone"), total = this.zones.reduce((sum, one) => sum + one.records, 0);
    const item = (label, number, isAt, params, trouble) => sideLink(address("records", params), label, number, isAt, { trouble });
    const types = this.types.map(({ type, records }) => item(type, records, type === this.type, { type, zone }));
    const zones = this.zones.map(({ zoneName, records, lostReason }) =>
      item(zoneName, records, zoneName === zone, { type: this.type, zone: zoneName }, lostReason));
    renew(this.side, el("h3", {}, "Types"), types, this.zones.length > 1 || zone
      ? [el("h3", {}, "Zones"), item("All zones", total, !zone, { type: this.type }), zones] : null);
  }

  showTools() {
    const filters = this.params.getAll("where");
    this.hints = el("datalist", { id: "hints" });
    const entered = ({ key, target }) => { if (key === "Enter" && target.value.trim()) this.with({ where: [...filters, target.value.trim()] }); };
    const add = el("input", {
      type: "search", list: "hints", placeholder: "Filter: title = Low tide, size >= 10, tags LIST_CONTAINS sea", spellcheck: false,
      "aria-label": "Add a condition: field, comparator, value", autocomplete: "off", on: { keydown: entered },
    });
    renew(this.tools, filters.map((filter) => {
      const remove = () => this.with({ where: filters.filter((one) => one !== filter) });
      return span("filter", text(filter), button("×", remove, { "aria-label": "Remove the condition " + words(filter) }));
    }), add, this.hints, this.where);
  }

  pagesOf(args, total) { return new Pages(args, this.size, total, (pages) => { if (pages === this.pages) this.drew(); }); }

  async readTable() {
    const sort = this.params.get("sort"), filters = this.params.getAll("where"), isSought = sort !== null || filters.length > 0;
    const conditions = [...filters.flatMap((filter) => ["--where", filter]), ...(sort ? ["--sort", sort] : [])];
    const args = (...more) => named([this.type], [...zoned(this.params.get("zone")), ...conditions, ...more]);
    Object.assign(this, { plan: undefined, isBehind: false });
    const pages = this.pages = this.pagesOf(args, filters.length ? undefined : this.total);
    const isCurrent = () => this.pages === pages;
    show(this.notes);
    try {
      await waiting(this.notes, isSought ? "Looking through the records …" : undefined, () => pages.read(0), isCurrent);
    } catch (error) {
      if (error.name === "AbortError" || !isCurrent()) return;
      this.grid.setRows(noRows);
      show(this.foot);
      return show(this.notes, failed(error, () => this.readTable()));
    }
    if (!isCurrent()) return;
    this.setColumns();
    this.grid.setRows(pages);
    show(this.foot, says(pages.command));
    this.showNotes();
    if (isSought) this.explain(args("--explain"));
  }

  setColumns() {
    const sample = [...this.pages.pages.values()].flatMap((page) => page.slice(0, 100)).slice(0, 500);
    const { kinds, zones, hasParent } = this.pages.columns, [sorted, order] = (this.params.get("sort") ?? "").split(/:(?=[a-z]*$)/);
    this.shape = this.pages.shape;
    const names = [...kinds.keys()].sort();
    const comparators = (name) => [" = ", isNumeric(kinds.get(name)) ? " >= " : " BEGINS_WITH "];
    show(this.hints, names.flatMap((name) => comparators(name).map((comparator) => el("option", { value: name + comparator }))));
    const open = (record) => (name, zone) => recordAddress(zone ?? record.zoneName, name);
    const column = (name, value, cell, most) => ({ name, width: widthOf(name, sample.map(value), most), cell });
    const own = (record) => cellLink(recordAddress(record.zoneName, record.recordName), record.recordName);
    const parent = (record) => record.parent ? cellLink(recordAddress(record.zoneName, record.parent), record.parent) : "";
    const value = (name) => (record) => record.fields[name] === undefined ? dim("–") : shown(record.fields[name], open(record));
    this.grid.setColumns([
      column("record", (record) => record.recordName, own, 30),
      zones.size > 1 && column("zone", (record) => record.zoneName, (record) => text(record.zoneName), 18),
      ...names.map((name) => ({
        ...column(name, (record) => plain(record.fields[name]).slice(0, 80), value(name)),
        field: name, isNumeric: isNumeric(kinds.get(name)), order: name === sorted ? order : undefined,
      })),
      hasParent && { name: "parent", width: 18, cell: parent },
    ].filter(Boolean));
  }
  /** Records so large that not so many of them are shown at once. */
  readLess(error) {
    if (!error?.isCut || this.size <= 2) return false;
    this.size = Math.floor(this.size / 10);
    this.readTable();
    return true;
  }

  drew() {
    if (this.readLess(this.pages.failure)) return;
    if (this.pages.length && this.pages.shape !== this.shape) this.setColumns();
    this.grid.draw();
    this.showNotes();
  }

  showNotes() {
    const pages = this.pages, unreadable = [...pages.unreadable.values()];
    const again = () => { pages.failure = undefined; this.drew(); };
    const changed = div("note", "Something has changed since these rows were read.", button("Read again", () => this.read()));
    renew(this.notes, pages.failure && trouble(text(pages.failure.message), button("Try again", again)), this.isBehind && !this.isRenewed && changed,
      unreadable.length > 0 && el("details", { class: "note bad", "data-key": "unreadable" },
        el("summary", {}, plural(unreadable.length, "record") + " cannot be read; the others are below"),
        unreadable.map((one) => el("p", {}, link(recordAddress(one.zoneName, one.recordName), text(one.recordName)), ": ", text(one.message)))),
      this.plan, pages.length === 0 && !pages.failure && empty("No record meets this",
        this.params.getAll("where").length ? button("Remove the conditions", () => this.with({ where: [] })) : null));
    this.position();
  }

  position() {
    const pages = this.pages, end = (row) => count(Math.min(row + 1, pages.length));
    if (!pages?.length) return show(this.where);
    if (this.isBehind && this.isRenewed) this.again();
    const total = pages.isWhole ? pages.length : pages.total;
    const all = count(total ?? pages.length) + (total === undefined ? " or more" : "");
    show(this.where, `${end(this.grid.first)}–${end(this.grid.last)} of ${all}`);
  }
  /** How the store found them, where an index would be faster. */
  async explain(args) {
    const pages = this.pages;
    try {
      const sentence = (await run("query", args)).lines.join(" ");
      if (this.pages !== pages || /^(index|uses|by index)/i.test(sentence)) return;
      this.plan = div("note", text(sentence));
      this.showNotes();
    } catch { /* The table says what is wrong. */ }
  }
  /** Whether the table follows what happens: while its beginning is in sight, and it is quickly read. */
  get isRenewed() { return this.grid.node.scrollTop <= rowsInSight && (this.pages.milliseconds <= 400 || !this.pages.length); }
  /** Something is new: the counts, and the table. */
  async refresh() {
    try {
      if (this.isEmpty) return await this.read();
      await this.readSide();
      this.showSide();
      this.record?.refresh();
      const pages = this.pages;
      if (!pages) return;
      if (pages.total !== undefined) pages.total = this.total;
      if (pages.reading || !this.isRenewed) { this.isBehind = true; return this.showNotes(); }
      const next = this.pagesOf(pages.args, pages.total);
      next.columns = pages.columns;
      await next.read(0);
      if (this.pages !== pages) return;
      const before = new Map((pages.pages.get(0) ?? []).map((record) => [keyOf(record), JSON.stringify(record.fields)]));
      for (const record of next.pages.get(0)) record.isNew = before.get(keyOf(record)) !== JSON.stringify(record.fields);
      this.pages = next;
      this.isBehind = false;
      if (next.shape !== this.shape) this.setColumns();
      this.grid.setRows(next, true);
      this.showNotes();
    } catch (error) { if (error.name !== "AbortError" && error.status !== 0) show(this.notes, failed(error, () => this.read())); }
  }
}
/** About what stands in a cell: as long as that. */
function plain(value) {
  const [kind, inner] = value === undefined ? ["STRING", ""] : typed(value);
  if (kind === "TIMESTAMP") return "00/00/0000, 00:00:00 PM";
  if (kind === "STRING") return inner;
  return Array.isArray(inner) ? inner.join("  ") + "  " : String(JSON.stringify(inner));
}
/** Where the entry of an event stands in a story. */
function originOf(kind) {
  if (["held", "refused", "blocked", "conflicted"].includes(kind)) return "trouble";
  return ["fetchedSave", "fetchedDelete", "settled", "listed"].includes(kind) ? "server" : "local";
}

class RecordDetail {
  constructor(records, zone, name) {
    Object.assign(this, { zone, name, tab: RecordDetail.tab ?? "fields" });
    this.body = el("div", { class: "body", tabindex: -1 });
    [this.foot, this.news, this.children] = [div(""), div(""), div("")];
    this.tabs = tabs({ fields: "Fields", story: "Story" }, this.body, (name) => this.choose(name));
    show(records.detail, records.heading(text(name), ["zone ", text(zone)], "record"), this.tabs, this.news, this.body, this.foot);
    this.choose(this.tab);
  }

  close() { this.isClosed = true; }

  choose(name) {
    this.tab = RecordDetail.tab = name;
    this.tabs.at(name);
    this.read();
  }

  read() {
    show(this.news);
    if (this.tab === "fields") into(this.body, () => this.fields());
    else into(this.body, () => this.story(), "Reading the log …");
  }
  /** Fields are read again; a story is not, because it reads the whole log. */
  refresh() {
    if (this.isClosed) return;
    if (this.tab === "fields") return refresh(this.body, () => this.fields()).catch(() => {});
    show(this.news, div("note", "There are newer events than this story tells of.", button("Read again", () => this.read())));
  }

  args(...more) { return named([this.name], ["--zone", this.zone, ...more]); }
  record(zone, name) { return link(recordAddress(zone ?? this.zone, name), text(name)); }

  async fields() {
    let answer;
    try { answer = await run("get", this.args("--stamps")); } catch (error) {
      if (error.status !== 66) throw error;
      return empty("No record of this name lives here", "It was deleted, or never was here.", button("Its story", () => this.choose("story")));
    }
    const [record, last] = answer.lines, names = Object.keys(record.fields).sort();
    show(this.foot, says(answer.command.replace(" --stamps", "")));
    const stamped = this.stamped ??= el("input", { type: "checkbox", on: { change: () => this.read() } });
    const kind = (name) => span("kind", typed(record.fields[name])[0].toLowerCase());
    const written = (stamp) => stamp && div("kind", "written ", time(stamp.milliseconds), " by writer ", code(stamp.writer));
    const value = (name) => [shown(record.fields[name], (to, zone) => recordAddress(zone ?? this.zone, to), true),
      stamped.checked && written(last?.stamps?.[name])];
    const find = () => into(this.children, () => this.findChildren(), "Looking through the zone …");
    return [div("row", span("tag accent", text(record.recordType)), record.parent && span("", "parent ", this.record(this.zone, record.parent)),
        span("grow"), el("label", { class: "check dim" }, stamped, "stamps")),
      names.length ? el("table", { class: "fields" }, names.map((name) => row(text(name), kind(name), value(name)))) : hint("It has no fields."),
      div("", button("Find its children", find)), this.children];
  }

  async findChildren() {
    const types = (await run("types", ["--zone", this.zone])).lines;
    const parent = "___parent = " + JSON.stringify({ type: "REFERENCE", value: { recordName: this.name, action: "NONE" } });
    const args = ["--zone", this.zone, "--where", parent, "--limit", "100"];
    const found = await Promise.all(types.map(({ type }) => run("query", named([type], args))));
    const records = found.flatMap((answer) => answer.lines.filter((line) => line.recordName));
    if (!records.length) return hint("No record of the zone has it as its parent.");
    const more = types.filter((_, at) => found[at].lines.at(-1)?.cursor);
    const all = (type) => link(address("records", { type, zone: this.zone, where: parent }), "all of them");
    return [el("h3", {}, "Children"),
      records.map((one) => span("chip", this.record(this.zone, one.recordName), span("kind", " ", text(one.recordType)))),
      more.map(({ type }) => el("p", {}, "The first 100 of ", text(type), ": ", all(type)))];
  }

  // Its story: the sentences of `why`, and beside each what `history` knows of the event.

  async story() {
    const [why, history] = await Promise.all([run("why", this.args()),
      run("history", this.args("--limit", "1000")).catch((error) => ({ lines: [], errors: [error.message] }))]);
    show(this.foot, says(why.command));
    // The last line is how it is now; it is missing where the log cannot be read to its end.
    const now = why.lines.at(-1)?.state !== undefined && why.lines.pop();
    const changes = Map.groupBy(history.lines, (one) => one.lsn);
    let before = {};
    const items = why.lines.map((sentence) => {
      const here = changes.get(sentence.lsn) ?? [];
      const version = here.find((one) => one.record)?.record;
      const difference = version && this.difference(before, version.fields);
      if (version) before = version.fields;
      return el("li", { class: originOf(sentence.kind) }, div("when", link(address("log", { at: sentence.lsn }), "event " + count(sentence.lsn)),
          span("tag", text(sentence.kind)), sentence.milliseconds !== null && time(sentence.milliseconds)),
        div("what", text(sentence.words)), here.filter((one) => one.fields).map((one) => this.conflict(one, changes)), difference);
    });
    return [now && div("now", el("b", {}, "Now: "), text(now.words), now.try && div("", "Try ", code(text(now.try)))),
      [...new Set([...why.errors, ...history.errors])].map((error) => trouble(text(error))),
      history.lines.length === 1000 && el("p", { class: "note" }, "Only the first thousand changes are shown."), el("ol", { class: "story" }, items),
    ];
  }

  difference(before, after) {
    const names = Object.keys({ ...before, ...after }).sort().filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
    if (!names.length) return null;
    return el("table", { class: "diff" }, names.slice(0, 40).map((name) => el("tr", {}, el("td", {}, text(name)), el("td", {},
      before[name] !== undefined && [span("was", span("only-reader", "was "), shown(before[name])), " "],
      after[name] !== undefined ? span("is", shown(after[name])) : dim("cleared")))));
  }
  /** Both sides of a conflict: a value that was dropped is crossed out. */
  conflict(one, changes) {
    const lost = { here: "lost here", there: "lost at the server", both: "lost on both sides", none: "both put together" };
    const side = (lsn, field, place) => {
      const record = changes.get(lsn)?.find((change) => change.record)?.record;
      const value = field.name === "___parent" ? record?.parent : record?.fields[field.name];
      const isLost = [place, "both"].includes(field.lost);
      return value === undefined ? dim(record ? "none" : "–") : span(isLost && "was", shown(value));
    };
    const rows = one.fields.map((field) => [text(field.name === "___parent" ? "its parent" : field.name),
      side(one.mutation, field, "here"), side(one.base, field, "there"), text(field.rule), lost[field.lost] ?? field.lost]);
    return plainTable("Who lost", ["field", "here", "at the server", "rule", "outcome"], rows);
  }
}
