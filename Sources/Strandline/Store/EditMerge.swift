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

  /// Puts the fields that were changed into a record.
  ///
  /// - Returns: whether there are such fields.
  func apply(to record: inout Record) -> Bool {
    var isChanged = false
    for (name, ours) in value where origin[name] != .some(ours) {
      isChanged = true
      guard case .some(let merged) = merged(name, ours) else { continue }
      if name == Version.parentField {
        record.parent = if case .reference(let reference)? = merged { reference.name } else { nil }
        continue
      }
      record[name] = merged
      if merged == nil, keepsNulls { record.nulls.insert(name) }
    }
    return isChanged
  }

  /// The value of a field that was changed to `ours`; `.none` if it stays as it is in the store.
  private func merged(_ name: String, _ ours: FieldValue?) -> FieldValue?? {
    let theirs = current[name] ?? nil
    // A type may not say what the field was; then it is written as it is.
    guard let rule = rule(of: name), let before = origin[name], before != theirs else { return .some(ours) }
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
