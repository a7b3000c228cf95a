// Helpers of the command's tests: a simulated machine that runs whole command lines and returns their output.

import Strandline
import StrandlineCLI
import StrandlineLog
import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import Synchronization
import Testing

/// A wall clock that stands still, so that output with times is the same in each run. Sleeps return at once.
final class StandingClock: SystemClock {
  private let slept = Mutex<UInt64>(0)
  func wallMilliseconds() -> Int64 { 1_767_225_600_000 }
  func monotonicNanoseconds() -> UInt64 { slept.withLock { $0 } }
  func sleep(milliseconds: Int64) async throws {
    try Task.checkCancellation()
    sleepBlocking(milliseconds: milliseconds)
    await Task.yield()
  }
  func sleepBlocking(milliseconds: Int64) { slept.withLock { $0 += UInt64(max(0, milliseconds)) * 1_000_000 } }
}

/// The exit code and output of a command line.
struct Screen: Equatable {
  var code: ExitCode
  var out: String
  var err: String
}

/// How standard input arrives.
struct InputPace: Sendable {
  /// The most bytes that one read returns.
  var bytesMax = Int.max
  /// Runs before each read.
  var onRead: @Sendable () -> Void = {}
}

/// A simulated machine: a disk, a clock and environment variables.
final class Machine: Sendable {
  let disk: SimulatedDisk
  let environment: SystemEnvironment
  private let variables = Mutex<[String: String]>([:])
  private let out = Mutex<[UInt8]>([])
  private let err = Mutex<[UInt8]>([])
  /// Each write to standard output separately.
  let writes = Mutex<[String]>([])
  /// The number of writes after which standard output is closed; nil for never.
  let writesLeft = Mutex<Int?>(nil)
  private let interruptHandlers = Mutex<[@Sendable () -> Void]>([])
  /// Whether Ctrl-C is pressed as soon as a command registers a handler.
  let isImpatient = Mutex(false)
  private let onOutput: @Sendable (String) -> Void
  private let onError: @Sendable (String) -> Void

  /// The seconds after which a request without an answer fails.
  private let requestTimeout: Double
  private let isErrorTerminal: Bool
  private let pace: InputPace

  init(
    seed: UInt64 = 1, disk: SimulatedDisk = SimulatedDisk(), requestTimeout: Double = 20,
    clock: any SystemClock = StandingClock(),
    isErrorTerminal: Bool = false, pace: InputPace = InputPace(),
    onOutput: @escaping @Sendable (String) -> Void = { _ in },
    onError: @escaping @Sendable (String) -> Void = { _ in }
  ) {
    self.disk = disk
    environment = SystemEnvironment(fileSystem: disk, clock: clock, random: SeededRandom(seed: seed))
    self.requestTimeout = requestTimeout
    self.isErrorTerminal = isErrorTerminal
    self.pace = pace
    self.onOutput = onOutput
    self.onError = onError
  }

  func set(_ name: String, _ value: String?) { variables.withLock { $0[name] = value } }

  /// Presses Ctrl-C.
  func interrupt() {
    let handlers = interruptHandlers.withLock { $0 }
    for handler in handlers { handler() }
  }

  /// Runs a command line.
  func run(_ words: String..., input: String = "") async -> Screen { await run(words, input: Array(input.utf8)) }

