// The views of a local server: its data as a client asks for it, the requests that it answered, its faults, and its journal.

import {
  Grid, address, button, bytes, calmly, copy, count, dim, el, empty, get, heading, hint, into, isNumber, layOut, openPanel, parse, plainTable,
  plural, post, put, refresh, renew, row, send, session, show, shown, tabs, text, time, toast, trouble, typed, widthOf, words,
} from "./parts.js";
import { LogView } from "./store.js";

export function serverViews() {
  return [
    { name: "data", title: "Data", open: (node, params) => new Data(node, params) },
    { name: "requests", title: "Requests", open: (node) => new Requests(node) },
    { name: "faults", title: "Faults", open: (node) => new Faults(node) },
    { name: "log", title: "Journal", open: (node, params) => new LogView(node, params, "server") },
  ];
}

/** A record of the wire as the table shows it. */
const field = (value) => (value && typeof value === "object" && !("type" in value)
  ? { type: Array.isArray(value.value) ? "STRING_LIST" : isNumber(value.value) ? "INT64" : "STRING", value: value.value } : value);

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
const valueKinds = ["STRING", "INT64", "DOUBLE", "TIMESTAMP", "REFERENCE", "BYTES", "LOCATION"];
const living = (zone) => Object.values(zone.types).reduce((sum, number) => sum + number, 0);

// Data

class Data {
  constructor(node, params) {
    this.side = el("nav", { class: "side", "aria-label": "Databases and zones" });
    this.form = el("div", { class: "tools form" });
    this.results = el("div", { class: "notes" });
    this.grid = new Grid("Records of the answer", { open: (record) => this.pick(record), at: (record) => record === this.picked });
    this.detail = el("section", { class: "detail", "aria-label": "One record", hidden: true });
    const answers = el("div", { class: "middle grow" }, this.form, this.results, this.grid.node);
    this.tabs = tabs({ query: "Query", lookup: "Look-up", changes: "Changes" }, answers, (tab) => { location.hash = this.to({ tab }); });
    this.frame = el("div", { class: "split" }, this.side, el("section", { class: "middle", "aria-label": "Data" }, this.tabs, answers), this.detail);
    put(node, this.frame);
    this.filters = [];
    // It counts all records.
    this.again = calmly(3_000, () => refresh(this.side, async () => this.sideNodes(await get("databases"))).catch(() => {}));
    this.update(params);
  }

  found() { this.update(this.params); }
  heard(name) { if (name === "request") this.again(); }
  escape() { this.pick(undefined); }

  update(params) {
    this.params = params;
    into(this.results, async () => {
      const databases = await get("databases");
      return this.params === params ? this.showDatabases(databases, params) : undefined;
    });
  }

  showDatabases(databases, params) {
    this.database = databases.find((one) => keyOf(one) === params.get("database")) ?? databases.find((one) => one.zones.length) ?? databases[0];
    this.key = this.database && keyOf(this.database);
    this.tabs.hidden = this.grid.node.hidden = !this.database;
    if (!this.database) {
      for (const node of [this.side, this.form]) show(node);
      return empty("No app has written anything yet", "Point one at this server:",
        el("code", {}, text(`strandline sync --url ${location.origin} --container ID STORE`)));
    }
    this.zone = this.database.zones.find((one) => one.zoneName === params.get("zone"))
      ?? this.database.zones.reduce((most, one) => most && living(most) >= living(one) ? most : one, undefined);
    this.tab = params.get("tab") ?? "query";
    renew(this.side, this.sideNodes(databases));
    this.tabs.at(this.tab);
    this.token = params.get("token") ?? "";
    this.showForm();
    if (!this.zone) return empty("No zone is in this database");
    this.ask();
  }

  to(changes) { return address("data", { database: this.key, zone: this.zone?.zoneName, tab: this.tab, ...changes }); }

  sideNodes(databases) {
    return databases.map((one) => {
      const database = keyOf(one);
      return [el("h3", { title: words(one.user) }, text(one.container), el("div", { class: "kind" }, one.scope, ", ", text(one.environment),
          one.user ? [", user ", text(one.user.length > 14 ? one.user.slice(0, 13) + "…" : one.user)] : null)),
        one.zones.map((zone) => el("a", { href: address("data", { database, zone: zone.zoneName, tab: this.tab }),
            "aria-current": database === this.key && zone.zoneName === this.zone?.zoneName ? "true" : undefined,
            title: plural(zone.deleted, "tombstone") },
          el("span", { class: "grow" }, text(zone.zoneName)), dim(count(living(zone))))),
        one.zones.length === 0 && el("p", { class: "loading" }, "no zone")];
    });
  }

