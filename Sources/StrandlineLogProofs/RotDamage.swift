// The words of damage at rest: what a file is for, what can be done to it, and what that may lead to. What judges it
// stands in BitRot.swift.

import StrandlineLog

/// What a file of a store is for.
package enum RotKind: Hashable, Sendable, Comparable {
  /// A segment that another one follows.
  case sealedSegment
  /// One that was made out of others, by a merge or a compaction.
  case rewrittenSegment
  /// The segment at the end.
  case lastSegment
  /// A file without which all events are there all the same: its damage is never a refusal.
  case hint(String)
  /// A file that the store cannot do without: exact events or a refusal.
  case truth(String)

  /// Files that may be lost: by their names.
  private static let hints: Set<String> = [LogFormat.lockName, LogFormat.ballastName]

  /// - Parameter last: the path of the segment at the end.
  static func of(_ path: String, _ bytes: [UInt8], last: String) throws -> RotKind {
    let name = String(path.split(separator: "/").last ?? "")
    guard let id = SegmentName.segmentID(of: name) else {
      return hints.contains(name) ? .hint(name) : .truth(name)
    }
    if path == last { return .lastSegment }
    switch try SegmentHeader.decode(bytes, file: path, named: id).kind {
    case .live: return .sealedSegment
    case .rewritten: return .rewrittenSegment
    }
  }

  package var word: String {
    switch self {
    case .sealedSegment: "sealed segment"
    case .rewrittenSegment: "rewritten segment"
    case .lastSegment: "last segment"
    case .hint(let name), .truth(let name): name
    }
  }

  package static func < (left: RotKind, right: RotKind) -> Bool { left.word < right.word }
}

/// What a damage led to; all of these are legal.
package enum RotOutcome: String, Hashable, Sendable, CaseIterable {
  /// The exact events, and `verify` is content.
  case exact
  /// The exact events, and `verify` has something to say.
  case exactWithFinding = "exact, and found"
  /// An error that names the file; nothing was changed.
  case refused
}

/// One damage.
package enum RotDamage: Sendable, CustomStringConvertible {
  case bit(file: Int, Int)
  case cut(file: Int, Int)
  /// Bytes behind the end.
  case junk(file: Int, Int), zeros(file: Int, Int), ownBytes(file: Int, from: Int)
  /// Sector `sector` is zero, junk, or what lies there in another file.
  case zeroedSector(file: Int, Int), junkSector(file: Int, Int), staleSector(file: Int, Int, of: Int)
  /// Two neighbouring sectors change places.
  case swappedSectors(file: Int, Int)
  case missing(file: Int)
  case exchanged(file: Int, Int)
  case replaced(file: Int, by: Int)

  var file: Int {
    switch self {
    case .bit(let file, _), .cut(let file, _), .junk(let file, _), .zeros(let file, _), .ownBytes(let file, _),
      .zeroedSector(let file, _), .junkSector(let file, _), .staleSector(let file, _, _),
      .swappedSectors(let file, _), .missing(let file), .exchanged(let file, _), .replaced(let file, _):
      file
    }
  }

  /// Only the file itself can be blamed.
  var hasOneCulprit: Bool {
    switch self {
    case .missing, .exchanged, .replaced: false
    default: true
    }
  }

  package var description: String {
    switch self {
    case .bit(_, let bit): "bit \(bit % 8) of byte \(bit / 8) flipped"
    case .cut(_, let length): "cut to \(length) bytes"
    case .junk(_, let count): "\(count) bytes of junk at its end"
    case .zeros(_, let count): "\(count) zeros at its end"
    case .ownBytes(_, let from): "its own bytes from \(from) once more at its end"
    case .zeroedSector(_, let sector): "sector \(sector) zeroed"
    case .junkSector(_, let sector): "sector \(sector) filled with junk"
    case .staleSector(_, let sector, let other): "sector \(sector) as in file \(other)"
    case .swappedSectors(_, let sector): "sectors \(sector) and \(sector + 1) swapped"
    case .missing: "missing"
    case .exchanged(_, let other): "exchanged with file \(other)"
    case .replaced(_, let other): "replaced by a copy of file \(other)"
    }
  }
}

/// Counts of a run.
package struct RotReport: Sendable, CustomStringConvertible {
  package var damages = 0
  package private(set) var counts: [RotKind: [RotOutcome: Int]] = [:]
  /// By how much the greediest read exceeded its file.
  package var excessBytes = Int64.min

  package init() {}

  mutating func count(_ kind: RotKind, _ outcome: RotOutcome) {
    damages += 1
    counts[kind, default: [:]][outcome, default: 0] += 1
  }

  package func count(_ outcome: RotOutcome) -> Int { counts.values.reduce(0) { $0 + ($1[outcome] ?? 0) } }

  package static func += (left: inout RotReport, right: RotReport) {
    left.damages += right.damages
    left.excessBytes = max(left.excessBytes, right.excessBytes)
    for (kind, outcomes) in right.counts {
      for (outcome, count) in outcomes { left.counts[kind, default: [:]][outcome, default: 0] += count }
    }
  }

  /// A line for each kind of file.
  package var lines: [String] {
    counts.keys.sorted().map { kind in
      let outcomes = RotOutcome.allCases.compactMap { outcome in
        counts[kind]?[outcome].map { "\($0) \(outcome.rawValue)" }
      }
      return "\(kind.word): " + outcomes.joined(separator: ", ")
    }
  }

  package var description: String { "\(damages) damages: " + lines.joined(separator: "; ") }
}

/// A damage after which the log did not keep its word.
package struct RotFailure: Error, CustomStringConvertible {
  package var seed: UInt64
  package var number: Int
  package var file: String
  package var damage: RotDamage
  package var what: String
  package var command: String { "strandline crash-test --seed 0x\(String(seed, radix: 16)) --rot \(number)" }

  package var description: String {
    "ROT_FAIL seed=0x\(String(seed, radix: 16)) damage=\(number) [\(file): \(damage)]: \(what); "
      + "repeat it with: \(command)"
  }
}
