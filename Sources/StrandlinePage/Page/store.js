// The views of a store: its records, one record and its story, sync, the log, and the space that it takes.

import {
  Grid, address, button, bytes, calmly, card, change, confirm, count, dim, duration, el, empty, failed, get, go, heading, hint, into, isNumeric, layOut, link,
  loading, noRows, openPanel, plainTable, plural, put, refresh, renew, row, run, says, session, show, shown, tabs, text, time, toast, trouble, typed, widthOf,
  words,
} from "./parts.js";

// A page of records, and how far from the top of a table (in pixels) it still follows what happens.
const pageLength = 200, rowsInSight = 200;

export function storeViews(badge) {
  return [
    { name: "records", title: "Records", open: (node, params) => new Records(node, params) },
    { name: "sync", title: "Sync", open: (node) => new Sync(node, badge) },
    { name: "log", title: "Log", open: (node, params) => new LogView(node, params, "store") },
    { name: "space", title: "Space", open: (node) => new Space(node) },
  ];
}

const zoned = (zone) => (zone ? ["--zone", zone] : []);

/** The words of a verb: operands, then options. No name is taken for an option, also if it begins as one. */
const named = (operands, options) => operands.some((one) => one.startsWith("-")) ? [...options, "--", ...operands] : [...operands, ...options];

/** The address of a record, beside the table that is shown now. */
function recordAddress(zone, name) {
  const params = Object.fromEntries(["type", "zone", "sort"].map((key) => [key, here().get(key)]));
  return address("records", { ...params, where: here().getAll("where"), in: zone, name });
}

function here() {
  const [view, query] = location.hash.slice(1).split(/\?(.*)/s);
  return new URLSearchParams(view === "records" || view === "" ? query ?? "" : "");
}

// Records

/** The pages of a query that were read, by their number. A page that was read long ago is read again when it is in sight. */
class Pages {
  constructor(args, size, total, changed) {
    Object.assign(this, { args, size, total, changed });
    this.length = 0;
    this.pages = new Map();
    this.cursors = [null];
    this.unreadable = new Map();
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
    if (!this.failure && this.cursors.length > this.pagesRead && index + 3 * this.size > this.length && !this.reading) this.read(this.pagesRead).catch(() => {});
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
    const cursor = this.cursors[number];
    const begun = performance.now();
    try {
      const answer = await run("query", this.args("--limit", String(this.size), ...(cursor ? ["--after", cursor] : [])), this.stopper.signal);
      const end = answer.lines.pop();
      // The last line says what follows; where it is missing the verb has ended within the page.
      if (!end?.unreadable) throw new Error(answer.errors[0] ?? "The answer has no end.");
      for (const one of end.unreadable) this.unreadable.set(one.zoneName + "\n" + one.recordName, one);
      this.pages.set(number, answer.lines);
      this.learn(answer.lines);
      const length = number * this.size + answer.lines.length;
      if (end.cursor) this.cursors[number + 1] = end.cursor;
      this.length = end.cursor ? Math.max(this.length, length) : length;
      // This is the end, also where a cursor was given for more.
      if (!end.cursor) this.cursors.length = this.pagesRead;
      // The pages that were used last stay: 20,000 records.
      if (this.pages.size > 100) this.pages.delete([...this.pages.keys()].sort((a, b) => Math.abs(b - number) - Math.abs(a - number))[0]);
      this.command ??= answer.command;
      this.failure = undefined;
    } catch (error) {
      if (error.name !== "AbortError") this.failure = error;
      throw error;
    } finally { this.milliseconds = performance.now() - begun; }
  }
}

class Records {
  constructor(node, params) {
    this.side = el("nav", { class: "side", "aria-label": "Types and zones" });
    this.grid = new Grid("Records", {
      open: (record) => { location.hash = recordAddress(record.zoneName, record.recordName); },
      sort: ({ field, order }) => this.with({ sort: order === "asc" ? field + ":desc" : order === "desc" ? null : field + ":asc" }),
      at: (record) => this.params.get("name") === record.recordName && this.params.get("in") === record.zoneName,
    });
    this.grid.moved = () => this.position();
    layOut(this, node, "Records", "One record", this.side);
    [this.where, this.lsn] = [el("span", { class: "dim where" }), session.moment?.lsn];
    this.again = calmly(700, () => this.refresh());
    this.update(params);
  }

  close() { this.pages?.stop(); }
  found() { this.read(); }
  heard(name, data) { if (name === "moment" && data.lsn !== this.lsn) { this.lsn = data.lsn; this.again(); } }
  escape() { if (this.params.get("name")) this.closeRecord(); }

  closeRecord() { this.with({}); this.grid.node.focus(); }

  with(changes) { go("records", { type: this.params.get("type"), zone: this.params.get("zone"), sort: this.params.get("sort"), where: this.params.getAll("where"), ...changes }); }

  update(params) {
    this.params = params;
    const key = JSON.stringify([params.get("type"), params.get("zone"), params.get("sort"), params.getAll("where")]);
    if (key !== this.key) this.read();
    this.key = key;
    this.showDetail();
  }

  showDetail() {
    const name = this.params.get("name"), zone = this.params.get("in") ?? "Main";
    openPanel(this, name !== null);
    const key = name === null ? null : zone + "\n" + name;
    if (key === this.detailKey) return;
    this.detailKey = key;
    this.record?.close();
    this.record = key === null ? undefined : new RecordDetail(this.detail, zone, name, () => this.closeRecord());
  }

  /** The types and zones, then the table. */
  async read() {
    this.pages?.stop();
    this.size = pageLength;
    const wait = setTimeout(() => show(this.notes, loading()), 200);
    try { await this.readSide(); } catch (error) {
      return show(this.notes, failed(error, () => this.read()));
    } finally { clearTimeout(wait); }
    this.isEmpty = this.grid.node.hidden = !this.types.length;
    if (this.isEmpty) {
      for (const node of [this.tools, this.foot]) show(node);
      this.grid.setColumns([]);
      this.grid.setRows(noRows);
      return show(this.notes, empty("No record lives here", "When an app saves one, it is shown at once.", el("code", {}, "strandline import STORE FILE")));
    }
    this.type = this.params.get("type") ?? this.types.reduce((most, one) => one.records > most.records ? one : most).type;
    this.showSide();
    this.showTools();
    await this.readTable();
  }

  async readSide() {
    [this.types, this.zones] = (await Promise.all([run("types", zoned(this.params.get("zone"))), run("zones")])).map((answer) => answer.lines);
  }

