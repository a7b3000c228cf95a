// Every kind of event that a store's log can hold, and the codec from events to the bodies of frames and back. The
// layout of each kind is its own description (Fields.swift) and a table in Formats/events.md; kinds that nothing writes
// yet have both.

package import StrandlineLog
package import StrandlineSystem

/// The numbers of events. A number is never used again.
package enum EventKind: UInt16, CaseIterable, Sendable {
  case opened = 1
  case bound = 2
  case saved = 3
  case deleted = 4
  case sent = 5
  case settled = 6
  case merged = 7
  case fetchedSave = 8
  case fetchedDelete = 9
  case confirmed = 10
  case listed = 11
  case blocked = 12
  case held = 13
  case released = 14
  case discarded = 15
  case tokenAdvanced = 16
  case zoneChanged = 17
  case sweepBegan = 18
  case sweepEnded = 19
  case assetUploaded = 20
  case accountChanged = 21
  case pace = 22
  case deletions = 23
  case superseded = 24
  case databaseTokenAdvanced = 25
  case refused = 26
  case joined = 27
  case listedEnded = 28
  case conflicted = 29
  case inboxChange = 30
  case inboxRead = 31
  case inboxRefused = 32
  case inboxRefusalEnded = 33

  /// The name that the command prints and takes.
  package var name: String { String(describing: self) }

  /// Whether a reader that does not know this kind may pass over it, because it changes no projection.
  package var isSkippable: Bool {
    switch self {
    case .assetUploaded, .conflicted: true
    default: false
    }
  }
}

/// What every kind of event has: a number, and a description of what follows the payload header.
package protocol EventPayload: FieldDescribed {
  static var kind: EventKind { get }
  /// Writes what follows the payload header. A requirement, so that each kind has a copy of its own that the compiler
  /// has specialized.
  func encode(into writer: inout ByteWriter)
}

extension EventPayload {
  package func encode(into writer: inout ByteWriter) { _ = Self(self, &writer) }
}

/// An event.
package enum Event: Sendable {
  case opened(Opened)
  case bound(Bound)
  case saved(Saved)
  case deleted(Deleted)
  case sent(Sent)
  case settled(Settled)
  case merged(Merged)
  case fetchedSave(FetchedSave)
  case fetchedDelete(FetchedDelete)
  case confirmed(Confirmed)
  case listed(Listed)
  case blocked(Blocked)
  case held(Held)
  case released(Released)
  case discarded(Discarded)
  case tokenAdvanced(TokenAdvanced)
  case zoneChanged(ZoneChanged)
  case sweepBegan(SweepBegan)
  case sweepEnded(SweepEnded)
  case assetUploaded(AssetUploaded)
  case accountChanged(AccountChanged)
  case pace(Pace)
  case deletions(Deletions)
  case superseded(Superseded)
  case databaseTokenAdvanced(DatabaseTokenAdvanced)
  case refused(Refused)
  case joined(Joined)
  case listedEnded(ListedEnded)
  case conflicted(Conflicted)
  case inboxChange(InboxChange)
  case inboxRead(InboxRead)
  case inboxRefused(InboxRefused)
  case inboxRefusalEnded(InboxRefusalEnded)
  /// A kind of a later version, that may be passed over; kept byte for byte.
  case unknown(Unknown)

  /// The payload, whatever its kind; nil for an unknown one.
  package var payload: (any EventPayload)? {
    switch self {
    case .opened(let payload): payload
    case .bound(let payload): payload
    case .saved(let payload): payload
    case .deleted(let payload): payload
    case .sent(let payload): payload
    case .settled(let payload): payload
    case .merged(let payload): payload
    case .fetchedSave(let payload): payload
    case .fetchedDelete(let payload): payload
    case .confirmed(let payload): payload
    case .listed(let payload): payload
    case .blocked(let payload): payload
    case .held(let payload): payload
    case .released(let payload): payload
    case .discarded(let payload): payload
    case .tokenAdvanced(let payload): payload
    case .zoneChanged(let payload): payload
    case .sweepBegan(let payload): payload
    case .sweepEnded(let payload): payload
    case .assetUploaded(let payload): payload
    case .accountChanged(let payload): payload
    case .pace(let payload): payload
    case .deletions(let payload): payload
    case .superseded(let payload): payload
    case .databaseTokenAdvanced(let payload): payload
    case .refused(let payload): payload
    case .joined(let payload): payload
    case .listedEnded(let payload): payload
    case .conflicted(let payload): payload
    case .inboxChange(let payload): payload
    case .inboxRead(let payload): payload
    case .inboxRefused(let payload): payload
    case .inboxRefusalEnded(let payload): payload
    case .unknown: nil
    }
  }

  /// The kind's name, also of an unknown one.
  package var kindName: String {
    if case .unknown(let unknown) = self { return "unknown-\(unknown.kind)" }
    return payload.map { type(of: $0).kind.name } ?? "unknown"
  }

  /// The record that this event is of; nil for an event of none or of several.
  package var recordID: RecordID? {
    switch self {
    case .saved(let event): event.id
    case .deleted(let event): event.id
    case .settled(let event): event.id
    case .merged(let event): event.id
    case .fetchedSave(let event): event.id
    case .fetchedDelete(let event): event.id
    case .blocked(let event): event.id
    case .held(let event): event.id
    case .released(let event): event.id
    case .discarded(let event): event.id
    case .assetUploaded(let event): event.id
    case .superseded(let event): event.id
    case .refused(let event): event.id
    case .joined(let event): event.id
    case .conflicted(let event): event.id
    case .inboxChange(let event): event.id
    default: nil
    }
  }

  /// What the transport keeps with the version that this event says the server holds; empty for every other event.
  package var archive: [UInt8] {
    switch self {
    case .settled(let event): event.archive
    case .fetchedSave(let event): event.archive
    default: []
    }
  }
}

