// Goal: what follows from a version or a deletion that arrives is decided for each thing that this store may have of the
// record. Method: tables, without a store: a row is what is here, a column what arrives, a cell the steps that follow, in
// words. What single facts change has rows of its own.

import StrandlineSystem
import Testing

@testable import Strandline
@testable import StrandlineSync

/// Three lives of a name: of the base, of another device, and of a creation on this one.
private let births: [Character: Birth] = [
  "a": Birth(time: HybridTime(milliseconds: 1), writer: 9), "b": Birth(time: HybridTime(milliseconds: 2), writer: 2),
  "c": Birth(time: HybridTime(milliseconds: 3), writer: 1),
]
private func lives(_ letters: String) -> Set<Birth> { Set(letters.compactMap { births[$0] }) }
/// The lives by their letters.
private func letters(_ lives: Set<Birth>) -> String {
  lives.isEmpty ? "no life" : String(births.filter { lives.contains($0.value) }.map(\.key).sorted())
}

private let id = RecordID("r")
private let (baseLSN, editLSN): (LSN, LSN) = (LSN(10), LSN(20))

/// What is not sent yet.
private enum Pending: Hashable {
  case none, deletion
  /// Of these lives.
  case edit(String)
}

/// What arrives, beside a base of life a that has seen one mutation of writer 9.
private enum Arriving: String, CaseIterable {
  /// Life a, which has seen the base.
  case newer
  /// Life a, which has seen less than the base.
  case older
  /// Life a, which has not seen the base, and has seen what the base has not.
  case beside
  /// Life b, which was created after a.
  case other
  /// A version of lives a and b.
  case both

  var lives: String { self == .other ? "b" : self == .both ? "ab" : "a" }
}

/// A change that arrives, and all that its decision depends on.
private struct Case {
  var source = ServerChange.Source.delta
  var arriving = Arriving.newer
  /// The lives of the base.
  var base: String?
  var pending = Pending.none
  /// The lives that were deleted.
  var dead = ""
  /// The value that the arrival has given the body, which an edit changes; nil: none.
  var body: FieldValue?
  /// Another title than one of a change.
  var title: FieldValue?
  var type = "Note"
  var rules = TypeRules()
  var included: LSN?
  var acknowledged = LSN.zero
  var answers = ConflictAnswers()
  var lacksAcknowledged = false
  var isWhatFeedShows = false
  var isMovedAway = false
  var sendsAgain = false
  var isStamped = true
  var mayHaveArrived = false
  /// What the arrival has seen, if it is other than that.
  var seen: [WriterID: UInt64]?
  /// What is here of the base cannot be read.
  var isDamaged = false
  /// When the server changed what arrives; the base was created at 100 and changed at 150.
  var modified: Int64?
  var created: Int64?

  private func version(
    _ births: String, _ fields: [String: (FieldValue, time: Int64, writer: WriterID)], seen: [WriterID: UInt64]
  ) -> Version {
    var version = Version(type: "Note", fields: fields.mapValues(\.0))
    version.stamp.births = lives(births)
    version.stamp.fields = fields.mapValues {
      FieldStamp(time: HybridTime(milliseconds: $0.time), writer: $0.writer)
    }
    version.stamp.seen = seen.mapValues { Seen(lsn: LSN($0), tenure: 1, time: HybridTime(milliseconds: Int64($0))) }
    return version
  }

  private func loaded(_ version: Version, dirty: [String: LSN], at lsn: LSN) throws -> LoadedVersion {
    let event = Event.saved(
      Saved(
        id: id, type: version.type, births: version.stamp.births, base: baseLSN, time: HybridTime(milliseconds: 20),
        editCount: 1, tenure: 1, isCreation: false, content: EncodedContent(version, dirty: dirty)))
    return try #require(try LoadedVersion(event, at: lsn))
  }

  private var arrival: Arrival {
    let touch = { ServerTimestamp(milliseconds: $0) }
    let system = SystemFields(
      changeTag: "t2", created: touch(created ?? (arriving == .other ? 160 : 100)),
      modified: touch(modified ?? (arriving == .older ? 140 : 200)))
    var arrival = Arrival(
      ServerRecord(name: id.name, type: type, fields: [:], system: system), ancestor: nil, knownBirths: nil)
    let seen: [WriterID: UInt64] = arriving == .older ? [:] : arriving == .beside ? [2: 5] : [2: 5, 9: 1]
    let isOlder = arriving == .older
    var fields: [String: (FieldValue, Int64, WriterID)] = [
      "title": (title ?? (isOlder ? "older" : "theirs"), isOlder ? 5 : 30, isOlder ? 9 : 2)
    ]
    fields["body"] = body.map { ($0, 30, 2) }
    arrival.version = version(arriving.lives, fields, seen: self.seen ?? seen)
    arrival.version.type = type
    (arrival.isStamped, arrival.unclampedStamps) = (isStamped, [:])
    return arrival
  }