  showSide() {
    const zone = this.params.get("zone"), total = this.zones.reduce((sum, one) => sum + one.records, 0);
    const item = (label, number, isAt, to, trouble) => el("a",
      { href: to, "aria-current": isAt ? "true" : undefined, title: words(label) }, el("span", { class: "grow" }, text(label)),
      trouble && el("span", { class: "bad" }, "!"), dim(count(number)));
    renew(this.side, el("h3", {}, "Types"),
      this.types.map((one) => item(one.type, one.records, one.type === this.type, address("records", { type: one.type, zone }))),
      this.zones.length > 1 || zone ? [el("h3", {}, "Zones"), item("All zones", total, !zone, address("records", { type: this.type })),
        this.zones.map((one) => item(one.zoneName, one.records, one.zoneName === zone,
          address("records", { type: this.type, zone: one.zoneName }), one.lostReason))] : null);
  }

  showTools() {
    const filters = this.params.getAll("where");
    const hints = this.hints = el("datalist", { id: "hints" });
    const input = el("input", {
      type: "search", list: "hints", placeholder: "Filter: title = Low tide, size >= 10, tags LIST_CONTAINS sea", "aria-label": "Add a condition: field, comparator, value", spellcheck: false, autocomplete: "off",
      on: { keydown: (event) => {
        const condition = input.value.trim();
        if (event.key === "Enter" && condition) { input.value = ""; this.with({ where: [...filters, condition] }); }
        else if (event.key === "Escape") { input.value = ""; input.blur(); event.stopPropagation(); }
      } },
    });
    renew(this.tools, filters.map((filter) => el("span", { class: "filter" }, text(filter),
        button("×", () => this.with({ where: filters.filter((one) => one !== filter) }), { "aria-label": "Remove the condition " + words(filter) }))),
      input, hints, this.where);
  }

  async readTable() {
    const zone = this.params.get("zone"), sort = this.params.get("sort"), filters = this.params.getAll("where");
    const conditions = [...filters.flatMap((filter) => ["--where", filter]), ...(sort ? ["--sort", sort] : [])];
    const args = (...more) => named([this.type], [...zoned(zone), ...conditions, ...more]);
    const total = filters.length ? undefined : this.types.find((one) => one.type === this.type)?.records ?? 0;
    Object.assign(this, { plan: undefined, isBehind: false });
    const pages = this.pages = new Pages(args, this.size, total, (changed) => { if (changed === this.pages) this.drew(); });
    show(this.notes);
    const wait = setTimeout(() => { if (this.pages === pages) show(this.notes, loading(sort || filters.length ? "Looking through the records …" : undefined)); }, 200);
    try { await pages.read(0); } catch (error) {
      if (error.name === "AbortError" || this.pages !== pages) return;
      this.grid.setRows(noRows);
      show(this.foot);
      return show(this.notes, failed(error, () => this.readTable()));
    } finally { clearTimeout(wait); }
    if (this.pages !== pages) return;
    this.setColumns();
    this.grid.setRows(pages);
    show(this.foot, says(pages.command));
    this.showNotes();
    if (sort || filters.length) this.explain(args("--explain"));
  }

  setColumns() {
    const sample = [...this.pages.pages.values()].flatMap((page) => page.slice(0, 100)).slice(0, 500), sort = this.params.get("sort");
    const { kinds, zones, hasParent } = this.pages.columns;
    this.shape = this.pages.shape;
    const names = [...kinds.keys()].sort();
    if (this.hints) show(this.hints, names.flatMap((name) => [el("option", { value: name + " = " }),
        el("option", { value: name + (isNumeric(kinds.get(name)) ? " >= " : " BEGINS_WITH ") })]));
    const open = (record) => (name, zone) => recordAddress(zone ?? record.zoneName, name);
    const plain = (value) => value === undefined ? "" : typeof value === "string" ? value : Array.isArray(value) ? value.join("  ") + "  " : typed(value)[0] === "TIMESTAMP" ? "00/00/0000, 00:00:00 PM" : String(JSON.stringify(typed(value)[1]));
    this.grid.setColumns([
      { name: "record", width: widthOf("record", sample.map((record) => record.recordName), 30),
        cell: (record) => el("a", { href: recordAddress(record.zoneName, record.recordName), tabindex: -1 }, text(record.recordName)) },
      ...(zones.size > 1 ? [{ name: "zone", width: widthOf("zone", sample.map((record) => record.zoneName), 18), cell: (record) => text(record.zoneName) }] : []),
      ...names.map((name) => ({
        name, field: name, isNumeric: isNumeric(kinds.get(name)), order: sort?.startsWith(name + ":") ? sort.slice(name.length + 1) : undefined,
        width: widthOf(name, sample.map((record) => plain(record.fields[name]).slice(0, 80))),
        cell: (record) => record.fields[name] === undefined ? dim("–") : shown(record.fields[name], open(record)),
      })),
      ...(hasParent ? [{ name: "parent", width: 18, cell: (record) => record.parent ? el("a", { href: recordAddress(record.zoneName, record.parent), tabindex: -1 },
          text(record.parent)) : "" }] : []),
    ]);
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
    const pages = this.pages;
    renew(this.notes, pages.failure && trouble(text(pages.failure.message), button("Try again", () => { pages.failure = undefined; this.drew(); })),
      this.isBehind && !this.isRenewed && el("div", { class: "note" }, "Something has changed since these rows were read.", button("Read again", () => this.read())),
      pages.unreadable.size > 0 && el("details", { class: "note bad", "data-key": "unreadable" },
        el("summary", {}, plural(pages.unreadable.size, "record") + " cannot be read; the others are below"),
        [...pages.unreadable.values()].map((one) => el("p", {}, link(recordAddress(one.zoneName, one.recordName), text(one.recordName)), ": ", text(one.message)))),
      this.plan,
      pages.length === 0 && !pages.failure && empty("No record meets this",
        this.params.getAll("where").length ? button("Remove the conditions", () => this.with({ where: [] })) : null));
    this.position();
  }

  position() {
    const pages = this.pages;
    if (!pages?.length) return show(this.where);
    if (this.isBehind && this.isRenewed) this.again();
    const total = pages.isWhole ? pages.length : pages.total;
    show(this.where,
      `${count(Math.min(this.grid.first + 1, pages.length))}–${count(Math.min(this.grid.last + 1, pages.length))} of ${total === undefined ? count(pages.length) + " or more" : count(total)}`);
  }

