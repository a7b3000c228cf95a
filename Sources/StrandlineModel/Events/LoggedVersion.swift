// What an event of the log says: decoded as a whole, or only the version of a record in it. Where events are read from is the store's
// business (Strandline/Index/EventSource.swift).

package import StrandlineLog
import StrandlineSystem

extension LogEvent {
  /// The event in a frame whose checksum is right.
  package func decoded() throws(StrandlineError) -> Event {
    let lsns = LSN(lsn)...LSN(lsn)
    guard schema == EventCodec.schema else {
      throw StrandlineError(
        .fromTheFuture, "event \(lsn) has payload schema \(schema), which this version does not know",
        lsns: lsns)
    }
    do throws(EventCodecError) {
      return try EventCodec.decode(body)
    } catch {
      switch error {
      case .fromNewerVersion:
        throw StrandlineError(.fromTheFuture, "event \(lsn) cannot be read: \(error)", lsns: lsns)
      case .damaged:
        throw StrandlineError(
          .damaged,
          "event \(lsn) cannot be decoded: \(error); its checksum is right, so it was written like this",
          lsns: lsns)
      }
    }
  }

  /// The kind of an event, which is not looked into; nil for one that this version does not know.
  package func kind() throws(StrandlineError) -> EventKind? {
    if schema == EventCodec.schema, let kind = EventCodec.kind(body) { return kind }
    // What cannot be told by the first bytes is an error here, unless the event may be passed over.
    _ = try decoded()
    return nil
  }

  /// The time of an event, in milliseconds since 1970: of what was done here by this device's hybrid clock, of what was
  /// fetched by the server or by the device that wrote it, whichever is later. nil for an event without one.
  package func timeMilliseconds() throws(StrandlineError) -> Int64? {
    switch try kind() {
    case .saved, .superseded, .merged, .deleted, .fetchedSave: break
    default: return nil
    }
    switch try decoded() {
    case .saved(let event): return event.time.milliseconds
    case .superseded(let event): return event.time.milliseconds
    case .merged(let event): return event.time.milliseconds
    case .deleted(let event): return event.time.milliseconds
    case .fetchedSave(let event): return max(event.latest.milliseconds, event.modified?.milliseconds ?? .min)
    default: return nil
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
    let event = try found.decoded()
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
