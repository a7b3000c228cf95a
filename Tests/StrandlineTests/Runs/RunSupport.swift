// What the tests of sorted runs share: a model of a run in a dictionary, random keys that are hard to sort and to
// compress, and a folder on any disk.

import Strandline
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Testing

/// What a run should say: nil is a tombstone.
typealias RunModel = [[UInt8]: [UInt8]?]

/// An entry as a cursor shows it.
struct ModelEntry: Hashable {
  var key: [UInt8]
  var value: [UInt8]?
}

extension RunModel {
  /// The entries in the order of their keys.
  func entries() -> [ModelEntry] {
    map { ModelEntry(key: $0.key, value: $0.value) }.sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }
}

extension [ModelEntry] {
  /// The first entries from `key` on.
  func from(_ key: [UInt8], _ count: Int) -> [ModelEntry] {
    Array(drop { $0.key.lexicographicallyPrecedes(key) }.prefix(count))
  }
}

/// A folder of runs with the numbers that tests need.
struct RunBench {
  let folder: RunFolder
  let storeUUID: [UInt8] = (1...16).map { $0 }
  let random: SeededRandom

  init(_ fileSystem: any FileSystem, _ path: String = "/runs", seed: UInt64 = 1) throws {
    random = SeededRandom(seed: seed)
    if try fileSystem.kind(of: path) == .absent {
      try fileSystem.makeDirectory(path)
      let parent = path.split(separator: "/").dropLast().joined(separator: "/")
      try fileSystem.syncDirectory("/" + parent)
    }
    folder = RunFolder(try fileSystem.folder(path))
  }

  func writer(_ number: UInt64, keyCount: Int, properties: [UInt8] = []) throws(RunError) -> RunWriter {
    try RunWriter(
      folder, runNumber: number, storeUUID: storeUUID, keyCount: keyCount, properties: properties, random: random)
  }

  @discardableResult
  func write(_ number: UInt64, _ model: RunModel, properties: [UInt8] = []) throws(RunError) -> RunIdentity {
    let writer = try writer(number, keyCount: model.count, properties: properties)
    for entry in model.entries() { try writer.append(entry.key, entry.value) }
    return try writer.finish()
  }

  func open(_ identity: RunIdentity, cache: BlockCache = BlockCache()) throws(RunError) -> Run {
    try Run(folder, identity, storeUUID: storeUUID, cache: cache)
  }
}

extension Run {
  /// What the run says of a key, as a model has it: nil for nothing, `.some(nil)` for a tombstone.
  func answer(_ key: [UInt8]) throws(RunError) -> [UInt8]?? {
    switch try get(RunKey(key)) {
    case .absent: nil
    case .tombstone: .some(nil)
    case .value(let value): value.copied()
    }
  }

  /// The first entries from `key` on.
  func entries(from key: [UInt8] = [], _ count: Int = .max) throws(RunError) -> [ModelEntry] {
    var cursor = try cursor(from: key)
    var result: [ModelEntry] = []
    while result.count < count, try cursor.advance() {
      result.append(ModelEntry(key: cursor.key, value: cursor.value?.copied()))
    }
    return result
  }
}

extension MergedCursor {
  /// The next entries.
  mutating func rest(_ count: Int = .max) throws(RunError) -> [ModelEntry] {
    var result: [ModelEntry] = []
    while result.count < count, try advance() { result.append(ModelEntry(key: key, value: value?.copied())) }
    return result
  }
}

extension SeededRandom {
  func number(below bound: Int) -> Int { Int(below(UInt64(bound))) }

  /// A key: empty, of 0x00 and 0xFF, with a beginning that many have, random, or long.
  func key() -> [UInt8] {
    switch number(below: 12) {
    case 0: return (0..<number(below: 5)).map { _ in 0x00 }
    case 1: return (0..<number(below: 5)).map { _ in 0xFF }
    case 2: return (0..<number(below: 4)).map { _ in [0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF][number(below: 6)] }
    case 3, 4, 5: return Array("zone/note/".utf8) + bytes(1 + number(below: 2))
    case 6, 7: return Array(repeating: 0x41, count: number(below: 300)) + bytes(number(below: 3))
    case 8 where number(below: 40) == 0: return bytes(10) + Array(repeating: 0xFF, count: 65_525)
    default: return bytes(number(below: 24))
    }
  }

  /// A value, or a tombstone: nil.
  func value() -> [UInt8]? {
    switch number(below: 20) {
    case 0, 1: nil
    case 2: []
    case 3: bytes(100 + number(below: 200))
    case 4 where number(below: 10) == 0: bytes(4000 + number(below: 9000))
    default: bytes(number(below: 60))
    }
  }

  func model(_ count: Int) -> RunModel {
    var result = RunModel()
    for _ in 0..<count { result[key()] = .some(value()) }
    return result
  }
}
