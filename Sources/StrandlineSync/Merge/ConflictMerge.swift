// Merges an unsent edit with the server's version, by the app's conflict rules. Pure.
//
// A stamp says who wrote a field and when. A join makes no new stamps: the greater stamp wins, with its value. A rule may make a
// value that is neither side's, or choose the one with the lesser stamp: then the field gets a stamp later than both, or the
// next join would undo the choice. Every rule joins the `seen` sets of both sides.

import StrandlineSystem

/// A pending edit, and a version of the server that does not contain it.
package struct ConflictMerge {
  /// The edit's version; times from the future are clamped.
  package let edit: Version
  /// The fields that the edit changed.
  package let changed: Set<String>
  package let server: Version
  /// The version that both were made from; nil if it is not known.
  package let ancestor: Version?
  /// The writer of merged values that are neither side's.
  package let writer: WriterID
  /// Changed fields in which the server's version has the edit's own write, because an answer was lost, or a copy of this store has
  /// sent the edit. Nothing has to be decided about them.
  package var own: Set<String> = []

  /// Fields of the server whose times were in the future and were clamped. Such a time changes with each change of the record.
  package var clampedFields: Set<String> = []

  /// A copy of this store (a clone, a restored backup) wrote the server's version or an ancestor of it, and may have sent the edit.
  /// Then equal values count as one write, and a counter takes the greater number, so that nothing is counted twice.
  package var mayBeOfCopy = false

  package init(edit: Version, changed: Set<String>, server: Version, ancestor: Version?, writer: WriterID) {
    (self.edit, self.changed, self.server, self.ancestor, self.writer) = (edit, changed, server, ancestor, writer)
  }

  /// Whether the rules have to decide, because both sides changed the record since the ancestor: to different values, or to equal
  /// ones of which the rule makes another (two equal increments). If not, the edit gets the new base, and no conflict is
  /// reported.
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

  /// The edit's changes, and the server's values of all other fields.
  package func clientWins() -> Version {
    var result = joinedServer
    for name in changed { put(edit.fields[name], name, into: &result) }
    return result
  }

  /// The version from a resolver's record. A field that it left out is null.
  package func resolved(_ record: Record) -> Version {
    var fields = record.fields.mapValues { $0.relative(to: record.id.zone) }
    if let parent = record.parent { fields[Version.parentField] = .reference(Reference(parent)) }
    var result = joinedServer
    for name in Set(server.names).union(edit.names).union(fields.keys) { put(fields[name], name, into: &result) }
    return result
  }

  /// For each field in which a side's change was not taken as it is: which side lost, by which rule. In the order of the names.
  ///
  /// - Parameters:
  ///   - rules: the fields' rules, if they decided; nil if the record's rule did.
  ///   - standard: the rule of fields without their own.
  package func decisions(_ result: Version, _ rules: [String: FieldRule]?, standard: String) -> [Conflicted.Field] {
    var decided: [Conflicted.Field] = []
    for name in Set(edit.names).union(server.names).union(result.names) {
      let (ours, theirs, left) = (edit.fields[name], server.fields[name], result.fields[name])
      let isOurs = changed.contains(name) && !own.contains(name)
      // A default is nobody's change, so it has nothing to lose.
      let isTheirs =
        server.stamp.fields[name] != .ofDefaults
        && serverChanged(name) ?? (ours != theirs && server.stamp.fields[name] != nil)
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

  /// The server's version, with everything that the edit has seen.
  private var joinedServer: Version {
    var result = server
    result.stamp.births.formUnion(edit.stamp.births)
    result.stamp.joinSeen(edit.stamp.seen)
    return result
  }

  /// Sets a field of the result, with the stamp of the side that has this value, or a new one.
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

  /// The decision about a field.
  private enum Decision {
    /// The later change, as in every field without a rule.
    case later
    /// One side's value, which may be null.
    case value(FieldValue?)
    /// A combination of both changes.
    case both(FieldValue?)

    var isOfBoth: Bool { if case .both = self { true } else { false } }
  }

  /// Whether both sides changed a field since the ancestor, each by its own write.
  private func isOfBoth(_ name: String) -> Bool {
    changed.contains(name) && !own.contains(name) && serverChanged(name) == true
      // Of one stamp there is one write: this one, or that of a migration which both sides made of one state.
      && edit.stamp.fields[name] != server.stamp.fields[name]
      && !(mayBeOfCopy && edit.fields[name] == server.fields[name])
  }

  /// Whether the server's side wrote a field since the ancestor, even with the same value; nil without an ancestor.
  private func serverChanged(_ name: String) -> Bool? {
    ancestor.map { $0.fields[name] != server.fields[name] || serverRewrites(name, of: $0) }
  }

  /// Whether the stamps show that the server's side wrote a field since the ancestor.
  private func serverRewrites(_ name: String, of ancestor: Version) -> Bool {
    let isTouched =
      clampedFields.contains(name) && ancestor.fields[name] == server.fields[name]
      && ancestor.stamp.fields[name]?.writer == server.stamp.fields[name]?.writer
    return !isTouched && server.rewrites(name, of: ancestor)
  }

  /// Applies a rule to a field. Equal values need no rule, unless both sides made them by changes of their own.
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
      // A side with null has removed the value: these rules cannot combine that.
      guard let ours, let theirs else { return .later }
      let before = mayBeOfCopy && rule == .counter ? nil : ancestor.map { $0.fields[name] }
      // Without an ancestor, or if the sum overflows, the greater count is the best guess.
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
  /// Whether a field was written since the ancestor, even with the same value. Another writer's time may be less than the one that it
  /// replaced: the times of a clock that was ahead were clamped. Of one writer such a clamped time may hide it.
  func rewrites(_ name: String, of ancestor: Version) -> Bool {
    guard let ours = stamp.fields[name] else { return false }
    return ancestor.stamp.fields[name].map { ours.writer != $0.writer || ours.time > $0.time } ?? true
  }
}
