// Sends the plan's requests: the one place that maps a request to a call of the database.

extension SyncRequest {
  /// Sends it, once.
  ///
  /// - Throws: the database's errors.
  func perform(by database: any CloudDatabase) async throws -> SyncAnswer {
    switch self {
    case .user: return .user(try await database.user())
    case .changedZones(let list):
      return .changedZones(try await database.databaseChanges(since: list.token, limit: SyncPlan.pageLimit))
    case .allZones: return .allZones(try await database.zones())
    case .pages(let pages):
      var answers = try await database.zoneChanges(of: pages.map(\.query))
      if pages.count == 1, let zone = pages.first?.zone, answers[zone] == nil {
        // No other zone has taken its room.
        let reason = "the answer says nothing of zone '\(zone)'"
        answers[zone] = .failure(CloudError(.unexpectedServerResponse, reason: reason))
      }
      return .pages(answers)
    case .newest(let newest):
      return .newest(
        try await database.newestRecords(
          ofType: newest.type, in: newest.zone, limit: newest.limit, after: newest.marker))
    case .lookUp(let lookup): return .records(try await database.lookup(lookup.names.texts, in: lookup.zone))
    case .createZone(let zone, _):
      try await database.createZone(zone)
      return .done
    case .eraseZone(let zone):
      try await database.deleteZone(zone)
      return .done
    case .uploadContent(let upload):
      guard let source = upload.source else { preconditionFailure("a content is opened before it is sent") }
      return .content(try await database.upload(source, for: upload.place))
    case .modify(let upload):
      return .records(
        try await database.modify(upload.uploads.map(\.operation), in: upload.zone, atomic: upload.isAtomic))
    }
  }
}
