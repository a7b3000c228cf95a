// The views of the disk: the log of a store or the journal of a server, and the space that a store takes.

import { TableView, noRows, rowHeight, rowsOf } from "./grid.js";
import {
  address, bar, button, bytes, calmly, cellLink, changed, code, count, dim, div, el, empty, failed, get, hint, into, legend, link, made,
  plainTable, plural, put, renew, row, run, says, session, show, span, text, time, trouble, waiting, words,
} from "./parts.js";

const windowLength = 2_000, damagedCode = 65, filterNames = ["kind", "record", "zone"];

export class LogView extends TableView {
  constructor(node, params, role) {
    super(node, "Events", "One event");
    this.role = role;
    const kind = (event) => span("tag" + (/held|refused|blocked|conflicted|unknown/.test(event.kind) ? " bad" : ""), text(event.kind));
    const detail = (event) => Object.entries(event.detail).map(([name, value]) => [dim(text(name), " "), this.value(value), "  "]);
    this.grid.setColumns([
      { name: "event", width: 11, isNumeric: true, cell: (event) => count(event.lsn) }, { name: "kind", width: 18, cell: kind },
      { name: "record", width: 28, cell: (event) => this.nameOf(event) }, { name: "detail", width: 60, cell: detail },
    ]);
    const parts = this.parts = made("log");
    for (const name of filterNames) parts[name].onchange = () => this.with({ [name]: parts[name].value.trim() });
    parts.zone.hidden = role !== "store";
    parts.newest.onclick = () => this.with({ at: undefined });
    parts.pause.onclick = () => { this.showPause(!this.isPaused); if (!this.isPaused) this.readNewer(); };
    show(this.tools, parts.node);
    [this.where, this.isPaused] = [parts.where, false];
    this.newer = calmly(role === "store" ? 100 : 1_500, () => this.readNewer());
    this.update(params);
  }

  close() { this.isClosed = true; }
  found() { this.read(); }
  heard(name) { if ((name === "moment" || name === "request") && !this.isPaused && !this.at) this.newer(); }

  update(params) {
    this.params = params;
    this.at = Number(params.get("at")) || 0;
    this.filters = filterNames.flatMap((name) => params.get(name) ? ["--" + name, params.get(name)] : []);
    for (const name of filterNames) this.parts[name].value = params.get(name) ?? "";
    this.parts.around.hidden = !this.at;
    show(this.parts.event, "around event " + count(this.at));
    this.showPause(this.isPaused);
    this.read();
  }

  showPause(isPaused) {
    this.isPaused = isPaused;
    const { pause } = this.parts;
    pause.hidden = this.at > 0;
    pause.textContent = isPaused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
  }

  with(changes) { location.hash = changed("log", this.params, [...filterNames, "at"], changes); }

  nameOf(event) {
    if (event.recordName === undefined) return dim(text(event.zoneName ?? event.detail.zone ?? "–"));
    if (this.role !== "store") return text(event.recordName);
    return cellLink(address("records", { in: event.zoneName, name: event.recordName }), event.recordName);
  }
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

  async newest() {
    if (this.role === "server") return get("newest");
    return session.moment?.lsn ?? (await run("status", ["--limit", "0"])).lines[0].durableLSN;
  }