  private var baseVersion: Version? { base.map { version($0, ["title": ("old", 10, 9)], seen: [9: 1]) } }

  private var entry: RecordEntry? {
    let known = base.map { _ in
      Base(version: baseLSN, content: baseLSN, changeTag: "t1", createdMilliseconds: 100, modifiedMilliseconds: 150)
    }
    let owed: Strandline.Pending? =
      switch pending {
      case .none: nil
      case .deletion: Strandline.Pending(isDeletion: true, newest: editLSN)
      case .edit: Strandline.Pending(isDeletion: false, newest: editLSN)
      }
    return known == nil && owed == nil ? nil : RecordEntry(type: "Note", base: known, pending: owed)
  }

  private func edit(beside arrived: Set<Birth>?) throws -> PendingEdit? {
    guard case .edit(let births) = pending else { return nil }
    // An edit of what is here has the base's title and another body; a creation has both fields.
    let isCreation = base == nil || births == "c"
    let title: (FieldValue, Int64, WriterID) = isCreation ? ("ours", 20, 1) : ("old", 10, 9)
    let edited = version(
      births, ["title": title, "body": ("ours", 20, 1)], seen: isCreation ? [1: 20] : [9: 1, 1: 20])
    let dirty = isCreation ? ["title": editLSN, "body": editLSN] : ["body": editLSN]
    var edit = PendingEdit(lsn: editLSN, loaded: try loaded(edited, dirty: dirty, at: editLSN))
    if let known = baseVersion, let arrived, !known.stamp.births.isDisjoint(with: arrived) {
      edit.ancestor = (baseLSN, known)
    }
    return edit
  }

  /// What follows from a version.
  func decideVersion() throws -> IntakeDecision {
    let arrival = arrival
    let deadLives = lives(dead)
    return VersionSituation(
      id: id, source: source, arrival: arrival, entry: entry,
      base: isDamaged ? nil : try baseVersion.map { try loaded($0, dirty: [:], at: baseLSN) },
      isDead: arrival.version.stamp.births.isSubset(of: deadLives), deadLives: deadLives,
      wasDeleted: base == nil && !dead.isEmpty, included: included, includedVersion: nil,
      isMovedAway: isMovedAway, acknowledged: acknowledged,
      edit: try edit(beside: arrival.version.stamp.births), rules: rules, editRule: rules.deletion, writer: 1,
      answers: answers, lacksAcknowledged: lacksAcknowledged, isWhatFeedShows: isWhatFeedShows,
      sendsAgain: sendsAgain, mayHaveArrived: mayHaveArrived, mayBeOfCopy: false, namesCopy: false
    ).decide()
  }

  /// All that a deletion depends on.
  func deletion(isDoubtful: Bool = false, attempted: Bool = false, isProvisional: Bool = false) throws
    -> DeletionSituation
  {
    var known: DeletionEntry?
    if !dead.isEmpty {
      known = DeletionEntry(
        births: lives(dead), createdMilliseconds: nil, changeTag: nil, lsn: LSN(9),
        provisional: isProvisional ? lives(dead) : nil, isLocal: isProvisional)
    }
    var situation = DeletionSituation(
      id: id, source: source, entry: entry, births: baseVersion?.stamp.births ?? [], known: known,
      isDoubtful: isDoubtful)
    situation.edit = try edit(beside: nil)
    situation.rule = rules.deletion
    if attempted {
      situation.attempted = editLSN
      situation.birthsThere = situation.edit?.version.stamp.births ?? []
    }
    return situation
  }

  func unseen(_ unseen: ServerChange.Unseen) throws -> IntakeDecision {
    var again: LoadedVersion?
    if unseen == .createdAgain, pending == .none {
      again = try baseVersion.map { try loaded($0, dirty: [:], at: baseLSN) }
    }
    return try deletion().decide(unseen, again: again)
  }
}

// MARK: Words

extension IntakeDecision {
  /// What follows, in the order in which it is appended, and what is counted.
  fileprivate var words: String {
    if question != nil { return steps.isEmpty ? "ask" : "ask, and more" }
    var counted: [String] = []
    for (name, count) in [
      ("fetched", counts.fetchedSaves), ("removed", counts.fetchedDeletes), ("merged", counts.merged),
      ("blocked", counts.blocked), ("recognized", counts.recognized),
    ] where count > 0 { counted.append(count == 1 ? name : "\(count) \(name)") }
    let told = steps.isEmpty ? "nothing" : steps.map(\.words).joined(separator: ", ")
    return counted.isEmpty ? told : "\(told); \(counted.joined(separator: " "))"
  }
}

extension IntakeDecision.Step {
  private func list(_ names: some Sequence<String>) -> String { names.sorted().joined(separator: " ") }

