// Applies pages without fields, and answers to queries.
//
// A page without fields lists each record's name and change tag, which says whether this store has that version already. The
// names of the missing ones become a `listed` event in the page's transaction. So a token in the log always means that
// each record before it is here or is listed.
//
// An answer to a query may be older than this store's version. It is taken only if that is safe; the feed brings the version
// later in any case.

import StrandlineSystem

extension ServerChange.Source {
  /// The source that is logged with a version.
  var ofVersion: FetchedSave.Source {
    switch self {
    case .delta, .fullFetch: .feed
    case .lookup: .lookup
    case .query: .query
    }
  }
}

extension Intake {
  /// The most names in one event, however large the server's page is.
  private static let listedMax = 200

  /// Takes a record that the page lists without its fields.
  mutating func list(_ server: ServerRecord, _ id: RecordID, _ core: inout StoreCore) throws {
    let entry = try core.projections.entry(id)
    let (tag, modified) = (server.system.changeTag ?? "", server.system.modified?.milliseconds)
    if let base = entry?.base, base.changeTag.equalsUTF8(tag), base.modifiedMilliseconds == modified {
      taken.report.echoes += 1
      taken.touched.insert(id)
      return
    }
    if let known = entry?.base?.modifiedMilliseconds, let modified, modified < known {
      // As for a page with fields: only a lookup shows what the version has seen. The change tag is kept, to recognize the version
      // that the feed has shown.
      taken.report.blocked += 1
      taken.touched.insert(id)
      try core.append(
        .blocked(
          Blocked(
            id: id, subject: .version, changeTag: tag, births: [], consequence: .lookup,
            words: "a version that is older by the server's clock than the one that is known here")))
      return
    }
    if entry?.pending != nil { taken.listedAndPending.append(id.name) }
    listing.append(Listed.Item(name: id.name, changeTag: tag, modifiedMilliseconds: modified ?? 0))
  }

  /// Appends the names that are still to be fetched.
  func appendListing(_ core: inout StoreCore) throws {
    guard let page else { return }
    for start in stride(from: 0, to: listing.count, by: Self.listedMax) {
      let items = Array(listing[start..<min(listing.count, start + Self.listedMax)])
      try core.append(.listed(Listed(zone: page.zone, items: items)))
    }
  }

  /// Whether a version from a query is taken: the record has no pending change, open question or deletion, and the version is newer
  /// than the base. It is newer if it has seen the base and more, and older if the base has seen it; if neither, the server's
  /// clock decides. Change tags have no order.
  func supersedesBase(
    _ arrival: Arrival, of id: RecordID, _ entry: RecordEntry?, _ base: LoadedVersion?, _ core: borrowing StoreCore
  ) throws -> Bool {
    let (block, unread) = core.projections.withLock { ($0.sync.openBlocks[id], $0.sync.unread[id]) }
    guard entry?.pending == nil, block == nil, unread == nil, try core.projections.deletion(id) == nil else {
      return false
    }
    guard let base else { return true }
    let (known, new) = (base.version.stamp, arrival.version.stamp)
    guard !known.births.isDisjoint(with: new.births) else { return false }
    let isAfter: Bool
    if let before = entry?.base?.modifiedMilliseconds, let now = arrival.system.modified?.milliseconds {
      isAfter = now > before
    } else {
      isAfter = false
    }
    let own = OwnMutations(core.projections.sync, upTo: core.projections.appliedLSN)
    switch VersionAge(
      of: new, isStamped: arrival.isStamped, beside: known, namesCopy: own.namesCopy(new), wasModifiedAfter: isAfter)
    {
    case .newer: return true
    case .older: return false
    case .unknown: return isAfter
    }
  }
}
