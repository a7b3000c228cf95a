// Everything that can happen to a store, as cases. What an event must carry is what later histories need; the
// layout of each is in Formats/events.md, and each has its bytes here, also those that nothing writes yet.
//
// Every payload begins with its kind (u16), its version (u8) and flags (u8, bit 0: a reader that does not know
// the kind may pass over it).

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

  /// The name that people and programs use.
  package var name: String { String(describing: self) }

  /// Whether a reader that does not know this kind may pass over it, because it changes no projection.
  package var isSkippable: Bool {
    switch self {
    case .assetUploaded: true
    default: false
    }
  }
}

/// What every kind of event can do.
package protocol EventPayload: Sendable {
  static var kind: EventKind { get }
  /// Reads what follows the payload header.
  init(from reader: inout ByteReader) throws(ByteReaderError)
  /// Writes what follows the payload header.
  func encode(into writer: inout ByteWriter)
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
    case .unknown: nil
    }
  }

  /// The kind's name, also of an unknown one.
  package var kindName: String {
    if case .unknown(let unknown) = self { return "unknown-\(unknown.kind)" }
    return payload.map { type(of: $0).kind.name } ?? "unknown"
  }

  /// The record that this event speaks of, where it is one.
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
    default: nil
    }
  }
}

/// An event of a kind that this version does not know.
package struct Unknown: Hashable, Sendable {
  package var kind: UInt16
  package var bytes: [UInt8]
}

/// Events to bodies of frames and back.
package enum EventCodec {
  /// The schema number that frames with store events carry.
  package static let schema: UInt16 = 1
  package static let payloadVersion: UInt8 = 1
  package static let headerBytes = 2 + 1 + 1

  package static func encode(_ event: Event) -> [UInt8] {
    if case .unknown(let unknown) = event { return unknown.bytes }
    var writer = ByteWriter(capacity: 1024)
    if let payload = event.payload { encode(payload, into: &writer) }
    return writer.bytes
  }

  private static func encode(_ payload: some EventPayload, into writer: inout ByteWriter) {
    let kind = type(of: payload).kind
    writer.u16(kind.rawValue)
    writer.u8(payloadVersion)
    writer.u8(kind.isSkippable ? 1 : 0)
    payload.encode(into: &writer)
  }

  /// Reads an event from a frame's body.
  package static func decode(_ body: [UInt8]) throws(EventError) -> Event {
    var reader = ByteReader(body)
    let number: UInt16
    let version: UInt8
    do throws(ByteReaderError) {
      number = try reader.u16()
      version = try reader.u8()
      let isSkippable = try reader.u8() & 1 == 1
      if let kind = EventKind(rawValue: number), version == payloadVersion { return try decode(kind, &reader) }
      if isSkippable { return .unknown(Unknown(kind: number, bytes: body)) }
    } catch {
      throw .malformed(error)
    }
    throw .newerVersion(kind: number, version: version)
  }

  private static func decode(_ kind: EventKind, _ reader: inout ByteReader) throws(ByteReaderError) -> Event {
    let event: Event =
      switch kind {
      case .opened: .opened(try Opened(from: &reader))
      case .bound: .bound(try Bound(from: &reader))
      case .saved: .saved(try Saved(from: &reader))
      case .deleted: .deleted(try Deleted(from: &reader))
      case .sent: .sent(try Sent(from: &reader))
      case .settled: .settled(try Settled(from: &reader))
      case .merged: .merged(try Merged(from: &reader))
      case .fetchedSave: .fetchedSave(try FetchedSave(from: &reader))
      case .fetchedDelete: .fetchedDelete(try FetchedDelete(from: &reader))
      case .confirmed: .confirmed(try Confirmed(from: &reader))
      case .listed: .listed(try Listed(from: &reader))
      case .blocked: .blocked(try Blocked(from: &reader))
      case .held: .held(try Held(from: &reader))
      case .released: .released(try Released(from: &reader))
      case .discarded: .discarded(try Discarded(from: &reader))
      case .tokenAdvanced: .tokenAdvanced(try TokenAdvanced(from: &reader))
      case .zoneChanged: .zoneChanged(try ZoneChanged(from: &reader))
      case .sweepBegan: .sweepBegan(try SweepBegan(from: &reader))
      case .sweepEnded: .sweepEnded(try SweepEnded(from: &reader))
      case .assetUploaded: .assetUploaded(try AssetUploaded(from: &reader))
      case .accountChanged: .accountChanged(try AccountChanged(from: &reader))
      case .pace: .pace(try Pace(from: &reader))
      case .deletions: .deletions(try Deletions(from: &reader))
      case .superseded: .superseded(try Superseded(from: &reader))
      }
    guard reader.isAtEnd else { throw ByteReaderError(offset: reader.offset, what: "bytes after the event") }
    return event
  }

  /// One transaction for the log.
  package static func transaction(_ events: [Event]) -> LogTransaction {
    var transaction = LogTransaction()
    for event in events { transaction.add(schema: schema, body: encode(event)) }
    return transaction
  }
}
