// The view of sync: the states of the store and its zones, held and unsent records, and the last requests.

import {
  address, button, calmly, change, confirm, count, dim, div, duration, el, failed, hint, into, link, made, named, plainTable, plural, put, renew,
  run, says, session, show, span, text, toast, trouble, words,
} from "./parts.js";

// The page takes a sync as ended after this time without an event of a request. The other is the number of held records on a page.
const quietMilliseconds = 15_000, heldLength = 100;
const obstacles = {
  held: "set aside", target: "waits for its target", referrer: "waits for what refers to it", together: "waits for its companion",
  zone: "its zone is not synced", halted: "the server refuses all like it", null: "is sent with the next sync",
};
const repeated = "The server refuses the same values each time: save others first, in the app or with put";
const requestKinds = "sent,settled,refused,held,pace,tokenAdvanced,conflicted,blocked,zoneChanged";

export class Sync {
  constructor(node, badge) {
    this.badge = badge;
    put(node, this.board = div("board"));
    // The cursors of the pages of held records before the one in sight, by their code.
    this.places = new Map();
    this.again = calmly(500, () => this.read(true));
    this.clock = setInterval(() => this.tick(), 1_000);
    this.read();
  }

  close() { clearInterval(this.clock); }
  found() { this.read(true); }
  heard(name) { if (name === "moment") this.again(); }

  read(isQuiet) {
    if (isQuiet && this.parts && !this.board.querySelector(".failed")) {
      return this.show().catch((error) => { if (error.status) show(this.board, failed(error, () => this.read())); });
    }
    return into(this.board, async () => {
      const parts = this.parts = made("sync");
      const what = () => `The next sync sends ${plural(this.heldCount, "held record")} once more.`;
      parts.retry.onclick = () => this.doIt("Retry all that is held?", what(), "Retry all", false, "held", ["retry"]);
      parts.countAll.onclick = () => this.countAll();
      await this.show();
      return parts.node;
    });
  }
  /** Shows how it is now, in the cards that are there. */
  async show() {
    const turn = this.turn = {}, { parts } = this;
    const asked = [run("status", ["--limit", "0"]), run("pending", ["--limit", "500"]), run("held", ["--count"])];
    const [{ lines: [state] }, { lines: pending }, { lines: causes }] = await Promise.all(asked);
    const pages = await Promise.all(causes.map((cause) => this.heldPage(cause.code)));
    this.heldCount = causes.reduce((sum, one) => sum + one.count, 0);
    this.badge("sync", this.heldCount || "", true);
    // The newest events that tell of requests, of the last ten thousand of the log.
    const from = Math.max(1, state.durableLSN - 10_000);
    const events = (await run("log-dump", ["--from", String(from), "--kind", requestKinds])).lines;
    if (this.turn !== turn) return;
    this.hear(events, state);
    this.state(state);
    renew(parts.zones, this.zones(state.zones));
    parts.retry.parentNode.hidden = !causes.length || session.changeRefusal !== null;
    renew(parts.held, causes.length ? causes.map((cause, at) => this.heldCause(cause, pages[at], causes.length < 4)) : hint("Nothing is set aside."));
    this.pending(pending, state.unsettled);
    renew(parts.requests, this.requests(events));
  }
  /** Notes what the log has of requests since this view was opened, or since the sync began that it tells of now. */
  hear(events, state) {
    const newest = events.at(-1)?.lsn ?? 0, now = Date.now();
    if (this.from === undefined) Object.assign(this, { from: newest, newest, heardAt: 0 });
    if (newest > this.newest) {
      const isOther = now - this.heardAt > quietMilliseconds;
      if (isOther) Object.assign(this, { from: this.newest, owed: this.known?.unsettled ?? state.unsettled });
      Object.assign(this, { newest, heardAt: now });
    }
    Object.assign(this, { known: state, news: events.filter((event) => event.lsn > this.from), isAwaited: events.at(-1)?.kind === "sent" });
  }
  /** The sync that another process runs, as far as its log tells. */
  progress() {
    const { known: state, news, isAwaited } = this, of = (kind) => news.filter((event) => event.kind === kind);
    if (!session.moment?.isWritten) return ["No app has the store open, so no sync runs."];
    const open = "An app has the store open. ";
    if (isAwaited && !news.length) return [open + "Its last request has no answer in the log yet: it waits for one, or was given up."];
    if (!isAwaited && Date.now() - this.heardAt > quietMilliseconds) return [open + "Only the app knows whether it syncs at this moment: "
      + "the log has its requests and their answers, and for a while there was none."];
    const sent = of("sent").reduce((sum, event) => sum + event.detail.mutations, 0), fetched = of("tokenAdvanced").length;
    const answered = news.filter((event) => event.detail.mutation && event.kind !== "sent").length;
    const works = news.at(-1)?.kind === "tokenAdvanced" ? "fetches" : "sends";
    const phase = state.waitMilliseconds ? "waits as the server asked" : isAwaited ? "waits for an answer" : works;
    const parts = [sent && `${plural(sent, "change")} sent, ${count(answered)} answered`,
      fetched && `${plural(fetched, "page")} of changes fetched`, `${plural(state.unsettled, "change")} still unsent`];
    const value = Math.max(0, (this.owed ?? 0) - state.unsettled);
    return [`A sync is under way, and ${phase}: ` + parts.filter(Boolean).join("; "),
      this.owed > 0 && el("progress", { max: this.owed, value, "aria-label": "Sent of what was unsent" })];
  }