  showForm() {
    const named = (title, node) => el("label", { class: "field" }, title, node);
    if (!this.zone) return show(this.form);
    const ask = button("Ask", () => this.ask(), { class: "main" });
    if (this.tab === "lookup") {
      this.names = el("input", { type: "search", placeholder: "names, separated by spaces", size: 40, value: this.params.get("names") ?? "",
          on: { keydown: (event) => { if (event.key === "Enter") this.ask(); } } });
      return show(this.form, named("Records", this.names), ask);
    }
    if (this.tab === "changes") {
      this.since = el("input", { type: "search", value: this.token, size: 40, placeholder: "empty: from the beginning" });
      return show(this.form, named("Since change token", this.since),
        named("At most", this.limit = el("input", { value: "50", size: 4, inputmode: "numeric" })), ask);
    }
    const types = Object.keys(this.zone.types).sort((a, b) => this.zone.types[b] - this.zone.types[a]);
    this.type = el("select", {}, types.map((type) => el("option", { value: type }, words(type))));
    this.type.onchange = () => this.ask();
    this.sort = el("input", { placeholder: "field, or field:desc", size: 14 });
    this.limit = el("input", { value: "100", size: 4, inputmode: "numeric" });
    const condition = (filter) => {
      const comparator = el("select", { "aria-label": "Comparator" },
        session.comparators.map((name) => el("option", { value: name, selected: name === filter.comparator }, name)));
      const kind = el("select", { "aria-label": "Type of the value" },
        ["", ...valueKinds, ...valueKinds.map((name) => name + "_LIST")].map((name) => el("option", { value: name, selected: name === filter.kind }, name || "as it reads")));
      const name = el("input", { value: filter.name, placeholder: "field", "aria-label": "Field", size: 10 });
      const value = el("input", { value: filter.value, placeholder: "value", "aria-label": "Value", size: 16 });
      const distance = el("input", { value: filter.distance, placeholder: "metres", "aria-label": "Distance", size: 8, hidden: filter.comparator !== "NEAR" });
      const node = el("div", { class: "row" }, name, comparator, value, kind, distance,
        button("×", () => { this.filters = this.filters.filter((one) => one !== filter); node.remove(); this.ask(); },
          { class: "quiet", "aria-label": "Remove this condition" }));
      node.addEventListener("change", () => {
        distance.hidden = comparator.value !== "NEAR";
        if (!distance.hidden) kind.value = "LOCATION";
        Object.assign(filter, { name: name.value, comparator: comparator.value, value: value.value, kind: kind.value, distance: distance.value });
        this.ask();
      });
      return node;
    };
    const conditions = el("div", { class: "conditions" }, this.filters.map(condition));
    show(this.form, named("Type", this.type), named("Sorted by", this.sort), named("At most", this.limit), conditions, button("Add a condition", () => {
        const filter = { name: "", comparator: session.comparators[0], value: "", kind: "", distance: "1000" };
        this.filters.push(filter);
        conditions.append(condition(filter));
      }), ask);
  }

  /** The endpoint and the body of the request that the form describes. */
  request() {
    const zoneID = { zoneName: this.zone.zoneName };
    if (this.tab === "lookup") return ["records/lookup", { zoneID, records: this.names.value.split(/\s+/).filter(Boolean).map((recordName) => ({ recordName })) }];
    if (this.tab === "changes") return ["changes/zone",
      { zones: [{ zoneID, ...(this.since.value ? { syncToken: this.since.value } : {}), resultsLimit: Number(this.limit.value) || 50 }] }];
    const query = { recordType: this.type.value };
    // A search for words may be in all fields.
    const filters = this.filters.filter((one) => one.name || one.comparator.endsWith("_TOKENS"));
    if (filters.length) query.filterBy = filters.map((one) => ({ ...(one.name ? { fieldName: one.name } : {}), comparator: one.comparator,
      fieldValue: valueOf(one.value, one.kind), ...(one.comparator === "NEAR" ? { distance: Number(one.distance) || 1_000 } : {}) }));
    const [fieldName, order] = this.sort.value.trim().split(":");
    if (fieldName) query.sortBy = [{ fieldName, ascending: order !== "desc" }];
    return ["records/query", { zoneID, query, resultsLimit: Number(this.limit.value) || 100, ...(this.marker ? { continuationMarker: this.marker } : {}) }];
  }