  fileprivate var words: String {
    switch self {
    case .store: return "store"
    case .endLives(let births, let reason): return "end \(letters(births))\(reason == .feed ? "" : " by \(reason)")"
    case .settle(let lsn, let outcome): return "settle \(lsn) \(outcome)"
    case .deleteAgain(let births): return "delete \(letters(births))"
    case .refuse(let lsn, let code, _): return "refuse \(lsn) \(code)"
    case .giveUp(let lsn, _): return "give up \(lsn)"
    case .tell(_, let ancestor, let fields, let rule, _):
      let told = fields.map { "\($0.name) \($0.rule) lost \($0.loser)" }
      return "tell \(rule) from \(ancestor): \(told.isEmpty ? "no field" : told.joined(separator: " and "))"
    case .merge(let version, let dirty, let edit, let rule, _):
      return "merge \(edit.lsn) by \(rule) of \(letters(version.stamp.births)) {\(list(dirty))}"
    case .revive(let edit, _): return "revive \(edit.lsn) of \(letters(edit.version.stamp.births))"
    case .create(let loaded): return "create of \(letters(loaded.version.stamp.births))"
    case .restore(_, let dirty): return "restore {\(list(dirty))}"
    case .block(let block):
      let what = block.subject == .version ? "" : "\(block.subject) "
      return block.consequence == .lookup ? "look \(what)up" : "block \(what)\(block.consequence)"
    case .closeBlock: return "close"
    case .loseZone: return "lose zone"
    }
  }
}

// MARK: Versions

/// What is here: the lives of the base, what is not sent, and the lives that were deleted.
private struct Here: Hashable {
  var base: String?
  var pending: Pending
  var dead: String

  init(_ base: String?, _ pending: Pending, dead: String = "") {
    (self.base, self.pending, self.dead) = (base, pending, dead)
  }

  func meets(_ arriving: Arriving, _ source: ServerChange.Source, _ rule: DeletionRule = .deletionWins) -> Case {
    var one = Case(source: source, arriving: arriving, base: base, pending: pending, dead: dead)
    one.rules.deletion = rule
    return one
  }
}

/// What follows from a version that a page shows, and from the same one as the answer to a lookup.
private struct Cell {
  var page: String
  var lookup: String
  /// The same where edits win over deletions.
  var reviving: (page: String, lookup: String)

  init(page: String, lookup: String, reviving: (page: String, lookup: String)? = nil) {
    (self.page, self.lookup, self.reviving) = (page, lookup, reviving ?? (page, lookup))
  }
  init(_ either: String, reviving: String? = nil) {
    self.init(page: either, lookup: either, reviving: reviving.map { ($0, $0) })
  }
}

/// What is asked of the server before anything else.
private let asks = "look up; blocked"

/// A row: what is here, and a cell for each version that may arrive.
private struct Row {
  var here: Here
  var cells: [Arriving: Cell]

  init(_ here: Here, _ cells: [Arriving: Cell]) { (self.here, self.cells) = (here, cells) }
}

