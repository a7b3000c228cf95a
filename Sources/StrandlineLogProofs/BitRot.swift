// Damage at rest, all of it: every bit of every file flipped, every file cut at every length, lengthened, holed,
// removed, exchanged. Whatever was done to a store that was closed cleanly, it gives exactly its events or says which
// file is wrong; it never gives other events, never fewer without a word, and never asks for memory by a length that
// nothing has confirmed.
//
// The store and the list of damages follow from the seed alone, so a damage is repeated by its number. Files are
// taken as they stand in the folder, whatever kinds there are; what a kind is for decides what its damage may lead
// to (`RotKind`).

import StrandlineLog
import StrandlineSimulation
import StrandlineSystem

/// A store that was closed cleanly, and every damage to it.
package struct BitRot {
  package let seed: UInt64
  package private(set) var report = RotReport()
  package let damages: [RotDamage]

  /// What the log has, in order.
  private let events: [LogEventContent]
  /// The same by LSN; nil for what was compacted away.
  private let eventsByLSN: [LogEventContent?]
  private let bounds: LogBounds
  private let store: SimulatedDisk
  private let paths: [String]
  private let contents: [[UInt8]]
  private let fileKinds: [RotKind]
  /// Segments in the order of the log.
  private let order: [String]

  private static let options = LogOptions(
    segmentBytesMax: 12 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
    lockWaitMilliseconds: 0, publishesGroups: false, controlIntervalMilliseconds: nil, ballastBytes: 8 << 10,
    mergeWidth: 3, upkeep: .onDemand)
  /// A file's bytes may be read through a window of this much more.
  private static let windowBytes: Int64 = 256 << 10

  /// Makes the store: several tenures, a compacted and a merged segment, and 8 KiB and more in the segment at the end too;
  /// closed cleanly, with nothing unsynced.
  package init(seed: UInt64) throws {
    self.seed = seed
    let disk = SimulatedDisk()
    let scene = LogScene(disk: disk, seed: seed, strength: .durable, options: Self.options)
    try scene.open()
    let works: [[LogOperation]] = [
      // Several transactions of each size, so that what is given up leaves enough; then a second segment.
      [.three, .large, .pair, .large, .double, .large, .small, .double, .large, .double, .three, .compact, .close],
      // Three small ones, of one writer each.
      [.large, .three, .close], [.double, .pair, .close], [.large, .small, .three, .vanish],
      [.merge, .double, .large, .three, .idle, .double, .large, .filling, .vanish],
      // One that a group fills and seals.
      [.large, .filling, .large, .double, .three, .large, .double, .large, .pair, .double],
      [.large, .three, .double, .pair, .large, .small, .close],
    ]
    for operation in works.joined() { try scene.perform(operation) }
    scene.letGo()
    let bounds = scene.bounds(beforeCall: .max)
    self.bounds = bounds
    eventsByLSN = bounds.issued.map { bounds.gone.contains($0.lsn) ? nil : $0 }
    events = eventsByLSN.compactMap { $0 }
    store = disk.imageAfterCrash(.none)
    let image = store
    let paths = image.paths
    let contents = paths.map { image.peek($0) ?? [] }
    let manifest = try Manifest.decode(image.peek(Self.manifest) ?? [], file: Self.manifest)
    order = manifest.entries.map { LogHistories.path + "/" + SegmentName.name($0.segmentID) }
    let last = order.last ?? ""
    fileKinds = try zip(paths, contents).map { try .of($0, $1, last: last) }
    damages = Self.damages(contents)
    self.paths = paths
    self.contents = contents
  }

  private static let manifest = LogHistories.path + "/" + LogFormat.manifestName
  private static let control = LogHistories.path + "/" + LogFormat.controlName

  /// Bytes of all files of each kind.
  package var kinds: [RotKind: Int] {
    var result: [RotKind: Int] = [:]
    for (kind, bytes) in zip(fileKinds, contents) { result[kind, default: 0] += bytes.count }
    return result
  }

  private static func damages(_ contents: [[UInt8]]) -> [RotDamage] {
    var result: [RotDamage] = []
    // The few first, so that a slice begins with them.
    for (file, bytes) in contents.enumerated() {
      result.append(.missing(file: file))
      for other in contents.indices where other != file {
        if other > file { result.append(.exchanged(file: file, other)) }
        result.append(.replaced(file: file, by: other))
      }
      for count in [1, 7, 8, 31, 32, 64, 511, 512, 4_096, 70_000] {
        result += [.junk(file: file, count), .zeros(file: file, count)]
      }
      for from in [0, 4_096, 4_176] where from < bytes.count { result.append(.ownBytes(file: file, from: from)) }
      let sectors = (bytes.count + simulatedSectorBytes - 1) / simulatedSectorBytes
      for sector in 0..<sectors {
        result += [.zeroedSector(file: file, sector), .junkSector(file: file, sector)]
        if sector + 1 < sectors { result.append(.swappedSectors(file: file, sector)) }
        for other in contents.indices where other != file && contents[other].count > sector * simulatedSectorBytes {
          result.append(.staleSector(file: file, sector, of: other))
        }
      }
    }
    for (file, bytes) in contents.enumerated() {
      for length in bytes.indices { result.append(.cut(file: file, length)) }
    }
    for (file, bytes) in contents.enumerated() {
      for bit in 0..<bytes.count * 8 { result.append(.bit(file: file, bit)) }
    }
    return result
  }

  // MARK: Running

  /// Does the damages with these numbers.
  ///
  /// - Throws: `RotFailure`.
  package mutating func run(_ numbers: some Sequence<Int>, isOver: () -> Bool = { false }) throws {
    // A writer that had the store open before the damage came.
    let early = try open(store.clone())
    for number in numbers {
      guard !isOver() else { return }
      do {
        try check(number, early)
      } catch {
        throw RotFailure(
          seed: seed, number: number, file: paths[damages[number].file], damage: damages[number], what: "\(error)")
      }
    }
  }

  /// What the damaged files are now; nil: gone.
  private func damaged(_ damage: RotDamage) -> [(file: Int, bytes: [UInt8]?)] {
    let file = damage.file
    var bytes = contents[file]
    func sector(_ number: Int) -> Range<Int> {
      number * simulatedSectorBytes..<min((number + 1) * simulatedSectorBytes, bytes.count)
    }
    let random = SeededRandom(seed: seed &+ UInt64(bytes.count) &+ UInt64(file))
    switch damage {
    case .bit(_, let bit): bytes[bit / 8] ^= 1 << UInt8(bit % 8)
    case .cut(_, let length): bytes.removeSubrange(length...)
    case .junk(_, let count): bytes += random.bytes(count)
    case .zeros(_, let count): bytes += [UInt8](repeating: 0, count: count)
    case .ownBytes(_, let from): bytes += bytes[from...]
    case .zeroedSector(_, let number): for index in sector(number) { bytes[index] = 0 }
    case .junkSector(_, let number):
      let range = sector(number)
      bytes.replaceSubrange(range, with: random.bytes(range.count))
    case .staleSector(_, let number, let other):
      let range = sector(number).clamped(to: 0..<contents[other].count)
      bytes.replaceSubrange(range, with: contents[other][range])
    case .swappedSectors(_, let number):
      let low = sector(number)
      let high = sector(number + 1)
      bytes.replaceSubrange(low.lowerBound..<high.upperBound, with: Array(bytes[high] + bytes[low]))
    case .missing: return [(file, nil)]
    case .exchanged(_, let other): return [(file, contents[other]), (other, contents[file])]
    case .replaced(_, let other): bytes = contents[other]
    }
    return [(file, bytes)]
  }

  /// A writer on an undamaged store.
  private func open(_ disk: SimulatedDisk) throws -> (disk: SimulatedDisk, log: Log) {
    let log = try Log.open(
      at: LogHistories.path, role: .store, options: Self.options, environment: .simulated(disk, seed: 1)
    ) { _ in }
    return (disk, log)
  }

  private mutating func check(_ number: Int, _ early: (disk: SimulatedDisk, log: Log)) throws {
    let damage = damages[number]
    let changes = damaged(damage)
    let disk = store.clone()
    for change in changes {
      if let bytes = change.bytes { disk.poke(paths[change.file], bytes) } else { disk.pokeRemove(paths[change.file]) }
    }
    let kind = fileKinds[damage.file]
    // The log never opens hints: most of their bits need no try.
    if case .hint = kind, isBit(damage), number % Self.hintStep != 0 {
      report.count(kind, .exact)
      return
    }
    try readEarly(changes, early)
    let meter = ReadMeter(disk)
    let environment = SystemEnvironment.simulated(meter, seed: 2)
    let names = namesToBlame(damage)

    let verified = try verify(environment, damage)
    let polled = try poll(environment, names)
    try openUnread(disk.clone(), names)
    let opened = try openDamaged(environment, names)
    if opened.error != nil {
      for (file, path) in paths.enumerated() {
        let expected: [UInt8]? = changes.last { $0.file == file }.map(\.bytes) ?? contents[file]
        guard disk.peek(path) == expected else { throw LogProblem("an open that was refused changed \(path)") }
      }
    }
    guard meter.excessBytes <= Self.windowBytes else {
      throw LogProblem("a read asked for \(meter.excessBytes) bytes more than the file has")
    }
    report.excessBytes = max(report.excessBytes, meter.excessBytes)
    guard (opened.error == nil) == (polled.error == nil), opened.count == polled.count || opened.error != nil else {
      throw LogProblem(
        "an open gave \(opened.count) events and \(opened.error.map { "\($0)" } ?? "no error"), a reader "
          + "\(polled.count) and \(polled.error.map { "\($0)" } ?? "no error")")
    }
    report.count(kind, try judge(damage, kind, opened, verified, changes))
    // What was opened must also go on.
    if opened.error == nil, number % 16 == 0 || !isBit(damage) { try goOn(disk) }
  }

  /// One bit of a hint in so many is tried.
  private static let hintStep = 32

  /// The files that an error may name: the damaged one, or one whose statement it then contradicts. nil: any.
  private func namesToBlame(_ damage: RotDamage) -> [String]? {
    guard damage.hasOneCulprit else { return nil }
    let path = paths[damage.file]
    guard let index = order.firstIndex(of: path) else { return [path] }
    let neighbours = order[max(0, index - 1)...min(order.count - 1, index + 1)]
    return neighbours + [Self.manifest, Self.control]
  }

  private func isBit(_ damage: RotDamage) -> Bool {
    if case .bit = damage { return true }
    return false
  }

  private func judge(
    _ damage: RotDamage, _ kind: RotKind, _ opened: Look,
    _ verified: (isSound: Bool, isDamaged: Bool, isControlTorn: Bool), _ changes: [(file: Int, bytes: [UInt8]?)]
  ) throws -> RotOutcome {
    if let error = opened.error {
      if case .hint = kind, changes.count == 1 { throw LogProblem("a file that is a hint only: \(error)") }
      guard verified.isDamaged else { throw LogProblem("an open was refused and verify is content: \(error)") }
    } else if opened.count != events.count {
      throw LogProblem("\(events.count) events were acknowledged, and \(opened.count) are there, without an error")
    }
    if let slots = controlSlots(changes), changes.count == 1 {
      if slots == 0 {
        guard opened.error != nil else { throw LogProblem("both slots of CONTROL are damaged, and it opened") }
      } else if let error = opened.error {
        throw LogProblem("one slot of CONTROL is whole: \(error)")
      } else if (slots < LogFormat.controlSlots) != verified.isControlTorn {
        throw LogProblem("\(slots) slots of CONTROL are whole, and verify says otherwise")
      }
    }
    guard opened.error == nil else { return .refused }
    return verified.isSound ? .exact : .exactWithFinding
  }

  /// How many slots of CONTROL are as they were; nil if it was not damaged.
  private func controlSlots(_ changes: [(file: Int, bytes: [UInt8]?)]) -> Int? {
    guard let change = changes.first(where: { paths[$0.file] == Self.control }) else { return nil }
    let whole = contents[change.file]
    guard let bytes = change.bytes else { return 0 }
    return (0..<LogFormat.controlSlots).count { slot in
      let start = slot * LogFormat.controlPageBytes
      let range = start..<start + LogFormat.controlSlotBytes
      return bytes.count >= range.upperBound && bytes[range] == whole[range]
    }
  }

  // MARK: Looking

  private struct Look {
    var count = 0
    var error: LogError?
  }

  /// Holds what was found against the list; a beginning of it is all that may be there.
  private func require(_ found: LogEvent, at index: Int, by whom: String) throws {
    guard index < events.count, found.has(events[index]) else {
      throw LogProblem("\(whom) found another event \(index + 1) than was written: LSN \(found.lsn)")
    }
  }

  private func requireNamed(_ error: LogError, _ names: [String]?, by whom: String) throws {
    let isDamage = [.damaged, .missingSegment, .foreignSegment, .fromTheFuture, .notEmptyDirectory].contains(error.code)
    guard isDamage, let file = error.file, names.map({ $0.contains(file) }) ?? file.hasPrefix(LogHistories.path) else {
      throw LogProblem("\(whom) does not say which file is wrong: \(error.code) in \(error.file ?? "none"), \(error)")
    }
  }

  /// Of several findings one must name the damaged file; others may name what it contradicts.
  private func verify(
    _ environment: SystemEnvironment, _ damage: RotDamage
  ) throws -> (isSound: Bool, isDamaged: Bool, isControlTorn: Bool) {
    do {
      let report = try LogVerifier.verify(at: LogHistories.path, environment: environment)
      let blamed = report.findings.filter { $0.kind == .damage }
      guard blamed.isEmpty || !damage.hasOneCulprit || blamed.contains(where: { $0.file == paths[damage.file] }) else {
        throw LogProblem("verify blames \(blamed[0].file): \(blamed[0].message)")
      }
      return (report.isSound, report.isDamaged, report.isControlTorn)
    } catch let error as LogError {
      try requireNamed(error, namesToBlame(damage), by: "verify")
      return (false, true, false)
    }
  }

  private func poll(_ environment: SystemEnvironment, _ names: [String]?) throws -> Look {
    var look = Look()
    do {
      let reader = try LogReader.open(at: LogHistories.path, environment: environment)
      do {
        try reader.poll { event in
          try require(event, at: look.count, by: "a reader")
          look.count += 1
        }
      } catch let error as LogError {
        try requireNamed(error, names, by: "a reader")
        look.error = error
      }
      // Also after a poll that failed: what it had handed out before stays readable.
      for lsn in stride(from: 1, through: reader.lastLSN, by: 1) {
        try read(lsn, by: "a reader", mayForget: look.error != nil) { () throws(LogError) in try reader.read(lsn) }
      }
    } catch let error as LogError {
      try requireNamed(error, names, by: "a reader")
      look.error = error
    }
    return look
  }

  private func openDamaged(_ environment: SystemEnvironment, _ names: [String]?) throws -> Look {
    var look = Look()
    do {
      let log = try Log.open(
        at: LogHistories.path, role: .store, options: Self.options, environment: environment, createIfAbsent: false
      ) { event in
        try require(event, at: look.count, by: "an open")
        look.count += 1
      }
      for lsn in stride(from: 1, through: UInt64(eventsByLSN.count), by: 1) {
        try read(lsn, by: "a writer") { () throws(LogError) in try log.read(lsn) }
      }
    } catch let error as LogError {
      try requireNamed(error, names, by: "an open")
      look.error = error
    }
    return look
  }

  /// An open that replays nothing believes what it has not read; a read of any event must not, and what it meets is named.
  private func openUnread(_ disk: SimulatedDisk, _ names: [String]?) throws {
    do {
      let log = try Log.open(
        at: LogHistories.path, role: .store, options: Self.options, environment: .simulated(disk, seed: 2),
        createIfAbsent: false, from: nil
      ) { _ in }
      guard log.durableLSN == UInt64(eventsByLSN.count) else {
        throw LogProblem("an open without replay ends with LSN \(log.durableLSN) of \(eventsByLSN.count)")
      }
      for lsn in 1...UInt64(eventsByLSN.count) {
        try read(lsn, by: "a writer that replayed nothing") { () throws(LogError) in
          do throws(LogError) {
            return try log.read(lsn)
          } catch {
            let isNamed = log.damage.contains { $0.file == error.file && $0.code == error.code }
            guard error.code == .compacted || isNamed else {
              throw LogError(.closed, "the damage that a read met is not named: \(error)")
            }
            throw error
          }
        }
      }
    } catch let error as LogError {
      try requireNamed(error, names, by: "an open without replay")
    }
  }

  /// One event by its number: what was written, or an error.
  ///
  /// - Parameter mayForget: a poll failed, and the reader may say that it does not know any more where the event lies.
  private func read(
    _ lsn: UInt64, by whom: String, mayForget: Bool = false, _ body: () throws(LogError) -> LogEvent
  ) throws {
    let expected = eventsByLSN[Int(lsn) - 1]
    do {
      let found = try body()
      guard let expected, found.has(expected) else {
        throw LogProblem("\(whom) read LSN \(lsn) otherwise than it was written")
      }
    } catch let error as LogError {
      let isLegal =
        switch error.code {
        case .damaged, .foreignSegment, .missingSegment, .fromTheFuture, .io: true
        case .compacted: expected == nil
        case .noSuchLSN: mayForget
        default: false
        }
      guard isLegal else { throw LogProblem("\(whom)'s read: \(error)") }
    }
  }

  /// Damage that comes while a writer has the store open.
  private func readEarly(_ changes: [(file: Int, bytes: [UInt8]?)], _ early: (disk: SimulatedDisk, log: Log)) throws {
    for change in changes {
      guard let bytes = change.bytes else { continue }
      early.disk.poke(paths[change.file], bytes)
    }
    defer { for change in changes { early.disk.poke(paths[change.file], contents[change.file]) } }
    for lsn in 1...UInt64(eventsByLSN.count) {
      try read(lsn, by: "a writer that was there before") { () throws(LogError) in try early.log.read(lsn) }
    }
  }

  /// An append and a clean close on what was opened, and another open.
  private func goOn(_ disk: SimulatedDisk) throws {
    do {
      let scene = LogScene(disk: disk, seed: seed &+ 9, strength: .durable, after: bounds, options: Self.options)
      try scene.open()
      try scene.perform(.small)
      try scene.perform(.close)
      guard scene.replayed.count == events.count + 1 else { throw LogProblem("an append to it did not hold") }
    } catch let error as LogError {
      throw LogProblem("it opened, and then did not go on: \(error)")
    }
  }
}