  async read() {
    const turn = this.turn = {};
    const isCurrent = () => this.turn === turn;
    this.events = [];
    this.hasFailed = false;
    show(this.notes);
    try {
      await waiting(this.notes, "Reading the log …", async () => {
        const newest = this.at ? this.at + windowLength / 2 : await this.newest();
        if (!isCurrent()) return;
        this.next = this.oldest = newest + 1;
        this.grid.setRows(noRows);
        await this.readOlder();
      }, isCurrent);
    } catch (error) { if (isCurrent()) show(this.notes, failed(error, () => this.read())); }
    if (!isCurrent()) return;
    this.notes.querySelector(".loading")?.remove();
    this.draw();
    const index = this.at ? this.events.findIndex((event) => event.lsn <= this.at) : -1;
    if (index >= 0) this.grid.choose(index, true);
  }
  /** Reads windows backward until there are rows, or the log has begun. What draws the rows calls it: so not after a failure. */
  async readOlder() {
    const turn = this.turn;
    if (this.reading === turn || this.hasFailed || this.isClosed || this.oldest <= 1) return;
    const isOver = () => this.turn !== turn || this.isClosed;
    this.reading = turn;
    try {
      for (let found = 0, looks = 0; found < 100 && this.oldest > 1 && looks < 50; looks++) {
        const length = this.filters.length ? windowLength * Math.min(32, 2 ** looks) : windowLength;
        const from = Math.max(1, this.oldest - length);
        const answer = await this.dumpAround(from, this.oldest);
        if (isOver()) return;
        this.oldest = from;
        found += answer.lines.length;
        this.events.push(...answer.lines.reverse());
        show(this.foot, says(answer.command));
        for (const error of answer.errors) put(this.notes, trouble(text(error)));
        this.draw();
      }
    } catch (error) {
      if (isOver()) return;
      this.hasFailed = true;
      show(this.notes, failed(error, () => {
        this.hasFailed = false;
        show(this.notes);
        this.readOlder();
      }));
    } finally {
      if (this.reading === turn) this.reading = undefined;
      if (!isOver()) this.draw();
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
    // The page keeps this many events; it reads older ones again.
    if (this.events.length > 50_000) { this.events.length = 40_000; this.oldest = this.events.at(-1).lsn; }
    if (this.grid.node.scrollTop > 0) this.grid.node.scrollTop += lines.length * rowHeight;
    this.draw();
  }

  draw() {
    const events = this.events, isWhole = this.oldest <= 1;
    this.grid.setRows(rowsOf(events, (index) => { if (index + 300 > events.length) this.readOlder(); }), true);
    const end = isWhole ? "to the beginning" : `down to ${count(this.oldest)}`;
    show(this.where, events.length ? `${plural(events.length, "event")} read, ${end}` : "");
    if (events.length || isWhole) this.notes.querySelector(".loading")?.remove();
    if (!events.length && isWhole && !this.notes.childNodes.length) {
      show(this.notes, empty("No event", this.filters.length ? "None meets these filters." : "The log is empty."));
    } else if (events.length && this.notes.querySelector(".state:not(.failed)")) show(this.notes);
  }
  /** The command prints times in UTC. */
  value(value) { return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? time(Date.parse(value)) : text(value === "" ? "–" : value); }

  panel(event) {
    const facts = Object.entries({ kind: event.kind, record: event.recordName, zone: event.zoneName }).filter(([, value]) => value !== undefined);
    const rows = [...facts.map(([name, value]) => row(name, text(value))),
      ...Object.entries(event.detail).map(([name, value]) => row(text(name), this.value(value)))];
    return [this.heading("Event " + count(event.lsn), undefined, "event"), div("body", el("table", { class: "fields" }, rows))];
  }
}

export class Space {
  constructor(node) {
    put(node, this.board = div("board"));
    this.again = calmly(1_000, () => this.show().catch(() => {}));
    this.read();
  }

  found() { this.read(); }
  heard(name) { if (name === "moment" && this.parts) this.again(); }

