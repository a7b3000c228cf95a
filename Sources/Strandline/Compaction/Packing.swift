// How what is known of many deleted names becomes one packed event. A pack has the LSN of the last event that it took
// something from, its carrier, and is closed before an event of one of its records that stays: a reader of the compacted log
// then meets both in the order in which they happened.

/// Deleted names.
struct DeletionPacking {
  /// With names of ordinary length a pack has less than a megabyte, and is read as one event.
  static let itemsMax = 16_384

  private var items: [RecordID: Deletions.Item] = [:]
  private var carrier: LSN = .zero

  var isOpen: Bool { !items.isEmpty }

  /// - Parameter carrier: the event that the name is packed from.
  mutating func add(_ id: RecordID, _ entry: DeletionEntry, at carrier: LSN) {
    items[id] = Deletions.Item(
      id: id, lsn: entry.lsn, isLocal: entry.isLocal, births: entry.births,
      createdMilliseconds: entry.createdMilliseconds, changeTag: entry.changeTag)
    self.carrier = carrier
  }

  /// Whether the pack is to be closed before so many more. One event brings no more than one pack holds.
  func isFull(for count: Int) -> Bool { items.count + count > Self.itemsMax }

  /// Whether a name is in the pack.
  func has(_ id: RecordID) -> Bool { items[id] != nil }

  /// Closes the pack; returns its carrier, nil if it is empty.
  mutating func close() -> LSN? {
    guard isOpen else { return nil }
    defer { self = DeletionPacking() }
    return carrier
  }

  /// Closes the pack; returns the event that stands for all of it.
  mutating func take() -> Event {
    defer { self = DeletionPacking() }
    return .deletions(Deletions(items: items.values.sorted { $0.id < $1.id }))
  }
}