  /** How the store found them, where an index would be faster. */
  async explain(args) {
    const pages = this.pages;
    try {
      const sentence = (await run("query", args)).lines.join(" ");
      if (this.pages !== pages || /^(index|uses|by index)/i.test(sentence)) return;
      this.plan = el("div", { class: "note" }, text(sentence));
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
      if (pages.total !== undefined) pages.total = this.types.find((one) => one.type === this.type)?.records ?? 0;
      if (pages.reading || !this.isRenewed) {
        this.isBehind = true;
        return this.showNotes();
      }
      const next = new Pages(pages.args, pages.size, pages.total, (changed) => { if (changed === this.pages) this.drew(); });
      next.columns = pages.columns;
      await next.read(0);
      if (this.pages !== pages) return;
      const before = new Map((pages.pages.get(0) ?? []).map((record) => [record.recordName + "\n" + record.zoneName, JSON.stringify(record.fields)]));
      for (const record of next.pages.get(0)) record.isNew = before.get(record.recordName + "\n" + record.zoneName) !== JSON.stringify(record.fields);
      this.pages = next;
      this.isBehind = false;
      if (next.shape !== this.shape) this.setColumns();
      this.grid.setRows(next, true);
      this.showNotes();
    } catch (error) { if (error.name !== "AbortError" && error.status !== 0) show(this.notes, failed(error, () => this.read())); }
  }
}

// One record

class RecordDetail {
  constructor(node, zone, name, close) {
    Object.assign(this, { node, zone, name, tab: RecordDetail.tab ?? "fields" });
    this.body = el("div", { class: "body", tabindex: -1 });
    [this.foot, this.news, this.children] = [el("div", {}), el("div", {}), el("div", {})];
    this.tabs = tabs({ fields: "Fields", story: "Story" }, this.body, (name) => this.choose(name));
    show(node, heading(text(name), ["zone ", text(zone)], close, "Close the record"), this.tabs, this.news, this.body, this.foot);
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
    into(this.body, () => this.tab === "fields" ? this.fields() : this.story(), this.tab === "story" ? "Reading the log …" : undefined);
  }

  /** Fields are read again; a story is not, because it reads the whole log. */
  refresh() {
    if (this.isClosed) return;
    if (this.tab === "fields") refresh(this.body, () => this.fields()).catch(() => {});
    else show(this.news, el("div", { class: "note" }, "There are newer events than this story tells of.", button("Read again", () => this.read())));
  }

  args(...more) { return named([this.name], ["--zone", this.zone, ...more]); }
  record(zone, name) { return link(recordAddress(zone ?? this.zone, name), text(name)); }

  async fields() {
    let answer;
    try { answer = await run("get", this.args("--stamps")); } catch (error) {
      if (error.status !== 66) throw error;
      return empty("No record of this name lives here", "It was deleted, or never was here.", button("Its story", () => this.choose("story")));
    }
    const [record, last] = answer.lines;
    show(this.foot, says(answer.command.replace(" --stamps", "")));
    const stamps = last?.stamps ?? {};
    const names = Object.keys(record.fields).sort();
    const stamped = this.stamped ??= el("input", { type: "checkbox" });
    const written = (stamp) => stamp && el("div", { class: "kind" }, "written ", time(stamp.milliseconds), " by writer ", el("code", {}, stamp.writer));
    const kind = (name) => el("span", { class: "kind" }, typed(record.fields[name])[0].toLowerCase());
    const table = el("table", { class: "fields" }, names.map((name) => row(text(name), kind(name),
      shown(record.fields[name], (to, zone) => recordAddress(zone ?? this.zone, to), true), stamped.checked && written(stamps[name]))));
    stamped.onchange = () => this.read();
    const find = () => into(this.children, () => this.findChildren(), "Looking through the zone …");
    return [
      el("div", { class: "row" }, el("span", { class: "tag accent" }, text(record.recordType)),
        record.parent && el("span", {}, "parent ", this.record(this.zone, record.parent)), el("span", { class: "grow" }),
        el("label", { class: "check dim" }, stamped, "stamps")),
      names.length ? table : hint("It has no fields."),
      el("div", {}, button("Find its children", find)), this.children,
    ];
  }

  async findChildren() {
    const types = (await run("types", ["--zone", this.zone])).lines;
    const parent = "___parent = " + JSON.stringify({ type: "REFERENCE", value: { recordName: this.name, action: "NONE" } });
    const found = await Promise.all(types.map(({ type }) => run("query", named([type], ["--zone", this.zone, "--where", parent, "--limit", "100"]))));
    const records = found.flatMap((answer) => answer.lines.filter((line) => line.recordName));
    if (!records.length) return hint("No record of the zone has it as its parent.");
    const more = types.filter((_, at) => found[at].lines.at(-1)?.cursor);
    return [el("h3", {}, "Children"), records.map((record) => el("span", { class: "chip" }, this.record(this.zone, record.recordName),
        el("span", { class: "kind" }, " ", text(record.recordType)))),
      more.map(({ type }) => el("p", {}, "The first 100 of ", text(type), ": ", link(address("records", { type, zone: this.zone, where: parent }), "all of them")))];
  }

  // Its story: the sentences of `why`, and beside each what `history` knows of the event.

  async story() {
    const [why, history] = await Promise.all([run("why", this.args()),
      run("history", this.args("--limit", "1000")).catch((error) => ({ lines: [], errors: [error.message] }))]);
    show(this.foot, says(why.command));
    // The last line is how it is now; it is missing where the log cannot be read to its end.
    const now = why.lines.at(-1)?.state !== undefined && why.lines.pop();
    const changes = new Map();
    for (const one of history.lines) changes.set(one.lsn, [...(changes.get(one.lsn) ?? []), one]);
    let before = {};
    const items = why.lines.map((sentence) => {
      const here = changes.get(sentence.lsn) ?? [];
      const version = here.find((one) => one.record)?.record;
      const difference = version && this.difference(before, version.fields);
      if (version) before = version.fields;
      const isTrouble = ["held", "refused", "blocked", "conflicted"].includes(sentence.kind);
      const origin = ["fetchedSave", "fetchedDelete", "settled", "listed", "refused"].includes(sentence.kind) ? "server" : "local";
      return el("li", { class: isTrouble ? "trouble" : origin },
        el("div", { class: "when" }, link(address("log", { at: sentence.lsn }), "event " + count(sentence.lsn)),
          el("span", { class: "tag" }, text(sentence.kind)), sentence.milliseconds !== null && time(sentence.milliseconds)),
        el("div", { class: "what" }, text(sentence.words)),
        here.filter((one) => one.fields).map((one) => this.conflict(one, changes)), difference);
    });
    return [
      now && el("div", { class: "now" }, el("b", {}, "Now: "), text(now.words), now.try && el("div", {}, "Try ", el("code", {}, text(now.try)))),
      [...new Set([...why.errors, ...history.errors])].map((error) => trouble(text(error))),
      history.lines.length === 1000 && el("p", { class: "note" }, "Only the first thousand changes are shown."),
      el("ol", { class: "story" }, items),
    ];
  }

