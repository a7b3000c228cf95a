// The views of a local server: its data as a client asks for it, the requests that it answered, its faults, and its journal.

import { TableView, rowsOf, widthOf } from "./grid.js";
import { LogView } from "./log.js";
import {
  address, button, bytes, calmly, code, copy, count, dim, div, el, empty, get, hint, into, isNumber, made, parse, plural, post, put, refresh,
  renew, row, send, session, show, shown, sideLink, span, tabs, text, time, toast, trouble, typed, words,
} from "./parts.js";

export function serverViews() {
  return [{ name: "data", title: "Data", open: (node, params) => new Data(node, params) },
    { name: "requests", title: "Requests", open: (node) => new Requests(node) },
    { name: "faults", title: "Faults", open: (node) => new Faults(node) },
    { name: "log", title: "Journal", open: (node, params) => new LogView(node, params, "server") }];
}

const pretty = (value) => JSON.stringify(value, null, 2);
const json = (string) => el("pre", { class: "json" }, text(string, true));

/** A value of the wire as the command's lines have it. */
function field(value) {
  if (!value || typeof value !== "object" || "type" in value) return value;
  const kind = Array.isArray(value.value) ? "STRING_LIST" : isNumber(value.value) ? "INT64" : "STRING";
  return { type: kind, value: value.value };
}
/** One field's value from what was typed: JSON, or text as it stands. */
function valueOf(string, kind) {
  let value = string;
  try { value = parse(string); } catch { /* It is text. */ }
  if (kind === "STRING" || kind === "BYTES") return { value: string, type: kind };
  if (kind === "REFERENCE") return { value: { recordName: string, action: "NONE" }, type: kind };
  if (kind === "LOCATION" && !value.latitude) {
    const [latitude, longitude] = string.split(",").map(Number);
    return { value: { latitude, longitude }, type: kind };
  }
  if (kind.endsWith("_LIST") && Array.isArray(value)) {
    const item = (one) => valueOf(typeof one === "string" ? one : JSON.stringify(one), kind.slice(0, -5)).value;
    return { value: value.map(item), type: kind };
  }
  if (kind) return { value, type: kind };
  if (isNumber(value)) return { value, type: Number.isInteger(value) || typeof value === "bigint" ? "INT64" : "DOUBLE" };
  if (Array.isArray(value)) return { value, type: isNumber(value[0]) ? "INT64_LIST" : "STRING_LIST" };
  return { value: value !== null && typeof value === "object" ? value : string, type: "STRING" };
}

const keyOf = (database) => [database.container, database.environment, database.scope, database.user].join("\n");
const living = (zone) => Object.values(zone.types).reduce((sum, number) => sum + number, 0);

