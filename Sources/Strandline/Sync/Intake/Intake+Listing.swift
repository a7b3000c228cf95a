// What the server names without showing it, and what a query shows beside the feed.
//
// A page without fields brings deletions as any page does. Of a record it says that there is a version, so what can be
// told without the fields is told: the version is here already, or it is still to be fetched. The names of the latter are
// one event of the page's transaction, so that no token stands in the log for a record that is neither there nor named.
//
// An answer to a query comes beside the feed and may be older than what is here. It is taken only where it can do no harm: the
// feed brings the version anyhow.

import StrandlineSystem

extension Intake.Source {
  /// What the log says of a version that it brings.
  var ofVersion: FetchedSave.Source {
    switch self {
    case .delta, .fullFetch: .feed
    case .lookup: .lookup
    case .query: .query
    }
  }
}

extension Intake {
  /// So many names at most stand in one event, however large the server's page is.
  private static let listedMax = 200

  /// Takes a version that the page names without its fields.
  mutating func list(_ server: ServerRecord, _ id: RecordID, _ core: inout StoreCore) throws {
    let entry = try core.projections.entry(id)
    let (tag, modified) = (server.system.changeTag ?? "", server.system.modified?.milliseconds)
    if let base = entry?.base, base.changeTag.equalsUTF8(tag), base.modifiedMilliseconds == modified {
      taken.report.echoes += 1
      taken.touched.insert(id)
      return
    }
    if let known = entry?.base?.modifiedMilliseconds, let modified, modified < known {
      // As of a page that shows the fields: what the version has seen says the answer to a lookup, and that it is what the
      // feed shows stays known.
      taken.report.blocked += 1
      taken.touched.insert(id)
      try core.append(
        .blocked(
          Blocked(
            id: id, subject: .version, changeTag: tag, births: [], consequence: .lookup,
            words: "a version that is older by the server's clock than the one that is known here")))
      return
    }
    if entry?.pending != nil { taken.listedAndOwed.append(id.name) }
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

  /// Whether a version that a query shows is taken: nothing is owed or doubtful of the record, no life of the name has ended,
  /// and the version is newer than the base. It is if it has seen the base and more, and it is not if the base has seen it; of
  /// others the server's clock tells. Tags have no order.
  func stands(
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
    switch VersionAge(
      of: new, isStamped: arrival.isStamped, beside: known, namesCopy: namesCopy(new, core), wasModifiedAfter: isAfter)
    {
    case .newer: return true
    case .older: return false
    case .unknown: return isAfter
    }
  }
}