  tick() {
    if (this.waitEnd) show(this.parts.wait, duration(this.waitEnd - Date.now()));
    // No event tells that a wait is over.
    if (this.waitEnd < Date.now()) { this.waitEnd = undefined; this.again(); }
    if (!this.news) return;
    const nodes = this.progress();
    // Said once where a screen is read.
    if (nodes[0] !== this.parts.now.textContent) show(this.parts.now, nodes);
  }

  state(state) {
    const { container, environment, scopes } = state.account ?? {}, oldest = state.oldestUnsettledMilliseconds;
    const sent = state.account && state.unsettled === 0, idle = state.account ? "has changes to send" : "never synced";
    const phase = state.damage.length ? span("bad", "damaged") : sent ? span("good", "everything is at the server")
      : state.waitMilliseconds ? span("warn", "waits") : idle;
    const facts = {
      phase, unsettled: count(state.unsettled), oldest: oldest === null ? "–" : duration(oldest), records: count(state.records),
      heldCount: span(this.heldCount && "bad", count(this.heldCount)), deleted: count(state.deleted), newest: count(state.durableLSN),
      blocked: count(state.openBlocks), reason: text(state.waitReason ?? ""),
      account: container ? [text(container), span("kind", " ", text(environment), ", ", scopes.join(" and "))] : "none",
      damage: state.damage.map((one) => trouble(text(`${one.file}, byte ${count(one.offset)}: ${one.message}`), link("#space", "where it is"))),
    };
    for (const [name, value] of Object.entries(facts)) show(this.parts[name], value);
    this.parts.waiting.hidden = state.waitMilliseconds === null;
    this.waitEnd = state.waitMilliseconds ? Date.now() + state.waitMilliseconds : undefined;
    this.tick();
  }

  zones(zones) {
    if (!zones.length) return hint("No zone yet.");
    const state = (zone) => {
      if (zone.lostReason) return span("bad", "lost (", zone.lostReason, "): ", text(zone.lostWords));
      const facts = [zone.listed && plural(zone.listed, "record") + " to fetch", zone.isDirty && "has changes to fetch",
        !zone.hasToken && !zone.listed && "first download with the next sync",
        zone.ghostsPossible && "may hold what the server has deleted"].filter(Boolean);
      return facts.length ? facts.join(", ") : span("good", "in step");
    };
    const verbs = [["Resync from server", "resync-from-server"], ["Resync from here", "resync-from-here"]];
    return plainTable("Zones", ["zone", "#records", "state", ""], zones.map((zone) => [
      link(address("records", { zone: zone.zoneName }), text(zone.zoneName)), count(zone.records), state(zone),
      this.acts([zone.lostReason && ["Resume", "resume"], ...verbs], (title, verb) => this.changeZone(zone, title, verb))]));
  }
  /** Buttons for verbs, each with its name, its class, and what to know before. */
  acts(verbs, act) {
    const offered = session.changeRefusal ? [] : verbs.filter(Boolean);
    return el("td", { class: "acts" }, offered.map(([name, verb, kind, title]) => button(name, () => act(name, verb), { class: kind, title })));
  }