class Data extends TableView {
  constructor(node, params) {
    const side = el("nav", { class: "side", "aria-label": "Databases and zones" });
    super(node, "Data", "One record", { side });
    [this.side, this.conditions] = [side, []];
    this.tools.classList.add("form");
    this.tools.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("input")) this.ask(); });
    const answers = div("middle grow", this.tools, this.notes, this.grid.node);
    this.tabs = tabs({ query: "Query", lookup: "Look-up", changes: "Changes" }, answers, (tab) => { location.hash = this.to({ tab }); });
    show(this.middle, this.tabs, answers);
    // It counts all records.
    this.again = calmly(3_000, () => refresh(this.side, async () => this.sideNodes(await get("databases"))).catch(() => {}));
    this.update(params);
  }

  found() { this.update(this.params); }
  heard(name) { if (name === "request") this.again(); }

  update(params) {
    this.params = params;
    into(this.notes, async () => {
      const databases = await get("databases");
      return this.params === params ? this.showDatabases(databases, params) : undefined;
    });
  }

  showDatabases(databases, params) {
    const wanted = databases.find((one) => keyOf(one) === params.get("database"));
    this.database = wanted ?? databases.find((one) => one.zones.length) ?? databases[0];
    this.key = this.database && keyOf(this.database);
    this.tabs.hidden = this.grid.node.hidden = !this.database;
    if (!this.database) {
      for (const node of [this.side, this.tools]) show(node);
      const line = `strandline sync --url ${location.origin} --container ID STORE`;
      return empty("No app has written anything yet", "Point one at this server:", code(text(line)));
    }
    const { zones } = this.database, most = Math.max(...zones.map(living));
    this.zone = zones.find((one) => one.zoneName === params.get("zone")) ?? zones.find((one) => living(one) === most);
    this.tab = params.get("tab") ?? "query";
    renew(this.side, this.sideNodes(databases));
    this.tabs.at(this.tab);
    show(this.tools);
    if (!this.zone) return empty("No zone is in this database");
    this.showForm();
    this.ask();
  }

  to(changes) { return address("data", { database: this.key, zone: this.zone?.zoneName, tab: this.tab, ...changes }); }

  sideNodes(databases) {
    const user = (name) => name && [", user ", text(name.length > 14 ? name.slice(0, 13) + "…" : name)];
    const item = (zone, database) => sideLink(this.to({ database, zone: zone.zoneName }), zone.zoneName, living(zone),
      database === this.key && zone.zoneName === this.zone?.zoneName, { title: plural(zone.deleted, "tombstone") });
    return databases.map((one) => [
      el("h3", { title: words(one.user) }, text(one.container), div("kind", one.scope, ", ", text(one.environment), user(one.user))),
      one.zones.map((zone) => item(zone, keyOf(one))), one.zones.length === 0 && el("p", { class: "loading" }, "no zone")]);
  }

  showForm() {
    const form = this.form = made("form-" + this.tab), { types } = this.zone;
    form.ask.onclick = () => this.ask();
    if (this.tab === "lookup") form.names.value = this.params.get("names") ?? "";
    if (this.tab === "changes") form.since.value = this.params.get("token") ?? "";
    if (this.tab === "query") {
      const names = Object.keys(types).sort((a, b) => types[b] - types[a]);
      put(form.type, names.map((value) => el("option", { value }, words(value))));
      form.type.onchange = form.ask.onclick;
      const list = put(form.node.querySelector(".conditions"), this.conditions.map((one) => one.row));
      form.add.onclick = () => list.append(this.condition());
    }
    show(this.tools, form.node);
  }
  /** One more condition of the query: its row in the form. */
  condition() {
    const one = made("condition");
    one.row = one.node.firstElementChild;
    put(one.comparator, session.comparators.map((name) => el("option", {}, name)));
    one.row.addEventListener("change", () => {
      one.distance.hidden = one.comparator.value !== "NEAR";
      if (!one.distance.hidden) one.kind.value = "LOCATION";
      this.ask();
    });
    one.remove.onclick = () => {
      this.conditions = this.conditions.filter((other) => other !== one);
      one.row.remove();
      this.ask();
    };
    this.conditions.push(one);
    return one.row;
  }
  /** The endpoint and the body of the request that the form describes. */
  request(marker) {
    const zoneID = { zoneName: this.zone.zoneName }, { names, since, limit, type, sort } = this.form;
    const resultsLimit = Number(limit?.value) || 100;
    if (this.tab === "lookup") {
      return ["records/lookup", { zoneID, records: names.value.split(/\s+/).filter(Boolean).map((recordName) => ({ recordName })) }];
    }
    if (this.tab === "changes") return ["changes/zone", { zones: [{ zoneID, syncToken: since.value || undefined, resultsLimit }] }];
    // A search for words may be in all fields.
    const conditions = this.conditions.filter((one) => one.field.value || one.comparator.value.endsWith("_TOKENS"));
    const filterBy = conditions.map(({ field, comparator, value, kind, distance }) => ({
      fieldName: field.value || undefined, comparator: comparator.value, fieldValue: valueOf(value.value, kind.value),
      distance: comparator.value === "NEAR" ? Number(distance.value) || 1_000 : undefined,
    }));
    const [fieldName, order] = sort.value.trim().split(":"), sortBy = fieldName && [{ fieldName, ascending: order !== "desc" }];
    const query = { recordType: type.value, filterBy: filterBy.length ? filterBy : undefined, sortBy: sortBy || undefined };
    return ["records/query", { zoneID, query, resultsLimit, continuationMarker: marker }];
  }

  ask(marker) {
    const { names, type } = this.form, isUnnamed = this.tab === "lookup" && !names.value.trim();
    if (isUnnamed || (this.tab === "query" && !type.value)) {
      this.setRecords([]);
      return show(this.notes, isUnnamed ? empty("Name a record", "One with a strange name is found by Query or by Changes.")
        : empty("No record lives in this zone", "Its deletions are among its changes."));
    }
    const [endpoint, body] = this.request(marker), { container, environment, scope, user } = this.database;
    into(this.notes, async () => {
      const answer = await send("cloud", { container, environment, scope, user, endpoint }, JSON.stringify(body));
      const page = this.tab === "changes" ? answer.body.zones?.[0] ?? {} : answer.body;
      this.setRecords(page.records ?? []);
      const path = `/database/1/${[container, environment, scope].map(encodeURIComponent).join("/")}/${endpoint}`;
      const refusal = page.serverErrorCode ?? answer.body.serverErrorCode;
      return [refusal && trouble(text(`${answer.status} ${refusal}: ${page.reason ?? answer.body.reason ?? ""}`)),
        div("row", dim(plural((page.records ?? []).length, "record")), this.onward(page), span("grow"),
          button("Copy as curl", () => copy(curl(path, body)))),
        el("details", { open: this.showsJSON, on: { toggle: (event) => { this.showsJSON = event.target.open; } } },
          el("summary", { class: "dim" }, "The request and its answer as JSON"),
          json("POST " + path + "\n" + pretty(body)), json(pretty(answer.body).slice(0, 40_000)))];
    });
  }
  /** What follows a page of an answer. */
  onward(page) {
    if (page.continuationMarker) return button("Next page", () => this.ask(page.continuationMarker));
    if (this.tab !== "changes" || !page.syncToken) return null;
    const next = () => { this.form.since.value = page.syncToken; this.ask(); };
    const [title, what] = page.moreComing ? ["Next page", "more is coming; token "] : ["Again from here", "the end; token "];
    return [button(title, next), dim(what), code(text(page.syncToken.slice(0, 24)), "…")];
  }

  setRecords(records) {
    const names = new Set(records.slice(0, 200).flatMap((record) => Object.keys(record.fields ?? {})));
    names.delete("strandlineStamp");
    const label = (value) => value?.type === "TIMESTAMP" ? "00/00/0000, 00:00:00 PM" : String(typed(field(value) ?? "")[1] ?? "");
    const width = (name, words) => widthOf(name, records.slice(0, 60).map(words), 30);
    const state = (record) => record.deleted ? span("tag warn", "tombstone")
      : record.serverErrorCode ? span("tag bad", text(record.serverErrorCode)) : text(record.recordType ?? "");
    this.grid.setColumns([
      { name: "record", width: width("record", (one) => one.recordName ?? ""), cell: (record) => text(record.recordName) },
      { name: "state", width: 13, cell: state }, { name: "tag", width: 10, cell: (record) => text(record.recordChangeTag ?? "") },
      ...[...names].sort().map((name) => ({
        name, width: width(name, (record) => label(record.fields?.[name])),
        cell: (record) => record.fields?.[name] ? shown(field(record.fields[name])) : dim("–"),
      }))]);
    this.grid.setRows(rowsOf(records));
    this.pick(undefined);
  }

  panel(record) {
    const moment = (name, one) => one?.timestamp && row(text(name), time(one.timestamp), span("kind", text(one.userRecordName ?? "")));
    const fields = Object.entries(record.fields ?? {}).sort().map(([name, value]) =>
      row(text(name), span("kind", text(value.type ?? "")), shown(field(value), undefined, true)));
    return [this.heading(text(record.recordName), text(record.recordType ?? ""), "record"), div("body",
      el("table", { class: "fields" }, moment("created", record.created), moment("modified", record.modified), fields),
      el("details", {}, el("summary", { class: "dim" }, "As JSON"), json(pretty(record))))];
  }
}
/** A line for a terminal that asks the same. */
function curl(path, body) {
  const quote = (string) => "'" + string.replaceAll("'", "'\\''") + "'";
  const url = location.origin + path + (session.needsAPIToken ? "?ckAPIToken=TOKEN" : "");
  return `curl -X POST ${quote(url)} -H 'Content-Type: application/json' -d ${quote(JSON.stringify(body))}`;
}

