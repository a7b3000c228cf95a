// The shelf: child records that arrived before their parent. The app should not see a child without its parent.
//
// A version is shelved only if more pages follow, and only if its record has no pending change: that is merged and sent as usual.
// It leaves the shelf when its parent is known, when anything else is learned of its record, and at the latest with the
// zone's last page. So nothing is hidden for longer than its zone is being fetched.
//
// The log has the shelf as holds of downloads, with their own code and the version's bytes: it survives a relaunch and a compaction, and
// `status`, `held` and `why` show it. Order within a page costs no event: children are applied after their parents.

import StrandlineSystem

extension Intake {
  /// The most versions on the shelf, and their bytes: all may have to be shown in one transaction. More are shown at once.
  static let shelfCountMax = 10_000
  static let shelfBytesMax = 8 << 20

  /// Sets a change aside until the end of its page if it is a version that has to wait for its parent.
  mutating func waits(_ change: ServerChange, _ core: borrowing StoreCore) throws -> Bool {
    guard page != nil, case .version(let server) = change.kind, let declared = schema[server.type].parent,
      let name = declared.parentName(server, of: change.id)
    else { return false }
    let entry = try core.projections.entry(change.id)
    guard entry?.pending == nil, try !isKnown(RecordID(name, zone: change.id.zone), core) else { return false }
    do {
      // The record was shown without this parent before, so it does not wait again.
      if let base = try entry.flatMap({ try core.base(of: change.id, $0) }),
        declared.parentName(base.version, of: change.id).equalsUTF8(name)
      {
        return false
      }
    } catch let error as StrandlineError where error.code == .damaged && !error.isOfIndex {
      // Applying the version will hold the record.
      return false
    }
    waiting[change.id] = ShelvedVersion(parent: name, server: server)
    return true
  }

  /// Whether this store has the record, or knows that it was deleted.
  private func isKnown(_ id: RecordID, _ core: borrowing StoreCore) throws -> Bool {
    let known = try core.projections.look(id)
    return known.entry != nil || known.deletion != nil
  }

  /// Applies a record's version from the shelf, before anything newer about the record.
  mutating func show(_ id: RecordID, _ core: inout StoreCore) throws {
    let kept = core.projections.withLock { $0.sync.unread[id] }.flatMap { $0.isShelved ? $0 : nil }
    var version = waiting.removeValue(forKey: id)
    do throws(CloudError) {
      if version == nil, let kept { version = try ShelvedVersion(kept.raw) }
    } catch {
      return try applyGuarded(ServerChange(id, .unreadable(error)), to: &core)
    }
    guard let version else { return }
    try applyGuarded(ServerChange(id, .version(version.server)), to: &core)
    // If the version was known already, or too old, it has not replaced the hold.
    if let kept, questions.isEmpty, core.projections.withLock({ $0.sync.unread[id] }) == kept {
      try core.append(.released(Released(id: id, lsn: .zero)))
    }
  }

  /// Shows every version of a zone on the shelf.
  mutating func showAll(in zone: ZoneID, _ core: inout StoreCore) throws {
    let kept = core.projections.withLock { $0.sync.unread.values.filter { $0.isShelved && $0.id.zone == zone } }
    let ids = Set(kept.map(\.id)).union(waiting.keys.filter { $0.zone == zone })
    for id in ids.sorted() { try show(id, &core) }
  }

  /// Ends a page or an answer: shows the versions whose parent is known now, and puts the others on the shelf. After the last page
  /// of a zone all are shown.
  mutating func endWaiting(_ core: inout StoreCore) throws {
    var children: [RecordID: [RecordID]] = [:]
    for (id, version) in waiting { children[RecordID(version.parent, zone: id.zone), default: []].append(id) }
    for held in core.projections.withLock({ $0.sync.unread.values.filter(\.isShelved) }) where waiting[held.id] == nil {
      let parent = ShelvedVersion.parent(in: held.raw) ?? ""
      children[RecordID(parent, zone: held.id.zone), default: []].append(held.id)
    }
    guard !children.isEmpty else { return }
    var known: [RecordID] = []
    for parent in children.keys where try isKnown(parent, core) { known.append(parent) }
    known.sort(by: >)
    while let parent = known.popLast() {
      for child in (children.removeValue(forKey: parent) ?? []).sorted() {
        try show(child, &core)
        if children[child] != nil, try isKnown(child, core) { known.append(child) }
      }
    }
    if let page, page.isLast, !page.waitsForListed || !hasListed(page.zone, core) { try showAll(in: page.zone, &core) }
    try putOnShelf(&core)
  }

  private func hasListed(_ zone: ZoneID, _ core: borrowing StoreCore) -> Bool {
    !listing.isEmpty || core.projections.withLock { $0.sync.listed[zone] != nil }
  }

  private mutating func putOnShelf(_ core: inout StoreCore) throws {
    guard !waiting.isEmpty else { return }
    let kept = core.projections.withLock { $0.sync.unread.values.filter(\.isShelved) }
    var (count, bytes) = (kept.count, kept.reduce(0) { $0 + $1.raw.count })
    for (id, version) in waiting.sorted(by: { $0.key < $1.key }) {
      let raw = version.bytes(id)
      (count, bytes) = (count + 1, bytes + raw.count)
      guard count <= Self.shelfCountMax, bytes <= Self.shelfBytesMax else {
        try show(id, &core)
        continue
      }
      taken.touched.insert(id)
      try core.append(
        .held(
          Held(
            id: id, direction: .download, lsn: .zero, raw: raw, code: Held.parentMissing,
            words: "its parent '\(version.parent)' has not arrived yet", attempts: 1,
            wallMilliseconds: core.environment.clock.wallMilliseconds())))
    }
    waiting = [:]
  }
}