  difference(before, after) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort().filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
    if (!names.length) return null;
    return el("table", { class: "diff" }, names.slice(0, 40).map((name) => el("tr", {}, el("td", {}, text(name)), el("td", {},
      before[name] !== undefined && [el("span", { class: "was" }, el("span", { class: "only-reader" }, "was "), shown(before[name])), " "],
      after[name] !== undefined ? el("span", { class: "is" }, shown(after[name])) : dim("cleared")))));
  }

  /** Both sides of a conflict: a value that was dropped is crossed out. */
  conflict(one, changes) {
    const lost = { here: "lost here", there: "lost at the server", both: "lost on both sides", none: "both put together" };
    const side = (lsn, field, isLost) => {
      const record = changes.get(lsn)?.find((change) => change.record)?.record;
      const value = field.name === "___parent" ? record?.parent : record?.fields[field.name];
      return value === undefined ? dim(record ? "none" : "–") : el("span", { class: isLost && "was" }, shown(value));
    };
    return plainTable("Who lost", ["field", "here", "at the server", "rule", "outcome"],
      one.fields.map((field) => [text(field.name === "___parent" ? "its parent" : field.name),
        side(one.mutation, field, ["here", "both"].includes(field.lost)), side(one.base, field, ["there", "both"].includes(field.lost)), text(field.rule),
        lost[field.lost] ?? field.lost]));
  }
}

// Sync

// After so long without an event of a request no sync is taken to run. So many held records are on a page.
const quietMilliseconds = 15_000, heldLength = 100;
const obstacles = { held: "set aside", target: "waits for its target", referrer: "waits for what refers to it", together: "waits for its companion",
  zone: "its zone is not synced", halted: "the server refuses all like it", null: "is sent with the next sync" };
const requestKinds = "sent,settled,refused,held,pace,tokenAdvanced,conflicted,blocked,zoneChanged";

class Sync {
  constructor(node, badge) {
    this.badge = badge;
    put(node, this.board = el("div", { class: "board" }));
    // What was counted, and the cursors of the pages of held records before the one in sight, by their code.
    [this.counts, this.places] = [el("div", { class: "stack" }), new Map()];
    this.again = calmly(500, () => this.read(true));
    this.clock = setInterval(() => this.tick(), 1_000);
    this.read();
  }

  close() { clearInterval(this.clock); }
  found() { this.read(true); }
  heard(name) { if (name === "moment") this.again(); }

  read(isQuiet) {
    if (!isQuiet || !this.board.querySelector(".card") || this.board.querySelector(".failed")) return into(this.board, () => this.nodes());
    const fail = (error) => { if (error.status) show(this.board, failed(error, () => this.read())); };
    refresh(this.board, () => this.nodes()).catch(fail);
  }

  async nodes() {
    const [status, pending, causes] = await Promise.all([run("status", ["--limit", "0"]), run("pending", ["--limit", "500"]), run("held", ["--count"])]);
    const [state] = status.lines, pages = await Promise.all(causes.lines.map(({ code }) => this.heldPage(code)));
    this.heldCount = causes.lines.reduce((sum, one) => sum + one.count, 0);
    this.badge("sync", this.heldCount || "", true);
    const events = await this.events(state.durableLSN);
    this.hear(events, state);
    return [this.state(state), this.zones(state.zones), this.held(causes.lines, pages), this.pending(pending.lines, state.unsettled), this.requests(events)];
  }

  /** A page of the held records of a code. Those behind a place may be gone by now. */
  async heldPage(code) {
    const places = this.places.get(code) ?? [];
    const { lines } = await run("held", ["--code", code, "--limit", String(heldLength), ...places.slice(-1).flatMap((cursor) => ["--after", cursor])]), end = lines.pop();
    if (lines.length || !places.length) return { lines, places, cursor: end?.cursor };
    this.places.delete(code);
    return this.heldPage(code);
  }

  /** The newest events that tell of requests, of the last ten thousand of the log. */
  async events(newest) { return (await run("log-dump", ["--from", String(Math.max(1, newest - 10_000)), "--kind", requestKinds])).lines; }

  /** Notes what the log has of requests since this view was opened, or since the sync began that it tells of now. */
  hear(events, state) {
    const newest = events.at(-1)?.lsn ?? 0, now = Date.now();
    if (this.from === undefined) Object.assign(this, { from: newest, newest, heardAt: 0 });
    if (newest > this.newest) {
      if (now - this.heardAt > quietMilliseconds) Object.assign(this, { from: this.newest, owed: this.known?.unsettled ?? state.unsettled });
      Object.assign(this, { newest, heardAt: now });
    }
    Object.assign(this, { known: state, news: events.filter((event) => event.lsn > this.from), isAwaited: events.at(-1)?.kind === "sent" });
  }

  /** The sync that another process runs, as far as its log tells. */
  progress() {
    const { known: state, news } = this;
    if (!session.moment?.isWritten) return ["No app has the store open, so no sync runs."];
    if (this.isAwaited && !news.length) return ["An app has the store open. Its last request has no answer in the log yet: it waits for one, or was given up."];
    if (!this.isAwaited && Date.now() - this.heardAt > quietMilliseconds) return ["An app has the store open. Only the app knows whether it syncs at this moment: the log has its requests and their answers, and for a while there was none."];
    const sent = news.filter((event) => event.kind === "sent").reduce((sum, event) => sum + event.detail.mutations, 0);
    const answered = news.filter((event) => event.detail.mutation && event.kind !== "sent").length;
    const fetched = news.filter((event) => event.kind === "tokenAdvanced").length, isFetch = news.at(-1)?.kind === "tokenAdvanced";
    const phase = state.waitMilliseconds ? "waits as the server asked" : this.isAwaited ? "waits for an answer" : isFetch ? "fetches" : "sends";
    const done = Math.max(0, (this.owed ?? 0) - state.unsettled);
    return [`A sync is under way, and ${phase}: ` + [sent && `${plural(sent, "change")} sent, ${count(answered)} answered`,
      fetched && `${plural(fetched, "page")} of changes fetched`, `${plural(state.unsettled, "change")} still owed`].filter(Boolean).join("; "),
      this.owed > 0 && el("progress", { max: this.owed, value: done, "aria-label": "Sent of what was owed" })];
  }