const bodyBytesKept = 32 << 10;

class Requests extends TableView {
  constructor(node) {
    super(node, "Requests", "One request", { at: (request) => request.number === this.picked?.number });
    this.list = [];
    this.grid.setColumns([
      { name: "no.", width: 8, isNumeric: true, cell: (request) => count(request.number) },
      { name: "time", width: 24, cell: (request) => time(request.milliseconds) },
      { name: "status", width: 12, cell: (request) => this.status(request) },
      { name: "what", width: 46, cell: (request) => this.what(request) },
      { name: "latency", width: 11, isNumeric: true, cell: ({ microseconds: time }) =>
        (time < 10_000 ? (time / 1_000).toFixed(1) : count(Math.round(time / 1_000))) + " ms" },
      { name: "sent", width: 12, isNumeric: true, cell: (request) => bytes(request.sentBytes) },
      { name: "received", width: 12, isNumeric: true, cell: (request) => request.receivedBytes === undefined ? "–" : bytes(request.receivedBytes) },
    ]);
    const only = made("requests");
    this.only = only.only;
    this.only.onchange = () => this.draw();
    put(this.tools, only.node, this.where = span("dim grow where"));
    this.soon = calmly(60, () => this.draw());
    this.found();
  }

  status({ status, isStream, retryAfter }) {
    if (status === undefined) return span("tag bad", "no answer");
    const kind = status >= 500 ? " bad" : status >= 400 ? " warn" : "";
    return [span("tag" + kind, status, isStream && " push"), retryAfter && span("kind", " " + retryAfter + " s")];
  }

