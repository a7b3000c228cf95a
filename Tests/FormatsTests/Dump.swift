// The text form of a golden directory: one JSON object a line, for each segment its header and its frames, and at the
// end what a reader concludes. decoder.py prints the same from the pages alone.

import Strandline
import StrandlineLog
import StrandlineHost
import StrandlineServer
import StrandlineSystem

/// Dumps of logs.
enum Dump {
  /// The lines of the log at `path`.
  static func lines(_ path: String, on fileSystem: any FileSystem) throws -> [String] {
    let environment = SystemEnvironment(fileSystem: fileSystem, clock: RealClock(), random: SystemRandom())
    let reader = try LogReader.open(at: path, environment: environment)
    var lines = [
      try control(fileSystem.open("\(path)/\(LogFormat.controlName)", .read)).line,
      try manifest(fileSystem.open("\(path)/\(LogFormat.manifestName)", .read)).line,
    ]
    var segmentID: UInt64 = 0
    try reader.frames { frame in
      if frame.segmentID != segmentID {
        segmentID = frame.segmentID
        let name = SegmentName.name(segmentID)
        let bytes = try fileSystem.open("\(path)/\(name)", .read).read(at: 0, count: LogFormat.headerBytes)
        lines.append(header(try SegmentHeader.decode(bytes, file: name, named: segmentID)).line)
      }
      lines.append(try self.frame(frame, role: reader.role).line)
    }
    lines.append(try verdict(reader).line)
    return lines
  }

  /// Both slots of CONTROL; null for one that does not verify.
  private static func control(_ file: any File) throws -> JSON {
    let bytes = try file.read(at: 0, count: LogFormat.controlPageBytes * LogFormat.controlSlots)
    let slots = try (0..<LogFormat.controlSlots).map { slot -> JSON in
      guard let control = try Control.decode(bytes, at: slot * LogFormat.controlPageBytes, file: file.path)
      else { return .null }
      return .object([
        "storeUUID": .hexed(control.storeUUID), "sequence": .uint(control.sequence),
        "tailSegmentID": .uint(control.bound.segmentID), "durableLSN": .uint(control.bound.lsn),
        "durableEnd": .uint(UInt64(control.bound.end)),
      ])
    }
    return .object(["control": .list(slots)])
  }

  private static func manifest(_ file: any File) throws -> JSON {
    let manifest = try Manifest.decode(file.read(at: 0, count: Int(file.size())), file: file.path)
    let entries = manifest.entries.map { entry -> JSON in
      .object([
        "segment": .uint(entry.segmentID), "firstLSN": .uint(entry.firstLSN),
        "lastLSN": .uint(entry.end?.lastLSN ?? 0), "end": .uint(UInt64(entry.end?.offset ?? 0)),
        "chain": .uint(UInt64(entry.end?.chain ?? 0)), "salt": .uint(UInt64(entry.salt)),
      ])
    }
    return .object([
      "manifest": .object([
        "storeUUID": .hexed(manifest.storeUUID), "role": .text(String(decoding: manifest.role.bytes, as: UTF8.self)),
        "nextSegmentID": .uint(manifest.nextSegmentID), "entries": .list(entries), "owner": .hexed(manifest.ownerBytes),
      ])
    ])
  }

  private static func header(_ header: SegmentHeader) -> JSON {
    .object([
      "segment": .uint(header.segmentID), "storeUUID": .hexed(header.storeUUID), "salt": .uint(UInt64(header.salt)),
      "role": .text(String(decoding: header.role.bytes, as: UTF8.self)), "kind": .uint(UInt64(header.kind.rawValue)),
      "compactedLSN": .uint(header.compactedLSN),
    ])
  }

  private static func frame(_ frame: FrameView, role: LogRole) throws -> JSON {
    var members: [String: JSON] = [
      "segment": .uint(frame.segmentID), "offset": .uint(UInt64(frame.offset)), "lsn": .uint(frame.lsn),
      "bytes": .count(frame.frameBytes), "frame": .text(frame.type.map { "\($0)" } ?? "type-\(frame.header.type)"),
      "flags": .uint(UInt64(frame.header.flags)),
    ]
    if let opening = frame.opening {
      members["body"] = .object([
        "predecessorID": .uint(opening.predecessorID), "predecessorEnd": .uint(UInt64(opening.predecessorEnd)),
        "chain": .uint(UInt64(opening.chain)), "durableEnd": .uint(UInt64(opening.durableEnd)),
        "rangeLastLSN": .uint(opening.rangeLastLSN), "rangeChain": .uint(UInt64(opening.rangeChain)),
      ])
    } else if frame.type == .index, let index = IndexBody.decode(frame.body, at: 0, count: frame.body.count) {
      members["body"] = .list(
        index.entries.map { .object(["lsnDelta": .uint(UInt64($0.lsnDelta)), "offset": .uint(UInt64($0.offset))]) })
    } else if frame.type == .seal, let seal = SealBody.decode(frame.body, at: 0, count: frame.body.count) {
      members["body"] = .object([
        "contentChain": .uint(UInt64(seal.contentChain)), "indexOffset": .uint(UInt64(seal.indexOffset)),
      ])
    } else if frame.type == .event {
      members["schema"] = .uint(UInt64(frame.header.schema))
      members["index"] = .uint(UInt64(frame.header.indexInTransaction))
      members["body"] =
        switch role {
        case .store, .inbox: try JSON.event(EventCodec.decode(frame.body), at: frame.lsn)
        case .server: try JournalEvent.decode(frame.body).map(JSON.journal) ?? .object(["kind": .text("unknown")])
        }
    }
    return .object(members)
  }

  /// What a reader concludes of the log at `path`.
  static func verdict(_ path: String, log name: String) throws -> JSON {
    let line: JSON
    do { line = try verdict(try LogReader.open(at: path, environment: .real)) } catch let error as LogError {
      line = Self.line(error)
    }
    guard case .object(var members) = line else { return line }
    members["log"] = .text(name)
    // Of the folder itself, whose name is a matter of the test.
    if case .text(name) = members["file"] { members["file"] = .text(".") }
    return .object(members)
  }

  private static func verdict(_ reader: LogReader) throws -> JSON {
    do {
      var events: UInt64 = 0
      try reader.poll { _ in events += 1 }
      let report = reader.recovery
      return .object([
        "verdict": .text(report.torn ? "torn" : "sound"), "lastLSN": .uint(report.lastLSN), "events": .uint(events),
        "segments": .count(report.segments), "unpromisedEvents": .uint(report.copiedEvents),
        "bytesSetAside": .uint(report.bytesSetAside),
      ])
    } catch let error as LogError {
      return line(error)
    }
  }

  private static func line(_ error: LogError) -> JSON {
    .object([
      "verdict": .text(error.verdict), "file": .text(String(error.file?.split(separator: "/").last ?? "")),
      "from": .uint(error.offset ?? 0), "fromLSN": .uint(error.lsns?.lowerBound ?? 0),
      "toLSN": .uint(error.lsns?.upperBound ?? 0),
    ])
  }
}

extension LogError {
  /// The verdict in the words of log.md.
  var verdict: String {
    switch code {
    case .damaged: "damaged"
    case .missingSegment: "missing"
    case .foreignSegment: "foreign"
    case .fromTheFuture: "future"
    case .wrongRole: "wrongRole"
    default: code.rawValue
    }
  }
}
