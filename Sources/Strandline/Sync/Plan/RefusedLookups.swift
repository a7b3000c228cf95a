// Lookups that the server refuses one by one. It may refuse a request because of one of its records, which is then held by name;
// or it refuses every lookup, for a cause that will pass: then to hold each record would leave all of them to a person.

/// The records of a zone of which a lookup was refused, each alone, while none of another record was answered.
struct RefusedLookups: Sendable {
  /// From so many on that are refused with one code it is not the records.
  static let alikeMin = 8

  private(set) var refusals: [(name: CloudName, error: CloudError)] = []

  mutating func add(_ name: CloudName, _ error: CloudError) { refusals.append((name, error)) }

  var names: [CloudName] { refusals.map(\.name) }

  var answers: [CloudName: CloudResult] {
    Dictionary(refusals.map { ($0.name, .failed($0.error, serverRecord: nil)) }) { first, _ in first }
  }

  /// Whether the cause is not a record.
  var isOfAll: Bool {
    refusals.count >= Self.alikeMin && refusals.allSatisfy { $0.error.code == refusals[0].error.code }
  }
}