  what(request) {
    const [, container, endpoint] = request.path.match(/^\/database\/1\/(.*)\/([^/]*\/[^/]*)$/) ?? [undefined, "", request.path];
    return [dim(request.method + " "), text(endpoint), dim("  ", text(container))];
  }
  /** The list may be another process's: what came before counts no more, and what comes meanwhile does. */
  found() {
    this.list = [];
    into(this.notes, async () => {
      const found = (await get("requests")).reverse(), newest = found[0]?.number ?? 0;
      this.list = [...this.list.filter((one) => one.number > newest), ...found];
      this.draw();
    });
  }

  heard(name, data) {
    if (name !== "request" || this.list[0]?.number >= data.number) return;
    this.list.unshift({ ...data, isNew: true });
    if (this.list.length > 5_000) this.list.length = 5_000;
    this.soon();
  }

  draw() {
    const list = this.only.value === "bad" ? this.list.filter((one) => !(one.status < 400)) : this.list;
    this.grid.setRows(rowsOf(list), true);
    show(this.where, plural(list.length, "request"));
    show(this.notes, list.length ? null : empty("No request yet", "They are shown here as apps send them; this page's own are not among them."));
  }

  panel(request) {
    const body = div("body");
    into(body, () => this.bodies(request.number));
    return [this.heading(text(request.path), undefined, "request"), body];
  }

  async bodies(number) {
    const whole = await get("request", { number });
    const read = (string) => { try { return pretty(parse(string)); } catch { return string; } };
    const body = (string, size) => [string && size > bodyBytesKept && el("p", { class: "note" }, `Only its first ${bytes(bodyBytesKept)} are kept.`),
      string ? json(read(string)) : hint(size && whole.isSecret ? "A token may be in it, so it is not kept." : "nothing")];
    const received = whole.isStream ? "A push, which is not kept" : whole.status === undefined ? "No answer was sent"
      : `Received, ${whole.status}, ${bytes(whole.receivedBytes)}`;
    return [el("h3", {}, `Sent, ${bytes(whole.sentBytes)}`), body(whole.sent, whole.sentBytes),
      el("h3", {}, received), body(whole.received, whole.receivedBytes)];
  }
}

class Faults {
  constructor(node) {
    put(node, this.board = div("board"));
    this.found();
  }

  found() { into(this.board, async () => this.table(await get("faults"))); }
  heard(name, data) { if (name === "faults" && this.rows) this.show(data); }
  /** The table, of which each row has the name of an option of `serve`. */
  table(state) {
    const parts = this.parts = made("faults");
    this.rows = [...parts.node.querySelectorAll("tbody tr")];
    for (const row of this.rows) {
      const { name } = row.dataset, box = row.querySelector("input");
      row.querySelector("button").onclick = () => this.turn(name, box ? box.value || row.dataset.default : true);
      box?.addEventListener("keydown", (event) => { if (event.key === "Enter") this.set({ [name]: box.value }); });
    }
    parts.off.onclick = () => this.set(Object.fromEntries(this.rows.map((row) => [row.dataset.name, undefined])));
    this.show(state);
    return parts.node;
  }
  /** Shows a state in the rows that are there. What is being typed stays. */
  show(state) {
    this.state = state;
    const { on, off, clock, line } = this.parts, rows = this.rows.filter((row) => state[row.dataset.name]);
    for (const row of this.rows) {
      const isOn = rows.includes(row), box = row.querySelector("input"), turn = row.querySelector("button");
      turn.textContent = isOn ? "On" : "Off";
      turn.setAttribute("aria-pressed", String(isOn));
      if (box && box !== document.activeElement) box.value = isOn ? state[row.dataset.name] : "";
    }
    show(clock, state.clock ? ["it said ", time(Date.now() + state.clock * 1_000)] : null);
    show(on, rows.length ? plural(rows.length, "fault") + " on: apps see them now" : "none is on");
    on.className = rows.length ? "warn grow" : "dim grow";
    off.disabled = !rows.length;
    show(line, text(["strandline serve", ...this.words(state), session.path].join(" ")));
  }
  /** The words of `serve` for a state. */
  words(state) {
    return this.rows.map((row) => [row.dataset.name, row.querySelector("input")]).filter(([name]) => state[name] && Number(state[name]) !== 0)
      .flatMap(([name, box]) => box ? ["--" + name, String(state[name])] : ["--" + name]);
  }

  turn(name, value) {
    const changes = { [name]: this.state[name] ? undefined : value };
    // A strict rotation is one of sessions.
    if (name === "strict-rotation" && changes[name]) changes["require-session"] = true;
    if (name === "require-session" && !changes[name]) changes["strict-rotation"] = undefined;
    this.set(changes);
  }
  /** Changes some faults. The others are as they are by now: one may have been used up since it was shown. */
  async set(changes) {
    try { this.show(await post("faults", { w: this.words({ ...await get("faults"), ...changes }) })); } catch (error) {
      toast(error.message);
      this.found();
    }
  }
}
