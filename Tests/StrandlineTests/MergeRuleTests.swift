// Goal: each rule does the same with each case of the two sides and their ancestor, from whichever side it is looked at, and
// says who lost. Method: a table, and what must hold of every row of it when the sides are exchanged.

import Strandline
import StrandlineSystem
import Testing

/// What a side did with the field: nothing, or a write of a value or of null.
private enum Side: Hashable, Sendable {
  case unchanged
  case wrote(FieldValue?)
}

/// A row: what both sides did since the ancestor, of which the second is the later one, and what comes of it.
private struct Row: CustomStringConvertible, Sendable {
  var rule: FieldRule
  /// Nil: it is not known.
  var ancestor: FieldValue??
  var ours: Side
  var theirs: Side
  var gives: FieldValue?
  var lost: Conflicted.Loser?

  init(
    _ rule: FieldRule, _ ancestor: FieldValue??, _ ours: Side, _ theirs: Side, gives: FieldValue?,
    lost: Conflicted.Loser? = nil
  ) {
    (self.rule, self.ancestor, self.ours, self.theirs) = (rule, ancestor, ours, theirs)
    (self.gives, self.lost) = (gives, lost)
  }

  var description: String { "\(rule) of \(ours) here and \(theirs) there, from \(ancestor as Any)" }

  /// The same, looked at from the other side.
  var mirrored: Row {
    var row = self
    (row.ours, row.theirs) = (theirs, ours)
    switch lost {
    case .here: row.lost = .there
    case .there: row.lost = .here
    default: break
    }
    return row
  }

  /// - Parameter isLater: whether the write of here is the later one.
  func merge(isLater: Bool) -> ConflictMerge {
    func version(_ side: Side, _ time: Int64, _ writer: WriterID) -> Version {
      var version = Version(type: "Note", fields: ["other": "x"])
      version.stamp.births = [Birth(time: HybridTime(milliseconds: 1), writer: 9)]
      if case .some(let known) = ancestor {
        version.fields["f"] = known
        version.stamp.fields["f"] = FieldStamp(time: HybridTime(milliseconds: 1), writer: 9)
      }
      if case .wrote(let value) = side {
        version.fields["f"] = value
        version.stamp.fields["f"] = FieldStamp(time: HybridTime(milliseconds: time), writer: writer)
      }
      version.stamp.seen[writer] = Seen(lsn: LSN(7), tenure: writer, time: HybridTime(milliseconds: time))
      return version
    }
    let edit = version(ours, isLater ? 30 : 20, 1)
    let server = version(theirs, isLater ? 20 : 30, 2)
    return ConflictMerge(
      edit: edit, changed: ours == .unchanged ? [] : ["f"], server: server,
      ancestor: ancestor.map { _ in version(.unchanged, 1, 9) }, writer: 1)
  }

  func result(_ merge: ConflictMerge) -> Version { merge.byField(["f": rule]) }
}

private func list(_ items: String...) -> FieldValue { .list(.strings, items.map { .string($0) }) }

