// How the golden runs are made: by the package's own code, on a simulated disk, with fixed random numbers.

import Strandline
import StrandlineSimulation
import StrandlineSystem

/// The golden folder of runs.
enum RunVector {
  static let name = "sorted-runs"
  static let folder = "Formats/vectors/\(name)"
  static let storeUUID: [UInt8] = (0..<16).map { $0 }
  static let about =
    "Two runs and their list: the worked example of runs.md, and a newer run with several blocks, restart points,\n"
    + "tombstones, an empty key, an empty value, and a value that is larger than a block.\n"

  /// A key, and its value or a tombstone.
  typealias Entry = (key: [UInt8], value: [UInt8]?)

  static let example: [Entry] = [
    (Array("shore".utf8), Array("A".utf8)), (Array("short".utf8), nil), (Array("wave".utf8), Array("BC".utf8)),
  ]

  private static let several: [Entry] = {
    let random = SeededRandom(seed: 21)
    var entries: [Entry] = [([], [1]), ([0x00], []), ([0xFF, 0xFF], [UInt8](repeating: 0x56, count: 4200))]
    for number in 100..<300 {
      entries.append((Array("note/\(number)".utf8), number % 7 == 0 ? nil : random.bytes(number % 40)))
    }
    return entries.sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }()

  /// A few entries, with two restart points, in one block; for tests that try every byte.
  static let small: [Entry] = (10..<30).map { number in
    (Array("key \(number)".utf8), number % 5 == 0 ? nil : [UInt8](repeating: UInt8(number), count: number % 4))
  }

  /// The files of a folder whose runs have these entries, the first run with the number 1; the list names the newest
  /// first.
  static func files(_ runs: [[Entry]], properties: [UInt8]) throws -> [String: [UInt8]] {
    let disk = SimulatedDisk()
    try disk.makeDirectory("/runs")
    let folder = RunFolder(try disk.folder("/runs"))
    var list = RunList(storeUUID: storeUUID)
    for (place, entries) in runs.enumerated() {
      // "SALT", then "SALU".
      let random = ScriptedRandom([0x544C_4153 + UInt64(place) << 24], seed: 1)
      let writer = try RunWriter(
        folder, runNumber: list.nextRunNumber, storeUUID: storeUUID, keyCount: entries.count, properties: properties,
        random: random)
      for entry in entries { try writer.append(entry.key, entry.value) }
      list.entries.insert(.init(try writer.finish()), at: 0)
      list.nextRunNumber += 1
    }
    list.binding = Array("bound".utf8)
    try list.replace(folder)
    var files: [String: [UInt8]] = [:]
    for path in disk.paths { files[String(path.dropFirst("/runs/".count))] = disk.peek(path) }
    return files
  }

  static func make() throws -> [String: [UInt8]] { try files([example, several], properties: Array("props".utf8)) }

  // MARK: What the code understands

  /// The lines of a folder; what is refused ends them.
  static func dump(_ folder: RunFolder) -> [JSON] {
    var lines: [JSON] = []
    lines.append(verdict(folder) { lines.append($0) })
    return lines
  }

  /// Loads the list, opens its runs, and checks all of them.
  static func verdict(_ folder: RunFolder, _ show: (JSON) -> Void = { _ in }) -> JSON {
    func verdict(_ word: String, _ file: String) -> JSON { .object(["verdict": .text(word), "file": .text(file)]) }
    do throws(RunError) {
      guard let list = try RunList.load(folder, storeUUID: storeUUID) else {
        return verdict("absent", RunFormat.listName)
      }
      show(line(list))
      let cache = BlockCache()
      var runs: [Run] = []
      for entry in list.entries { runs.append(try Run(folder, entry.run, storeUUID: storeUUID, cache: cache)) }
      for run in runs {
        try run.verify()
        show(line(run))
        var cursor = try run.cursor()
        while try cursor.advance() {
          let value = cursor.value.map { JSON.hexed($0.copied()) } ?? .null
          show(.object(["key": .hexed(cursor.key), "value": value]))
        }
      }
      return verdict("sound", RunFormat.listName)
    } catch {
      let word = error.code == .fromTheFuture ? "future" : error.code.rawValue
      return verdict(word, String(error.file.split(separator: "/").last ?? ""))
    }
  }

  private static func line(_ list: RunList) -> JSON {
    let runs = list.entries.map { entry -> JSON in
      .object([
        "runNumber": .uint(entry.run.runNumber), "fileBytes": .uint(entry.run.fileBytes),
        "footerCRC": .uint(UInt64(entry.run.footerCRC)),
      ])
    }
    return .object([
      "list": .object([
        "storeUUID": .hexed(list.storeUUID), "nextRunNumber": .uint(list.nextRunNumber), "runs": .list(runs),
        "binding": .hexed(list.binding),
      ])
    ])
  }

  private static func line(_ run: Run) -> JSON {
    .object([
      "run": .text(String(run.path.split(separator: "/").last ?? "")), "entries": .count(run.entryCount),
      "tombstones": .count(run.tombstoneCount), "blocks": .count(run.blockCount), "properties": .hexed(run.properties),
    ])
  }
}