  state(state) {
    const fact = (name, value, small) => el("div", {}, el("dt", {}, name), el("dd", { class: small && "small" }, value));
    const phase = state.damage.length ? el("span", { class: "bad" },
      "damaged") : state.account && state.unsettled === 0 ? el("span", { class: "good" },
      "everything is at the server") : state.waitMilliseconds ? el("span", { class: "warn" }, "waits") : state.account ? "has changes to send" : "never synced";
    this.waitEnd = state.waitMilliseconds ? Date.now() + state.waitMilliseconds : undefined;
    this.wait = el("span", {});
    this.now = el("div", { class: "note", role: "status" });
    const whole = card("State", "State", true, this.now, el("dl", { class: "facts" }, fact("phase", phase, true), fact("unsettled", count(state.unsettled)),
        fact("oldest of them", state.oldestUnsettledMilliseconds === null ? "–" : duration(state.oldestUnsettledMilliseconds)),
        fact("held", el("span", { class: this.heldCount && "bad" }, count(this.heldCount))), fact("records", count(state.records)), fact("deleted names", count(state.deleted)),
        fact("newest event", count(state.durableLSN)), fact("all settled to", count(state.checkpoint)), fact("blocked", count(state.openBlocks)),
        fact("account", state.account ? [text(state.account.container),
            el("span", { class: "kind" }, " ", text(state.account.environment), ", ", state.account.scopes.join(" and "))] : "none",
          true)),
      state.waitMilliseconds !== null && el("div", { class: "note warn" }, "The server must not be asked for ", this.wait, ": ", text(state.waitReason ?? "")),
      state.damage.map((damage) => trouble(text(`${damage.file}, byte ${count(damage.offset)}: ${damage.message}`), link("#space", "where it is"))));
    this.tick();
    return whole;
  }

  tick() {
    if (this.waitEnd && this.wait) show(this.wait, duration(Math.max(0, this.waitEnd - Date.now())));
    // No event tells that a wait is over.
    if (this.waitEnd < Date.now()) { this.waitEnd = undefined; this.again(); }
    if (!this.now || !this.news) return;
    const nodes = this.progress();
    // Said once where a screen is read.
    if (nodes[0] !== this.now.textContent) show(this.now, nodes);
  }

  zones(zones) {
    if (!zones.length) return card("Zones", "Zones", false, hint("No zone yet."));
    const rows = zones.map((zone) => [link(address("records", { zone: zone.zoneName }), text(zone.zoneName)), count(zone.records),
      zone.lostReason ? el("span", { class: "bad" }, "lost (", zone.lostReason, "): ",
        text(zone.lostWords)) : [[zone.listed && plural(zone.listed, "record") + " to fetch", zone.isDirty && "has changes to fetch",
          !zone.hasToken && "not fetched yet",
          zone.ghostsPossible && "may hold what the server has deleted"].filter(Boolean).join(", ") || el("span", { class: "good" },
          "in step")],
      this.acts([zone.lostReason && ["Resume", "resume"], ["Resync from server", "resync-from-server"], ["Resync from here", "resync-from-here"]],
        ([title, verb]) => this.changeZone(zone, title, verb))]);
    return card("Zones", "Zones", false, plainTable("Zones", ["zone", "#records", "state", ""], rows));
  }

  acts(verbs, act) {
    return el("td", { class: "acts" }, session.changeRefusal ? null : verbs.filter(Boolean).map((verb) => button(verb[0], () => act(verb), { class: verb[2] })));
  }

  changeZone(zone, title, verb) {
    const what = {
      resume: `The next sync fetches the zone from its beginning: ${plural(zone.records, "record")} here. If the server shows the same as before, it is lost again.`,
      "resync-from-server": `The next sync fetches the zone from its beginning, and removes here those of its ${plural(zone.records, "record")} that the server does not have.`,
      "resync-from-here": `The next sync fetches the zone from its beginning, and uploads again those of its ${plural(zone.records, "record")} that the server does not have.`,
    };
    this.doIt([title, ` the zone ${words(zone.zoneName)}?`].join(""), [what[verb]], title, verb === "resync-from-server", "zones", named([verb, zone.zoneName], []));
  }

  async doIt(title, sentences, action, isDanger, verb, args) {
    const end = "Once begun it goes on to its end, also if this page is closed; the terminal of the command says what came of it.";
    if (!await confirm(title, [...sentences, end], action, isDanger)) return;
    await change(verb, args).then(() => toast("Done. The next sync takes it up."), (error) => toast(error.message + (error.remedy ? ". Try: " + error.remedy : "")
      + (error.status ? "" : " Whether it was done is shown here when the command is back, and in its terminal.")));
    this.read(true);
  }

  held(causes, pages) {
    if (!causes.length) return card("Held", "Held", false, hint("Nothing is set aside."));
    const retry = session.changeRefusal ? null : button("Retry all", () => this.doIt("Retry all that is held?",
      [`The next sync sends ${plural(this.heldCount, "held record")} once more.`], "Retry all", false, "held", ["retry"]));
    return card("Held", "Held", false, retry && el("div", { class: "row" }, retry), causes.map(({ code, count: number }, at) => {
      const { lines, places, cursor } = pages[at], page = places.length + 1;
      const turn = (title, to) => button(title, () => { this.places.set(code, to); this.read(true); }, { "aria-label": `${title} page of ${words(code)}` });
      return el("details", { "data-key": "held" + page + code, open: causes.length < 4 || this.places.has(code) },
        el("summary", {}, el("span", { class: "tag bad" }, text(code)), " ", plural(number, "record")),
        (page > 1 || cursor) && el("div", { class: "row" }, dim(`page ${count(page)} of ${count(Math.max(page, Math.ceil(number / heldLength)))}`),
          page > 1 && turn("Previous", places.slice(0, -1)), cursor && turn("Next", [...places, cursor])),
        el("div", { class: "list" }, plainTable("Held: " + words(code), ["record", "the server's words", "next", ""], lines.map((one) => [
          this.record(one), [text(one.reason),
            el("div", { class: "kind" }, "tried ", plural(one.attempts, "time"), one.requestUUID && [", request ", text(one.requestUUID)])],
          one.retryMilliseconds === null ? "waits for a person" : "in " + duration(one.retryMilliseconds),
          this.acts(one.direction === "upload" ? [["Release", "release"], ["Discard", "discard", "danger"]] : [],
            ([title, verb]) => this.doIt(`${title} ${words(one.recordName)}?`,
            [verb === "release" ? "The next sync sends the change of this 1 record once more." : "The change of this 1 record that the server has not accepted is given up. It shows the server's version again; a record that the server never had is gone."], title, verb === "discard", "held",
            named([verb, one.recordName], ["--zone", one.zoneName]))),
        ]))));
    }));
  }

  record(one) { return link(address("records", { in: one.zoneName, name: one.recordName }), text(one.recordName)); }

