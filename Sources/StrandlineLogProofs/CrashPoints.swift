// One long run of the log, crashed at every call that it makes.
//
// Short histories (LogHistories.swift) are complete in what is done; this is complete in where the power goes, over
// hundreds of operations, several tenures and dozens of segments. Level 1: every mutating call of every operation,
// with every single loss and drawn images. Level 2: from some image of each operation, every call of the recovery and
// of the append and close that follow. Level 3: drawn paths on which three recoveries in a row are cut off.
//
// A point is four numbers, and everything about it follows from them and the seed: so a failure is repeated alone.
// Adding an operation to the log's alphabet (LogHistories.swift) and to LogScene adds it to all three levels.

import StrandlineLog
import StrandlineSimulation
package import StrandlineSystem

/// Where the power goes, and what is left.
package struct CrashPoint: Hashable, Sendable, CustomStringConvertible {
  /// 1: in an operation. 2: in the recovery after that. 3: in a recovery of a recovery of a recovery.
  package var level: Int
  /// The operation of the run; 0 is the making of the store.
  package var operation: Int
  /// Before which mutating call, from 0: of the operation, or at level 2 of the recovery. 0 at level 3.
  package var call: Int
  /// Which image; at level 3, which path.
  package var image: Int

  package init(level: Int, operation: Int, call: Int, image: Int) {
    self.level = level
    self.operation = operation
    self.call = call
    self.image = image
  }

  package var description: String { "--level \(level) --operation \(operation) --call \(call) --image \(image)" }
}

/// What a run over crash points did.
package struct CrashPointReport: Sendable, CustomStringConvertible {
  /// Operations crashed at, of each level.
  package var operations = [0, 0, 0]
  /// Places where the power went, of each level.
  package var calls = [0, 0, 0]
  /// Disks after a crash that were opened and judged, of each level.
  package var images = [0, 0, 0]
  /// What the run did beside appends; the same for all parts of one run.
  package var work = UpkeepWork()

  package init() {}

  package var totalImages: Int { images.reduce(0, +) }

  package var description: String {
    (0..<3).filter { images[$0] > 0 }.map { level in
      "level \(level + 1): \(operations[level]) operations, \(calls[level]) places, \(images[level]) disks"
    }.joined(separator: "; ") + (work == UpkeepWork() ? "" : "; \(work)")
  }

  package static func += (left: inout CrashPointReport, right: CrashPointReport) {
    if left.work == UpkeepWork() { left.work = right.work }
    for level in 0..<3 {
      left.operations[level] += right.operations[level]
      left.calls[level] += right.calls[level]
      left.images[level] += right.images[level]
    }
  }
}

/// A point at which the log did not keep its word.
package struct CrashPointFailure: Error, CustomStringConvertible {
  package var point: CrashPoint
  package var seed: UInt64
  /// The operation, by its name.
  package var operation: String
  /// What was lost.
  package var loss: String
  package var what: String
  /// How many images were judged before this one.
  package var imagesBefore: Int
  /// The command that repeats it.
  package var command: String

  package var description: String {
    "CRASH_FAIL seed=0x\(String(seed, radix: 16)) level=\(point.level) operation=\(point.operation) (\(operation)) "
      + "call=\(point.call) image=\(point.image) [\(loss)], \(imagesBefore) disks before it: \(what); "
      + "repeat it with: \(command)"
  }
}

