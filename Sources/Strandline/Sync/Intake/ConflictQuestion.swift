// A conflict that the app's resolver decides. A resolver is app code, so it runs while no lock of the store is held; its answer counts
// only if the question is still the same afterwards.

import StrandlineSystem

/// The question to a resolver.
struct ConflictQuestion: Sendable {
  let key: ConflictKey
  let conflict: Conflict
  private let resolver: @Sendable (Conflict) throws -> Record

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

  /// Asks the resolver, and checks what it returns as a save is checked.
  func ask() -> ConflictAnswer {
    do {
      let record = try resolver(conflict)
      guard record.id == key.id, record.type == conflict.server.type else {
        throw StrandlineError(
          .invalidValue,
          "it is '\(record.id)' of type '\(record.type)', not '\(key.id)' of type '\(conflict.server.type)'")
      }
      try WriteTransaction.check(record)
      return .success(record)
    } catch {
      return .failure(ConflictRefusal(words: "joined, because the resolver failed: \(error)"))
    }
  }
}

/// Identifies a question. If any of these has changed, it is another question.
struct ConflictKey: Hashable, Sendable {
  let id: RecordID
  let local: LSN
  let ancestor: LSN?
  let changeTag: String?
  let modifiedMilliseconds: Int64?
}

/// A resolver's answer to a conflict.
typealias ConflictAnswer = Result<Record, ConflictRefusal>

/// Why a resolver's answer does not count.
struct ConflictRefusal: Error {
  let words: String
}

/// The resolvers' answers so far.
struct ConflictAnswers {
  var known: [ConflictKey: ConflictAnswer] = [:]
  /// Whether resolvers may still be asked.
  var mayAsk = true

  /// The answer to a question; nil if it has to be asked.
  func answer(to question: ConflictQuestion) -> ConflictAnswer? {
    if let answer = known[question.key] { return answer }
    if mayAsk { return nil }
    return .failure(ConflictRefusal(words: "joined, because the record changed whenever the resolver was asked"))
  }
}
