// Tells two causes of refusals apart. One record may be wrong: it is held, and the others go on. Or the server refuses everything of a
// kind: to hold each of these records would cost a request for each, and leave all of them to a person. Then nothing of that kind is
// asked for a while.

import StrandlineSystem

/// The cause of refusals of several records.
enum RefusalCause: Hashable, Sendable {
  /// Each record by itself.
  case records
  /// Nothing of the kind is accepted.
  case all

  /// From this number on, lookups of a zone that are refused, each for one record and none of them answered, have a common cause.
  static let lookupsMin = 8
  /// The same for the saves of a type.
  static let savesMin = 3

  /// Lookups of single records of a zone were refused, and none was answered since the first.
  static func ofLookups(_ errors: [CloudError]) -> RefusalCause {
    errors.count >= lookupsMin && errors.allSatisfy { $0.code == errors[0].code } ? .all : .records
  }

  /// Saves of one type were refused, and none was accepted since the first.
  ///
  /// - Parameter halted: the error for which the type is halted already: then one refusal with the same words is enough, and one with
  ///   other words is of the record that was let through.
  static func ofSaves(_ saves: [RefusedSave], halted: CloudError?) -> RefusalCause {
    guard let first = saves.first, saves.allSatisfy({ $0.error.saysTheSame(as: first.error) }) else { return .records }
    if let halted { return first.error.saysTheSame(as: halted) ? .all : .records }
    guard saves.count >= savesMin else { return .records }
    // If the words name a record to which all of them refer, it may be the cause, and the rest of the type may be accepted.
    let named = saves.map { save in Set(save.needs.filter { save.error.reason.contains("'\($0)'") }) }
    return named.dropFirst().reduce(named[0]) { $0.intersection($1) }.isEmpty ? .all : .records
  }
}

/// A save that was refused for a reason of its own.
struct RefusedSave: Sendable {
  /// The targets that the server may need before the record.
  var needs: [CloudName]
  var error: CloudError
}

extension CloudError {
  /// Whether it has the same code and words as another one.
  func saysTheSame(as other: CloudError) -> Bool { (code, reason) == (other.code, other.reason) }
}

/// The records of a zone whose lookups were refused, each alone, since the last lookup that was answered.
package struct RefusedLookups: Sendable {
  private(set) var refusals: [(name: CloudName, error: CloudError)] = []

  var isEmpty: Bool { refusals.isEmpty }

  mutating func add(_ name: CloudName, _ error: CloudError) { refusals.append((name, error)) }

  var names: [CloudName] { refusals.map(\.name) }

  var answers: [CloudName: CloudResult] {
    Dictionary(refusals.map { ($0.name, .failed($0.error, serverRecord: nil)) }) { first, _ in first }
  }

  var cause: RefusalCause { .ofLookups(refusals.map(\.error)) }
}
