// How a query is answered, in words for the developer who makes it faster.

/// How a store answers a query.
public struct QueryPlan: Hashable, Sendable, CustomStringConvertible {
  /// The index that is used; nil if all records of the type are read.
  public var index: RecordIndex?
  /// Further indexes, for conditions on other fields: where `index` has many records, of those only the ones are read that
  /// these have too.
  public var narrowingIndexes: [RecordIndex]
  /// Whether only those records are read that an index has for a condition.
  public var usesCondition: Bool
  /// Whether the records come in the order of the answer, so that a page reads no more than it has; else all that are
  /// found are sorted.
  public var isSorted: Bool
  /// An index that would spare reading all records of the type; nil if an index is used or none would help.
  public var suggestion: RecordIndex?
  /// Of a typed question the conditions that no index can answer, as a sentence each: they are evaluated on each record that is
  /// found.
  public private(set) var evaluated: [String] = []
  /// How many records a typed question names by their IDs; nil: it names none.
  private var namedCount: Int?
  private let recordType: String
  private let isBeingBuilt: Bool

  init(_ query: RecordQuery, _ plan: IndexPlan?, suggestion: RecordIndex?, isBeingBuilt: Bool) {
    recordType = query.recordType
    index = plan?.index.index
    narrowingIndexes = plan?.others.map(\.index.index) ?? []
    usesCondition = plan?.isBounded ?? false
    isSorted = plan?.isSorted ?? query.sorts.isEmpty
    self.suggestion = plan == nil ? suggestion : nil
    self.isBeingBuilt = isBeingBuilt
  }

  /// Adds what is known of a typed question.
  mutating func note(ids: Int?, evaluated: [String]) { (namedCount, self.evaluated) = (ids, evaluated) }

  /// A sentence: `uses the index Note(made), whose order is that of the answer`.
  public var description: String {
    let asked = evaluated.isEmpty ? "" : "; evaluates on each: " + evaluated.joined(separator: ", ")
    return (words + asked).oneLine
  }

  private var words: String {
    if let namedCount { return "reads \(namedCount) record\(namedCount == 1 ? "" : "s") by name" }
    let order = isSorted ? "" : ", and sorts those that it finds"
    if let index {
      let others = narrowingIndexes.map { "\($0)" }.joined(separator: " and ")
      return "uses the index \(index)" + (usesCondition ? " for a condition" : "")
        + (isSorted ? ", whose order is that of the answer" : order)
        + (others.isEmpty ? "" : "; where that has many, \(others) too")
    }
    let scan = "reads all records of type '\(recordType)'\(order)"
    guard let suggestion else { return scan + "; no index would spare that" }
    return scan
      + (isBeingBuilt ? "; the index \(suggestion) is being built" : "; an index \(suggestion) would spare that")
  }
}