  read() {
    into(this.board, async () => {
      const parts = this.parts = made("space");
      parts.plan.onclick = () => this.plan();
      parts.verify.onclick = () => this.verify();
      await this.show();
      return parts.node;
    });
  }
  /** Shows the files that there are now. */
  async show() {
    // A log that cannot be read has files all the same.
    let failure;
    const perhaps = (answer, otherwise) => answer.catch((error) => { failure = error; return otherwise; });
    const [space, status, indexes] = await Promise.all([get("space"), perhaps(run("status", ["--limit", "0"]), { lines: [{ damage: [] }] }),
      perhaps(run("index", ["list"]), { lines: [] })]);
    const { picture, segments, tables, failed } = this.parts, file = (one) => code(text(one.name));
    const events = (one) => one.last === null ? "–" : link(address("log", { at: one.last }), `${count(one.first)} – ${count(one.last)}`);
    renew(failed, failure && trouble(text(failure.message), button("Try again", () => this.read())));
    // A check may find what the status knows already.
    const hurt = [...status.lines[0].damage, ...(this.findings ?? [])].map((one) => [[one.file?.split("/").pop(), one.offset, one.lsn].join(), one]);
    renew(picture, this.picture(space, [...new Map(hurt).values()]));
    renew(segments, plainTable("Segments", ["file", "#events", "#bytes"], space.segments.map((one) => [file(one), events(one), bytes(one.bytes)])));
    const kinds = indexes.lines.map((one) => [[text(one.type), " ", text(one.field ?? ""), one.ascending ? "" : " (descending)"],
      one.ready ? "ready" : "building"]);
    renew(tables, plainTable("Tables", ["file", "#bytes"], [...space.tables, ...space.others].map((one) => [file(one), bytes(one.bytes)])),
      kinds.length ? plainTable("Indexes", ["index", "state"], kinds) : hint("No index of the app's."));
  }
  /** All files to scale, with the places that are damaged. */
  picture(space, hurt) {
    const marks = (file) => hurt.filter((one) => one.file && (one.file === file.name || one.file.endsWith("/" + file.name))).map((one) => {
      const mark = el("i", { class: "hurt", title: words(one.message) });
      mark.style.left = Math.min(99, 100 * one.offset / Math.max(1, file.bytes)) + "%";
      return mark;
    });
    const held = (file) => file.last ? `, events ${count(file.first)} to ${count(file.last)}` : "";
    const piece = (kind) => (file) => [kind, words(`${file.name}, ${bytes(file.bytes)}${held(file)}`), file.bytes, marks(file)];
    const kinds = [["log", "log", space.segments], ["table", "sorted tables", space.tables], ["content", "contents of assets", space.contents],
      ["other", "other files", space.others]];
    const parts = kinds.map(([kind, title, files]) => [kind, title, files.reduce((sum, file) => sum + file.bytes, 0)]);
    const contents = { name: plural(space.contents.length, "content") + " of assets", bytes: parts[2][2] };
    const pieces = [space.segments.map(piece("log")), space.tables.map(piece("table")), [piece("content")(contents)],
      space.others.map(piece("other"))].flat();
    const isThere = ([kind, , size]) => kind !== "content" || size;
    show(this.parts.all, bytes(parts.reduce((sum, [, , size]) => sum + size, 0)), " in all, to scale");
    const place = (one) => `${one.file ?? "event " + one.lsn}${one.offset ? ", byte " + count(one.offset) : ""}`;
    return [bar(parts.map(([, title, size]) => `${title} ${bytes(size)}`).join(", "), pieces.filter(isThere)), legend(parts.filter(isThere)),
      hint(space.compacted ? `A compaction has removed what nothing needs of the events up to ${count(space.compacted)}.`
        : "No compaction has removed anything yet."),
      hurt.map((one) => trouble(text(`${place(one)}: ${one.message}`)))];
  }

  plan() {
    into(this.parts.freed, async () => {
      const dry = (...words) => run("compact", ["--dry-run", ...words]);
      const [all, recent] = await Promise.all([dry("--history", "latest"), dry().catch((error) => ({ failure: error }))]);
      const goes = ({ lines: [one] }) => one.bytesBefore - one.bytesAfter;
      const now = recent.failure ? 0 : Math.min(goes(recent), goes(all));
      const parts = [["goes", "goes now", now], ["later", "goes once it is 30 days old", goes(all) - now],
        ["log", "stays", all.lines[0].bytesAfter]].filter(([, , size]) => size);
      return [bar(parts.map(([, title, size]) => `${title}: ${bytes(size)}`).join(", "), parts), legend(parts),
        recent.failure ? el("p", { class: "note warn" }, text(recent.failure.message)) : el("p", {},
          `Now ${plural(recent.lines[0].eventsDropped, "event")} would go, and ${count(all.lines[0].eventsDropped)} if no history were kept.`),
        says((recent.failure ? all : recent).command)];
    }, "Reading the log …");
  }

  verify() {
    into(this.parts.checks, async () => {
      const answer = await run("verify"), result = answer.lines.pop();
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
