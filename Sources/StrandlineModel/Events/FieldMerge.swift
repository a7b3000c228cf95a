// What two values of one field become by its rule: where two devices changed it, and where a value is saved that was read before
// the store went on. Pure.

import StrandlineSystem

/// The rules that make a value out of two.
package enum FieldMerge {
  /// Three-way, an addition wins. In the order of the items' bytes, so that every order of merges gives one list.
  ///
  /// - Parameter before: the ancestor's value, which may be null; nil: there is no ancestor.
  package static func union(_ left: FieldValue, _ right: FieldValue, _ before: FieldValue??) -> FieldValue? {
    guard case .list(let kind, let ours) = left, case .list(let otherKind, let theirs) = right,
      kind == otherKind || ours.isEmpty || theirs.isEmpty
    else { return nil }
    // Equal lists are as they are: to put them in order would be an edit of nobody.
    if ours == theirs { return left }
    var ancestor: Set<FieldValue> = []
    if case .list(_, let items)?? = before { ancestor = Set(items) }
    let (mine, other) = (Set(ours), Set(theirs))
    let kept = mine.union(other).filter { !ancestor.contains($0) || (mine.contains($0) && other.contains($0)) }
    let ordered = kept.map { item in
      var writer = ByteWriter()
      FieldCodec.encode(item, into: &writer)
      return (bytes: writer.bytes, item: item)
    }.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
    return .list(ours.isEmpty ? otherKind : kind, ordered.map(\.item))
  }

  /// The sum of what both sides have added; nil without an ancestor, and where it has no number.
  ///
  /// - Parameter before: as of `union`. A null is 0.
  package static func sum(_ left: FieldValue, _ right: FieldValue, _ before: FieldValue??) -> FieldValue? {
    guard let before else { return nil }
    switch (left, right, before) {
    case (.int64(let ours), .int64(let theirs), .int64), (.int64(let ours), .int64(let theirs), nil):
      var ancestor: Int64 = 0
      if case .int64(let number)? = before { ancestor = number }
      let (added, wraps) = ours.subtractingReportingOverflow(ancestor)
      let (sum, overflows) = theirs.addingReportingOverflow(added)
      return wraps || overflows ? nil : .int64(sum)
    case (.double(let ours), .double(let theirs), .double), (.double(let ours), .double(let theirs), nil):
      var ancestor = 0.0
      if case .double(let number)? = before { ancestor = number }
      let sum = theirs + (ours - ancestor)
      return sum.isFinite ? .double(sum) : nil
    default: return nil
    }
  }

  package static func greatest(_ left: FieldValue, _ right: FieldValue) -> FieldValue? {
    switch (left, right) {
    case (.int64(let ours), .int64(let theirs)): .int64(max(ours, theirs))
    case (.double(let ours), .double(let theirs)): .double(max(ours, theirs))
    case (.date(let ours), .date(let theirs)): .date(milliseconds: max(ours, theirs))
    case (.string(let ours), .string(let theirs)): ours.precedesByUTF8(theirs) ? right : left
    default: nil
    }
  }
}