/// The engine. What it does follows from its seed alone.
package struct CrashPoints {
  package let seed: UInt64
  package var strength: SyncStrength
  /// How long the run is, the making of the store not counted.
  package var operations = 320
  /// Level 1: at each call so many images at least, drawn beyond the single losses and survivors.
  package var drawnImages = 8
  /// Level 1: each single survivor too, not only each single loss.
  package var triesSurvivors = false
  /// Level 2: from each operation so many images are recovered,
  package var recoveries = 1
  /// and crashed at each call in so many ways.
  package var recoveryImages = 4
  /// Level 3: so many paths in all.
  package var paths = 2_000
  /// Asked now and then; true ends the run early.
  package var isOver: @Sendable () -> Bool = { false }
  package private(set) var report = CrashPointReport()
  /// Every point was reached.
  package private(set) var isComplete = true
  /// A run of so many operations nearly always does everything that there is; if not, it goes on until it has.
  private static let operationsOfAllKinds = 320
  private static let operationsMax = 10_000

  /// Several segments in the run, and several steps of a reservation in a segment.
  static let options = LogOptions(
    segmentBytesMax: 16 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
    lockWaitMilliseconds: 0, publishesGroups: false, controlIntervalMilliseconds: nil, ballastBytes: 4 << 10,
    mergeWidth: 3, upkeep: .onDemand)

  package init(seed: UInt64, strength: SyncStrength = .durable) {
    self.seed = seed
    self.strength = strength
  }

  private var options: LogOptions { Self.options.publishing(seed: seed) }
  private var checker: CrashChecker { CrashChecker(strength: strength, options: options) }

  /// A random source for one place: what is drawn there does not depend on what was tried before.
  private func random(_ level: Int, _ operation: Int, _ call: Int, _ image: Int) -> SeededRandom {
    var word = seed
    for part in [level, operation, call, image] {
      word = (word ^ UInt64(part)) &* 0x9E37_79B9_7F4A_7C15
      word ^= word >> 29
    }
    return SeededRandom(seed: word)
  }

  // MARK: The run

  /// A moment of the run: an operation that was done, with the disk before each of its calls and after the last.
  private struct Moment {
    var operation: Int
    var name: String
    var states: [SimulatedDisk]
    var scene: LogScene
    func bounds(_ call: Int) -> LogBounds { scene.bounds(beforeCall: call) }
  }

  /// Does the run up to `last`, and hands out the operations that are chosen.
  ///
  /// - Parameters:
  ///   - goesOn: beyond `last`, until everything that there is was done.
  ///   - work: what it did, if it was done to its end.
  private func walk(
    upTo last: Int, goesOn: Bool, choose: (Int) -> Bool, work: inout UpkeepWork?, visit: (Moment) throws -> Bool
  ) throws {
    let disk = SimulatedDisk()
    let scene = LogScene(disk: disk, seed: seed, strength: strength, options: options)
    let random = SeededRandom(seed: seed ^ 0x5EED_0F_C4A5)
    for number in 0...Self.operationsMax {
      guard number <= last || (goesOn && !scene.work.isComplete) else { break }
      let operation = number == 0 ? nil : LogOperation.draw(random)
      let name = operation.map { "\($0)" } ?? "the making of the store"
      let isChosen = choose(number)
      scene.forgetCalls()
      disk.keepsHistory = isChosen
      do {
        if let operation { try scene.perform(operation) } else { try scene.open() }
      } catch {
        throw failure(
          CrashPoint(level: 1, operation: number, call: 0, image: 0), name, "no crash yet", "\(error)")
      }
      guard isChosen else { continue }
      let moment = Moment(operation: number, name: name, states: disk.history + [disk.clone()], scene: scene)
      disk.keepsHistory = false
      guard try visit(moment) else { return }
    }
    work = scene.work
  }

  private func failure(_ point: CrashPoint, _ name: String, _ loss: String, _ what: String) -> CrashPointFailure {
    CrashPointFailure(
      point: point, seed: seed, operation: name, loss: loss, what: what, imagesBefore: report.totalImages,
      command: "strandline crash-test --seed 0x\(String(seed, radix: 16)) \(point)"
        + (strength == .ordered ? " --ordered" : ""))
  }

  /// Tries all points of the levels at the chosen operations.
  ///
  /// - Throws: `CrashPointFailure`.
  package mutating func run(levels: Set<Int> = [1, 2, 3], choose: (Int) -> Bool = { _ in true }) throws {
    var copy = self
    var work: UpkeepWork?
    let doesAll = operations >= Self.operationsOfAllKinds
    try walk(upTo: operations, goesOn: doesAll, choose: choose, work: &work) { moment in
      if levels.contains(1) { try copy.crashOperation(moment, only: nil) }
      if levels.contains(2), !copy.isOver() { try copy.crashRecovery(moment, only: nil) }
      if levels.contains(3), !copy.isOver() { try copy.crashPaths(moment, only: nil) }
      guard copy.isOver() else { return true }
      copy.isComplete = false
      return false
    }
    self = copy
    guard let work else { return }
    report.work = work
    // A run that never merged proves nothing about merging.
    guard work.isComplete || !doesAll else {
      throw failure(
        CrashPoint(level: 1, operation: operations, call: 0, image: 0), "the whole run", "no crash",
        "the run did not do everything: \(work)")
    }
  }

  /// Tries one point again, and nothing else.
  ///
  /// - Throws: `CrashPointFailure`; `LogProblem` if the run has no such point.
  package mutating func replay(_ point: CrashPoint) throws {
    var copy = self
    var work: UpkeepWork?
    try walk(upTo: point.operation, goesOn: false, choose: { $0 == point.operation }, work: &work) { moment in
      switch point.level {
      case 1: try copy.crashOperation(moment, only: point)
      case 2: try copy.crashRecovery(moment, only: point)
      default: try copy.crashPaths(moment, only: point)
      }
      return false
    }
    self = copy
    guard report.totalImages > 0 else { throw LogProblem("this run has no point \(point)") }
  }

  /// Judges one disk, and says where it was if it is not as it must be.
  private mutating func judge(
    _ point: CrashPoint, _ name: String, _ loss: String, _ body: (CrashChecker) throws -> Void
  ) throws {
    do { try body(checker) } catch { throw failure(point, name, loss, "\(error)") }
    report.images[point.level - 1] += 1
  }

  // MARK: Images

  /// The images of one state at one place, by number: first those that are the same for every seed.
  private struct Images {
    /// The process is gone and the machine goes on; then these; then drawn ones.
    var losses: [CrashLoss]
    var drawn: Int
    /// What only a longer run looks at; numbered behind the others, so that a number means the same in all runs.
    var survivors = 0
    var count: Int { 1 + losses.count + drawn + survivors }
  }

  /// Nothing, all, each single loss, and drawn ones. If no effect is unsynced, there is one image alone.
  private static func images(_ state: SimulatedDisk, drawn: Int, survivors: Bool) -> Images {
    let count = state.unsyncedEffectCount
    guard count > 0 else { return Images(losses: [.all], drawn: 0) }
    return Images(
      losses: [.none, .all] + (0..<count).map { .allBut($0) }, drawn: drawn, survivors: survivors ? count : 0)
  }

  /// Image `number`: the disk, what must hold on it, and a word for it.
  private static func image(
    _ number: Int, of images: Images, _ state: SimulatedDisk, _ bounds: LogBounds, _ source: SeededRandom
  ) -> (disk: SimulatedDisk, bounds: LogBounds, word: String) {
    let result: (disk: SimulatedDisk, bounds: LogBounds, word: String)
    let drawn = number - 1 - images.losses.count
    if number == 0 {
      result = (state.clone(), bounds, "the process only")
    } else if drawn < 0 {
      let loss = images.losses[number - 1]
      result = (state.imageAfterCrash(loss), bounds.afterPowerCut, "\(loss)")
    } else if drawn < images.drawn {
      result = (state.imageAfterCrash(using: source), bounds.afterPowerCut, "drawn losses")
    } else {
      let loss = CrashLoss.only(drawn - images.drawn)
      result = (state.imageAfterCrash(loss), bounds.afterPowerCut, "\(loss)")
    }
    // A disk that was full or failed a sync is a good one again.
    result.disk.capacity = nil
    result.disk.healSyncs()
    return result
  }

  // MARK: Level 1

  private mutating func crashOperation(_ moment: Moment, only: CrashPoint?) throws {
    // Short operations are looked at longer: at least 40 images of each that leaves anything unsynced.
    let drawn = max(drawnImages, 40 / moment.states.count)
    for (call, state) in moment.states.enumerated() where only == nil || only?.call == call {
      let images = Self.images(state, drawn: drawn, survivors: triesSurvivors || only != nil)
      for number in 0..<images.count where only == nil || only?.image == number {
        let point = CrashPoint(level: 1, operation: moment.operation, call: call, image: number)
        let source = random(1, moment.operation, call, number)
        let image = Self.image(number, of: images, state, moment.bounds(call), source)
        try judge(point, moment.name, image.word) {
          try $0.check(image.disk, image.bounds, seed: source.next(), isBusy: number % 4 == 1)
        }
      }
      report.calls[0] += 1
    }
    report.operations[0] += 1
  }

  // MARK: Level 2

  private mutating func crashRecovery(_ moment: Moment, only: CrashPoint?) throws {
    for recovery in only.map({ [$0.image / recoveryImages] }) ?? Array(0..<recoveries) {
      let source = random(2, moment.operation, recovery, 0)
      let first = Int(source.below(UInt64(moment.states.count)))
      let start = moment.states[first].imageAfterCrash(using: source)
      start.capacity = nil
      start.keepsHistory = true
      let scene = LogScene(
        disk: start, seed: source.next(), strength: strength, after: moment.bounds(first).afterPowerCut,
        options: options)
      let word = "a drawn crash before call \(first) of it"
      do {
        try scene.open()
        try scene.perform(.small)
        try scene.perform(.close)
      } catch {
        let point = CrashPoint(level: 2, operation: moment.operation, call: 0, image: recovery * recoveryImages)
        throw failure(point, moment.name, word, "\(error)")
      }
      for (call, state) in (start.history + [start.clone()]).enumerated() where only == nil || only?.call == call {
        for number in 0..<recoveryImages {
          let point = CrashPoint(
            level: 2, operation: moment.operation, call: call, image: recovery * recoveryImages + number)
          guard only == nil || only == point else { continue }
          let source = self.random(2, moment.operation, call + 1, point.image)
          // The process alone, nothing unsynced, and drawn losses.
          let images = Images(losses: [.none], drawn: recoveryImages - 2)
          let image = Self.image(number, of: images, state, scene.bounds(beforeCall: call), source)
          try judge(point, moment.name, word + "; then \(image.word)") {
            try $0.check(image.disk, image.bounds, seed: source.next(), isBusy: number == 2)
          }
        }
        report.calls[1] += 1
      }
    }
    report.operations[1] += 1
  }

  // MARK: Level 3

  /// One leg of a path: a writer that opens `disk`, works, and loses the power. Returns what is left of it.
  private func crashLeg(
    _ disk: SimulatedDisk, _ bounds: inout LogBounds, atCall call: Int, _ operations: [LogOperation],
    _ random: SeededRandom
  ) throws -> SimulatedDisk {
    disk.capacity = nil
    disk.isTearing = random.below(2) == 0
    disk.crashAtCall = call
    let scene = LogScene(
      disk: disk, seed: random.next(), strength: strength, after: bounds, options: options)
    do {
      try scene.open()
      for operation in operations { try scene.perform(operation) }
      disk.cutPower()
    } catch  where disk.isOff {
      // The power went; what the operation threw says no more than that.
    }
    bounds = scene.bounds(beforeCall: .max).afterPowerCut
    scene.letGo()
    return disk
  }

  /// How many calls an open and an append make: the last is the sync of the append.
  private func callsToAppend(
    _ operation: LogOperation, on disk: SimulatedDisk, _ bounds: LogBounds, _ random: SeededRandom
  ) throws -> Int {
    let copy = disk.clone()
    // Names that an earlier writer has drawn may still stand on the disk.
    let scene = LogScene(disk: copy, seed: random.next(), strength: strength, after: bounds, options: options)
    try scene.open()
    try scene.perform(operation)
    return copy.callCount
  }

  private mutating func crashPaths(_ moment: Moment, only: CrashPoint?) throws {
    let share = Array(stride(from: moment.operation, to: paths, by: operations + 1))
    for path in only.map({ [$0.image] }) ?? share {
      let point = CrashPoint(level: 3, operation: moment.operation, call: 0, image: path)
      let random = random(3, moment.operation, 0, path)
      let first = Int(random.below(UInt64(moment.states.count)))
      var disk = moment.states[first].imageAfterCrash(using: random)
      disk.capacity = nil
      var bounds = moment.bounds(first).afterPowerCut
      var word = "before call \(first) of it"
      // Every other path does the same again and again, so that frames of one size lie at one place of several
      // files, and what an earlier crash left shines through a later one.
      let twin: LogOperation? = random.below(2) == 0 ? [.double, .pair, .three, .large][Int(random.below(4))] : nil
      do {
        for leg in 0..<3 {
          if let twin {
            let call = try callsToAppend(twin, on: disk, bounds, random)
            word += ", then at the sync of \(twin)"
            disk = try crashLeg(disk, &bounds, atCall: call, [twin], random)
            if leg == 0 {
              disk = disk.imageAfterCrash(.allBut(Int(random.below(UInt64(max(1, disk.unsyncedEffectCount))))))
            } else {
              disk = disk.imageAfterCrash(staleUsing: random)
            }
          } else {
            // Half of the crashes are early, where the recovery is.
            let call = 1 + Int(random.below(random.below(2) == 0 ? 6 : 30))
            word += ", then at call \(call)"
            let operations = (0..<3).map { _ in LogOperation.draw(random) }
            disk = try crashLeg(disk, &bounds, atCall: call, operations, random).imageAfterCrash(using: random)
          }
          disk.capacity = nil
          report.calls[2] += 1
        }
      } catch {
        throw failure(point, moment.name, word, "\(error)")
      }
      let image = disk
      try judge(point, moment.name, word) { try $0.check(image, bounds, seed: random.next(), isBusy: true) }
    }
    report.operations[2] += 1
  }
}
