// What becomes of a record that was changed on two devices: rules that an app declares by record type and by field. The
// standard rules are right for most data, and no rule needs a delegate.
//
// Join, union, counter and greatest give the same values in whatever order the devices sync. What serverWins, clientWins
// and a resolver end in depends on which device's save the server took first; all devices end alike all the same.

import StrandlineSystem

/// The rules by which conflicts end.
///
/// A conflict is a version of the server that meets changes of this store which it does not contain. `conflicts(of:)` tells
/// each, with both sides, what came of them, the rule, and which side lost in which field.
public struct ConflictRules: Sendable {
  /// The rules of record types that have no rules of their own.
  public var standard = TypeRules()
  private var types: [String: TypeRules] = [:]

  /// The standard rules: every field keeps the change that was made last, and a deletion wins over an edit.
  public init() {}

  /// The types that have rules of their own, in the order of their UTF-8.
  package var names: [String] { types.keys.sorted { $0.precedesByUTF8($1) } }

  /// The rules of a record type.
  public subscript(type: String) -> TypeRules {
    get { types[type] ?? standard }
    set { types[type] = newValue }
  }
}

/// The rules for the records of one type.
public struct TypeRules: Sendable {
  /// What becomes of the record as a whole.
  public var record = RecordRule.join
  /// The rules of single fields, where `record` is `join`. A field without one keeps the change that was made last.
  public var fields: [String: FieldRule] = [:]
  /// What becomes of an edit that meets a deletion.
  public var deletion = DeletionRule.deletionWins

  /// The standard rules.
  public init() {}
}

/// What becomes of a record that was changed here and at the server.
public enum RecordRule: Sendable {
  /// Field by field, the change that was made last, or what the field's own rule says.
  case join
  /// The server's version stands. What was changed here is given up; it stays in the record's history.
  case serverWins
  /// The fields that were changed here stand, and of all others the server's.
  case clientWins
  /// What a function of the app makes of both. It is asked when both sides have changed the record since the version that
  /// they have in common, to different values or to equal ones, and where that version is not known and they differ. It is not
  /// asked because of an edit of this store that the server has already, nor where one side alone has changed the record.
  /// It must depend on nothing but the conflict. It runs while no lock is held,
  /// and again if the record changes meanwhile, three times at most. After that, and if it throws or returns what cannot be
  /// saved, the record is joined, and its history says why.
  case resolver(@Sendable (Conflict) throws -> Record)
}

/// What becomes of a field that was changed here and at the server.
///
/// A rule decides where both sides have changed the field since the version that they have in common, to different values or
/// to equal ones; and where that version is not known and the values differ. Of a field that one side alone has changed, that
/// side's value wins.
public enum FieldRule: Hashable, Sendable {
  /// The change that was made last.
  case join
  /// The server's value.
  case serverWins
  /// This store's value.
  case clientWins
  /// A list without an order, in which each item stands once: items that either side added are added, those that either
  /// side removed are removed. Without an ancestor, all items of both.
  case union
  /// A number to which each side adds: the differences of both to their ancestor are summed, so that 100 and one more on each
  /// of two devices are 102. Without an ancestor, and if the sum is too large, the greater number. An absent number is 0 here,
  /// so a counter's value in the type's prototype is 0 as well: a sync would count another one wrongly.
  case counter
  /// The greater number, time or text.
  case greatest
}

/// What becomes of an edit of a record that was deleted on another device.
public enum DeletionRule: Hashable, Sendable {
  /// The deletion wins. The edit stays in the record's history.
  case deletionWins
  /// The edit wins, in whatever order the two arrive: the record begins a new life with it.
  case editRevives
}

/// A record that was changed here and at the server: what a resolver decides by.
public struct Conflict: Sendable {
  /// The version that both sides were made from. Nil if it is not known: both devices created the record.
  public var ancestor: Record?
  /// The record as this store has it.
  public var local: Record
  /// The record as the server has it, with its metadata.
  public var server: Record

  package init(ancestor: Record?, local: Record, server: Record) {
    self.ancestor = ancestor
    self.local = local
    self.server = server
  }

  /// Which record.
  public var id: RecordID { server.id }
}

extension ConflictRules: CustomStringConvertible {
  /// The types that have rules of their own.
  public var description: String {
    names.isEmpty ? "one rule for all types" : "rules of their own for \(names.joined(separator: ", "))"
  }
}

extension TypeRules: CustomStringConvertible {
  /// The rule of the record, and those of its fields.
  public var description: String {
    let rule =
      switch record {
      case .join: "join"
      case .serverWins: "serverWins"
      case .clientWins: "clientWins"
      case .resolver: "resolver"
      }
    let rules = fields.sorted { $0.key.precedesByUTF8($1.key) }.map { "\($0.key): \($0.value)" }
    return ([rule] + rules + ["deletion: \(deletion)"]).joined(separator: ", ")
  }
}

extension Conflict: CustomStringConvertible {
  /// Which record.
  public var description: String { "conflict of \(id)" }
}
