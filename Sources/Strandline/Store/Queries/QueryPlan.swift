// How a query is answered, in words for the developer who makes it faster.

/// How a store answers a query.
public struct QueryPlan: Hashable, Sendable {
  /// Which records the store reads.
  enum Way: Hashable, Sendable {
    /// The records that a typed question names by their IDs.
    case names(count: Int)
    /// The records that an index has, of them only those that the narrowing ones have too.
    case index(RecordIndex, narrowing: [RecordIndex], usesCondition: Bool)
    /// All records of the type.
    case all(type: String, Remedy)
  }

  /// What would spare a reading of all records.
  enum Remedy: Hashable, Sendable {
    case nothing
    /// The app could declare this index.
    case declare(RecordIndex)
    /// An index that is being built.
    case wait(RecordIndex)
  }

  let way: Way
  /// Whether the records come in the order of the answer, so that a page reads no more than it has; else all that are
  /// found are sorted.
  public let isSorted: Bool
  /// Of a typed question the conditions that no index can answer, as a sentence each: they are evaluated on each record that is
  /// found.
  public let evaluated: [String]

  /// The index that is used; nil if all records of the type are read, or records by their names.
  public var index: RecordIndex? { if case .index(let index, _, _) = way { index } else { nil } }

  /// For tests: further indexes, for conditions on other fields: where `index` has many records, of those only the ones are read that
  /// these have too.
  package var narrowingIndexes: [RecordIndex] { if case .index(_, let others, _) = way { others } else { [] } }

  /// Whether only those records are read that an index has for a condition.
  package var usesCondition: Bool { if case .index(_, _, true) = way { true } else { false } }

  /// An index that would spare reading all records of the type; nil if an index is used or none would help.
  public var suggestion: RecordIndex? {
    switch way {
    case .all(_, .declare(let index)), .all(_, .wait(let index)): index
    default: nil
    }
  }
}

extension QueryPlan: CustomStringConvertible {
  /// A sentence: `uses the index Note(made), whose order is that of the answer`.
  public var description: String {
    let asked = evaluated.isEmpty ? "" : "; evaluates on each: " + evaluated.joined(separator: ", ")
    return (words + asked).oneLine
  }

  private var words: String {
    let sorting = isSorted ? "" : ", and sorts those that it finds"
    switch way {
    case .names(let count): return "reads \(count) record\(count == 1 ? "" : "s") by name"
    case .index(let index, let narrowing, let usesCondition):
      let others = narrowing.map { "\($0)" }.joined(separator: " and ")
      return "uses the index \(index)" + (usesCondition ? " for a condition" : "")
        + (isSorted ? ", whose order is that of the answer" : sorting)
        + (others.isEmpty ? "" : "; where that has many, \(others) too")
    case .all(let type, let remedy): return "reads all records of type '\(type)'\(sorting); \(remedy.words)"
    }
  }
}

extension QueryPlan.Remedy {
  fileprivate var words: String {
    switch self {
    case .nothing: "no index would spare that"
    case .declare(let index): "an index \(index) would spare that"
    case .wait(let index): "the index \(index) is being built"
    }
  }
}
