// Stores for the tests of indexes: small runs, and values that mean trouble for an order of bytes.

import Strandline
import StrandlineLog
import StrandlineSimulation
import StrandlineSystem
import StrandlineTesting

/// A store with many small runs.
func indexTestOptions(closing: UInt64 = 1) -> StoreOptions {
  var log = LogOptions()
  log.segmentBytesMax = 8 << 10
  log.controlIntervalMilliseconds = nil
  log.ballastBytes = 0
  log.upkeep = .onDemand
  var index = IndexOptions()
  index.flushCount = 8
  index.closeCount = closing
  index.mergeWidth = 3
  index.cacheBytesMax = 16 << 10
  return StoreOptions(log: log, index: index)
}

func openIndexed(
  _ disk: SimulatedDisk, seed: UInt64, closing: UInt64 = 1, declaring indexes: [RecordIndex]? = nil
) throws -> RecordStore {
  var options = indexTestOptions(closing: closing)
  options.indexes = indexes
  return try RecordStore.openBlocking(
    at: "/store", options: options, environment: .simulated(disk: disk, seed: seed))
}

/// Random values of a field without a type, and queries about them.
struct IndexedValues {
  let random: SeededRandom

  func below(_ bound: Int) -> Int { Int(random.below(UInt64(bound))) }

  /// Texts that share long beginnings, zero bytes, equal values, every type.
  func value() -> FieldValue? {
    switch below(12) {
    case 0: return nil
    case 1: return .string(["", "a", "a\0", "a\0b", "ab", "b", "\u{10FFFF}", "é"][below(8)])
    case 2: return .string(String(repeating: "long", count: 50) + ["", "a", "b", "\0", "c"][below(5)])
    case 3...5: return .int64([Int64.min, -1, 0, 1, 2, 3, .max][below(7)])
    case 6: return .double([-0.5, -0.0, 0, 0.5, 1e300, -1e300, .leastNonzeroMagnitude][below(7)])
    case 7: return .date(milliseconds: Int64(below(5)) - 2)
    case 8: return .bytes([[], [0], [0, 0], [0, 255], [255], [1], Array(repeating: 7, count: 300)][below(7)])
    case 9: return .list(.strings, (0..<below(4)).map { _ in .string(["a", "ab", "b", "a"][below(4)]) })
    case 10:
      let references = (0..<1 + below(3)).map { _ in
        FieldValue.reference(Reference("r\(below(3))", action: Reference.Action.allCases[below(3)]))
      }
      return below(2) == 0 ? references[0] : .list(.references, references)
    default: return .list(.int64s, (0..<below(4)).map { _ in .int64(Int64(below(3))) })
    }
  }

  /// A value that a condition may name.
  func operand() -> FieldValue {
    while true {
      switch value() {
      case nil, .list?: continue
      case .some(let value): return value
      }
    }
  }

  func filter(_ field: String) -> RecordFilter {
    let comparator = RecordFilter.Comparator.allCases[below(RecordFilter.Comparator.allCases.count)]
    if comparator.takesList {
      return RecordFilter(field, comparator, anyOf: (0..<below(4)).map { _ in operand() })
    }
    if below(3) == 0, comparator == .beginsWith || comparator == .listMemberBeginsWith {
      return RecordFilter(
        field, comparator, .string(["", "a", "long", String(repeating: "long", count: 50)][below(4)]))
    }
    return RecordFilter(field, comparator, operand())
  }

  func query() -> RecordQuery {
    RecordQuery(
      ["Note", "Other"][below(5) / 4], in: [nil, nil, .main, ZoneID("Ma")][below(4)],
      where: (0..<below(3)).map { _ in filter(["v", "w"][below(3) / 2]) },
      sortedBy: (0..<below(3)).map { _ in RecordSort(["v", "w"][below(3) / 2], ascending: below(2) == 0) },
      limit: below(4) == 0 ? nil : 1 + below(7))
  }

  func index() -> RecordIndex {
    switch below(8) {
    case 0: RecordIndex("Note")
    case 1: RecordIndex("Other", "v")
    case 2...5: RecordIndex("Note", "v", ascending: below(2) == 0)
    default: RecordIndex("Note", "w", ascending: below(2) == 0)
    }
  }
}