  pending(pending, total) {
    if (!pending.length) return card("Pending", "Pending", false, hint("Nothing is owed to the server."));
    const groups = Map.groupBy(pending, (one) => String(one.waitsFor)), isCut = total > pending.length;
    return card("Pending", "Pending", false, isCut && [el("div", { class: "row" }, dim(`Below are the oldest ${count(pending.length)} of ${count(total)}.`),
        button("Count all of them", () => this.countAll())), this.counts],
      [...groups].map(([cause, list]) => el("details", { "data-key": "pending" + cause, open: groups.size < 3 },
        el("summary", {}, obstacles[cause] ?? cause, " ", el("span", { class: "badge" }, count(list.length) + (isCut ? ` of these ${count(pending.length)}` : ""))),
      el("div", { class: "list" }, plainTable("Pending: " + obstacles[cause], ["record", "change", "#age", "#event", ""],
          list.slice(0, 100).map((one) => [this.record(one), one.change, one.ageMilliseconds === null ? "–" : duration(one.ageMilliseconds),
              link(address("log", { at: one.lsn }), count(one.lsn)),
        [one.mayHaveArrived && el("span", { class: "tag warn", title: "A request carried it whose answer is not known" }, "may have arrived"),
          one.target && [" ", this.record({ ...one, recordName: one.target })], one.code && [" ", text(one.code)]]]))),
      list.length > 100 && hint("and ", plural(list.length - 100, "other")))));
  }

  /** Counts all that is pending by what it waits for: it looks at each of them, so only when it is asked to. */
  countAll() {
    into(this.counts, async () => {
      const at = this.known.durableLSN, { lines, command } = await run("pending", ["--count"]);
      return [plainTable("All that is pending", ["of all that is pending", "#records"], lines.map((one) => [obstacles[one.waitsFor], count(one.count)])),
        hint(`Counted when event ${count(at)} was the newest.`), says(command)];
    }, "Counting …");
  }

  /** What was sent, and what became of it: the log has no times of requests. */
  requests(events) {
    const rows = [];
    const within = (lsns, lsn) => lsns.split(" ").some((run) => { const [a, b] = run.split("-").map(Number); return lsn >= a && lsn <= (b || a); });
    for (const [at, event] of events.entries()) {
      if (event.kind === "sent") {
        const outcomes = {};
        for (const later of events.slice(at + 1)) {
          if (later.kind === "sent" && later.detail.zone === event.detail.zone) break;
          const outcome = later.kind === "settled" ? later.detail.outcome : later.kind;
          if (later.detail.mutation && within(event.detail.lsns, later.detail.mutation)) outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
        }
        const said = Object.entries(outcomes).map(([outcome, number]) => `${count(number)} ${outcome}`).join(", ");
        rows.push([event.lsn, "upload", text(event.detail.zone), plural(event.detail.mutations, "change"),
          said || el("span", { class: "warn" }, "no answer in the log")]);
      } else if (event.kind === "tokenAdvanced") rows.push([event.lsn, "fetch", text(event.detail.zone), "", "up to a new change token"]);
      else if (event.kind === "pace") rows.push([event.lsn, "pace", event.detail.scope,
        event.detail.milliseconds ? "waits " + duration(event.detail.milliseconds) : "goes on", text(event.detail.reason ?? "")]);
      else if (event.kind === "zoneChanged" && !/^(clean|dirty)$/.test(event.detail.change)) rows.push([event.lsn, "zone",
        text(event.detail.zone), event.detail.change, text(event.detail.words ?? "")]);
    }
    return card("Requests of the last cycles", ["Requests of the last cycles ", dim("without durations: the log has no times of requests")], true, rows.length ? plainTable("Requests", ["#event", "what", "of", "how much", "outcome"],
        rows.slice(-60).reverse().map(([lsn, ...rest]) => [link(address("log", { at: lsn }), count(lsn)), ...rest])) : hint("The last ten thousand events tell of no request."));
  }
}

// The log, of a store or of a server's journal

const windowLength = 2_000, damagedCode = 65;

export class LogView {
  constructor(node, params, role) {
    this.role = role;
    this.grid = new Grid("Events", { open: (event) => this.pick(event), at: (event) => event === this.picked });
    layOut(this, node, "Events", "One event");
    this.grid.setColumns([
      { name: "event", width: 11, isNumeric: true, cell: (event) => count(event.lsn) },
      { name: "kind", width: 18, cell: (event) => el("span", { class: "tag" + (/held|refused|blocked|conflicted|unknown/.test(event.kind) ? " bad" : "") },
          text(event.kind)) },
      { name: "record", width: 28, cell: (event) => event.recordName !== undefined ? role === "store" ? el("a",
          { href: address("records", { in: event.zoneName, name: event.recordName }), tabindex: -1 },
          text(event.recordName)) : text(event.recordName) : dim(text(event.zoneName ?? event.detail?.zone ?? "–")) },
      { name: "detail", width: 60, cell: (event) => Object.entries(event.detail).map(([name, value]) => [dim(text(name), " "), this.value(value), "  "]) },
    ]);
    this.newer = calmly(role === "store" ? 100 : 1_500, () => this.readNewer());
    this.update(params);
  }

  close() { this.isClosed = true; }
  found() { this.read(); }
  heard(name) { if ((name === "moment" || name === "request") && !this.isPaused && !this.at) this.newer(); }
  escape() { this.pick(undefined); }

  update(params) {
    this.params = params;
    this.at = Number(params.get("at")) || 0;
    this.filters = ["kind", "record", "zone"].flatMap((name) => params.get(name) ? ["--" + name, params.get(name)] : []);
    this.showTools();
    this.read();
  }

  showTools() {
    const box = (name, title, hint) => el("input", { value: this.params.get(name) ?? "", placeholder: hint, "aria-label": title, spellcheck: false, size: 16,
      type: name === "kind" ? "search" : "text", on: { change: (event) => this.with({ [name]: event.target.value.trim() }) } });
    this.pause = button(this.isPaused ? "Go on" : "Pause", () => { this.isPaused = !this.isPaused; this.showTools(); if (!this.isPaused) this.readNewer(); },
      { "aria-pressed": String(Boolean(this.isPaused)) });
    this.where = el("span", { class: "dim grow where" });
    renew(this.tools, box("kind", "Only these kinds", "kinds: saved,merged"), box("record", "Only this record", "record"),
      this.role === "store" && box("zone", "Only this zone", "zone"), this.where,
      this.at ? el("span", { class: "filter" }, "around event " + count(this.at),
        button("×", () => this.with({ at: undefined }), { "aria-label": "Show the newest events" })) : this.pause);
  }

  with(changes) { go("log", { ...Object.fromEntries(["kind", "record", "zone", "at"].map((name) => [name, this.params.get(name)])), ...changes }); }

  /** The events of a window, and what is wrong with it. */
  async dump(from, to) {
    try { return await run("log-dump", ["--from", String(from), "--to", String(to), ...this.filters]); } catch (error) {
      if (error.status !== damagedCode) throw error;
      return { lines: [], errors: [error.message], command: error.command };
    }
  }

