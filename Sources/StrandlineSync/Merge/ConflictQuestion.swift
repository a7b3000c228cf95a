// A conflict that the app's resolver decides. A resolver is app code, so it runs while no lock of the store is held; its answer counts
// only if the question is still the same afterwards.

import StrandlineSystem

/// The question to a resolver.
package struct ConflictQuestion: Sendable {
  package let key: ConflictKey
  package let conflict: Conflict
  package let resolver: @Sendable (Conflict) throws -> Record

  init(
    _ situation: VersionSituation, _ edit: PendingEdit, _ resolver: @escaping @Sendable (Conflict) throws -> Record
  ) {
    let id = situation.id
    let system = situation.arrival.system
    key = ConflictKey(
      id: id, local: edit.lsn, ancestor: edit.ancestor?.lsn, changeTag: system.changeTag,
      modifiedMilliseconds: system.modified?.milliseconds)
    conflict = Conflict(
      ancestor: edit.ancestor?.version.record(id, system: nil), local: edit.version.record(id, system: nil),
      server: situation.arrival.version.record(id, system: system))
    self.resolver = resolver
  }
}

/// Identifies a question. If any of these has changed, it is another question.
package struct ConflictKey: Hashable, Sendable {
  package let id: RecordID
  let local: LSN
  let ancestor: LSN?
  let changeTag: String?
  let modifiedMilliseconds: Int64?
}

/// A resolver's answer to a conflict.
package typealias ConflictAnswer = Result<Record, ConflictRefusal>

/// Why a resolver's answer does not count.
package struct ConflictRefusal: Error {
  let words: String

  package init(words: String) {
    self.words = words
  }
}

/// The resolvers' answers so far.
package struct ConflictAnswers {
  package var known: [ConflictKey: ConflictAnswer] = [:]
  /// Whether resolvers may still be asked.
  package var mayAsk = true

  package init() {}

  /// The answer to a question; nil if it has to be asked.
  func answer(to question: ConflictQuestion) -> ConflictAnswer? {
    if let answer = known[question.key] { return answer }
    if mayAsk { return nil }
    return .failure(ConflictRefusal(words: "joined, because the record changed whenever the resolver was asked"))
  }
}
