// Records that a later version of the app wrote, in types with a declared version: they are applied, end the sync, or are kept until
// an app that knows them opens the store.

import StrandlineSystem

extension Intake {
  /// Keeps a version aside that this app must not apply.
  ///
  /// - Throws: `.fromTheFuture` if the app has declared that nothing is synced then.
  mutating func setsAside(_ change: ServerChange, _ core: inout StoreCore) throws -> Bool {
    guard case .version(let server) = change.kind, let version = schema.refusing(server) else { return false }
    // The version was applied before the app declared this.
    if let base = try core.projections.entry(change.id)?.base, server.system.changeTag.equalsUTF8(base.changeTag) {
      return false
    }
    let number = SchemaVersion.number(server.fields[version.field])
    let words = "version \(number) of '\(server.type)' wrote it, and this app knows version \(version.number)"
    guard version.whenNewer == .reject else {
      throw StrandlineError(
        .fromTheFuture,
        "record '\(change.id)' needs a later version of this app: \(words); nothing of it was applied, and "
          + "nothing is synced until the app is updated")
    }
    try show(change.id, &core)
    taken.touched.insert(change.id)
    let wall = core.environment.clock.wallMilliseconds()
    let raw = ShelvedVersion(parent: "", server: server).bytes(change.id)
    if core.projections.sync.unread[change.id]?.raw != raw {
      taken.report.held += 1
      try core.append(
        .held(
          Held(
            id: change.id, direction: .download, lsn: .zero, raw: raw, code: Held.newerSchema, words: words,
            attempts: 1,
            wallMilliseconds: wall)))
    }
    // A pending change was made from an older version: the server would refuse it. The app's update merges it.
    if let pending = try core.projections.entry(change.id)?.pending,
      core.projections.held(change.id)?.lsn != pending.newest
    {
      taken.report.held += 1
      try core.append(
        .held(
          Held(
            id: change.id, direction: .upload, lsn: pending.newest, code: Held.newerSchema, words: words, attempts: 1,
            wallMilliseconds: wall)))
    }
    try closeBlock(of: change.id, words: "this version of the app does not apply it", &core)
    return true
  }

  /// The rules of a type. The version of its schema is never lowered.
  func rules(of type: String) -> TypeRules {
    var known = rules[type]
    if let version = schema[type].version, known.fields[version.field] == nil {
      known.fields[version.field] = .greatest
    }
    return known
  }
}
