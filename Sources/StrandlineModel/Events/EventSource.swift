// Where events are read from by their LSN: a log that this store holds, or one that another process writes.

package import StrandlineLog
package import StrandlineSystem

/// A log, for reading.
package enum EventSource: Sendable {
  case writer(Log)
  case reader(LogReader)

  /// The folder of the log.
  package var folder: any Folder {
    switch self {
    case .writer(let log): log.folder
    case .reader(let reader): reader.folder
    }
  }

  /// Whether another process may write and compact the log.
  package var isReader: Bool { if case .reader = self { true } else { false } }

  /// The event at `lsn`, which must be durable. One read and a checksum.
  package func event(at lsn: LSN) throws(StrandlineError) -> Event { try EventSource.decode(read(lsn.rawValue)) }

  /// The same; nil if compaction removed it.
  package func eventIfKept(at lsn: LSN) throws(StrandlineError) -> Event? {
    guard let found = try readIfKept(lsn.rawValue) else { return nil }
    return try EventSource.decode(found)
  }

  /// The version of a record in the event at `lsn`, which must be durable; nil if the event holds none.
  ///
  /// - Throws: an error of a lying index if the event is of another record.
  package func version(at lsn: LSN, of id: RecordID) throws(StrandlineError) -> ShownVersion? {
    try ShownVersion(read(lsn.rawValue), of: id)
  }

  /// The same; nil also if compaction removed the event.
  ///
  /// - Parameter hint: where the event was seen last.
  package func versionIfKept(
    at lsn: LSN, of id: RecordID, hint: LogPlace? = nil
  ) throws(StrandlineError) -> ShownVersion? {
    guard let found = try readIfKept(lsn.rawValue, hint) else { return nil }
    return try ShownVersion(found, of: id)
  }

  /// The first event that is left of the transaction that `lsn` is in; `lsn` itself if none is left before it.
  package func transactionStart(of lsn: LSN) throws(StrandlineError) -> LSN {
    var first = lsn
    var at = lsn.rawValue
    while at > 0 {
      if let found = try readIfKept(at) {
        if at < lsn.rawValue, found.isLast { return first }
        first = LSN(at)
        if found.isFirst { return first }
      }
      at -= 1
    }
    return first
  }

  /// Throws the public error: what reads an event is as often a public call as the engine.
  private func read(_ lsn: UInt64, _ hint: LogPlace? = nil) throws(StrandlineError) -> LogEvent {
    do throws(LogError) {
      switch self {
      case .writer(let log): return try Self.read(lsn, hint, log)
      case .reader(let reader): return try Self.read(lsn, hint, reader)
      }
    } catch {
      throw StrandlineError(error, "reading event \(lsn)")
    }
  }

  /// A read that began before a suspension goes on where the suspended store reads.
  private static func read(_ lsn: UInt64, _ hint: LogPlace?, _ log: Log) throws(LogError) -> LogEvent {
    do throws(LogError) {
      return if let hint { try log.read(lsn, at: hint) } else { try log.read(lsn) }
    } catch {
      guard let reader = log.readerAfterClose else { throw error }
      return try read(lsn, hint, reader)
    }
  }

  private static func read(_ lsn: UInt64, _ hint: LogPlace?, _ reader: LogReader) throws(LogError) -> LogEvent {
    if let hint { try reader.read(lsn, at: hint) } else { try reader.read(lsn) }
  }

  /// The event as it stands in the log; nil if compaction removed it.
  package func readIfKept(_ lsn: UInt64, _ hint: LogPlace? = nil) throws(StrandlineError) -> LogEvent? {
    do {
      return try read(lsn, hint)
    } catch {
      // The log's word for an event that a compaction removed; nothing else has this code here.
      if error.code == .outdated { return nil }
      throw error
    }
  }

  /// The newest event by whose state a compaction has left anything out; see `Log.compactedLSN()`.
  package func compactedLSN() throws(StrandlineError) -> LSN {
    do throws(LogError) {
      switch self {
      case .writer(let log): return LSN(try log.compactedLSN())
      case .reader(let reader): return LSN(try reader.compactedLSN())
      }
    } catch {
      throw StrandlineError(error, "asking up to where the log was compacted")
    }
  }

  package var storeUUID: [UInt8] {
    switch self {
    case .writer(let log): log.storeUUID
    case .reader(let reader): reader.storeUUID
    }
  }

  /// The newest durable event.
  package var durableLSN: LSN {
    switch self {
    case .writer(let log): LSN(log.durableLSN)
    case .reader(let reader): LSN(reader.lastLSN)
    }
  }

  /// The kind of an event, which is not looked into; nil for one that this version does not know.
  package static func kind(_ found: LogEvent) throws(StrandlineError) -> EventKind? {
    if found.schema == EventCodec.schema, let kind = EventCodec.kind(found.body) { return kind }
    // What cannot be told by the first bytes is an error here, unless the event may be passed over.
    _ = try decode(found)
    return nil
  }

  /// The time of an event, in milliseconds since 1970: of what was done here by this device's hybrid clock, of what was
  /// fetched by the server or by the device that wrote it, whichever is later. nil for an event without one.
  package static func timeMilliseconds(_ found: LogEvent) throws(StrandlineError) -> Int64? {
    switch try kind(found) {
    case .saved, .superseded, .merged, .deleted, .fetchedSave: break
    default: return nil
    }
    switch try decode(found) {
    case .saved(let event): return event.time.milliseconds
    case .superseded(let event): return event.time.milliseconds
    case .merged(let event): return event.time.milliseconds
    case .deleted(let event): return event.time.milliseconds
    case .fetchedSave(let event): return max(event.latest.milliseconds, event.modified?.milliseconds ?? .min)
    default: return nil
    }
  }

  /// The bytes of the log's segments, as far as they are written.
  package var segmentBytes: UInt64 {
    switch self {
    case .writer(let log): log.segmentBytes
    case .reader(let reader): reader.segmentBytes
    }
  }

  /// The bytes of the finished segments that end behind `lsn`; 0 of a log that another process writes.
  package func finishedBytes(after lsn: LSN) -> UInt64 {
    if case .writer(let log) = self { return log.finishedBytes(after: lsn.rawValue) }
    return 0
  }

  /// The damage that was met in the log since it was opened.
  package var damage: [LogDamage] {
    switch self {
    case .writer(let log): log.damage
    case .reader(let reader): reader.damage
    }
  }

  /// The event in a frame whose checksum is right.
  package static func decode(_ found: LogEvent) throws(StrandlineError) -> Event {
    let lsns = LSN(found.lsn)...LSN(found.lsn)
    guard found.schema == EventCodec.schema else {
      throw StrandlineError(
        .fromTheFuture, "event \(found.lsn) has payload schema \(found.schema), which this version does not know",
        lsns: lsns)
    }
    do throws(EventCodecError) {
      return try EventCodec.decode(found.body)
    } catch {
      switch error {
      case .fromNewerVersion:
        throw StrandlineError(.fromTheFuture, "event \(found.lsn) cannot be read: \(error)", lsns: lsns)
      case .damaged:
        throw StrandlineError(
          .damaged,
          "event \(found.lsn) cannot be decoded: \(error); its checksum is right, so it was written like this",
          lsns: lsns)
      }
    }
  }
}