/// An event of a kind that this version does not know.
package struct Unknown: Hashable, Sendable {
  package var kind: UInt16
  package var bytes: [UInt8]
}

/// What every payload begins with, also those of the local server's journal.
package struct PayloadHeader: FieldDescribed {
  package static let bytes = 2 + 1 + 1
  /// The flag of a kind that a reader may pass over if it does not know it.
  package static let skippable: UInt8 = 1
  package var kind: UInt16
  package var version: UInt8
  package var flags: UInt8

  package init(kind: UInt16, version: UInt8, flags: UInt8) {
    self.kind = kind
    self.version = version
    self.flags = flags
  }
  package init<Coder: FieldCoder>(_ header: Self?, _ field: inout Coder) throws(Coder.Failure) {
    kind = try field("kind", .u16, header?.kind)
    version = try field("version", .u8, header?.version)
    flags = try field("flags", .u8, header?.flags)
  }

  package var isSkippable: Bool { flags & Self.skippable != 0 }
}

/// Why a frame's body is no event for this code.
package enum EventCodecError: Error, Hashable, Sendable {
  /// A kind or a version that this code does not know, and that it must not pass over.
  case fromNewerVersion(kind: UInt16, version: UInt8)
  /// Bytes that are no event.
  case damaged(ByteReaderError)
}

extension EventCodecError: CustomStringConvertible {
  package var description: String {
    switch self {
    case .fromNewerVersion(let kind, let version): "an event of a newer version (kind \(kind), version \(version))"
    case .damaged(let error): error.description
    }
  }
}

