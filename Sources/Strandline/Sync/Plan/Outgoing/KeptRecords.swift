// What must stay at the server until a save is there. The save may take away the reference by which the server would delete its
// record along with the target: to delete the target first, or what the target hangs on, would delete the record with the edit.
//
// So a record keeps what its save leaves, whatever it waits for, until the save is taken. A reference that the save does not
// change keeps nothing: the deletion takes the record along afterwards as well. Here is what is known of that; it is read in
// OutgoingQueue+Kept.swift.

import StrandlineSystem

/// What the unsent saves of a zone leave, and what that hangs on.
struct KeptRecords: Sendable {
  /// Records that are not sent now. What they leave is read when a deletion is about to go.
  var toRead: Set<RecordID> = []
  /// What is owed behind the queue's cursor was read up to here.
  var readUpTo: LSN = .none
  /// What each record leaves, and the mutation by which it does.
  private var left: [RecordID: (lsn: LSN, names: Set<CloudName>)] = [:]
  /// The names that are left, each with the records that leave it.
  private var leavers: [CloudName: Set<RecordID>] = [:]
  /// Of the names that are left, and of those that they hang on: with which ones the server deletes them.
  private var links: [CloudName: [CloudName]] = [:]
  /// The same the other way round: what the server deletes along with each name.
  private var hanging: [CloudName: Set<CloudName>] = [:]
  /// Names whose links have to be read.
  private var unread: Set<CloudName> = []

  /// Records of which it is known what they leave, or is to be read.
  var count: Int { left.count + toRead.count }

  func isKnown(_ id: RecordID) -> Bool { left[id] != nil }

  mutating func keep(_ names: Set<CloudName>, by id: RecordID, at lsn: LSN) {
    forget(id)
    left[id] = (lsn, names)
    for name in names {
      leavers[name, default: []].insert(id)
      if links[name] == nil { unread.insert(name) }
    }
  }

  /// A record keeps nothing any more. Returns false if it was not known to.
  @discardableResult
  mutating func forget(_ id: RecordID) -> Bool {
    guard let (_, names) = left.removeValue(forKey: id) else { return false }
    for name in names {
      leavers[name]?.remove(id)
      if leavers[name]?.isEmpty == true { leavers[name] = nil }
    }
    if leavers.isEmpty { (links, hanging, unread) = ([:], [:], []) }
    return true
  }

  /// The server has another version of a record.
  ///
  /// - Returns: the records that kept something through it.
  mutating func changed(_ name: CloudName) -> [RecordID] {
    guard links[name] != nil || unread.contains(name) else { return [] }
    forgetLinks(of: name)
    return keepers(of: name)
  }

  /// The server may have another version of a record: what it hangs on is read again.
  mutating func forgetLinks(of name: CloudName) {
    guard links[name] != nil else { return }
    for target in links.removeValue(forKey: name) ?? [] {
      hanging[target]?.remove(name)
      if hanging[target]?.isEmpty == true { hanging[target] = nil }
    }
    unread.insert(name)
  }

  /// Reads what is not known yet of what hangs on what.
  ///
  /// - Parameter read: with which names the server deletes a record.
  mutating func readLinks(_ read: (CloudName) throws -> [CloudName]) throws {
    while !unread.isEmpty {
      for name in unread {
        let targets = try read(name)
        unread.remove(name)
        links[name] = targets
        for target in targets {
          hanging[target, default: []].insert(name)
          if links[target] == nil { unread.insert(target) }
        }
      }
    }
  }

  /// A record whose unsent save the deletion of `name` could take along; the nearest one, in order. Nil if there is none.
  func keeper(of name: CloudName, where isMeant: (RecordID) -> Bool = { _ in true }) -> RecordID? {
    var met: Set<CloudName> = [name]
    var nearest = [name]
    while !nearest.isEmpty {
      let keepers = Set(nearest.flatMap { leavers[$0] ?? [] }).filter(isMeant)
      if let first = keepers.min() { return first }
      nearest = nearest.flatMap { hanging[$0] ?? [] }.filter { met.insert($0).inserted }
    }
    return nil
  }

  /// All of them.
  func keepers(of name: CloudName) -> [RecordID] {
    var found: Set<RecordID> = []
    _ = keeper(of: name) { id in
      found.insert(id)
      return false
    }
    return found.sorted()
  }
}
