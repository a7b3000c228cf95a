// A coverage-guided fuzzer for every decoder of bytes from disk. `.ci/fuzz` builds it against libFuzzer and runs it.
//
// No test target: SwiftPM does not see this folder. The first byte of an input chooses the decoder, the second says
// whether checksums are repaired before the bytes are decoded: without that, nothing behind a checksum would ever be
// met; with it alone, the checks themselves would not be. What a decoder says is held against what another one says of
// the same bytes. A trap, a hang, too much memory or two answers that differ end the run.

import StrandlineLog
import StrandlineSystem

/// What may be fuzzed. The numbers stand in the inputs of the corpus: a new decoder goes to the end, with its line in
/// `run` and a function in a file of its own.
enum Decoder: UInt8, CaseIterable {
  case log
  case frame
  case bodies
  case manifest
  case control

  func run(_ input: inout FuzzInput) {
    switch self {
    case .log: LogFuzzing.run(&input)
    case .frame: FrameFuzzing.runFrame(&input)
    case .bodies: FrameFuzzing.runBodies(&input)
    case .manifest: DirectoryFuzzing.runManifest(&input)
    case .control: DirectoryFuzzing.runControl(&input)
    }
  }

  /// The only one to run, if the script asked for one.
  static let wanted = ProcessEnvironment.value(of: "STRANDLINE_FUZZ_TARGET").flatMap { name in
    allCases.first { "\($0)" == name }
  }
}

/// What libFuzzer calls with each input; -1 keeps it out of the corpus.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOneInput(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  var input = FuzzInput(unsafe Array(UnsafeBufferPointer(start: data, count: count)))
  guard let decoder = Decoder(rawValue: input.byte()), Decoder.wanted ?? decoder == decoder else { return -1 }
  decoder.run(&input)
  return 0
}

/// The bytes of an input, from the front; zeros where it ends.
struct FuzzInput {
  private let bytes: [UInt8]
  private var at = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  var isAtEnd: Bool { at == bytes.count }

  mutating func take(_ count: Int) -> [UInt8] {
    let end = min(bytes.count, at + count)
    defer { at = end }
    return Array(bytes[at..<end])
  }

  /// Exactly `count` bytes.
  mutating func padded(_ count: Int) -> [UInt8] {
    let found = take(count)
    return found + [UInt8](repeating: 0, count: count - found.count)
  }

  mutating func byte() -> UInt8 { padded(1)[0] }
  mutating func u16() -> Int { padded(2).enumerated().reduce(0) { $0 | Int($1.element) << (8 * $1.offset) } }
  mutating func u32() -> UInt32 { padded(4).u32(at: 0) }
  mutating func u64() -> UInt64 { padded(8).u64(at: 0) }
  mutating func rest() -> [UInt8] { take(bytes.count) }
}

/// The second byte of an input.
struct FuzzFlags: OptionSet {
  let rawValue: UInt8
  /// Checksums are made right.
  static let repaired = FuzzFlags(rawValue: 1)
  /// What must follow from the rest is made right, too: LSNs, predecessors and chains of a log.
  static let consistent = FuzzFlags(rawValue: 2)
  /// A log: there are two segments.
  static let two = FuzzFlags(rawValue: 4)
  /// A log: its files are named by their headers.
  static let named = FuzzFlags(rawValue: 8)
  /// A log: it has a lock file.
  static let lockable = FuzzFlags(rawValue: 16)
  /// A log: a writer holds it.
  static let held = FuzzFlags(rawValue: 32)
  /// A log: space was reserved behind what was written.
  static let reserved = FuzzFlags(rawValue: 64)
  /// A log: its writer closed it, as CONTROL says.
  static let bounded = FuzzFlags(rawValue: 128)
}

/// Two answers that differ end the run, with words.
func require(_ holds: Bool, _ what: @autoclosure () -> String) {
  if !holds { preconditionFailure(what()) }
}