  changeZone(zone, title, verb) {
    const records = plural(zone.records, "record"), begin = "The next sync fetches the zone from its beginning";
    const what = {
      resume: `${begin}: ${records} here. If the server shows the same as before, it is lost again.`,
      "resync-from-server": `${begin}, and removes here those of its ${records} that the server does not have.`,
      "resync-from-here": `${begin}, and uploads again those of its ${records} that the server does not have.`,
    };
    const isDanger = verb === "resync-from-server", args = named([verb, zone.zoneName], []);
    this.doIt(`${title} the zone ${words(zone.zoneName)}?`, what[verb], title, isDanger, "zones", args);
  }

  changeHeld(one, title, verb) {
    const what = {
      release: "The next sync sends the change of this 1 record once more.",
      discard: "The change of this 1 record that the server has not accepted is given up. It shows the server's version again; "
        + "a record that the server never had is gone.",
    };
    const args = named([verb, one.recordName], ["--zone", one.zoneName]);
    this.doIt(`${title} ${words(one.recordName)}?`, what[verb], title, verb === "discard", "held", args);
  }

  async doIt(title, sentence, action, isDanger, verb, args) {
    const end = "Once begun it goes on to its end, also if this page is closed; the terminal of the command says what came of it.";
    if (!await confirm(title, [sentence, end], action, isDanger)) return;
    try {
      await change(verb, args);
      toast("Done. The next sync takes it up.");
    } catch (error) {
      toast(error.message + (error.remedy ? ". Try: " + error.remedy : "")
        + (error.status ? "" : " Whether it was done is shown here when the command is back, and in its terminal."));
    }
    this.read(true);
  }
  /** A page of the held records of a code. Those behind a place may be gone by now. */
  async heldPage(cause) {
    const places = this.places.get(cause) ?? [];
    const after = places.slice(-1).flatMap((cursor) => ["--after", cursor]);
    const { lines } = await run("held", ["--code", cause, "--limit", String(heldLength), ...after]);
    const end = lines.pop();
    if (lines.length || !places.length) return { lines, places, cursor: end?.cursor };
    this.places.delete(cause);
    return this.heldPage(cause);
  }

  heldCause(cause, { lines, places, cursor }, isOpen) {
    const page = places.length + 1, pages = Math.max(page, Math.ceil(cause.count / heldLength));
    const turn = (title, to) => button(title, () => {
      this.places.set(cause.code, to);
      this.read(true);
    }, { "aria-label": `${title} page of ${words(cause.code)}` });
    const tries = (one) => div("kind", "tried ", plural(one.attempts, "time"), one.requestUUID && [", request ", text(one.requestUUID)]);
    const verbs = (one) => one.direction !== "upload" ? []
      : [["Release", "release", "", one.code === "BAD_REQUEST" && repeated], ["Discard", "discard", "danger"]];
    const rows = lines.map((one) => [
      this.record(one), [text(one.reason), tries(one)],
      one.retryMilliseconds === null ? "waits for a person" : "in " + duration(one.retryMilliseconds),
      this.acts(verbs(one), (title, verb) => this.changeHeld(one, title, verb))]);
    return el("details", { "data-key": "held" + page + cause.code, open: isOpen || this.places.has(cause.code) },
      el("summary", {}, span("tag bad", text(cause.code)), " ", plural(cause.count, "record")),
      (page > 1 || cursor) && div("row", dim(`page ${count(page)} of ${count(pages)}`),
        page > 1 && turn("Previous", places.slice(0, -1)), cursor && turn("Next", [...places, cursor])),
      div("list", plainTable("Held: " + words(cause.code), ["record", "the server's words", "next", ""], rows)));
  }

