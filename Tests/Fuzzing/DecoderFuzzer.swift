// A coverage-guided fuzzer for every decoder of bytes from disk, the reader of JSON, and the readers of what travels.
// `.ci/fuzz` builds it against libFuzzer and runs it.
//
// This directory is not a target of the package. The first byte of an input chooses the decoder, the second says whether
// checksums are repaired before the bytes are decoded: without repair, hardly any input would pass a checksum; with
// repair alone, the checksums would not be tested. The result of a decoder is compared with that of another one for the
// same bytes. A trap, a hang, too much memory or two results that differ end the run.

import StrandlineLog
import StrandlineSystem

/// The decoders. The inputs of the corpus contain their numbers, so a new decoder is added at the end, with its line in
/// `run` and a function in a file of its own.
enum Decoder: UInt8, CaseIterable {
  case log
  case frame
  case bodies
  case manifest
  case control
  case json
  case answers
  case requests
  case http

  func run(_ input: inout FuzzInput) {
    switch self {
    case .log: LogFuzzing.run(&input)
    case .frame: FrameFuzzing.runFrame(&input)
    case .bodies: FrameFuzzing.runBodies(&input)
    case .manifest: DirectoryFuzzing.runManifest(&input)
    case .control: DirectoryFuzzing.runControl(&input)
    case .json: JSONFuzzing.run(&input)
    case .answers: WireFuzzing.runAnswers(&input)
    case .requests: WireFuzzing.runRequests(&input)
    case .http: WireFuzzing.runHTTP(&input)
    }
  }

  /// The only decoder to run, if the script has set one.
  static let wanted = ProcessEnvironment.value(of: "STRANDLINE_FUZZ_TARGET").flatMap { name in
    allCases.first { "\($0)" == name }
  }
}

/// libFuzzer calls this with each input. Returns -1 to keep the input out of the corpus.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOneInput(_ data: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  var input = FuzzInput(unsafe Array(UnsafeBufferPointer(start: data, count: count)))
  guard let decoder = Decoder(rawValue: input.byte()), Decoder.wanted ?? decoder == decoder else { return -1 }
  decoder.run(&input)
  return 0
}

/// Reads the bytes of an input from the front; behind its end, zeros.
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
  /// Checksums are repaired.
  static let repaired = FuzzFlags(rawValue: 1)
  /// Values that follow from others are repaired too: LSNs, predecessors and chains of a log.
  static let consistent = FuzzFlags(rawValue: 2)
  /// A log: it has two segments.
  static let two = FuzzFlags(rawValue: 4)
  /// A log: its files have the names that their headers require.
  static let named = FuzzFlags(rawValue: 8)
  /// A log: it has a lock file.
  static let lockable = FuzzFlags(rawValue: 16)
  /// A log: a writer holds its lock.
  static let held = FuzzFlags(rawValue: 32)
  /// A log: space was reserved behind what was written.
  static let reserved = FuzzFlags(rawValue: 64)
  /// A log: CONTROL says that its writer has closed it.
  static let bounded = FuzzFlags(rawValue: 128)
}

/// Ends the run with a message if two results differ.
func require(_ holds: Bool, _ what: @autoclosure () -> String) {
  if !holds { preconditionFailure(what()) }
}
