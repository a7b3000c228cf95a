// The text form of a golden directory: one JSON object a line, for each segment its header and its frames, and at the
// end what a reader concludes. decoder.py prints the same from the pages alone.

import Strandline
import StrandlineLog
import StrandlineServer
import StrandlineSystem

/// Dumps of logs.
enum Dump {
  /// The lines of the log at `path`.
  static func lines(_ path: String, on fileSystem: any FileSystem) throws -> [String] {
    let environment = SystemEnvironment(fileSystem: fileSystem, clock: RealClock(), random: SystemRandom())
    let reader = try LogReader.open(at: path, environment: environment)
    var lines: [String] = []
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

  private static func header(_ header: SegmentHeader) -> JSON {
    .object([
      "segment": .uint(header.segmentID), "header": .text("\(LogFormat.major).\(header.minor)"),
      "storeUUID": .hexed(header.storeUUID), "tenure": .uint(header.tenure), "salt": .uint(UInt64(header.salt)),
      "role": .text(String(decoding: header.role.bytes, as: UTF8.self)),
      "createdNanoseconds": .uint(header.createdNanoseconds),
    ])
  }

  private static func frame(_ frame: FrameView, role: LogRole) throws -> JSON {
    var members: [String: JSON] = [
      "segment": .uint(frame.segmentID), "offset": .uint(UInt64(frame.offset)), "lsn": .uint(frame.lsn),
      "bytes": .count(frame.frameBytes), "frame": .text(frame.type.map { "\($0)" } ?? "type-\(frame.header.type)"),
    ]
    if let marker = frame.marker {
      members["body"] = .object([
        "durableLSN": .uint(marker.durableLSN), "durableEnd": .uint(UInt64(marker.durableEnd)),
        "framesSincePrevious": .uint(UInt64(marker.framesSincePrevious)), "chain": .uint(UInt64(marker.chain)),
        "strength": .uint(UInt64(marker.strength.rawValue)), "fullFlushLSN": .uint(marker.fullFlushLSN),
      ])
    } else if let opening = frame.opening {
      members["body"] = .object([
        "firstLSN": .uint(opening.firstLSN), "predecessorID": .uint(opening.predecessorID),
        "predecessorLastLSN": .uint(opening.predecessorLastLSN),
        "predecessorEnd": .uint(UInt64(opening.predecessorEnd)), "chain": .uint(UInt64(opening.chain)),
        "durableEnd": .uint(UInt64(opening.durableEnd)), "opens": .uint(opening.opens),
      ])
    } else if frame.type == .event {
      members["flags"] = .uint(UInt64(frame.header.flags))
      members["schema"] = .uint(UInt64(frame.header.schema))
      members["index"] = .uint(UInt64(frame.header.indexInTransaction))
      members["body"] =
        switch role {
        case .store: try JSON.event(EventCodec.decode(frame.body), at: frame.lsn)
        case .server: JSON.journal(try JournalEvent.decode(frame.body))
        }
    }
    return .object(members)
  }

  /// What a reader concludes of the log at `path`; "refused" if it does not come to reading events.
  static func verdict(_ path: String, log name: String) throws -> String {
    let reader: LogReader
    do { reader = try LogReader.open(at: path, environment: .real) } catch {
      return JSON.object(["verdict": .text("refused"), "log": .text(name)]).line
    }
    guard case .object(var members) = try verdict(reader) else { return "" }
    members["log"] = .text(name)
    return JSON.object(members).line
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
      return .object([
        "verdict": .text(error.code.rawValue), "file": .text(String(error.file?.split(separator: "/").last ?? "")),
        "from": .uint(error.offset ?? 0), "fromLSN": .uint(error.lsns?.lowerBound ?? 0),
        "toLSN": .uint(error.lsns?.upperBound ?? 0),
      ])
    }
  }
}