private let rows: [Row] = [
  // Where one side alone has changed it, no rule is asked.
  Row(.join, 5, .wrote(6), .unchanged, gives: 6), Row(.join, 5, .unchanged, .wrote(6), gives: 6),
  Row(.serverWins, 5, .wrote(6), .unchanged, gives: 6), Row(.serverWins, 5, .unchanged, .wrote(6), gives: 6),
  Row(.clientWins, 5, .wrote(6), .unchanged, gives: 6), Row(.clientWins, 5, .unchanged, .wrote(6), gives: 6),
  Row(.counter, 5, .wrote(6), .unchanged, gives: 6), Row(.counter, 5, .unchanged, .wrote(4), gives: 4),
  Row(.greatest, 5, .wrote(4), .unchanged, gives: 4), Row(.greatest, 5, .unchanged, .wrote(4), gives: 4),
  Row(.union, list("a"), .wrote(list("b", "a")), .unchanged, gives: list("b", "a")),
  Row(.union, list("a"), .unchanged, .wrote(list()), gives: list()),
  Row(.counter, 5, .wrote(nil), .unchanged, gives: nil), Row(.counter, .some(nil), .wrote(1), .unchanged, gives: 1),
  // Both, to different values; theirs is the later one.
  Row(.join, 5, .wrote(6), .wrote(7), gives: 7, lost: .here),
  Row(.join, 5, .wrote(6), .wrote(nil), gives: nil, lost: .here),
  Row(.serverWins, 5, .wrote(6), .wrote(7), gives: 7, lost: .here),
  Row(.clientWins, 5, .wrote(6), .wrote(7), gives: 6, lost: .there),
  Row(.counter, 5, .wrote(6), .wrote(8), gives: 9, lost: Conflicted.Loser.none),
  Row(.counter, 5, .wrote(3), .wrote(8), gives: 6, lost: Conflicted.Loser.none),
  Row(.counter, 1.5, .wrote(2.5), .wrote(0.5), gives: 1.5, lost: Conflicted.Loser.none),
  Row(.counter, .some(nil), .wrote(2), .wrote(3), gives: 5, lost: Conflicted.Loser.none),
  Row(.counter, 5, .wrote(6), .wrote(nil), gives: nil, lost: .here),
  Row(.counter, 0, .wrote(.int64(.max)), .wrote(1), gives: .int64(.max), lost: .there),
  Row(.counter, 5, .wrote(6), .wrote("text"), gives: "text", lost: .here),
  Row(.greatest, 5, .wrote(6), .wrote(8), gives: 8, lost: .here),
  Row(.greatest, 5, .wrote(9), .wrote(8), gives: 9, lost: .there),
  Row(.greatest, 9, .wrote(3), .wrote(4), gives: 4, lost: .here),
  Row(.greatest, 0.5, .wrote(2.5), .wrote(1.5), gives: 2.5, lost: .there),
  Row(.greatest, "b", .wrote("d"), .wrote("c"), gives: "d", lost: .there),
  Row(
    .greatest, .date(milliseconds: 5), .wrote(.date(milliseconds: 7)), .wrote(.date(milliseconds: 6)),
    gives: .date(milliseconds: 7), lost: .there),
  Row(.union, list("a"), .wrote(list("a", "b")), .wrote(list("c")), gives: list("b", "c"), lost: Conflicted.Loser.none),
  Row(.union, list("a", "b"), .wrote(list("a")), .wrote(list("b", "c")), gives: list("c"), lost: Conflicted.Loser.none),
  // Both, to equal values: each has written, so the rule decides.
  Row(.join, 5, .wrote(6), .wrote(6), gives: 6), Row(.serverWins, 5, .wrote(6), .wrote(6), gives: 6),
  Row(.clientWins, 5, .wrote(6), .wrote(6), gives: 6),
  Row(.counter, 5, .wrote(6), .wrote(6), gives: 7, lost: Conflicted.Loser.none),
  Row(.counter, 5, .wrote(4), .wrote(4), gives: 3, lost: Conflicted.Loser.none),
  Row(.counter, .some(nil), .wrote(1), .wrote(1), gives: 2, lost: Conflicted.Loser.none),
  Row(.counter, 0.5, .wrote(1.0), .wrote(1.0), gives: 1.5, lost: Conflicted.Loser.none),
  Row(.counter, 5, .wrote(5), .wrote(5), gives: 5), Row(.counter, 5, .wrote(nil), .wrote(nil), gives: nil),
  Row(.greatest, 5, .wrote(6), .wrote(6), gives: 6),
  Row(.union, list("a"), .wrote(list("b", "a")), .wrote(list("b", "a")), gives: list("b", "a")),
  // To what it was: a write of the value that it had is a change for those rules that go by the value.
  Row(.greatest, 5, .wrote(3), .wrote(5), gives: 5, lost: .here),
  Row(.counter, 5, .wrote(7), .wrote(5), gives: 7, lost: Conflicted.Loser.none),
  Row(.join, 5, .wrote(7), .wrote(5), gives: 5, lost: .here),
  // Without an ancestor.
  Row(.join, nil, .wrote(6), .wrote(7), gives: 7, lost: .here), Row(.join, nil, .wrote(6), .unchanged, gives: 6),
  Row(.counter, nil, .wrote(6), .wrote(6), gives: 6), Row(.counter, nil, .wrote(8), .wrote(6), gives: 8, lost: .there),
  Row(.greatest, nil, .wrote(8), .wrote(6), gives: 8, lost: .there),
  Row(.counter, nil, .wrote(6), .unchanged, gives: 6), Row(.clientWins, nil, .unchanged, .wrote(6), gives: 6),
  Row(.union, nil, .wrote(list("b")), .wrote(list("a")), gives: list("a", "b"), lost: Conflicted.Loser.none),
]