  /// - Parameter words: The arguments; nil for one that is not valid UTF-8.
  func run(_ words: [String?], input: [UInt8]) async -> Screen {
    let rest = Mutex(input[...])
    let console = Console(
      environment: environment, isErrorTerminal: isErrorTerminal, requestTimeout: requestTimeout,
      variables: { name in self.variables.withLock { $0[name] } },
      output: { bytes in
        let isOpen = self.writesLeft.withLock { left in
          guard let count = left else { return true }
          left = max(0, count - 1)
          return count > 0
        }
        guard isOpen else { throw SystemError.brokenPipe("write", "standard output") }
        self.out.withLock { $0 += bytes }
        let text = String(decoding: bytes, as: UTF8.self)
        self.writes.withLock { $0.append(text) }
        self.onOutput(text)
      },
      error: { bytes in
        self.err.withLock { $0 += bytes }
        self.onError(String(decoding: bytes, as: UTF8.self))
      },
      input: { max in
        self.pace.onRead()
        let count = min(max, self.pace.bytesMax)
        return rest.withLock { rest in
          defer { rest = rest.dropFirst(count) }
          return Array(rest.prefix(count))
        }
      },
      interrupts: { body in
        self.interruptHandlers.withLock { $0.append(body) }
        if self.isImpatient.withLock({ $0 }) { body() }
      })
    let code = await Tool.run(given: words, console)
    func take(_ buffer: borrowing Mutex<[UInt8]>) -> String {
      buffer.withLock { buffer in
        defer { buffer = [] }
        return String(decoding: buffer, as: UTF8.self)
      }
    }
    return Screen(code: code, out: take(out), err: take(err))
  }

  /// Writes a file to the disk.
  func file(_ path: String, _ text: String) throws {
    let file = try disk.open(path, .create)
    try file.write(Array(text.utf8), at: 0)
    file.close()
  }
}

/// A line for `import`: a note with a title.
func note(_ name: String, _ title: String) -> String {
  #"{"recordType":"Note","recordName":"\#(name)","fields":{"title":"\#(title)"}}"# + "\n"
}

extension Machine {
  /// The environment for stores that a test opens itself on the same disk.
  var storeEnvironment: StoreEnvironment { StoreEnvironment(environment) }

  /// A store of three notes in `/A`; the event of the second one, at `lsn`, is damaged.
  static func withDamagedNote() async throws -> (machine: Machine, lsn: UInt64) {
    let machine = Machine()
    _ = await machine.run(
      "import", "--batch", "1", "/A", "-", input: note("a", "1") + note("b", "2") + note("c", "3"))
    var hit: LogEvent?
    try LogReader.open(at: "/A", environment: machine.environment).poll { found in
      if try found.decoded().recordID?.name == "b" { hit = found }
    }
    let event = try #require(hit)
    let path = "/A/" + SegmentName.name(event.segmentID)
    var bytes = try #require(machine.disk.peek(path))
    bytes[Int(event.offset) + 40] ^= 1
    machine.disk.poke(path, bytes)
    return (machine, event.lsn)
  }

  /// A machine with a store at /A whose tables know 40 records r0 to r39 of the type N. Event 2, which holds r0, is damaged
  /// in a segment that an open does not read.
  static func withDamageBelowTables() throws -> (machine: Machine, file: String, place: LogPlace) {
    let machine = Machine()
    var log = LogOptions()
    log.segmentBytesMax = 8 << 10
    var index = IndexOptions()
    index.closeCount = 1
    let store = try RecordStore.openBlocking(
      at: "/A", options: StoreOptions(log: log, index: index), environment: StoreEnvironment(machine.environment))
    for number in 0..<40 {
      let text = FieldValue.string(String(repeating: "x", count: 600))
      try store.writeBlocking { try $0.save(Record(type: "N", id: RecordID("r\(number)"), fields: ["t": text])) }
    }
    guard case .writer(let writer) = store.source else { throw StrandlineError(.readOnly, "") }
    let place = try #require(writer.place(of: 2))
    try store.closeBlocking()
    let file = "/A/\(SegmentName.name(place.segmentID))"
    var bytes = try #require(machine.disk.peek(file))
    bytes[Int(place.offset) + 60] ^= 1
    machine.disk.poke(file, bytes)
    return (machine, file, place)
  }
}

/// Whether a screen has no control characters, so that a terminal shows it as it is.
func isTame(_ screen: String) -> Bool {
  screen.unicodeScalars.allSatisfy { scalar in
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator: scalar == "\n"
    default: true
    }
  }
}

/// A page of the package.
enum Page {
  /// The text of the page at a path below the package's directory.
  static func text(_ path: String) throws -> String {
    let package = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
    let file = try POSIXFileSystem().open("/\(package)/\(path)", .read)
    defer { file.close() }
    return String(decoding: try file.read(at: 0, count: Int(try file.size())), as: UTF8.self)
  }
}
