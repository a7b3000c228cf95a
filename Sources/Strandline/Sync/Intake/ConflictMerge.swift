// What an edit and a version of the server become, by the rules. Pure.
//
// A join gives no field a new stamp: the greater one wins, with its value. A value that is neither side's is new, so its
// stamp is later than both; so is that of a value that a rule chose although the other side's is later, or the next join
// would undo the choice. Every rule joins what both sides have seen.

import StrandlineSystem

/// An unsettled edit, and a version of the server that does not contain it.
package struct ConflictMerge {
  /// The edit's version; times from the future are clamped.
  package let edit: Version
  /// The fields that it changed.
  package let changed: Set<String>
  package let server: Version
  /// The version that both were made from; nil if it is not known.
  package let ancestor: Version?
  /// Who writes a value that is neither side's.
  package let writer: WriterID
  /// Of the fields that the edit changed, those in which the server's version has the edit's own write: an answer was lost, or a
  /// copy of this store has sent it. There is nothing to decide about them.
  package var own: Set<String> = []

  /// Of the server's fields, those whose times were from the future. Such a time has become less, and becomes another one with each
  /// change of the record.
  package var disbelieved: Set<String> = []

  /// A copy of this store wrote the server's version, or what it was made from, and may have sent the edit: what the two count
  /// cannot be told apart. Of equal values there is one write then, and a counter takes the greater number, so that nothing is
  /// counted twice.
  package var mayBeOfCopy = false

  package init(edit: Version, changed: Set<String>, server: Version, ancestor: Version?, writer: WriterID) {
    (self.edit, self.changed, self.server, self.ancestor, self.writer) = (edit, changed, server, ancestor, writer)
  }

  /// Whether the rules of a type have to decide, because both sides changed the record since they had it in common: to
  /// different values, or to equal ones that come to another value by their rule. If not, the edit is moved to the new base
  /// and nothing is said of it.
  package func isConflict(_ rules: TypeRules) -> Bool {
    guard let ancestor else { return edit.fields != server.fields }
    guard ancestor.fields != server.fields || changed.contains(where: { serverRewrites($0, of: ancestor) }) else {
      return false
    }
    if edit.fields != server.fields { return true }
    switch rules.record {
    // The values are equal, so neither side loses.
    case .serverWins, .clientWins: return false
    case .resolver: return changed.contains { isOfBoth($0) }
    case .join: return rules.fields.contains { decide($0.key, by: $0.value).isOfBoth }
    }
  }

  /// Field by field: by the field's rule, or the later change.
  package func byField(_ rules: [String: FieldRule]) -> Version {
    var result = Join.join(edit, server)
    for (name, rule) in rules {
      switch decide(name, by: rule) {
      case .later: break
      case .value(let value), .both(let value): put(value, name, into: &result)
      }
    }
    return result
  }

  /// The edit's changes, and of all other fields the server's.
  package func clientWins() -> Version {
    var result = joinedServer
    for name in changed { put(edit.fields[name], name, into: &result) }
    return result
  }

  /// What a resolver returned. A field that it left out is null.
  package func resolved(_ record: Record) -> Version {
    var fields = record.fields.mapValues { $0.relative(to: record.id.zone) }
    if let parent = record.parent { fields[Version.parentField] = .reference(Reference(parent)) }
    var result = joinedServer
    for name in Set(server.names).union(edit.names).union(fields.keys) { put(fields[name], name, into: &result) }
    return result
  }

  /// What a conflict's result says of each field that one of the sides changed and that does not have its value, in the order
  /// of their names.
  ///
  /// - Parameters:
  ///   - rules: of fields, where they decided; nil: the record's own rule did.
  ///   - standard: the rule of a field without one.
  package func decisions(_ result: Version, _ rules: [String: FieldRule]?, standard: String) -> [Conflicted.Field] {
    var decided: [Conflicted.Field] = []
    for name in Set(edit.names).union(server.names).union(result.names) {
      let (ours, theirs, left) = (edit.fields[name], server.fields[name], result.fields[name])
      let isOurs = changed.contains(name) && !own.contains(name)
      let isTheirs = serverChanged(name) ?? (ours != theirs && server.stamp.fields[name] != nil)
      let rule = rules?[name]
      let isSum = rule.map { decide(name, by: $0).isOfBoth } ?? false
      let isLost = (here: isOurs && left != ours && !isSum, there: isTheirs && left != theirs && !isSum)
      guard isLost.here || isLost.there || (isSum && isOurs && isTheirs) else { continue }
      decided.append(
        Conflicted.Field(
          name: name, rule: rule.map { "\($0)" } ?? standard,
          loser: Conflicted.Loser(here: isLost.here, there: isLost.there)))
    }
    return decided.sorted { $0.name.precedesByUTF8($1.name) }
  }

  /// The server's version, that has seen what the edit has.
  private var joinedServer: Version {
    var result = server
    result.stamp.births.formUnion(edit.stamp.births)
    result.stamp.joinSeen(edit.stamp.seen)
    return result
  }

  /// Gives a field of the result a value, and the stamp that it has or has to have.
  private func put(_ value: FieldValue?, _ name: String, into result: inout Version) {
    let (ours, theirs) = (edit.stamp.fields[name], server.stamp.fields[name])
    let later = [ours, theirs].compactMap(\.self).max()
    result.fields[name] = value
    switch (value == edit.fields[name], value == server.fields[name]) {
    case (true, true): result.stamp.fields[name] = later
    case (false, true): result.stamp.fields[name] = theirs
    case (true, false) where ours != nil && ours == later: result.stamp.fields[name] = ours
    case (_, false): result.stamp.fields[name] = FieldStamp(time: (later?.time ?? .zero).next, writer: writer)
    }
  }

  // MARK: Fields

  /// What becomes of a field.
  private enum Decision {
    /// The later change, as in every field without a rule.
    case later
    /// One side's value, which may be null.
    case value(FieldValue?)
    /// What the changes of both come to.
    case both(FieldValue?)

    var isOfBoth: Bool { if case .both = self { true } else { false } }
  }

  /// Whether both sides changed a field since they had it in common, each by a write of its own.
  private func isOfBoth(_ name: String) -> Bool {
    changed.contains(name) && !own.contains(name) && serverChanged(name) == true
      && !(mayBeOfCopy && edit.fields[name] == server.fields[name])
  }

  /// Whether the server's side changed a field since both had it in common, if only to the same value; nil without an ancestor.
  private func serverChanged(_ name: String) -> Bool? {
    ancestor.map { $0.fields[name] != server.fields[name] || serverRewrites(name, of: $0) }
  }

  /// Whether the server's side has written a field since, if only the same value.
  private func serverRewrites(_ name: String, of ancestor: Version) -> Bool {
    let isTouched =
      disbelieved.contains(name) && ancestor.fields[name] == server.fields[name]
      && ancestor.stamp.fields[name]?.writer == server.stamp.fields[name]?.writer
    return !isTouched && server.rewrites(name, of: ancestor)
  }

  /// What a rule makes of a field: nothing where the values are equal, unless both sides have changed it to get there.
  private func decide(_ name: String, by rule: FieldRule) -> Decision {
    let (ours, theirs) = (edit.fields[name], server.fields[name])
    let isRivalry = isOfBoth(name)
    guard rule != .join, ours != theirs || isRivalry else { return .later }
    if !isRivalry, let serverChanged = serverChanged(name) { return .value(serverChanged ? theirs : ours) }
    let decision = decide(ours, theirs, by: rule, name)
    if case .both(let value) = decision, value == ours, value == theirs { return .later }
    return decision
  }

  private func decide(_ ours: FieldValue?, _ theirs: FieldValue?, by rule: FieldRule, _ name: String) -> Decision {
    switch rule {
    case .join: return .later
    case .serverWins: return .value(theirs)
    case .clientWins: return .value(changed.contains(name) ? ours : theirs)
    case .union, .counter, .greatest:
      // A null of one side is a removal of the whole value, by which these rules do not go.
      guard let ours, let theirs else { return .later }
      let before = mayBeOfCopy && rule == .counter ? nil : ancestor.map { $0.fields[name] }
      // Without an ancestor, and where the sum has no number, the greater one is nearest to what both have counted.
      let greater = FieldMerge.greatest(ours, theirs).map(Decision.value) ?? .later
      return switch rule {
      case .union: FieldMerge.union(ours, theirs, before).map(Decision.both) ?? .later
      case .counter: FieldMerge.sum(ours, theirs, before).map(Decision.both) ?? greater
      default: greater
      }
    }
  }
}

extension Version {
  /// Whether a field was written since an ancestor had it, if only with the value that it had. A time from the future may have
  /// become less since.
  func rewrites(_ name: String, of ancestor: Version) -> Bool {
    guard let ours = stamp.fields[name] else { return false }
    return ancestor.stamp.fields[name].map { ours.time > $0.time } ?? true
  }
}