@Suite(.timeLimit(.minutes(30))) struct `The rules of a merge` {
  @Test func `give what the table says, and who lost`() {
    for row in rows {
      let merge = row.merge(isLater: false)
      let result = row.result(merge)
      #expect(result.fields["f"] == row.gives, "\(row)")
      let decided = merge.decisions(result, ["f": row.rule], standard: "join")
      #expect(decided.map(\.loser) == [row.lost].compactMap(\.self), "\(row)")
      #expect(decided.allSatisfy { $0.name == "f" && $0.rule == "\(row.rule)" })
    }
  }

  @Test func `give the same from the other side, where the rule knows no sides`() {
    for row in rows where row.rule != .serverWins && row.rule != .clientWins {
      let mirrored = row.mirrored
      let merge = mirrored.merge(isLater: true)
      let result = mirrored.result(merge)
      #expect(result.fields["f"] == row.gives, "\(row)")
      let decided = merge.decisions(result, ["f": row.rule], standard: "join")
      #expect(decided.map(\.loser) == [mirrored.lost].compactMap(\.self), "\(row)")
    }
  }

  @Test func `stamp a value that is neither side's later than both, and let no merge of merges undo it`() {
    for row in rows {
      for isLater in [true, false] {
        let merge = row.merge(isLater: isLater)
        let result = row.result(merge)
        let stamps = [merge.edit, merge.server].compactMap { $0.stamp.fields["f"] }
        guard let stamp = result.stamp.fields["f"] else {
          #expect(stamps.isEmpty && result.fields["f"] == nil, "\(row)")
          continue
        }
        let isNew = result.fields["f"] != merge.edit.fields["f"] && result.fields["f"] != merge.server.fields["f"]
        if isNew { #expect(stamps.allSatisfy { $0 < stamp }, "\(row)") }
        // Whoever joins the result with what the server had, has the result.
        #expect(Join.join(merge.server, result).fields["f"] == result.fields["f"], "\(row)")
        #expect(Join.join(result, merge.server).fields["f"] == result.fields["f"], "\(row)")
        #expect(result.stamp.dominates(merge.edit.stamp) && result.stamp.dominates(merge.server.stamp))
      }
    }
  }

  @Test func `leave a field as it is that the server has from this very edit`() {
    var merge = Row(.counter, 5, .wrote(6), .wrote(6), gives: 6).merge(isLater: true)
    merge.own = ["f"]
    #expect(merge.byField(["f": .counter]).fields["f"] == 6)
    var rules = TypeRules()
    rules.fields["f"] = .counter
    #expect(!merge.isConflict(rules))
    rules.record = .resolver { $0.server }
    #expect(!merge.isConflict(rules), "no resolver is asked")
  }

  @Test func `take no touch for a write, which has made less of a time from the future`() {
    var merge = Row(.counter, 5, .wrote(6), .unchanged, gives: 6).merge(isLater: true)
    let (edit, ancestor) = (merge.edit, merge.ancestor)
    var server = merge.server
    server.stamp.fields["f"]?.time = HybridTime(milliseconds: 10)
    merge = ConflictMerge(edit: edit, changed: ["f"], server: server, ancestor: ancestor, writer: 1)
    #expect(merge.byField(["f": .greatest]).fields["f"] == 6)
    #expect(merge.decisions(merge.clientWins(), nil, standard: "rule").map(\.loser) == [.there], "a write")
    merge.clampedFields = ["f"]
    var rules = TypeRules()
    #expect(!merge.isConflict(rules))
    rules.record = .resolver { $0.server }
    #expect(!merge.isConflict(rules), "no resolver is asked")
    #expect(merge.decisions(merge.clientWins(), nil, standard: "rule").isEmpty)
  }

  @Test func `count nothing twice that a copy of this store may have sent`() {
    func merged(_ ours: FieldValue, _ theirs: FieldValue) -> FieldValue? {
      var merge = Row(.counter, 5, .wrote(ours), .wrote(theirs), gives: nil).merge(isLater: true)
      merge.mayBeOfCopy = true
      return merge.byField(["f": .counter]).fields["f"]
    }
    #expect(merged(6, 6) == 6 && merged(6, 8) == 8 && merged(8, 6) == 8)
  }

  /// The clock of here was ahead, and the time of the ancestor was clamped to the server's at its upload. Another device has then
  /// written the same value at a time that is less, and here it was changed before that.
  @Test func `decide where the other write has a time before the ancestor's`() {
    func version(_ value: FieldValue, _ time: Int64, _ writer: WriterID) -> Version {
      var version = Version(type: "Note", fields: ["f": value])
      version.stamp.births = [Birth(time: HybridTime(milliseconds: 1), writer: 9)]
      version.stamp.fields["f"] = FieldStamp(time: HybridTime(milliseconds: time), writer: writer)
      return version
    }
    let merge = ConflictMerge(
      edit: version(1, 50, 1), changed: ["f"], server: version(0, 60, 2), ancestor: version(0, 100, 1), writer: 1)
    var rules = TypeRules()
    rules.fields["f"] = .counter
    #expect(merge.isConflict(rules))
    let joined = merge.byField(rules.fields)
    #expect(joined.fields["f"] == 1 && joined.stamp.fields["f"]?.time ?? .zero > HybridTime(milliseconds: 60))
  }

  @Test(arguments: [true, false]) func `decide where both sides changed the record, equal or not`(_ isEqual: Bool) {
    let both = Row(.counter, 5, .wrote(6), .wrote(isEqual ? 6 : 7), gives: nil).merge(isLater: true)
    let one = Row(.counter, 5, .wrote(6), .unchanged, gives: nil).merge(isLater: true)
    var rules = TypeRules()
    #expect(both.isConflict(rules) != isEqual && !one.isConflict(rules))
    rules.fields["f"] = .counter
    #expect(both.isConflict(rules) && !one.isConflict(rules))
    rules.fields["f"] = .greatest
    #expect(both.isConflict(rules) != isEqual && !one.isConflict(rules))
    rules.record = .resolver { $0.server }
    #expect(both.isConflict(rules) && !one.isConflict(rules))
    rules.record = .serverWins
    #expect(both.isConflict(rules) != isEqual && !one.isConflict(rules))
  }
}

@Suite(.timeLimit(.minutes(30))) struct `The rules of a whole record` {
  private static func at(_ milliseconds: Int64, _ writer: WriterID) -> FieldStamp {
    FieldStamp(time: HybridTime(milliseconds: milliseconds), writer: writer)
  }
  /// A stamp of this store's that is later than both.
  private static let new = FieldStamp(time: HybridTime(milliseconds: 30).next, writer: 1)

  /// What both sides did since the value was 5, whether the write of here is the later one, and what the field is where the
  /// client wins. The later write is of the time 30, the other one of 20.
  private static let clientWins: [(ours: Side, theirs: Side, isLater: Bool, gives: FieldValue?, stamp: FieldStamp)] = [
    (.unchanged, .unchanged, false, 5, at(1, 9)),
    (.wrote(6), .unchanged, false, 6, at(20, 1)),
    (.unchanged, .wrote(7), false, 7, at(30, 2)),
    (.unchanged, .wrote(nil), false, nil, at(30, 2)),
    // A choice against the later write needs a later stamp, or the next join would undo it.
    (.wrote(6), .wrote(7), false, 6, new),
    (.wrote(6), .wrote(7), true, 6, at(30, 1)),
    (.wrote(nil), .wrote(7), false, nil, new),
    (.wrote(6), .wrote(nil), false, 6, new),
    (.wrote(6), .wrote(6), false, 6, at(30, 2)),
    (.wrote(6), .wrote(6), true, 6, at(30, 1)),
  ]

  @Test func `give the client's changes, and of all other fields the server's`() {
    for row in Self.clientWins {
      let merge = Row(.join, 5, row.ours, row.theirs, gives: nil).merge(isLater: row.isLater)
      let result = merge.clientWins()
      #expect(result.fields["f"] == row.gives && result.stamp.fields["f"] == row.stamp, "\(row)")
      #expect(result.fields["other"] == "x" && result.stamp.fields["other"] == nil)
    }
  }

  /// The same where a resolver has returned a value; nil: it has left the field out.
  private static let resolved: [(ours: Side, theirs: Side, isLater: Bool, returned: FieldValue?, stamp: FieldStamp)] = [
    (.wrote(6), .wrote(7), false, 7, at(30, 2)),
    (.wrote(6), .wrote(7), true, 7, at(20, 2)),
    (.wrote(6), .wrote(7), false, 6, new),
    (.wrote(6), .wrote(7), true, 6, at(30, 1)),
    (.wrote(6), .wrote(7), false, 8, new),
    (.wrote(6), .wrote(7), true, 8, new),
    (.wrote(6), .wrote(7), false, nil, new),
    (.wrote(6), .wrote(6), true, 6, at(30, 1)),
    (.wrote(6), .wrote(6), false, 6, at(30, 2)),
    (.unchanged, .wrote(7), false, 5, new),
  ]

  @Test func `give what a resolver has returned, with a stamp that no join undoes`() {
    for row in Self.resolved {
      let merge = Row(.join, 5, row.ours, row.theirs, gives: nil).merge(isLater: row.isLater)
      var record = Record(type: "Note", id: RecordID("r"), fields: ["other": "x"])
      record["f"] = row.returned
      let result = merge.resolved(record)
      #expect(result.fields["f"] == row.returned && result.stamp.fields["f"] == row.stamp, "\(row)")
      #expect(result.fields["other"] == "x" && result.stamp.fields["other"] == nil)
    }
  }

  @Test func `take a field that neither side had, a parent, and a reference into the same zone`() {
    let merge = Row(.join, 5, .wrote(6), .wrote(7), gives: nil).merge(isLater: false)
    var record = Record(type: "Note", id: RecordID("r"), fields: ["f": 7])
    record["link"] = .reference(Reference("x", zone: record.id.zone))
    record.parent = "p"
    let result = merge.resolved(record)
    let first = FieldStamp(time: HybridTime.zero.next, writer: 1)
    #expect(result.fields["link"] == .reference(Reference("x")) && result.stamp.fields["link"] == first)
    #expect(result.parent == "p" && result.stamp.fields[Version.parentField] == first)
    // It has left this one out.
    #expect(result.fields["other"] == nil && result.stamp.fields["other"] == first)
  }

  @Test func `join the lives, and what both have seen`() {
    let plain = Row(.join, 5, .wrote(6), .wrote(7), gives: nil).merge(isLater: false)
    var edit = plain.edit
    let mine = Birth(time: HybridTime(milliseconds: 2), writer: 1)
    edit.stamp.births.insert(mine)
    let merge = ConflictMerge(edit: edit, changed: ["f"], server: plain.server, ancestor: plain.ancestor, writer: 1)
    let record = Record(type: "Note", id: RecordID("r"), fields: ["f": 7])
    for result in [merge.clientWins(), merge.resolved(record), merge.byField([:])] {
      #expect(result.stamp.births == plain.server.stamp.births.union([mine]))
      #expect(Set(result.stamp.seen.keys) == [1, 2])
    }
  }
}

@Suite(.timeLimit(.minutes(30))) struct `Which of two versions is newer` {
  private static func stamp(_ seen: [WriterID: UInt64], tenure: UInt64 = 1) -> Stamp {
    Stamp(
      seen: seen.mapValues {
        Seen(lsn: LSN($0), tenure: tenure, time: HybridTime(milliseconds: Int64($0)))
      })
  }

  /// What the version and the base have seen; the answer, whatever the server's times say.
  @Test func `is said by what both have seen, and by no time`() {
    let table: [(arrived: [WriterID: UInt64], known: [WriterID: UInt64], age: VersionAge)] = [
      ([1: 5], [1: 4], .newer), ([1: 5, 2: 1], [1: 5], .newer), ([1: 5], [:], .newer),
      ([1: 4], [1: 5], .older), ([1: 5], [1: 5, 2: 1], .older), ([:], [1: 5], .older),
      ([1: 5], [1: 5], .unknown), ([:], [:], .unknown),
      ([1: 5, 2: 1], [1: 4, 2: 2], .unknown), ([1: 5], [2: 5], .unknown),
    ]
    for row in table {
      for isAfter in [true, false] {
        func age(isStamped: Bool, namesCopy: Bool) -> VersionAge {
          VersionAge(
            of: Self.stamp(row.arrived), isStamped: isStamped, beside: Self.stamp(row.known), namesCopy: namesCopy,
            wasModifiedAfter: isAfter)
        }
        #expect(age(isStamped: true, namesCopy: false) == row.age, "\(row)")
        // Without a stamp, and where two logs wrote under one number, only the feed knows.
        #expect(age(isStamped: false, namesCopy: false) == .unknown, "\(row)")
        let ofCopy = age(isStamped: true, namesCopy: true)
        #expect(ofCopy == (row.age == .older && !isAfter ? .older : .unknown), "\(row)")
      }
    }
  }

  @Test func `is not said by places of two logs, where the server says that the lesser one came later`() {
    func age(_ time: Int64, isAfter: Bool) -> VersionAge {
      let known = Stamp(seen: [1: Seen(lsn: LSN(9), tenure: 1, time: HybridTime(milliseconds: 10))])
      let arrived = Stamp(seen: [1: Seen(lsn: LSN(8), tenure: 2, time: HybridTime(milliseconds: time))])
      return VersionAge(
        of: arrived, isStamped: true, beside: known, namesCopy: false, wasModifiedAfter: isAfter)
    }
    #expect(age(20, isAfter: true) == .unknown)
    #expect(age(20, isAfter: false) == .older)
    #expect(age(5, isAfter: true) == .older)
  }
}