/// What an app sees of the version in an event: no stamps, which are half of the work of decoding one.
package struct ShownVersion {
  package var type: String
  let fields: EncodedFields
  /// The server's metadata of the version, if it was fetched.
  package var system: SystemFields?

  /// Takes the version in an event; nil if the event holds none.
  package init?(_ event: Event, at lsn: LSN) throws(StrandlineError) {
    do throws(ByteReaderError) {
      switch event {
      case .saved(let saved):
        type = saved.type
        fields = try saved.content.fields()
      case .merged(let merged):
        type = merged.type
        fields = try merged.content.fields()
      case .fetchedSave(let fetched):
        type = fetched.type
        fields = try fetched.content.fields()
        system = SystemFields(fetched)
      default: return nil
      }
    } catch { throw StrandlineError(undecodable: lsn, error) }
  }

  /// Takes the version of a record in an event that was read; nil if the event holds none.
  ///
  /// - Throws: an error of a lying index if the event is of another record.
  package init?(_ found: LogEvent, of id: RecordID) throws(StrandlineError) {
    if found.schema == EventCodec.schema, let saved = Self(saved: found.body, of: id) {
      self = saved
      return
    }
    let event = try EventSource.decode(found)
    try event.checkIsOf(id, at: LSN(found.lsn))
    try self.init(event, at: LSN(found.lsn))
  }

  /// Takes the version in a `saved` event, and passes over everything else in it: nearly every version that is read was
  /// saved here. nil if it is another event, or if anything is wrong with it, which decoding it will say.
  private init?(saved body: [UInt8], of id: RecordID) {
    var reader = ByteReader(body)
    do throws(ByteReaderError) {
      let header = try PayloadHeader(nil, &reader)
      guard header.kind == Saved.kind.rawValue, header.version == EventCodec.payloadVersion else { return nil }
      guard let type = try Saved.skipToContent(&reader, of: id) else { return nil }
      self.type = type
      fields = try EncodedFields(content: &reader)
    } catch {
      return nil
    }
  }

  /// The record that an app sees.
  package func record(_ id: RecordID, system: SystemFields?) -> Record {
    Record(type: type, id: id, undecoded: fields, system: system)
  }
}

