// Events that compaction writes in place of many: what is known of deleted names, and the order and time of pending saves
// that are not their record's newest. Each has the LSN of one of the events that it replaces.

package import StrandlineSystem

/// Deletions that compaction packed: what the deletion index needs of each name to decide as before.
package struct Deletions: EventPayload, Hashable {
  package static let kind = EventKind.deletions
  /// One deleted name.
  package struct Item: Hashable, FieldGroup {
    package static let tableName = "deletedName"
    package static let bytesMin = 16 + 5
    package var hash: KeyedHash
    /// The event that deleted it.
    package var lsn: LSN
    /// Whether this store's app deleted it; otherwise the server said so.
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
    package init<Coder: FieldCoder>(_ item: Self?, _ field: inout Coder) throws(Coder.Failure) {
      hash = try field("hash", .keyedHash, item?.hash)
      lsn = try field("lsn", .lsn, item?.lsn)
      isLocal = try field("isLocal", .flag, item?.isLocal)
      births = try field("births", .births, item?.births)
      createdMilliseconds = try field("created", .optional(.zigzag), item?.createdMilliseconds)
      changeTag = try field("changeTag", .optional(.text), item?.changeTag)
    }
  }
  /// The greatest hybrid time among the events that this replaces; zero if an event that stays has it.
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
  package init<Coder: FieldCoder>(_ deletions: Self?, _ field: inout Coder) throws(Coder.Failure) {
    latest = try field("latest", .time, deletions?.latest)
    key = try field("key", .hashKey, deletions?.key)
    let items = try field("names", .list(.group(Item.self)), deletions?.items)
    try field.require(zip(items, items.dropFirst()).allSatisfy { $0.hash < $1.hash }, "deleted names out of order")
    self.items = items
  }
}

/// Pending saves that are not their record's newest mutation. The newest alone is sent; these are still counted and waited
/// for until it is settled.
package struct Superseded: EventPayload, Hashable {
  package static let kind = EventKind.superseded
  package struct Record: Hashable, FieldGroup {
    package static let tableName = "supersededRecord"
    package static let bytesMin = 5
    package var id: RecordID
    package var type: String
    package init(id: RecordID, type: String) {
      self.id = id
      self.type = type
    }
    package init<Coder: FieldCoder>(_ record: Self?, _ field: inout Coder) throws(Coder.Failure) {
      id = try field("record", .id, record?.id)
      type = try field("recordType", .text, record?.type)
    }
  }
  package struct Mutation: Hashable, Sendable {
    package var lsn: LSN
    /// The place of its record in `records`, counted from 0.
    package var record: Int
    package var time: HybridTime
    package init(lsn: LSN, record: Int, time: HybridTime) {
      self.lsn = lsn
      self.record = record
      self.time = time
    }
  }
  /// The greatest hybrid time among the events that this replaces; zero if an event that stays has it.
  package var latest: HybridTime
  package var records: [Record]
  /// Ascending by LSN.
  package var mutations: [Mutation]

  package init(latest: HybridTime = .zero, records: [Record] = [], mutations: [Mutation] = []) {
    self.latest = latest
    self.records = records
    self.mutations = mutations
  }
  package init<Coder: FieldCoder>(_ superseded: Self?, _ field: inout Coder) throws(Coder.Failure) {
    latest = try field("latest", .time, superseded?.latest)
    let records = try field("records", .list(.group(Record.self)), superseded?.records)
    let mutations = try field("mutations", .supersededMutations, superseded?.mutations)
    try field.require(mutations.allSatisfy { $0.record < records.count }, "a mutation of no record")
    (self.records, self.mutations) = (records, mutations)
  }
}

/// The bytes of one of `Superseded.mutations`: its LSN and its time as differences from the mutation before.
private struct MutationStep: FieldGroup {
  static let tableName = "supersededMutation"
  static let bytesMin = 3
  var lsn: UInt64
  var record: UInt64
  var time: Int64

  init(_ mutation: Superseded.Mutation, after previous: Superseded.Mutation?) {
    lsn = mutation.lsn.rawValue &- (previous?.lsn.rawValue ?? 0)
    record = UInt64(mutation.record)
    time = Int64(bitPattern: mutation.time.rawValue &- (previous?.time.rawValue ?? 0))
  }
  init<Coder: FieldCoder>(_ step: Self?, _ field: inout Coder) throws(Coder.Failure) {
    lsn = try field("lsn", .varint, step?.lsn)
    record = try field("recordPlace", .varint, step?.record)
    time = try field("time", .zigzag, step?.time)
  }
}

/// Mutations in ascending order of their LSNs, each as a step from the one before.
package struct SupersededMutationsType: FieldType {
  package var name: String { "\(MutationStep.tableName)*" }
  package var bytesMin: Int { 1 }
  package func read(from reader: inout ByteReader) throws(ByteReaderError) -> [Superseded.Mutation] {
    var mutations: [Superseded.Mutation] = []
    var (lsn, time): (UInt64, UInt64) = (0, 0)
    for _ in 0..<(try reader.count(minimumBytes: MutationStep.bytesMin)) {
      let start = reader.offset
      let step = try MutationStep(nil, &reader)
      let (next, overflow) = lsn.addingReportingOverflow(step.lsn)
      guard step.lsn > 0, !overflow, let record = Int(exactly: step.record) else {
        throw ByteReaderError(offset: start, what: "a mutation out of order, or of no record")
      }
      lsn = next
      time &+= UInt64(bitPattern: step.time)
      mutations.append(Superseded.Mutation(lsn: LSN(lsn), record: record, time: HybridTime(rawValue: time)))
    }
    return mutations
  }
  package func write(_ value: [Superseded.Mutation], to writer: inout ByteWriter) {
    writer.varint(UInt64(value.count))
    var previous: Superseded.Mutation?
    for mutation in value {
      _ = MutationStep(MutationStep(mutation, after: previous), &writer)
      previous = mutation
    }
  }
  /// A dump shows LSNs and times, not differences.
  package func content(of value: [Superseded.Mutation]) -> FieldContent {
    .list(
      value.map { mutation in
        var fields = MutationStep(mutation, after: nil).listedFields
        fields[2].content = .unsigned(mutation.time.rawValue)
        return .group(table: MutationStep.tableName, bytesMin: MutationStep.bytesMin, fields)
      })
  }
}

extension FieldType where Self == SupersededMutationsType { package static var supersededMutations: Self { Self() } }
