// Keeps cascading deletions from destroying unsent edits. At the server, deleting a record also deletes those that refer to it with
// DELETE_SELF. An unsent save may release (remove or change) such a reference. If the target were deleted first, or a record
// whose deletion cascades to the target, the server would delete the edited record too.
//
// So the deletion waits until the save is accepted. A reference that the save keeps needs no wait: the deletion would take the
// record along afterwards as well. This type holds the graph; OutgoingQueue+Cascades.swift loads it from the log.

import StrandlineSystem

/// The references that unsent saves of a zone release, and the cascades that could reach the records through them.
package struct CascadeGuard: Sendable {
  /// Records that are not sent now, and whose released references are loaded before the next deletion is sent.
  var toRead: Set<RecordID> = []
  /// Pending changes after the queue's cursor were loaded up to here.
  var readUpTo: LSN = .zero
  /// The names that each record's save releases, and the event of the save.
  private var released: [RecordID: (lsn: LSN, names: Set<CloudName>)] = [:]
  /// The released names, each with the records that release it.
  private var releasers: [CloudName: Set<RecordID>] = [:]
  /// For each released name, and on from there: the records whose deletion cascades to it.
  private var targets: [CloudName: [CloudName]] = [:]
  /// The same edges in the other direction: the records to which the deletion of a name cascades.
  private var sources: [CloudName: Set<CloudName>] = [:]
  /// Names whose targets have to be loaded.
  private var unread: Set<CloudName> = []

  package init() {}

  /// The number of records whose released references are known, or are to be loaded.
  var count: Int { released.count + toRead.count }

  func isKnown(_ id: RecordID) -> Bool { released[id] != nil }

  mutating func release(_ names: Set<CloudName>, by id: RecordID, at lsn: LSN) {
    forget(id)
    released[id] = (lsn, names)
    for name in names {
      releasers[name, default: []].insert(id)
      if targets[name] == nil { unread.insert(name) }
    }
  }

  /// Forgets a record's released references. Returns false if none were known.
  @discardableResult
  mutating func forget(_ id: RecordID) -> Bool {
    guard let (_, names) = released.removeValue(forKey: id) else { return false }
    for name in names {
      releasers[name]?.remove(id)
      if releasers[name]?.isEmpty == true { releasers[name] = nil }
    }
    if releasers.isEmpty { (targets, sources, unread) = ([:], [:], []) }
    return true
  }

  /// The server has another version of a record.
  ///
  /// - Returns: the records with saves for which its deletion had to wait.
  mutating func changed(_ name: CloudName) -> [RecordID] {
    guard targets[name] != nil || unread.contains(name) else { return [] }
    forgetTargets(of: name)
    return savesAtRisk(fromDeleting: name)
  }

  /// The server may have another version of a record: its targets are loaded again.
  mutating func forgetTargets(of name: CloudName) {
    guard targets[name] != nil else { return }
    for target in targets.removeValue(forKey: name) ?? [] {
      sources[target]?.remove(name)
      if sources[target]?.isEmpty == true { sources[target] = nil }
    }
    unread.insert(name)
  }

  /// Loads the targets that are not known yet.
  ///
  /// - Parameter read: the names whose deletion cascades to a record.
  mutating func loadTargets(_ read: (CloudName) throws -> [CloudName]) throws {
    while !unread.isEmpty {
      for name in unread {
        let loaded = try read(name)
        unread.remove(name)
        targets[name] = loaded
        for target in loaded {
          sources[target, default: []].insert(name)
          if targets[target] == nil { unread.insert(target) }
        }
      }
    }
  }

  /// The nearest record whose unsent save the deletion of `name` could destroy; nil if there is none.
  func saveAtRisk(fromDeleting name: CloudName, where isMeant: (RecordID) -> Bool = { _ in true }) -> RecordID? {
    var met: Set<CloudName> = [name]
    var nearest = [name]
    while !nearest.isEmpty {
      let found = Set(nearest.flatMap { releasers[$0] ?? [] }).filter(isMeant)
      if let first = found.min() { return first }
      nearest = nearest.flatMap { sources[$0] ?? [] }.filter { met.insert($0).inserted }
    }
    return nil
  }

  /// All records whose unsent saves the deletion of `name` could destroy.
  package func savesAtRisk(fromDeleting name: CloudName) -> [RecordID] {
    var found: Set<RecordID> = []
    _ = saveAtRisk(fromDeleting: name) { id in
      found.insert(id)
      return false
    }
    return found.sorted()
  }
}