  /** The same, also with the events behind a damaged place: a dump ends there. */
  async dumpAround(from, to) {
    const answer = await this.dump(from, to);
    let low = (answer.lines.at(-1)?.lsn ?? from - 1) + 1, behind = [];
    for (let high = to; answer.errors.length && low < high;) {
      const middle = Math.floor((low + high) / 2), part = await this.dump(middle, to);
      if (part.errors.length) low = middle + 1;
      else [high, behind] = [middle, part.lines];
    }
    return { ...answer, lines: [...answer.lines, ...behind] };
  }

  async newest() { return this.role === "server" ? get("newest") : session.moment?.lsn ?? (await run("status", ["--limit", "0"])).lines[0].durableLSN; }

  async read() {
    const turn = this.turn = {};
    this.events = [];
    this.hasFailed = false;
    show(this.notes);
    const wait = setTimeout(() => { if (this.turn === turn) show(this.notes, loading("Reading the log …")); }, 200);
    try {
      const newest = this.at ? this.at + windowLength / 2 : await this.newest();
      if (this.turn !== turn) return;
      this.next = this.oldest = newest + 1;
      this.grid.setRows(noRows);
      await this.readOlder();
      if (this.turn !== turn) return;
      this.draw();
      if (this.at) {
        const index = this.events.findIndex((event) => event.lsn <= this.at);
        if (index >= 0) { this.grid.choose(index); this.pick(this.events[index]); }
      }
    } catch (error) {
      if (this.turn === turn) show(this.notes, failed(error, () => this.read()));
    } finally {
      clearTimeout(wait);
      if (this.turn === turn) this.notes.querySelector(".loading")?.remove();
    }
  }

  /** Reads windows backward until there are rows, or the log has begun. What draws the rows calls it: so not after a failure. */
  async readOlder() {
    const turn = this.turn;
    if (this.reading === turn || this.hasFailed || this.isClosed || this.oldest <= 1) return;
    this.reading = turn;
    try {
      for (let found = 0, looks = 0; found < 100 && this.oldest > 1 && looks < 50; looks++) {
        const length = this.filters.length ? windowLength * Math.min(32, 2 ** looks) : windowLength;
        const from = Math.max(1, this.oldest - length);
        const answer = await this.dumpAround(from, this.oldest);
        if (this.turn !== turn || this.isClosed) return;
        this.oldest = from;
        found += answer.lines.length;
        this.events.push(...answer.lines.reverse());
        show(this.foot, says(answer.command));
        for (const error of answer.errors) put(this.notes, trouble(text(error)));
        this.draw();
      }
    } catch (error) {
      if (this.turn !== turn) return;
      this.hasFailed = true;
      if (!this.isClosed) show(this.notes, failed(error, () => { this.hasFailed = false; show(this.notes); this.readOlder(); }));
    } finally {
      if (this.reading === turn) this.reading = undefined;
      if (this.turn === turn && !this.isClosed) this.draw();
    }
  }

  /** Reads windows forward to the newest event, and what has come meanwhile. */
  async readNewer() {
    this.hasNews = true;
    const turn = this.turn;
    if (this.readingNewer === turn || this.next === undefined) return;
    this.readingNewer = turn;
    try {
      while (this.hasNews && !this.isPaused) {
        this.hasNews = false;
        const newest = await this.newest();
        for (let to; this.next <= newest; this.next = to) {
          // A journal is read from its beginning each time, a store's log is not.
          to = Math.min(newest + 1, this.next + windowLength * (this.role === "server" ? 10 : 1));
          const { lines } = await this.dump(this.next, to);
          if (this.turn !== turn || this.isClosed) return;
          this.add(lines);
        }
      }
    } catch { /* The next event asks again, and a lost command is said above. */ } finally {
      if (this.readingNewer === turn) this.readingNewer = undefined;
    }
  }

  add(lines) {
    if (!lines.length) return;
    for (const event of lines) event.isNew = true;
    this.events.unshift(...lines.reverse());
    // So many as are of use; older ones are read again.
    if (this.events.length > 50_000) { this.events.length = 40_000; this.oldest = this.events.at(-1).lsn; }
    if (this.grid.node.scrollTop > 0) this.grid.node.scrollTop += lines.length * 26;
    this.draw();
  }

  draw() {
    const events = this.events;
    this.grid.setRows({ length: events.length, at: (index) => events[index], near: (index) => { if (index + 300 > events.length) this.readOlder(); } }, true);
    show(this.where, events.length ? `${plural(events.length, "event")} read` + (this.oldest > 1 ? `, down to ${count(this.oldest)}` : ", to the beginning") : "");
    if (events.length || this.oldest <= 1) this.notes.querySelector(".loading")?.remove();
    if (!events.length && this.oldest <= 1 && !this.notes.childNodes.length) show(this.notes,
      empty("No event", this.filters.length ? "None meets these filters." : "The log is empty."));
    else if (events.length && this.notes.querySelector(".state:not(.failed)")) show(this.notes);
  }

  /** The command prints times in UTC. */
  value(value) { return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? time(Date.parse(value)) : text(value === "" ? "–" : value); }

  async pick(event) {
    this.picked = event;
    openPanel(this, Boolean(event));
    if (!event) return;
    const body = el("div", { class: "body" });
    const rows = [[text("kind"), text(event.kind)], event.recordName !== undefined && [text("record"), text(event.recordName)],
      event.zoneName !== undefined && [text("zone"), text(event.zoneName)],
      ...Object.entries(event.detail).map(([name, value]) => [text(name), this.value(value)])].filter(Boolean);
    const raw = el("div", {}, button("Its bytes", () => into(raw, async () => {
      const line = (await run("log-dump", ["--from", String(event.lsn), "--to", String(event.lsn + 1), "--hex"])).lines[0];
      if (!line) return hint("A compaction has removed it.");
      return [hint(`segment ${line.segment}, offset ${count(line.offset)}, ${plural(line.hex.length / 2, "byte")}`),
        el("pre", { class: "json" }, (line.hex.match(/.{1,32}/g) ?? []).slice(0, 400).map((part) => part.replace(/../g, "$& ")).join("\n"))];
    })));
    show(this.detail, heading("Event " + count(event.lsn), undefined, () => this.pick(undefined), "Close the event"), put(body,
        el("table", { class: "fields" }, rows.map(([name, value]) => row(name, value))), raw));
  }
}

// Space

class Space {
  constructor(node) {
    put(node, this.board = el("div", { class: "board" }));
    this.again = calmly(1_000, () => { if (this.board.querySelector(".card")) refresh(this.board, () => this.nodes()).catch(() => {}); });
    [this.checks, this.freed] = [el("div", { class: "stack" }), el("div", { class: "stack" })];
    this.read();
  }