  ask(marker) {
    this.marker = marker;
    if (!this.zone || (this.tab === "lookup" && !this.names.value.trim()) || (this.tab === "query" && !this.type.value)) {
      this.setRecords([]);
      return show(this.results, empty(this.tab === "lookup" ? "Name a record" : "No record lives in this zone",
          this.tab === "lookup" ? "One with a strange name is found by Query or by Changes." : "Its deletions are among its changes."));
    }
    const [endpoint, body] = this.request();
    into(this.results, async () => {
      const { container, environment, scope, user } = this.database;
      const answer = await send("cloud", { container, environment, scope, user, endpoint }, JSON.stringify(body));
      const page = this.tab === "changes" ? answer.body.zones?.[0] ?? {} : answer.body;
      this.setRecords(page.records ?? []);
      const path = `/database/1/${[container, environment, scope].map(encodeURIComponent).join("/")}/${endpoint}`;
      const json = JSON.stringify(body, null, 2);
      const quote = (string) => "'" + string.replaceAll("'", "'\\''") + "'";
      const url = location.origin + path + (session.needsAPIToken ? "?ckAPIToken=TOKEN" : "");
      const refusal = page.serverErrorCode ?? answer.body.serverErrorCode;
      return [
        refusal && trouble(text(`${answer.status} ${refusal}: ${page.reason ?? answer.body.reason ?? ""}`)),
        el("div", { class: "row" }, dim(plural((page.records ?? []).length, "record")),
          page.continuationMarker && button("Next page", () => this.ask(page.continuationMarker)),
          page.syncToken && this.tab === "changes" && [button(page.moreComing ? "Next page" : "Again from here",
            () => { this.since.value = page.syncToken; this.ask(); }),
            dim(page.moreComing ? "more is coming; token " : "the end; token "),
            el("code", {}, text(page.syncToken.slice(0, 24)), "…")],
          el("span", { class: "grow" }), button("Copy as curl",
            () => copy(`curl -X POST ${quote(url)} -H 'Content-Type: application/json' -d ${quote(JSON.stringify(body))}`))),
        el("details", { open: this.showsJSON, on: { toggle: (event) => { this.showsJSON = event.target.open; } } },
          el("summary", { class: "dim" }, "The request and its answer as JSON"),
          el("pre", { class: "json" }, text("POST " + path + "\n" + json, true)),
          el("pre", { class: "json" }, text(JSON.stringify(answer.body, null, 2).slice(0, 40_000), true))),
      ];
    });
  }

  setRecords(records) {
    const names = new Set(records.slice(0, 200).flatMap((record) => Object.keys(record.fields ?? {})));
    names.delete("strandlineStamp");
    const label = (value) => value?.type === "TIMESTAMP" ? "00/00/0000, 00:00:00 PM" : String(typed(field(value) ?? "")[1] ?? "");
    this.grid.setColumns([
      { name: "record", width: widthOf("record", records.slice(0, 100).map((record) => record.recordName ?? ""), 30), cell: (record) => text(record.recordName) },
      { name: "state", width: 13, cell: (record) => record.deleted ? el("span", { class: "tag warn" }, "tombstone") : record.serverErrorCode ? el("span",
          { class: "tag bad" }, text(record.serverErrorCode)) : text(record.recordType ?? "") },
      { name: "tag", width: 10, cell: (record) => text(record.recordChangeTag ?? "") },
      ...[...names].sort().map((name) => ({ name, width: widthOf(name, records.slice(0, 60).map((record) => label(record.fields?.[name])), 30),
        cell: (record) => record.fields?.[name] ? shown(field(record.fields[name])) : dim("–") })),
    ]);
    this.grid.setRows({ length: records.length, at: (index) => records[index], near: () => {} });
    this.pick(undefined);
  }

