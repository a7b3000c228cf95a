// Puts the question about a conflict to the app's resolver. The answer is checked as a save is, which only the store can.

extension ConflictQuestion {
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
