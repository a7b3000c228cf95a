// Tells two causes of refused lookups apart. One record may cause the refusal: it is then held. Or the server refuses every lookup
// for a while: to hold each of these records would leave all of them to a person.

/// The records of a zone whose lookups were refused, each alone, since the last lookup that was answered.
package struct RefusedLookups: Sendable {
  /// If this many are refused with one code, the records are not the cause.
  static let alikeMin = 8

  private(set) var refusals: [(name: CloudName, error: CloudError)] = []

  var isEmpty: Bool { refusals.isEmpty }

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