  pick(record) {
    this.picked = record;
    openPanel(this, Boolean(record));
    if (!record) return;
    const times = [["created", record.created], ["modified", record.modified]].filter(([, one]) => one?.timestamp);
    show(this.detail, heading(text(record.recordName), text(record.recordType ?? ""), () => this.pick(undefined), "Close the record"),
      el("div", { class: "body" }, el("table", { class: "fields" }, times.map(([name, one]) => row(text(name), time(one.timestamp), el("span", { class: "kind" }, text(one.userRecordName ?? "")))),
        Object.entries(record.fields ?? {}).sort().map(([name, value]) => row(text(name), el("span", { class: "kind" }, text(value.type ?? "")),
          shown(field(value), undefined, true)))),
      el("details", {}, el("summary", { class: "dim" }, "As JSON"), el("pre", { class: "json" }, text(JSON.stringify(record, null, 2), true)))));
  }
}

// Requests

const bodyBytesKept = 32 << 10;

class Requests {
  constructor(node) {
    this.list = [];
    this.grid = new Grid("Requests", { open: (request) => this.pick(request), at: (request) => request.number === this.picked });
    layOut(this, node, "Requests", "One request");
    const status = (request) => request.status === undefined ? el("span", { class: "tag bad" }, "no answer") : el("span",
      { class: "tag" + (request.status >= 500 ? " bad" : request.status >= 400 ? " warn" : "") }, request.status, request.isStream && " push");
    this.grid.setColumns([
      { name: "no.", width: 8, isNumeric: true, cell: (request) => count(request.number) },
      { name: "time", width: 24, cell: (request) => time(request.milliseconds) },
      { name: "status", width: 12, cell: (request) => [status(request), request.retryAfter && el("span", { class: "kind" }, " " + request.retryAfter + " s")] },
      { name: "what", width: 46, cell: (request) => this.what(request) },
      { name: "latency", width: 11, isNumeric: true,
        cell: (request) => request.microseconds < 10_000 ? (request.microseconds / 1_000).toFixed(1) + " ms" : count(Math.round(request.microseconds / 1_000)) + " ms" },
      { name: "sent", width: 12, isNumeric: true, cell: (request) => bytes(request.sentBytes) },
      { name: "received", width: 12, isNumeric: true, cell: (request) => request.receivedBytes === undefined ? "–" : bytes(request.receivedBytes) },
    ]);
    this.only = el("select", { "aria-label": "Which requests", on: { change: () => this.draw() } },
      [["all", "All requests"], ["bad", "Only refused or lost ones"]].map(([value, title]) => el("option", { value }, title)));
    this.where = el("span", { class: "dim grow where" });
    put(this.tools, this.only, this.where, button("Clear", () => { this.list = []; this.draw(); }));
    this.soon = calmly(60, () => this.draw());
    this.found();
  }

  /** The endpoint, then whose it is. */
  what(request) {
    const [, container, endpoint] = request.path.match(/^\/database\/1\/(.*)\/([^/]*\/[^/]*)$/) ?? [undefined, "", request.path];
    return [dim(request.method + " "), text(endpoint), dim("  ", text(container))];
  }

  escape() { this.pick(undefined); }

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
    this.grid.setRows({ length: list.length, at: (index) => list[index], near: () => {} }, true);
    show(this.where, plural(list.length, "request"));
    show(this.notes, list.length ? null : empty("No request yet", "They are shown here as apps send them; this page's own are not among them."));
  }

  async pick(request) {
    this.picked = request?.number;
    openPanel(this, Boolean(request));
    if (!request) return;
    const body = el("div", { class: "body" });
    show(this.detail, heading(text(request.path), undefined, () => this.pick(undefined), "Close the request"), body);
    into(body, async () => {
      const whole = await get("request", { number: request.number });
      const pretty = (string) => { try { return JSON.stringify(parse(string), null, 2); } catch { return string; } };
      const body = (string, size, otherwise) => [size > bodyBytesKept && el("p", { class: "note" }, `Only its first ${bytes(bodyBytesKept)} are kept.`),
        string ? el("pre", { class: "json" }, text(pretty(string), true)) : hint(otherwise)];
      const received = whole.isStream ? "A push, which is not kept" : whole.status === undefined ? "No answer was sent"
        : `Received, ${whole.status}, ${bytes(whole.receivedBytes)}`;
      return [el("h3", {}, `Sent, ${bytes(whole.sentBytes)}`), body(whole.sent, whole.sentBytes, "nothing"),
        el("h3", {}, received), body(whole.received, whole.receivedBytes, "nothing, or a token that is not shown")];
    });
  }
}

