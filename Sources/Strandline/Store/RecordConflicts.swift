// The conflicts of a record, as the log tells them: what both sides were made from, what each of them was, what became of them
// and by which rule. An app shows them, and saves what it wants back.

public import Foundation
import StrandlineSystem

/// One conflict of a record: an edit or a deletion of this device met another device's, or a save of an older state of the record
/// met what the store has, and a rule has kept that.
public struct RecordConflict: Hashable, Sendable {
  /// A rule that decided about a record or a field.
  public struct Rule: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// Its name in the log.
    public let rawValue: String
    /// The rule of a name.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Both sides' fields were joined.
    public static let join = Rule(rawValue: Merged.joinRule)
    /// What was saved here won.
    public static let clientWins = Rule(rawValue: Merged.clientWinsRule)
    /// What the server had won.
    public static let serverWins = Rule(rawValue: Conflicted.serverWinsRule)
    /// The app's own rule decided.
    public static let resolver = Rule(rawValue: Merged.resolverRule)
    /// A new life took the place of the server's.
    public static let replace = Rule(rawValue: Merged.replaceRule)
    /// An edit won over a deletion.
    public static let revive = Rule(rawValue: Merged.reviveRule)
    /// An edit lost against a deletion.
    public static let deletion = Rule(rawValue: Conflicted.deletionRule)
    /// The items of both sides' lists were joined.
    public static let union = Rule(rawValue: "union")
    /// The differences of both sides were added.
    public static let counter = Rule(rawValue: "counter")
    /// The greater value won.
    public static let greatest = Rule(rawValue: "greatest")
    /// The server has the record under another type.
    public static let type = Rule(rawValue: Conflicted.typeRule)

    /// The rule's name, as the log has it.
    public var description: String { rawValue }
  }

  /// Its place in the log. `conflicts(of:after:)` goes on after this.
  public var position: LogPosition
  /// Which record.
  public var id: RecordID
  /// When it was decided by this device's clock; nil where the log does not say it.
  public var date: Date? { milliseconds.map { Date(milliseconds: $0) } }
  package var milliseconds: Int64?
  /// The rule that decided.
  public var rule: Rule
  /// Why it was not the rule that the app declared, or which rule of it gave the edit up; nil if there is nothing to say.
  public var reason: String?
  /// Of each field that both sides changed to a different end, or that a rule took from one of them: which side lost,
  /// and by which rule. Empty where both changed other fields, where a deletion lost, and where what lost was no field.
  public var fields: [ConflictField] = []
  /// The version that both sides were made from; nil if it is not known, or if compaction has removed it.
  public var ancestor: Record?
  /// What was saved here; nil if it was a deletion, or if compaction has removed it.
  public var local: Record?
  /// What the server had, or this store, where a save met that; nil if the record was deleted there, or if compaction has
  /// removed it.
  public var server: Record?
  /// What both became; nil if the record is gone, or if compaction has removed it.
  public var result: Record?
}

/// A field of a conflict.
public struct ConflictField: Hashable, Sendable {
  /// Whose value lost.
  public enum Loser: String, Hashable, Sendable, CaseIterable {
    /// Neither's: both changes are in the result.
    case none
    /// The value that this device wrote.
    case here
    /// The server's.
    case there
    /// Both: something else has taken their place.
    case both

    /// Whether the value that this device wrote lost.
    public var isHere: Bool { self == .here || self == .both }
  }
  /// The field; `___parent` is the record's parent.
  public var name: String
  /// The rule that decided: a `FieldRule`, or the rule of the record.
  public var rule: RecordConflict.Rule
  /// Whose value lost.
  public var loser: Loser

  package init(name: String, rule: RecordConflict.Rule, loser: Loser) {
    (self.name, self.rule, self.loser) = (name, rule, loser)
  }
}

