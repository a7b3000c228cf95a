// Crash tests of the log, complete for short histories and drawn for long ones.
//
// A history is a word over a small alphabet of operations. Each is run on a simulated disk, and every mutating
// call of its last operation (those before were the last of a shorter word) is a place where the power may go;
// each place yields disks with none, all, and all but one of the effects that no sync had covered, and one that
// only its process has left. Whatever is left, an open must return a prefix of what was issued: whole transactions,
// byte for byte, with everything that was acknowledged in it; again the same after another power cut; and one more
// append must hold.
//
// The oracle is a list of transactions. It shares no code with the log. A failure prints the word, the call and
// the loss, and the command that repeats it.

import StrandlineLog
import StrandlineSimulation
package import StrandlineSystem

/// One step of a history. The raw value is its letter.
package enum LogOperation: Character, CaseIterable, Sendable {
  /// One event of a few bytes.
  case small = "s"
  /// A transaction of three events.
  case three = "t"
  /// One event that fills several sectors.
  case large = "l"
  /// One event that leaves no room in a tiny segment: the next append needs another.
  case filling = "f"
  /// Two transactions that share a sync.
  case pair = "p"
  /// CONTROL is raised, as the watch does.
  case idle = "i"
  /// A clean close, and another open.
  case close = "c"
  /// The writer lets go without closing, and another open.
  case vanish = "v"
  /// A transaction of two events, each of several sectors.
  case double = "d"
  /// A sync fails and its pages are lost; the writer is poisoned, lets go, and another opens.
  case failedSync = "e"
  /// The disk is full in the middle of work; the writer is refused cleanly, and goes on when there is space.
  case full = "n"
  /// Space is given back, and CONTROL is raised.
  case maintain = "a"
  /// Small neighbours become one segment.
  case merge = "m"
  /// The owner gives transactions up, and finished segments are rewritten without them.
  case compact = "x"

  /// What every short history is made of; the others are for long ones, which are drawn.
  package static let alphabet: [LogOperation] = [.small, .three, .large, .filling, .pair, .idle, .close, .vanish]

  /// What drawn histories are made of: also what looks after files, and a full disk.
  static let drawn: [LogOperation] = alphabet + [.maintain, .merge, .compact, .full]

  /// How often it is drawn, beside the others.
  var weight: Int {
    switch self {
    case .small: 7
    case .three: 5
    case .large: 4
    case .pair, .double, .close, .maintain: 3
    case .idle, .filling, .vanish, .merge, .compact: 2
    case .failedSync, .full: 1
    }
  }

  /// Draws one by weight.
  static func draw(_ random: any RandomSource) -> LogOperation {
    var rest = Int(random.below(UInt64(allCases.reduce(0) { $0 + $1.weight })))
    for operation in allCases {
      rest -= operation.weight
      if rest < 0 { return operation }
    }
    return .small
  }
}

/// What a run of histories did.
package struct LogHistoryReport: Sendable, CustomStringConvertible {
  package var histories = 0
  /// Disks after a crash that were opened and checked.
  package var images = 0
  /// Those of them where the crash was inside a recovery.
  package var recoveryImages = 0

  package init() {}

  package var description: String {
    "\(histories) histories, \(images) disks after a crash, \(recoveryImages) of them after a crash in recovery"
  }

  package static func += (left: inout LogHistoryReport, right: LogHistoryReport) {
    left.histories += right.histories
    left.images += right.images
    left.recoveryImages += right.recoveryImages
  }
}

/// A history after which the log did not keep its word.
package struct LogHistoryFailure: Error, CustomStringConvertible {
  /// The letters of the operations.
  package var history: String
  package var seed: UInt64
  /// Where the power went, and what was lost.
  package var crash: String
  package var what: String
  /// The command that repeats it.
  package var command: String

  package var description: String {
    "LOG_FAIL history=\(history) seed=0x\(String(seed, radix: 16)) crash=[\(crash)]: \(what); "
      + "repeat it with: \(command)"
  }
}

