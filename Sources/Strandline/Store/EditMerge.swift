// An edit of a typed value, applied to what its record is by now: three ways, field by field, in encoded form.
//
// All three sides are as the type encodes them. A field may be stored in another form (a set in another order, a JSON with a
// key that the type does not know, or not at all where the type has a prototype), and that form alone is no edit.

import StrandlineSystem

/// What a value was, what it has become, and by which rules that meets what the store has by now.
struct EditMerge {
  /// The fields of the value that is saved, the parent among them.
  let value: [String: FieldValue?]
  /// What they were before.
  let origin: [String: FieldValue?]
  /// What they are in the store by now. Only a rule asks for it.
  let current: [String: FieldValue?]
  /// The fields that this store has written and the server does not have yet.
  let owed: Set<String>
  /// Nil: what the value has is written.
  let rules: TypeRules?
  /// Whether the type reads an absent field and a null as two things.
  let keepsNulls: Bool
  /// The fields that the store has written after the edit was made.
  var later: Set<String> = []

  /// What became of an edit.
  struct Outcome {
    /// Whether the value says another thing of a field than it did before.
    var isChanged = false
    /// The fields in which a rule keeps what the store has, though the value has another one; in the order of their names.
    var refused: [Conflicted.Field] = []
  }

  /// Puts the fields that were changed into a record, as far as the rules take them.
  func apply(to record: inout Record) -> Outcome {
    var outcome = Outcome()
    for (name, ours) in value where origin[name] != .some(ours) {
      outcome.isChanged = true
      if case .some(let merged) = merged(name, ours) { put(merged, name, into: &record) }
      if let rule = refusal(name, ours) {
        outcome.refused.append(Conflicted.Field(name: name, rule: "\(rule)", loser: .here))
      }
    }
    outcome.refused.sort { $0.name.precedesByUTF8($1.name) }
    return outcome
  }

  /// Puts the value's own fields into a record, whatever the rules say.
  func put(_ names: some Sequence<String>, into record: inout Record) {
    for name in names { put(value[name] ?? nil, name, into: &record) }
  }

  private func put(_ field: FieldValue?, _ name: String, into record: inout Record) {
    if name == Version.parentField {
      record.parent = if case .reference(let reference)? = field { reference.name } else { nil }
      return
    }
    record[name] = field
    if field == nil, keepsNulls { record.nulls.insert(name) }
  }

  /// The rule of the record by which a field may be refused.
  var recordRule: String {
    if case .serverWins? = rules?.record { Conflicted.serverWinsRule } else { Merged.joinRule }
  }

  /// The rule by which a field stays as it is, that was changed to something else; nil if there is none.
  private func refusal(_ name: String, _ ours: FieldValue?) -> FieldRule? {
    guard let rule = rule(of: name) else { return nil }
    let theirs = current[name] ?? nil
    if isLate(name, rule) { return theirs == ours ? nil : rule }
    guard [.serverWins, .greatest].contains(rule), theirs != ours, let before = origin[name], before != theirs else {
      return nil
    }
    return switch merged(name, ours) {
    case .none: rule
    case .some(let merged): merged == theirs ? rule : nil
    }
  }

  /// The value of a field that was changed to `ours`; `.none` if it stays as it is in the store.
  private func merged(_ name: String, _ ours: FieldValue?) -> FieldValue?? {
    let theirs = current[name] ?? nil
    // A type may not say what the field was; then it is written as it is.
    guard let rule = rule(of: name) else { return .some(ours) }
    if isLate(name, rule) { return .none }
    guard let before = origin[name], before != theirs else { return .some(ours) }
    switch rule {
    case .join, .clientWins: return .some(ours)
    case .serverWins: return owed.contains(name) ? .some(ours) : .none
    case .union, .counter, .greatest:
      // A null of one side is a removal of the whole value, by which these rules do not go.
      guard let ours, let theirs else { return .some(ours) }
      let merged =
        switch rule {
        case .union: FieldMerge.union(ours, theirs, .some(before))
        case .counter: FieldMerge.sum(ours, theirs, .some(before)) ?? FieldMerge.greatest(ours, theirs)
        default: FieldMerge.greatest(ours, theirs)
        }
      return .some(merged ?? ours)
    }
  }

  /// Whether the store has written a field after the edit was made, so that by its rule what the store has is the later write.
  private func isLate(_ name: String, _ rule: FieldRule) -> Bool {
    guard later.contains(name), origin[name] != .some(current[name] ?? nil) else { return false }
    return rule == .join || origin[name] == nil
  }

  /// A resolver is asked about what a server has, and not here, where a transaction is open.
  private func rule(of name: String) -> FieldRule? {
    guard let rules else { return nil }
    return switch rules.record {
    case .join: rules.fields[name] ?? .join
    case .serverWins: .serverWins
    case .clientWins, .resolver: .join
    }
  }
}

extension TypeRules {
  /// Whether a rule may ask what a field is by now.
  var asksForCurrent: Bool {
    switch record {
    case .join: !fields.isEmpty
    case .serverWins: true
    case .clientWins, .resolver: false
    }
  }
}