// Faults

const faultKinds = [
  { name: "latency", title: "Latency", unit: "ms before each answer", hint: "0", explain: "Every answer is held back." },
  { name: "throttle", title: "503 with Retry-After", unit: "requests:seconds", hint: "3:2", explain: "The next requests are refused, and say how long to wait." },
  { name: "drop-answer", title: "Lost answer", unit: "number of the upload, from now", hint: "1",
    explain: "That upload is applied and durable, and its answer never comes." },
  { name: "expired-tokens", title: "Expired change tokens", explain: "Change tokens given out before are refused." },
  { name: "replay-page", title: "Old page", explain: "After a deletion, the first page of changes comes once more as it was." },
  { name: "quota-exceeded", title: "Quota", explain: "Every request that saves records is refused with QUOTA_EXCEEDED." },
  { name: "clock", title: "Clock", unit: "seconds ahead; behind, if negative", hint: "-3600",
    explain: "The time in answers, and in the records that apps save, is another one. Lower it, and the clock goes back." },
  { name: "require-session", title: "Sign-in", explain: "Requests need a session; each answer brings the next token." },
  { name: "strict-rotation", title: "Strict rotation", explain: "With sign-in: each session token is valid once." },
];

class Faults {
  constructor(node) {
    put(node, this.board = el("div", { class: "board" }));
    this.found();
  }

  found() { into(this.board, async () => this.nodes(await get("faults"))); }
  heard(name, data) { if (name === "faults") refresh(this.board, async () => this.nodes(data)); }

  /** The words of `serve` for a state. */
  words(state) {
    return faultKinds.filter(({ name }) => state[name] && Number(state[name]) !== 0)
      .flatMap(({ name, unit }) => unit ? ["--" + name, String(state[name])] : ["--" + name]);
  }

  /** Changes some faults. The others are as they are by now: one may have been used up since it was drawn. */
  set(changes) {
    const read = async () => this.nodes(await post("faults", { w: this.words({ ...await get("faults"), ...changes }) }));
    refresh(this.board, read).catch((error) => { toast(error.message); this.found(); });
  }

  nodes(state) {
    const isOn = (name) => Boolean(state[name]);
    const on = faultKinds.filter((one) => isOn(one.name)).length;
    const rows = faultKinds.map((one) => {
      const box = one.unit && el("input",
        { value: isOn(one.name) ? state[one.name] : "", placeholder: one.hint, size: 7, "aria-label": one.title + ", " + one.unit });
      const turn = () => {
        const value = isOn(one.name) ? undefined : one.unit ? box.value || (one.hint === "0" ? "500" : one.hint) : true;
        const other = one.name === "strict-rotation" && value ? { "require-session": true } : one.name === "require-session" && !value
          ? { "strict-rotation": undefined } : {};
        this.set({ [one.name]: value, ...other });
      };
      box?.addEventListener("keydown", (event) => { if (event.key === "Enter") this.set({ [one.name]: box.value }); });
      return [button(isOn(one.name) ? "On" : "Off", turn, { "aria-pressed": String(isOn(one.name)), "aria-label": one.title }),
        [el("b", {}, one.title), el("div", { class: "dim" }, one.explain)],
        box ? el("span", { class: "row" }, box, el("span", { class: "kind" }, one.unit,
          one.name === "clock" && isOn("clock") && [": it said ", time(Date.now() + state.clock * 1_000)])) : null];
    });
    return [el("section", { class: "card wide", "aria-label": "Faults" }, el("header", {}, el("h2", {}, "Faults"),
        el("span", { class: on ? "warn grow" : "dim grow" }, on ? plural(on, "fault") + " on: apps see them now" : "none is on"),
        button("All off", () => this.set(Object.fromEntries(faultKinds.map(({ name }) => [name, undefined]))), { disabled: !on })),
      plainTable("Faults", ["", "fault", "how much"], rows), el("div", { class: "says" },
        el("code", {}, text(["strandline serve", ...this.words(state), session.path].join(" ")))))];
  }
}