  found() { this.read(); }
  heard(name) { if (name === "moment") this.again(); }
  read() { into(this.board, () => this.nodes()); }

  async nodes() {
    // A log that cannot be read has files all the same.
    let failure;
    const perhaps = (answer, otherwise) => answer.catch((error) => { failure = error; return otherwise; });
    const [space, status, indexes] = await Promise.all([get("space"), perhaps(run("status", ["--limit", "0"]), { lines: [{ damage: [] }] }),
      perhaps(run("index", ["list"]), { lines: [] })]);
    const hurt = [...status.lines[0].damage, ...(this.findings ?? [])];
    const sum = (files) => files.reduce((total, file) => total + file.bytes, 0);
    const [log, tables, contents, others] = [sum(space.segments), sum(space.tables), sum(space.contents), sum(space.others)];
    const piece = (file, kind, title) => {
      const part = el("div", { class: kind, title: words(`${file.name}, ${bytes(file.bytes)}${title ?? ""}`) });
      part.style.flexGrow = file.bytes;
      part.style.flexBasis = "0";
      for (const one of hurt) if (one.file && (one.file === file.name || one.file.endsWith("/" + file.name))) {
        const mark = el("i", { class: "hurt", title: words(one.message) });
        mark.style.left = Math.min(99, 100 * one.offset / Math.max(1, file.bytes)) + "%";
        part.append(mark);
      }
      return part;
    };
    const swatch = (kind, label, size) => el("span", {}, el("i", { class: kind + " swatch" }), label + " ", el("b", {}, bytes(size)));
    const held = (file) => file.last === null ? "" : `, events ${count(file.first)} to ${count(file.last)}`;
    return [
      failure && trouble(text(failure.message), button("Try again", () => this.read())),
      card("Space", ["Space ", dim(bytes(log + tables + contents + others), " in all, to scale")], true,
        el("div", { class: "bar", role: "img", "aria-label": `log ${bytes(log)}, sorted tables ${bytes(tables)}, contents of assets ${bytes(contents)}, other files ${bytes(others)}` },
          space.segments.map((file) => piece(file, "log", held(file))), space.tables.map((file) => piece(file, "table")),
          contents > 0 && piece({ name: plural(space.contents.length, "content") + " of assets", bytes: contents }, "content"),
          space.others.map((file) => piece(file, "other"))),
        el("div", { class: "legend" }, swatch("log", "log", log), swatch("table", "sorted tables", tables),
          contents > 0 && swatch("content", "contents of assets", contents), swatch("other", "other files", others)),
        hint(space.compacted ? `A compaction has removed what nothing needs of the events up to ${count(space.compacted)}.` : "No compaction has removed anything yet.",
          " The events that an app's open views and projections keep are not in this picture: only the app's memory says which they are. In the app RecordStore.diagnostics() lists them."),
        hurt.map((one) => trouble(text(`${one.file ?? "event " + one.lsn}${one.offset ? ", byte " + count(one.offset) : ""}: ${one.message}`)))),
      card("Segments", "Segments of the log", false,
        plainTable("Segments", ["file", "#events", "#bytes"], space.segments.map((file) => [el("code", {}, text(file.name)),
            file.last === null ? "–" : link(address("log", { at: file.last }), `${count(file.first)} – ${count(file.last)}`),
            bytes(file.bytes)]))),
      card("Tables", "Sorted tables and indexes", false, plainTable("Tables", ["file", "#bytes"],
          [...space.tables, ...space.others].map((file) => [el("code", {}, text(file.name)), bytes(file.bytes)])),
        indexes.lines.length ? plainTable("Indexes", ["index", "state"],
          indexes.lines.map((one) => [[text(one.type), " ", text(one.field ?? ""), one.ascending ? "" : " (descending)"],
            one.ready ? "ready" : "building"])) : hint("No index of the app's.")),
      card("Compaction", "What a compaction would free", false, hint(`By the plan that a compaction makes; reads ${bytes(log)} several times and changes nothing.`),
        el("div", {}, button("Work it out", () => this.plan())), this.freed),
      card("Check", "Check every byte", false, hint(`Reads ${bytes(log)} and changes nothing.`), el("div", {}, button("Check", () => this.verify())), this.checks),
    ];
  }

  plan() {
    into(this.freed, async () => {
      const dry = (...words) => run("compact", ["--dry-run", ...words]);
      const [all, recent] = await Promise.all([dry("--history", "latest"), dry().catch((error) => ({ failure: error }))]);
      const goes = (answer) => answer.lines[0].bytesBefore - answer.lines[0].bytesAfter, stays = all.lines[0].bytesAfter;
      const now = recent.failure ? 0 : Math.min(goes(recent), goes(all)), later = goes(all) - now;
      const parts = [["goes", "goes now", now], ["later", "goes once it is 30 days old", later], ["log", "stays", stays]].filter(([, , size]) => size);
      const part = ([kind, title, size]) => {
        const node = el("div", { class: kind, title: `${title}: ${bytes(size)}` });
        node.style.flex = `${size} 0 0`;
        return node;
      };
      return [
        el("div", { class: "bar", role: "img", "aria-label": parts.map(([, title, size]) => `${title}: ${bytes(size)}`).join(", ") }, parts.map(part)),
        el("div", { class: "legend" }, parts.map(([kind, title, size]) => el("span", {}, el("i", { class: kind + " swatch" }), title + " ", el("b", {}, bytes(size))))),
        recent.failure ? el("p", { class: "note warn" }, text(recent.failure.message)) : el("p", {},
          `Now ${plural(recent.lines[0].eventsDropped, "event")} would go, and ${count(all.lines[0].eventsDropped)} if no history were kept.`),
        hint("An app's open view or projection may keep some of it back. They are in the app's memory, so they are not counted here."),
        says((recent.failure ? all : recent).command)];
    }, "Reading the log …");
  }

  verify() {
    into(this.checks, async () => {
      const answer = await run("verify");
      const result = answer.lines.pop();
      this.findings = answer.lines;
      const names = { sound: "Sound", tornTail: "A torn tail, which the next open sets aside",
        tablesDisagree: "The log is sound; sorted tables disagree with it", damaged: "Damaged" };
      this.again();
      return [el("p", { class: result.result === "sound" ? "good" : "bad" }, names[result.result] ?? result.result),
        hint(`${plural(result.segments, "segment")}, ${plural(result.events, "event")}, ${bytes(result.bytes)}`),
        answer.lines.map((one) => trouble(text(one.message))), says(answer.command)];
    }, "Checking every byte …");
  }
}