extension LogOptions {
  /// As a log is by default: CONTROL says of each group that it is durable. In the runs of each fourth seed nothing but
  /// upkeep says so.
  func publishing(seed: UInt64) -> LogOptions {
    var options = self
    options.publishesGroups = seed % 4 != 0
    return options
  }
}

/// The engine. A value of it is one run: what it does follows from its seed alone.
package struct LogHistories {
  /// Draws the identities of the store, and whatever a run chooses.
  package let seed: UInt64
  /// One image in this many is also crashed at each call of its recovery; 0 for none.
  package var recoverySample: Int
  /// How hard the writers sync; on the disk a sync that is not `.durable` is then a barrier and no more.
  package var strength: SyncStrength
  package private(set) var report = LogHistoryReport()

  static let path = "/store"

  package init(seed: UInt64 = 1, recoverySample: Int = 16, strength: SyncStrength = .durable) {
    self.seed = seed
    self.strength = strength
    self.recoverySample = recoverySample
    options = Self.options.publishing(seed: seed)
  }

  static let options = LogOptions(
    segmentBytesMax: 8 << 10, preallocationFirstStepBytes: 4 << 10, preallocationStepBytesMax: 4 << 10,
    lockWaitMilliseconds: 0, publishesGroups: false, controlIntervalMilliseconds: nil, ballastBytes: 0,
    upkeep: .onDemand)

  /// How the run that is under way is asked for.
  private var command = ""
  /// What its writers are told.
  private var options: LogOptions

  private func failure(_ word: String, _ crash: String, _ what: String) -> LogHistoryFailure {
    LogHistoryFailure(history: word, seed: seed, crash: crash, what: what, command: command)
  }

  private mutating func note(_ arguments: String) {
    command =
      "strandline crash-test --seed 0x\(String(seed, radix: 16)) \(arguments)"
      + (strength == .ordered ? " --ordered" : "")
  }

  // MARK: Complete for short histories

  /// All histories of exactly `length` operations (with 0: the making of a store), each crashed at every mutating
  /// call of its last operation.
  ///
  /// - Parameter choose: which of them; all by default.
  /// - Throws: `LogHistoryFailure`.
  package mutating func runAll(length: Int, choose: (Int) -> Bool = { _ in true }) throws {
    let alphabet = LogOperation.alphabet
    var count = 1
    for _ in 0..<length { count *= alphabet.count }
    for number in 0..<count where choose(number) {
      var rest = number
      let history = (0..<length).map { _ in
        defer { rest /= alphabet.count }
        return alphabet[rest % alphabet.count]
      }
      try run(history)
    }
  }

  /// How many histories of `length` operations there are.
  package static func count(length: Int) -> Int {
    (0..<length).reduce(1) { product, _ in product * LogOperation.alphabet.count }
  }

  /// One history, crashed at every mutating call of its last operation and after it.
  package mutating func run(_ history: [LogOperation]) throws {
    report.histories += 1
    let disk = SimulatedDisk()
    let scene = LogScene(disk: disk, seed: seed, strength: strength, options: options)
    var states: [SimulatedDisk] = []
    let word = String(history.map(\.rawValue))
    note("--history '\(word)'")
    do {
      if history.isEmpty { disk.keepsHistory = true }
      try scene.open()
      for (index, operation) in history.enumerated() {
        if index == history.count - 1 {
          scene.forgetCalls()
          disk.keepsHistory = true
        }
        try scene.perform(operation)
      }
      states = disk.history + [disk.clone()]
    } catch let problem as LogProblem {
      throw failure(word, "none", problem.what)
    } catch {
      throw failure(word, "none", "\(error)")
    }
    for (call, state) in states.enumerated() {
      let bounds = scene.bounds(beforeCall: call)
      // The process dies and the machine goes on: memory still has what no sync has covered.
      try check(state.clone(), bounds, word: word, crash: "before call \(call + 1) of the last, the process only")
      for loss in state.crashLosses() {
        try check(
          state.imageAfterCrash(loss), bounds.afterPowerCut, word: word,
          crash: "before call \(call + 1) of the last, \(loss)")
      }
    }
  }

  // MARK: Drawn, for long ones

  /// A history of `length` operations drawn from the seed, with crashes in between: each somewhere inside an
  /// operation, with losses from the whole fault model.
  ///
  /// - Throws: `LogHistoryFailure`.
  package mutating func runRandom(length: Int = 24, crashes: Int = 6) throws {
    report.histories += 1
    note("--history random:\(length):\(crashes)")
    let random = SeededRandom(seed: seed)
    // Large enough for small segments to be merged.
    options = CrashPoints.options.publishing(seed: seed)
    defer { options = Self.options.publishing(seed: seed) }
    var disk = SimulatedDisk()
    var scene = LogScene(disk: disk, seed: random.next(), strength: strength, options: options)
    var word = ""
    var crash = "none"
    var crashesLeft = crashes
    do {
      try scene.open()
      for step in 0..<length {
        let operation = LogOperation.drawn[Int(random.below(UInt64(LogOperation.drawn.count)))]
        word.append(operation.rawValue)
        let stepsLeft = UInt64(length - step)
        guard crashesLeft > 0, random.below(stepsLeft) < UInt64(crashesLeft) else {
          try scene.perform(operation)
          continue
        }
        crashesLeft -= 1
        disk.isTearing = random.below(2) == 0
        disk.crashAtCall = disk.callCount + 1 + Int(random.below(8))
        do {
          try scene.perform(operation)
          disk.cutPower()
        } catch  where disk.isOff {
          // The power went; what the operation threw says no more than that.
        }
        crash = "in operation \(step + 1), at call \(disk.callCount)"
        let bounds = scene.bounds(beforeCall: .max).afterPowerCut
        scene.letGo()
        // The cut may have come while the disk was full.
        disk.capacity = nil
        if random.below(4) == 0 {
          try check(
            disk.imageAfterCrash(using: random), bounds, word: word, crash: crash)
        }
        disk = disk.imageAfterCrash(using: random)
        scene = LogScene(disk: disk, seed: random.next(), strength: strength, after: bounds, options: options)
        report.images += 1
        try scene.open()
      }
      scene.letGo()
      disk.cutPower()
      try check(
        disk.imageAfterCrash(using: random), scene.bounds(beforeCall: .max).afterPowerCut, word: word,
        crash: "at the end")
    } catch let problem as LogProblem {
      throw failure(word, crash, problem.what)
    } catch let error as LogError {
      throw failure(word, crash, "\(error)")
    }
  }

  // MARK: One disk after a crash

  /// Opens what a crash left, and holds it against what was issued.
  private mutating func check(
    _ image: SimulatedDisk, _ bounds: LogBounds, word: String, crash: String
  ) throws {
    report.images += 1
    do {
      let samples = recoverySample > 0 && report.images % recoverySample == 0
      let untouched = samples ? image.clone() : nil
      try checker.check(image, bounds, seed: seed, isBusy: report.images % 2 == 0)
      if let untouched { try checkRecovery(untouched, bounds) }
    } catch let problem as LogProblem {
      throw failure(word, crash, problem.what)
    } catch let error as LogError {
      throw failure(word, crash, "a false alarm: \(error)")
    }
  }

  private var checker: CrashChecker { CrashChecker(strength: strength, options: options) }

  /// Crashes at each call of an open, with each loss.
  private mutating func checkRecovery(_ image: SimulatedDisk, _ bounds: LogBounds) throws {
    image.keepsHistory = true
    let scene = LogScene(disk: image, seed: seed &+ 1, strength: strength, after: bounds, options: options)
    try scene.open()
    scene.letGo()
    for (call, state) in image.history.enumerated() {
      let images =
        [("the process only", state.clone(), bounds)]
        + state.crashLosses().map { ($0.description, state.imageAfterCrash($0), bounds.afterPowerCut) }
      for (loss, image, bounds) in images {
        report.images += 1
        report.recoveryImages += 1
        do {
          try checker.check(image, bounds, seed: seed &+ 4, isBusy: call % 2 == 0)
        } catch {
          throw LogProblem("after a second crash before call \(call + 1) of the open, \(loss): \(error)")
        }
      }
    }
  }
}