/// A version of a record as an event holds it.
package struct LoadedVersion: Sendable {
  package var version: Version
  /// Which fields have been written here and not yet acknowledged, each with the mutation that wrote it last.
  package var dirty: [String: LSN]
  /// The mutation's own tenure and time; nil for a version that was fetched.
  package var own: (tenure: UInt64, time: HybridTime)?
  package var editCount: UInt64
  /// The base that the mutation was made on.
  package var base: LSN
  /// The server's metadata of the version, if it was fetched.
  package var system: SystemFields?

  /// Decodes the version in an event; nil if the event holds none.
  package init?(_ event: Event, at lsn: LSN) throws(StrandlineError) {
    do throws(ByteReaderError) {
      guard let version = try LoadedVersion(decoding: event, at: lsn) else { return nil }
      self = version
    } catch { throw StrandlineError(undecodable: lsn, error) }
  }

  private init?(decoding event: Event, at lsn: LSN) throws(ByteReaderError) {
    switch event {
    case .saved(let saved):
      (version, dirty) = try saved.content.decoded(type: saved.type, births: saved.births, this: lsn)
      own = (saved.tenure, saved.time)
      editCount = saved.editCount
      base = saved.base
    case .merged(let merged):
      (version, dirty) = try merged.content.decoded(type: merged.type, births: merged.births, this: lsn)
      own = (merged.tenure, merged.time)
      editCount = merged.editCount
      base = merged.base
    case .fetchedSave(let fetched):
      (version, dirty) = try fetched.content.decoded(type: fetched.type, births: fetched.births, this: lsn)
      own = nil
      editCount = 0
      base = lsn
      system = SystemFields(fetched)
    default: return nil
    }
  }
}

extension SystemFields {
  package init(_ settled: Settled) {
    self.init(
      changeTag: settled.changeTag, created: settled.created, modified: settled.modified, archive: settled.archive)
  }

  package init(_ fetched: FetchedSave) {
    self.init(
      changeTag: fetched.changeTag, created: fetched.created, modified: fetched.modified, unknown: fetched.unknown,
      archive: fetched.archive)
  }
}

extension Event {
  /// Checks that an event that was read for a record is of that record: the sorted tables say which event to read, and may
  /// contradict the log.
  package func checkIsOf(_ id: RecordID, at lsn: LSN) throws(StrandlineError) {
    guard recordID != id else { return }
    throw StrandlineError(
      lyingIndex: "event \(lsn) should be of record '\(id)' and is of \(recordID.map { "'\($0)'" } ?? "none")",
      lsns: lsn...lsn)
  }
}

extension StrandlineError {
  /// The index says what the log does not.
  package init(lyingIndex words: String, lsns: ClosedRange<LSN>? = nil) {
    self.init(.damaged, words, lsns: lsns)
    (isOfIndex, isOfLyingIndex) = (true, true)
  }

  fileprivate init(undecodable lsn: LSN, _ error: ByteReaderError) {
    self.init(
      .damaged,
      "the record in event \(lsn) cannot be decoded: \(error); its checksum is right, so it was written like this",
      lsns: lsn...lsn)
  }
}