  record(one) { return link(address("records", { in: one.zoneName, name: one.recordName }), text(one.recordName)); }

  pending(pending, total) {
    const groups = Map.groupBy(pending, (one) => String(one.waitsFor)), length = count(pending.length), isCut = total > pending.length;
    this.parts.cut.hidden = !isCut;
    show(this.parts.cutWords, `Below are the oldest ${length} of ${count(total)}.`);
    renew(this.parts.pending, pending.length ? null : hint("Nothing is unsent."),
      [...groups].map(([cause, list]) => el("details", { "data-key": "pending" + cause, open: groups.size < 3 },
        el("summary", {}, obstacles[cause] ?? cause, " ", span("badge", count(list.length) + (isCut ? ` of these ${length}` : ""))),
        div("list", plainTable("Unsent: " + obstacles[cause], ["record", "change", "#age", "#event", ""],
          list.slice(0, 100).map((one) => this.pendingRow(one)))),
        list.length > 100 && hint("and ", plural(list.length - 100, "other")))));
  }

  pendingRow(one) {
    const arrived = { class: "tag warn", title: "A request carried it whose answer is not known" };
    return [this.record(one), one.change, one.ageMilliseconds === null ? "–" : duration(one.ageMilliseconds),
      link(address("log", { at: one.lsn }), count(one.lsn)), [one.mayHaveArrived && el("span", arrived, "may have arrived"),
        one.target && [" ", this.record({ ...one, recordName: one.target })], one.code && [" ", text(one.code)]]];
  }
  /** Counts all that is pending by what it waits for: it looks at each of them, so only when it is asked to. */
  countAll() {
    into(this.parts.counts, async () => {
      const at = this.known.durableLSN, { lines, command } = await run("pending", ["--count"]);
      const rows = lines.map((one) => [obstacles[one.waitsFor], count(one.count)]);
      return [plainTable("All that is unsent", ["of all that is unsent", "#records"], rows),
        hint(`Counted when event ${count(at)} was the newest.`), says(command)];
    }, "Counting …");
  }
  /** What was sent or fetched, and what became of it. */
  requests(events) {
    const isTold = ({ kind, detail }) => ["sent", "tokenAdvanced", "pace"].includes(kind)
      || (kind === "zoneChanged" && !["clean", "dirty"].includes(detail.change));
    const told = events.map((event, at) => ({ event, at })).filter(({ event }) => isTold(event)).slice(-60).reverse();
    const rows = told.map(({ event, at }) => this.request(event, events.slice(at + 1)));
    return rows.length ? plainTable("Requests", ["#event", "what", "of", "how much", "outcome"], rows)
      : hint("The last ten thousand events tell of no request.");
  }

  request({ lsn, kind, detail }, later) {
    const at = link(address("log", { at: lsn }), count(lsn)), zone = text(detail.zone ?? "");
    const wait = detail.milliseconds ? "waits " + duration(detail.milliseconds) : "goes on";
    switch (kind) {
      case "sent": return [at, "upload", zone, plural(detail.mutations, "change"), this.outcome(detail, later)];
      case "tokenAdvanced": return [at, "fetch", zone, "", "up to a new change token"];
      case "pace": return [at, "pace", detail.scope, wait, text(detail.reason ?? "")];
      default: return [at, "zone", zone, detail.change, text(detail.words ?? "")];
    }
  }
  /** What became of the changes of a request. */
  outcome({ lsns, zone }, later) {
    const runs = lsns.split(" ").map((run) => run.split("-").map(Number));
    const isOf = ({ detail }) => detail.mutation && runs.some(([a, b = a]) => detail.mutation >= a && detail.mutation <= b);
    const next = later.findIndex((one) => one.kind === "sent" && one.detail.zone === zone);
    const answers = later.slice(0, next < 0 ? undefined : next).filter((one) => one.kind !== "sent" && isOf(one));
    const kinds = Map.groupBy(answers, (one) => one.kind === "settled" ? one.detail.outcome : one.kind);
    if (!kinds.size) return span("warn", "no answer in the log");
    return [...kinds].map(([kind, list]) => `${count(list.length)} ${kind}`).join(", ");
  }
}
