// What compaction makes of many events that nobody needs whole: facts about deleted names, and the order and time of
// saves that a later one stands for. They take the place of one of those events, under its LSN.

package import StrandlineSystem

/// Deletions that compaction packed: what the deletion index must know of each name to decide as before.
package struct Deletions: EventPayload, Hashable {
  package static let kind = EventKind.deletions
  /// One deleted name.
  package struct Item: Hashable, Sendable {
    package var hash: KeyedHash
    /// The event that deleted it.
    package var lsn: LSN
    /// Deleted by this store's app; otherwise by the server's word.
    package var isLocal: Bool
    package var births: Set<Birth>
    package var createdMilliseconds: Int64?
    package var changeTag: String?

    package init(
      hash: KeyedHash, lsn: LSN, isLocal: Bool, births: Set<Birth>, createdMilliseconds: Int64?, changeTag: String?
    ) {
      self.hash = hash
      self.lsn = lsn
      self.isLocal = isLocal
      self.births = births
      self.createdMilliseconds = createdMilliseconds
      self.changeTag = changeTag
    }
  }
  /// The greatest hybrid time among what was left out; zero if it stands elsewhere.
  package var latest: HybridTime
  /// The key of the hashes.
  package var key: HashKey
  /// Ascending by hash, each once.
  package var items: [Item]

  package init(latest: HybridTime = .zero, key: HashKey, items: [Item]) {
    self.latest = latest
    self.key = key
    self.items = items
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    latest = HybridTime(rawValue: try reader.u64())
    key = try HashKey(from: &reader)
    items = []
    for _ in 0..<(try reader.count(minimumBytes: 16 + 5)) {
      let start = reader.offset
      let hash = try KeyedHash(from: &reader)
      if let last = items.last, last.hash >= hash {
        throw ByteReaderError(offset: start, what: "deleted names out of order")
      }
      items.append(
        Item(
          hash: hash, lsn: LSN(try reader.varint()), isLocal: try reader.flag(),
          births: try StampCodec.decodeBirths(from: &reader),
          createdMilliseconds: try reader.flag() ? try reader.zigzag() : nil, changeTag: try reader.optionalString()))
    }
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.u64(latest.rawValue)
    key.encode(into: &bytes)
    bytes.varint(UInt64(items.count))
    for item in items {
      item.hash.encode(into: &bytes)
      bytes.varint(item.lsn.rawValue)
      bytes.u8(item.isLocal ? 1 : 0)
      StampCodec.encode(births: item.births, into: &bytes)
      bytes.u8(item.createdMilliseconds == nil ? 0 : 1)
      if let created = item.createdMilliseconds { bytes.zigzag(created) }
      bytes.optional(item.changeTag)
    }
  }
}

/// Unsettled saves that a later mutation of the same record stands for: that one alone is sent, but they are still
/// owed, and counted, and waited for.
package struct Superseded: EventPayload, Hashable {
  package static let kind = EventKind.superseded
  package struct Record: Hashable, Sendable {
    package var id: RecordID
    package var type: String
    package init(id: RecordID, type: String) {
      self.id = id
      self.type = type
    }
  }
  package struct Mutation: Hashable, Sendable {
    package var lsn: LSN
    /// The place of its record in `records`.
    package var record: Int
    package var time: HybridTime
    package init(lsn: LSN, record: Int, time: HybridTime) {
      self.lsn = lsn
      self.record = record
      self.time = time
    }
  }
  /// The greatest hybrid time among what was left out; zero if it stands elsewhere.
  package var latest: HybridTime
  package var records: [Record]
  /// Ascending by LSN.
  package var mutations: [Mutation]

  package init(latest: HybridTime = .zero, records: [Record] = [], mutations: [Mutation] = []) {
    self.latest = latest
    self.records = records
    self.mutations = mutations
  }
  package init(from reader: inout ByteReader) throws(ByteReaderError) {
    latest = HybridTime(rawValue: try reader.u64())
    records = []
    for _ in 0..<(try reader.count(minimumBytes: 5)) {
      let id = try FieldCodec.decodeID(from: &reader)
      records.append(Record(id: id, type: try reader.string()))
    }
    mutations = []
    var last: UInt64 = 0
    var time: UInt64 = 0
    for _ in 0..<(try reader.count(minimumBytes: 3)) {
      let start = reader.offset
      let step = try reader.varint()
      let (next, overflow) = last.addingReportingOverflow(step)
      let record = try reader.varint()
      time &+= UInt64(bitPattern: try reader.zigzag())
      guard step > 0, !overflow, record < UInt64(records.count) else {
        throw ByteReaderError(offset: start, what: "a mutation out of order, or of no record")
      }
      last = next
      mutations.append(Mutation(lsn: LSN(next), record: Int(record), time: HybridTime(rawValue: time)))
    }
  }
  package func encode(into bytes: inout ByteWriter) {
    bytes.u64(latest.rawValue)
    bytes.varint(UInt64(records.count))
    for record in records {
      FieldCodec.encode(record.id, into: &bytes)
      bytes.string(record.type)
    }
    bytes.varint(UInt64(mutations.count))
    var last: UInt64 = 0
    var time: UInt64 = 0
    for mutation in mutations {
      bytes.varint(mutation.lsn.rawValue &- last)
      bytes.varint(UInt64(mutation.record))
      bytes.zigzag(Int64(bitPattern: mutation.time.rawValue &- time))
      last = mutation.lsn.rawValue
      time = mutation.time.rawValue
    }
  }
}