extension RecordStore {
  /// The conflicts of a record, the oldest first: those that this device met. Of an edit that the server took before another
  /// device met it, the log of that device tells; here the history has the edit, and the version that came after it.
  ///
  /// Which side lost, in which fields and by which rule stays in the log. Compaction removes the versions of both sides, when
  /// they are older than the history that the store keeps.
  ///
  /// What is here is what was decided: a conflict stays decided until the app saves something else. To take the other side,
  /// save its value of each of the `fields` in which it lost.
  ///
  /// - Parameters:
  ///   - id: the record.
  ///   - lsn: only conflicts after this event: the LSN of the last one's position, for the next page.
  ///   - limit: the most conflicts.
  /// - Throws: `StrandlineError`: `.invalidValue` for a limit below 1; `.damaged` if the log cannot be read further,
  ///   `.fromTheFuture`, `.io`, `.closed`.
  /// - Complexity: O(bytes of the log after `lsn`).
  public func conflicts(
    of id: RecordID, after lsn: LSN = .zero, limit: Int = 100
  ) throws -> [RecordConflict] {
    try CallSite.unnamed.run("reading the conflicts of record '\(id)'") {
      try check(limit: limit)
      var conflicts: [RecordConflict] = []
      var next: LSN? = lsn
      while let after = next, conflicts.count < limit {
        let page = try history(of: id, after: after, limit: 256)
        for change in page.changes where conflicts.count < limit {
          if let conflict = try conflict(change) { conflicts.append(conflict) }
        }
        next = page.next
      }
      return conflicts
    }
  }

  /// The conflict that a change tells of; nil if of none.
  private func conflict(_ change: RecordChange) throws(StrandlineError) -> RecordConflict? {
    guard change.kind == .merged || change.kind == .conflicted, let rule = change.rule else { return nil }
    var conflict = RecordConflict(
      position: change.position, id: change.id, milliseconds: change.milliseconds, rule: rule, reason: change.reason,
      fields: change.fields)
    conflict.local = try version(of: change.id, at: change.mutation)
    conflict.ancestor = try version(of: change.id, at: change.ancestor)
    conflict.server = try version(of: change.id, at: change.base)
    let isOfDefault = try isUneditedDefault(at: change.ancestor == nil ? change.base : nil)
    guard change.kind == .conflicted else {
      // The event before it has told more of it.
      if case .conflicted(let told)? = try source.eventIfKept(at: LSN(change.position.lsn.rawValue - 1)),
        told.id == change.id
      {
        return nil
      }
      conflict.result = change.record
      return conflict.isOfBothSides && !isOfDefault ? conflict : nil
    }
    let next = change.position.lsn.advanced(by: 1)
    switch try source.eventIfKept(at: next) {
    case .merged(let merged)? where merged.id == change.id: conflict.result = try version(of: change.id, at: next)
    // What the rules have left of a save. After a conflict of types the app's next edit may follow.
    case .saved(let saved)? where saved.id == change.id && rule != .type:
      conflict.result = try version(of: change.id, at: next)
    default: if rule != .deletion { conflict.result = conflict.server }
    }
    return conflict
  }

  /// The version in an event, or in the mutation that it acknowledged; nil if compaction has removed it.
  /// Whether the server's version is a default that no user has edited. Such a version cannot be a side of a conflict.
  private func isUneditedDefault(at lsn: LSN?) throws(StrandlineError) -> Bool {
    guard let lsn, let event = try source.eventIfKept(at: lsn) else { return false }
    return try LoadedVersion(event, at: lsn)?.version.stamp.isOfUneditedDefault == true
  }

  private func version(of id: RecordID, at lsn: LSN?) throws(StrandlineError) -> Record? {
    guard var place = lsn else { return nil }
    if case .settled(let settled)? = try source.eventIfKept(at: place) { place = settled.lsn }
    guard let shown = try source.versionIfKept(at: place, of: id) else { return nil }
    return shown.record(id, system: shown.system)
  }
}

extension RecordConflict {
  /// Whether both sides changed the record, to different values. If not, the edit was only moved to a newer version.
  fileprivate var isOfBothSides: Bool {
    guard rule == .join, let server, let local else { return true }
    if server.fields == local.fields, server.parent.equalsUTF8(local.parent) { return false }
    return ancestor.map { $0.fields != server.fields || !$0.parent.equalsUTF8(server.parent) } ?? true
  }
}

extension RecordConflict: CustomStringConvertible {
  /// The record, the rule and the place.
  public var description: String { "conflict of \(id) at event \(position.lsn), by \(rule)".oneLine }
}

extension ConflictField: CustomStringConvertible {
  /// The field, its rule and the loser.
  public var description: String { "\(name) by \(rule), lost: \(loser)".oneLine }
}

extension ConflictField {
  init(_ field: Conflicted.Field) {
    let loser: Loser =
      switch field.loser {
      case .none: .none
      case .here: .here
      case .there: .there
      case .both: .both
      }
    self.init(name: field.name, rule: RecordConflict.Rule(rawValue: field.rule), loser: loser)
  }
}