/// What follows from each version that meets each thing that may be here. The lines of the table at `VersionSituation.decide()`
/// are all in it, and what becomes of one where another one applies, too.
private let versions: [Row] = [
  Row(
    Here(nil, .none),
    [
      .newer: Cell("store; fetched"),
      .older: Cell("store; fetched"),
      .beside: Cell("store; fetched"),
      .other: Cell("store; fetched"),
      .both: Cell("store; fetched"),
    ]),
  Row(
    Here(nil, .none, dead: "a"),
    [
      .newer: Cell(page: asks, lookup: "block deleteAgain, store, delete a; blocked"),
      .older: Cell(page: asks, lookup: "block deleteAgain, store, delete a; blocked"),
      .beside: Cell(page: asks, lookup: "block deleteAgain, store, delete a; blocked"),
      .other: Cell(page: asks, lookup: "store; fetched"),
      .both: Cell(page: asks, lookup: "store; fetched"),
    ]),
  Row(
    Here(nil, .deletion),
    [
      .newer: Cell("store, settle 20 superseded"),
      .older: Cell("store, settle 20 superseded"),
      .beside: Cell("store, settle 20 superseded"),
      .other: Cell("store, settle 20 superseded"),
      .both: Cell("store, settle 20 superseded"),
    ]),
  Row(
    Here(nil, .deletion, dead: "c"),
    [
      .newer: Cell(page: asks, lookup: "store, settle 20 superseded"),
      .older: Cell(page: asks, lookup: "store, settle 20 superseded"),
      .beside: Cell(page: asks, lookup: "store, settle 20 superseded"),
      .other: Cell(page: asks, lookup: "store, settle 20 superseded"),
      .both: Cell(page: asks, lookup: "store, settle 20 superseded"),
    ]),
  Row(
    Here(nil, .edit("c")),
    [
      .newer: Cell("store, tell join from 0: title join lost here, merge 20 by join of ac {body}; merged"),
      .older: Cell("store, tell join from 0: title join lost there, merge 20 by join of ac {body title}; merged"),
      .beside: Cell("store, tell join from 0: title join lost here, merge 20 by join of ac {body}; merged"),
      .other: Cell("store, tell join from 0: title join lost here, merge 20 by join of bc {body}; merged"),
      .both: Cell("store, tell join from 0: title join lost here, merge 20 by join of abc {body}; merged"),
    ]),
  Row(
    Here(nil, .edit("c"), dead: "a"),
    [
      .newer: Cell(page: asks, lookup: "store, merge 20 by replace of c {body title}"),
      .older: Cell(page: asks, lookup: "store, merge 20 by replace of c {body title}"),
      .beside: Cell(page: asks, lookup: "store, merge 20 by replace of c {body title}"),
      .other: Cell(
        page: asks, lookup: "store, tell join from 0: title join lost here, merge 20 by join of bc {body}; merged"),
      .both: Cell(
        page: asks, lookup: "store, tell join from 0: title join lost here, merge 20 by join of bc {body}; merged"),
    ]),
  Row(
    Here("a", .none),
    [
      .newer: Cell("store; fetched"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell("store; fetched"),
      .other: Cell(page: asks, lookup: "end a, store; fetched removed"),
      .both: Cell("store; fetched"),
    ]),
  Row(
    Here("a", .none, dead: "b"),
    [
      .newer: Cell("store; fetched"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell("store; fetched"),
      .other: Cell(page: asks, lookup: "end a, block deleteAgain, store, delete b; removed blocked"),
      .both: Cell("store; fetched"),
    ]),
  Row(
    Here("a", .deletion, dead: "a"),
    [
      .newer: Cell(
        "store, tell deletion from 10: title deletion lost there, delete a",
        reviving: "store, tell revive from 10: no field, give up 20"),
      .older: Cell(
        page: asks, lookup: "store, tell deletion from 10: title deletion lost there, delete a",
        reviving: (asks, "store, tell revive from 10: no field, give up 20")),
      .beside: Cell(
        "store, tell deletion from 10: title deletion lost there, delete a",
        reviving: "store, tell revive from 10: no field, give up 20"),
      .other: Cell(page: asks, lookup: "store, settle 20 superseded"),
      .both: Cell("store, settle 20 superseded"),
    ]),
  Row(
    Here("a", .deletion, dead: "ab"),
    [
      .newer: Cell(
        "store, tell deletion from 10: title deletion lost there, delete ab",
        reviving: "store, tell revive from 10: no field, give up 20"),
      .older: Cell(
        page: asks, lookup: "store, tell deletion from 10: title deletion lost there, delete ab",
        reviving: (asks, "store, tell revive from 10: no field, give up 20")),
      .beside: Cell(
        "store, tell deletion from 10: title deletion lost there, delete ab",
        reviving: "store, tell revive from 10: no field, give up 20"),
      .other: Cell(
        page: asks, lookup: "store, tell deletion from 10: title deletion lost there, delete ab",
        reviving: (asks, "store, tell revive from 10: no field, give up 20")),
      .both: Cell(
        "store, tell deletion from 10: title deletion lost there, delete ab",
        reviving: "store, tell revive from 10: no field, give up 20"),
    ]),
  Row(
    Here("a", .edit("a")),
    [
      .newer: Cell("store, merge 20 by join of a {body}; merged"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell("store, merge 20 by join of a {body}; merged"),
      .other: Cell(
        page: asks,
        lookup:
          "end a, tell deletion from 0: body deletion lost here, settle 20 deletedOnServer, store; removed blocked",
        reviving: (asks, "end a, store, merge 20 by join of b {body}; removed merged")),
      .both: Cell("store, merge 20 by join of ab {body}; merged"),
    ]),
  Row(
    Here("a", .edit("a"), dead: "b"),
    [
      .newer: Cell("store, merge 20 by join of a {body}; merged"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell("store, merge 20 by join of a {body}; merged"),
      .other: Cell(
        page: asks,
        lookup:
          "end a, tell deletion from 0: body deletion lost here, settle 20 deletedOnServer, block deleteAgain, store, delete b; removed blocked",
        reviving: (asks, "end a, store, revive 20 of a; removed merged")),
      .both: Cell("store, merge 20 by join of a {body}; merged"),
    ]),
  Row(
    Here("a", .edit("c"), dead: "a"),
    [
      .newer: Cell(page: asks, lookup: "store, merge 20 by replace of c {body title}"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell(page: asks, lookup: "store, merge 20 by replace of c {body title}"),
      .other: Cell(
        page: asks,
        lookup: "end a, store, tell join from 0: title join lost here, merge 20 by join of bc {body}; removed merged"),
      .both: Cell("store, tell join from 10: title join lost here, merge 20 by join of bc {body}; merged"),
    ]),
  Row(
    Here("a", .edit("ab")),
    [
      .newer: Cell("store, merge 20 by join of ab {body}; merged"),
      .older: Cell(page: asks, lookup: "nothing"),
      .beside: Cell("store, merge 20 by join of ab {body}; merged"),
      .other: Cell(page: asks, lookup: "end a, store, merge 20 by join of b {body}; removed merged"),
      .both: Cell("store, merge 20 by join of ab {body}; merged"),
    ]),
]

@Suite(.timeLimit(.minutes(30))) struct `What follows from a version` {
  @Test func `is what the table says of each thing that may be here`() throws {
    for row in versions {
      let (here, cells) = (row.here, row.cells)
      try #require(Set(cells.keys) == Set(Arriving.allCases), "\(here)")
      for (arriving, cell) in cells {
        func found(_ source: ServerChange.Source, _ rule: DeletionRule) throws -> String {
          try here.meets(arriving, source, rule).decideVersion().words
        }
        // Every page decides alike, also one from the beginning and that of a query.
        for source in [ServerChange.Source.delta, .fullFetch, .query] {
          #expect(try found(source, .deletionWins) == cell.page, "\(here) meets \(arriving) in a page")
          #expect(try found(source, .editRevives) == cell.reviving.page, "\(here) meets \(arriving), edits revive")
        }
        #expect(try found(.lookup, .deletionWins) == cell.lookup, "\(here) meets \(arriving) in a lookup")
        #expect(try found(.lookup, .editRevives) == cell.reviving.lookup, "\(here) looks up \(arriving), edits revive")
      }
    }
  }

  /// What one fact changes: the case, and what follows.
  private static let facts: [(fact: String, here: Here, expected: String, change: @Sendable (inout Case) -> Void)] = [
    // Versions that have seen less.
    (
      "the server once acknowledged more", Here("a", .none), "block none, lose zone; blocked",
      { ($0.source, $0.arriving, $0.lacksAcknowledged) = (.lookup, .older, true) }
    ),
    (
      "the same, of a page", Here("a", .none), asks,
      { ($0.arriving, $0.lacksAcknowledged) = (.older, true) }
    ),
    (
      "a person lets this side count, and nothing is owed", Here("a", .none), "store, restore {title}; fetched",
      { ($0.source, $0.arriving, $0.sendsAgain) = (.lookup, .older, true) }
    ),
    (
      "the same, with an edit", Here("a", .edit("a")), "store, merge 20 by replace of a {body title}; fetched",
      { ($0.source, $0.arriving, $0.sendsAgain) = (.lookup, .older, true) }
    ),
    (
      "the same, with a deletion", Here("a", .deletion), "store, delete a; fetched",
      { ($0.source, $0.arriving, $0.sendsAgain) = (.lookup, .older, true) }
    ),
    (
      "the same, of a page, which may be an old one", Here("a", .edit("a")), asks,
      { ($0.arriving, $0.sendsAgain) = (.older, true) }
    ),
    (
      "a person lets this side count, and a lookup shows one that was created before the base", Here("a", .none),
      "store, restore {title}; fetched", { ($0.source, $0.created, $0.sendsAgain) = (.lookup, 50, true) }
    ),
    (
      "a page shows one that was created before the base", Here("a", .none), asks,
      { $0.created = 50 }
    ),
    (
      "a lookup shows one that was created before the base", Here("a", .none), "store; fetched",
      { ($0.source, $0.created) = (.lookup, 50) }
    ),
    (
      "a lookup shows less, of one that was created since", Here("a", .none), "store; fetched",
      { ($0.source, $0.arriving, $0.created, $0.modified) = (.lookup, .older, 160, 200) }
    ),
    (
      "a page shows one beside the base that was changed before it", Here("a", .none), asks,
      { ($0.arriving, $0.modified) = (.beside, 140) }
    ),
    (
      "a lookup shows it, and the feed did not", Here("a", .none), "nothing",
      { ($0.source, $0.arriving, $0.modified) = (.lookup, .beside, 140) }
    ),
    (
      "a lookup shows it as the feed did", Here("a", .none), "store; fetched",
      { ($0.source, $0.arriving, $0.modified, $0.isWhatFeedShows) = (.lookup, .beside, 140, true) }
    ),
    (
      "a lookup shows one that has seen the base, and was changed before it", Here("a", .none), "store; fetched",
      { ($0.source, $0.modified) = (.lookup, 140) }
    ),
    (
      "a lookup shows another life that was changed before the base", Here("a", .none), "nothing",
      { ($0.source, $0.arriving, $0.modified) = (.lookup, .other, 140) }
    ),
    (
      "the same, and a person lets this side count", Here("a", .none), "store, restore {title}; fetched",
      { ($0.source, $0.arriving, $0.modified, $0.sendsAgain) = (.lookup, .other, 140, true) }
    ),
    (
      "the same, of a dead life, as the feed shows it", Here("a", .none, dead: "b"), "nothing",
      { ($0.source, $0.arriving, $0.modified, $0.isWhatFeedShows) = (.lookup, .other, 140, true) }
    ),
    (
      "a page shows an older one, and what is here is damaged", Here("a", .none), asks,
      { ($0.isDamaged, $0.modified) = (true, 140) }
    ),
    (
      "a lookup shows that", Here("a", .none), "nothing",
      { ($0.source, $0.isDamaged, $0.modified) = (.lookup, true, 140) }
    ),
    (
      "a page shows a later one, and what is here is damaged", Here("a", .none), "store; fetched",
      { $0.isDamaged = true }
    ),
    (
      "it has no stamp of its own: by what it has seen it is neither newer nor older", Here("a", .none),
      "store; fetched", { ($0.arriving, $0.isStamped, $0.modified) = (.older, false, 200) }
    ),
    (
      "the same, changed before the base", Here("a", .none), asks,
      { ($0.arriving, $0.isStamped) = (.older, false) }
    ),
    // Lives.
    (
      "a dead life that was created before the base has taken its place", Here("a", .none, dead: "b"),
      "end a, store; fetched removed", { ($0.source, $0.arriving, $0.created) = (.lookup, .other, 50) }
    ),
    (
      "it has a life of the base, and both are dead", Here("a", .none, dead: "ab"), "store; fetched",
      { ($0.source, $0.arriving) = (.lookup, .both) }
    ),
    (
      "it is as the deleted record was", Here("a", .deletion, dead: "a"), "store, delete a",
      { $0.title = "old" }
    ),
    (
      "another device has moved it out of what was deleted", Here("a", .deletion, dead: "a"),
      "store, tell revive from 10: no field, give up 20", { $0.isMovedAway = true }
    ),
    (
      "it is that, and edits revive", Here("a", .deletion, dead: "a"), "store, delete a",
      { ($0.title, $0.rules.deletion) = ("old", .editRevives) }
    ),
    (
      "the life of the base has ended, which it does not know, and the edit has another one", Here("a", .edit("ab")),
      "end a, store, merge 20 by join of b {body}; removed merged",
      { ($0.source, $0.arriving, $0.seen) = (.lookup, .other, [2: 5]) }
    ),
    (
      "it has seen the base, and has gone on without one of its lives", Here("ab", .edit("ab")),
      "store, merge 20 by join of a {body}; merged", { _ in }
    ),
    (
      "its life was deleted, and the edit goes on with it", Here("a", .edit("a"), dead: "a"),
      "store, merge 20 by join of a {body}; merged", { _ in }
    ),
    // What it contains.
    (
      "it contains the edit", Here("a", .edit("a")), "store, settle 20 saved; recognized",
      { $0.included = editLSN }
    ),
    (
      "it contains the edit that began a life, of another device's life", Here("a", .edit("c")),
      "store, settle 20 saved; recognized", { ($0.arriving, $0.included) = (.other, editLSN) }
    ),
    (
      "it contains an earlier mutation of the edit", Here("a", .edit("a")),
      "store, settle 15 saved, merge 20 by join of a {body}; merged recognized",
      { ($0.included, $0.acknowledged) = (LSN(15), LSN(15)) }
    ),
    (
      "all that the edit has changed was acknowledged", Here("a", .edit("a")),
      "store, settle 20 merged", { ($0.acknowledged, $0.body) = (editLSN, "ours") }
    ),
    // Types.
    ("it is of another type", Here("a", .none), "store; fetched", { $0.type = "Task" }),
    (
      "it is of another type than the edit", Here("a", .edit("a")),
      "refuse 20 typeMismatch, store, tell type from 10: body type lost here; blocked", { $0.type = "Task" }
    ),
    (
      "it is of another type than the edit, which it contains", Here("a", .edit("a")),
      "store, settle 20 saved; recognized", { ($0.type, $0.included) = ("Task", editLSN) }
    ),
    (
      "it is of another type than the edit, whose life takes its place", Here("a", .edit("c"), dead: "a"),
      "store, merge 20 by replace of c {body title}", { ($0.source, $0.type) = (.lookup, "Task") }
    ),
    // Rules.
    (
      "both have changed the body", Here("a", .edit("a")),
      "store, tell join from 10: body join lost here, settle 20 lost; merged", { $0.body = "theirs" }
    ),
    (
      "both have changed it to the same", Here("a", .edit("a")), "store, settle 20 merged",
      { $0.body = "ours" }
    ),
    (
      "the client wins", Here("a", .edit("a")),
      "store, tell clientWins from 10: body clientWins lost there, merge 20 by clientWins of a {body}; merged",
      { ($0.body, $0.rules.record) = ("theirs", .clientWins) }
    ),
    (
      "the server wins", Here("a", .edit("a")),
      "store, tell serverWins from 10: body serverWins lost here, give up 20; merged",
      { ($0.body, $0.rules.record) = ("theirs", .serverWins) }
    ),
    (
      "the server wins, though the edit has changed something else", Here("a", .edit("a")),
      "store, tell serverWins from 10: body serverWins lost here, give up 20; merged",
      { $0.rules.record = .serverWins }
    ),
    (
      "a rule of the field", Here("a", .edit("a")),
      "store, tell join from 10: body clientWins lost there, merge 20 by join of a {body}; merged",
      { ($0.body, $0.rules.fields) = ("theirs", ["body": .clientWins]) }
    ),
    (
      "a resolver is to be asked", Here("a", .edit("a")), "ask",
      { $0.rules.record = .resolver { $0.local } }
    ),
    (
      "it was asked too often", Here("a", .edit("a")),
      "store, tell join from 10: body join lost here, settle 20 lost; merged",
      { ($0.body, $0.rules.record, $0.answers.mayAsk) = ("theirs", .resolver { $0.local }, false) }
    ),
    (
      "a resolver is not asked about an edit that the server has", Here("a", .edit("a")),
      "store, settle 20 saved; recognized",
      { ($0.rules.record, $0.included) = (.resolver { $0.local }, editLSN) }
    ),
    (
      "the server has the edit's own write, which has lost its stamp", Here("a", .edit("a")),
      "store, settle 20 merged; merged", { ($0.body, $0.isStamped, $0.mayHaveArrived) = ("ours", false, true) }
    ),
  ]

  @Test func `is another where one fact is another`() throws {
    for row in Self.facts {
      var one = row.here.meets(.newer, .delta)
      row.change(&one)
      let found = try one.decideVersion().words
      #expect(found == row.expected, "\(row.fact): \(row.here)")
    }
  }

  @Test func `is what a resolver has answered, to this question alone`() throws {
    var one = Here("a", .edit("a")).meets(.newer, .delta)
    (one.body, one.rules.record) = ("theirs", .resolver { $0.local })
    let question = try #require(try one.decideVersion().question)
    #expect(question.conflict.local["body"] == "ours" && question.conflict.server["body"] == "theirs")
    #expect(question.conflict.ancestor?["title"] == "old" && question.conflict.ancestor?["body"] == nil)
    var record = question.conflict.server
    record["body"] = "between"
    one.answers.known[question.key] = .success(record)
    let both = "tell resolver from 10: body resolver lost both, merge 20 by resolver of a {body}"
    #expect(try one.decideVersion().words == "store, \(both); merged")
    one.answers.known[question.key] = .failure(ConflictRefusal(words: "it cannot"))
    let joined = "tell join from 10: body join lost here, settle 20 lost"
    #expect(try one.decideVersion().words == "store, \(joined); merged")
    // The server's version is another one by now.
    one.modified = 210
    #expect(try one.decideVersion().words == "ask")
  }
}

// MARK: Deletions

/// What follows from a deletion: what a page shows, the same if a request may have carried what is not sent before, and
/// of a record that a full fetch did not show: it is removed unless it was edited, removed, created again.
private struct Deletion {
  var here: Here
  var rule: DeletionRule
  var shown: String
  var afterAttempt: String
  var unseen: (unlessEdited: String, removed: String, createdAgain: String)

  init(
    _ here: Here, _ rule: DeletionRule, shown: String, afterAttempt: String? = nil,
    unseen: (String, String, String) = ("nothing", "nothing", "nothing")
  ) {
    (self.here, self.rule, self.shown, self.unseen) = (here, rule, shown, unseen)
    self.afterAttempt = afterAttempt ?? shown
  }
}

private let deletions: [Deletion] = [
  Deletion(Here(nil, .none), .deletionWins, shown: "end no life"),
  Deletion(Here(nil, .none, dead: "a"), .deletionWins, shown: "close"),
  Deletion(Here(nil, .deletion), .deletionWins, shown: "nothing", afterAttempt: "end no life, settle 20 deleted"),
  Deletion(
    Here(nil, .deletion, dead: "c"), .deletionWins, shown: "nothing", afterAttempt: "end no life, settle 20 deleted"),
  Deletion(
    Here(nil, .edit("c")), .deletionWins, shown: "end no life",
    afterAttempt: "end c, tell deletion of both, settle 20 deletedOnServer; removed blocked"),
  Deletion(
    Here(nil, .edit("c")), .editRevives, shown: "end no life", afterAttempt: "end c, revive 20 of c; removed merged"),
  Deletion(
    Here(nil, .edit("c"), dead: "a"), .deletionWins, shown: "nothing",
    afterAttempt: "end c, tell deletion of both, settle 20 deletedOnServer; removed blocked"),
  Deletion(
    Here(nil, .edit("c"), dead: "a"), .editRevives, shown: "nothing",
    afterAttempt: "end c, revive 20 of c; removed merged"),
  Deletion(
    Here("a", .none), .deletionWins, shown: "end a; removed",
    unseen: ("end no life by sweep; removed", "end no life by sweep; removed", "end no life by sweep, create of a")),
  Deletion(
    Here("a", .none, dead: "b"), .deletionWins, shown: "end a; removed",
    unseen: ("end no life by sweep; removed", "end no life by sweep; removed", "end no life by sweep, create of a")),
  Deletion(Here("a", .deletion, dead: "a"), .deletionWins, shown: "end a, settle 20 deleted"),
  Deletion(Here("a", .deletion, dead: "ab"), .deletionWins, shown: "end a, settle 20 deleted"),
  Deletion(
    Here("a", .edit("a")), .deletionWins,
    shown: "end a, tell deletion of body, settle 20 deletedOnServer; removed blocked",
    unseen: (
      "nothing", "end a, tell deletion of body, settle 20 deletedOnServer; removed blocked",
      "end no life by sweep, revive 20 of a"
    )),
  Deletion(
    Here("a", .edit("a")), .editRevives, shown: "end a, revive 20 of a; removed merged",
    unseen: ("nothing", "end a, revive 20 of a; removed merged", "end no life by sweep, revive 20 of a")),
  Deletion(
    Here("a", .edit("a"), dead: "b"), .deletionWins,
    shown: "end a, tell deletion of body, settle 20 deletedOnServer; removed blocked",
    unseen: (
      "nothing", "end a, tell deletion of body, settle 20 deletedOnServer; removed blocked",
      "end no life by sweep, revive 20 of a"
    )),
  Deletion(
    Here("a", .edit("a"), dead: "b"), .editRevives, shown: "end a, revive 20 of a; removed merged",
    unseen: ("nothing", "end a, revive 20 of a; removed merged", "end no life by sweep, revive 20 of a")),
  Deletion(
    Here("a", .edit("c"), dead: "a"), .deletionWins, shown: "end a",
    afterAttempt: "end ac, tell deletion of both, settle 20 deletedOnServer; removed blocked",
    unseen: ("nothing", "end a", "end no life by sweep")),
  Deletion(
    Here("a", .edit("c"), dead: "a"), .editRevives, shown: "end a",
    afterAttempt: "end ac, revive 20 of c; removed merged", unseen: ("nothing", "end a", "end no life by sweep")),
  Deletion(
    Here("a", .edit("ab")), .deletionWins, shown: "end a",
    afterAttempt: "end ab, tell deletion of body, settle 20 deletedOnServer; removed blocked",
    unseen: ("nothing", "end a", "end no life by sweep")),
  Deletion(
    Here("a", .edit("ab")), .editRevives, shown: "end a", afterAttempt: "end ab, revive 20 of ab; removed merged",
    unseen: ("nothing", "end a", "end no life by sweep")),
]

@Suite(.timeLimit(.minutes(30))) struct `What follows from a deletion` {
  private func words(_ decision: IntakeDecision) -> String {
    decision.words
      .replacing(
        "tell deletion from 0: body deletion lost here and title deletion lost here", with: "tell deletion of both"
      )
      .replacing("tell deletion from 0: body deletion lost here", with: "tell deletion of body")
  }

  @Test func `is what the table says of each thing that may be here`() throws {
    for row in deletions {
      let one = row.here.meets(.newer, .delta, row.rule)
      let name = "\(row.here), \(row.rule)"
      #expect(words(try one.deletion().decide()) == row.shown, "\(name)")
      #expect(words(try one.deletion(attempted: true).decide()) == row.afterAttempt, "\(name), after an attempt")
      #expect(words(try one.unseen(.removedUnlessEdited)) == row.unseen.unlessEdited, "\(name), not shown")
      #expect(words(try one.unseen(.removed)) == row.unseen.removed, "\(name), not shown, removed")
      #expect(words(try one.unseen(.createdAgain)) == row.unseen.createdAgain, "\(name), not shown, created again")
      // One that may be older than what it would end is looked up, whatever is here.
      #expect(words(try one.deletion(isDoubtful: true).decide()) == "look deletion up; blocked", "\(name), doubtful")
      // A fetch from the beginning says so, and decides the same.
      var full = one
      full.source = .fullFetch
      let expected = row.shown.replacing(/end (no life|[abc]+)/) { "\($0.output.0) by fullFetch" }
      #expect(words(try full.deletion().decide()) == expected, "\(name), in a full fetch")
    }
  }

  @Test func `is told of a name that this store has deleted and the server has confirmed, not before`() throws {
    let one = Here(nil, .none, dead: "a").meets(.newer, .delta)
    #expect(try one.deletion(isProvisional: true).decide().words == "end no life")
    #expect(try one.deletion().decide().words == "close")
  }

  @Test func `is the end of a creation that a request may have carried, and not of the one after it`() throws {
    for (base, expected) in [("a", "end ab, settle 15 deletedOnServer"), (nil, "end b, settle 15 deletedOnServer")] {
      var situation = try Here(base, .edit("c")).meets(.newer, .delta).deletion()
      (situation.attempted, situation.birthsThere) = (LSN(15), lives("b"))
      #expect(situation.decide().words == expected)
    }
  }

  /// The zone was made again, and the server's record has one life of the two that the edit was made from.
  @Test func `is the end of the lives that other devices began, and not of one that begins here`() throws {
    let ended = "end ab, tell deletion from 0: body deletion lost here, settle 20 deletedOnServer; removed blocked"
    for (there, expected) in [("b", ended), ("", "end a")] {
      var situation = try Here("a", .edit("ab")).meets(.newer, .delta).deletion()
      situation.birthsThere = lives(there)
      #expect(situation.decide().words == expected)
    }
  }
}