/// Events to bodies of frames and back.
package enum EventCodec {
  /// The schema number that frames with store events carry.
  package static let schema: UInt16 = 1
  package static let payloadVersion: UInt8 = 1

  package static func encode(_ event: Event) -> [UInt8] {
    var writer = ByteWriter(capacity: 1024)
    encode(event, into: &writer)
    return writer.bytes
  }

  /// Appends the body of an event's frame.
  package static func encode(_ event: Event, into writer: inout ByteWriter) {
    if case .unknown(let unknown) = event { return writer.raw(unknown.bytes) }
    if let payload = event.payload { encode(payload, into: &writer) }
  }

  private static func encode(_ payload: some EventPayload, into writer: inout ByteWriter) {
    encodeHeader(type(of: payload).kind, into: &writer)
    payload.encode(into: &writer)
  }

  /// Appends what the body of an event of a kind begins with.
  static func encodeHeader(_ kind: EventKind, into writer: inout ByteWriter) {
    let flags = kind.isSkippable ? PayloadHeader.skippable : 0
    _ = PayloadHeader(PayloadHeader(kind: kind.rawValue, version: payloadVersion, flags: flags), &writer)
  }

  /// The kind of the event in a frame's body, if this version knows it.
  package static func kind(_ body: [UInt8]) -> EventKind? {
    guard body.count >= PayloadHeader.bytes, body[2] == payloadVersion else { return nil }
    return EventKind(rawValue: UInt16(body[0]) | UInt16(body[1]) << 8)
  }

  /// Reads an event from a frame's body.
  package static func decode(_ body: [UInt8]) throws(EventCodecError) -> Event {
    let header: PayloadHeader
    do throws(ByteReaderError) {
      var reader = ByteReader(body)
      header = try PayloadHeader(nil, &reader)
      if let kind = EventKind(rawValue: header.kind), header.version == payloadVersion {
        let event = try event(of: kind, from: &reader)
        guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the event") }
        return event
      }
    } catch {
      throw .damaged(error)
    }
    if header.isSkippable { return .unknown(Unknown(kind: header.kind, bytes: body)) }
    throw .fromNewerVersion(kind: header.kind, version: header.version)
  }

  private static func event(
    of kind: EventKind, from reader: inout ByteReader
  ) throws(ByteReaderError) -> Event {
    switch kind {
    case .opened: .opened(try Opened(nil, &reader))
    case .bound: .bound(try Bound(nil, &reader))
    case .saved: .saved(try Saved(nil, &reader))
    case .deleted: .deleted(try Deleted(nil, &reader))
    case .sent: .sent(try Sent(nil, &reader))
    case .settled: .settled(try Settled(nil, &reader))
    case .merged: .merged(try Merged(nil, &reader))
    case .fetchedSave: .fetchedSave(try FetchedSave(nil, &reader))
    case .fetchedDelete: .fetchedDelete(try FetchedDelete(nil, &reader))
    case .confirmed: .confirmed(try Confirmed(nil, &reader))
    case .listed: .listed(try Listed(nil, &reader))
    case .blocked: .blocked(try Blocked(nil, &reader))
    case .held: .held(try Held(nil, &reader))
    case .released: .released(try Released(nil, &reader))
    case .discarded: .discarded(try Discarded(nil, &reader))
    case .tokenAdvanced: .tokenAdvanced(try TokenAdvanced(nil, &reader))
    case .zoneChanged: .zoneChanged(try ZoneChanged(nil, &reader))
    case .sweepBegan: .sweepBegan(try SweepBegan(nil, &reader))
    case .sweepEnded: .sweepEnded(try SweepEnded(nil, &reader))
    case .assetUploaded: .assetUploaded(try AssetUploaded(nil, &reader))
    case .accountChanged: .accountChanged(try AccountChanged(nil, &reader))
    case .pace: .pace(try Pace(nil, &reader))
    case .deletions: .deletions(try Deletions(nil, &reader))
    case .superseded: .superseded(try Superseded(nil, &reader))
    case .databaseTokenAdvanced: .databaseTokenAdvanced(try DatabaseTokenAdvanced(nil, &reader))
    case .refused: .refused(try Refused(nil, &reader))
    case .joined: .joined(try Joined(nil, &reader))
    case .listedEnded: .listedEnded(try ListedEnded(nil, &reader))
    case .conflicted: .conflicted(try Conflicted(nil, &reader))
    case .inboxChange: .inboxChange(try InboxChange(nil, &reader))
    case .inboxRead: .inboxRead(try InboxRead(nil, &reader))
    case .inboxRefused: .inboxRefused(try InboxRefused(nil, &reader))
    case .inboxRefusalEnded: .inboxRefusalEnded(try InboxRefusalEnded(nil, &reader))
    }
  }

  /// One transaction for the log.
  package static func transaction(_ events: [Event]) -> LogTransaction {
    var transaction = LogTransaction()
    for event in events { transaction.add(schema: schema, body: encode(event)) }
    return transaction
  }
}
