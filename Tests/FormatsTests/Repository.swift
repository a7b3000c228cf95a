// Where the pages and the golden bytes lie, and how tests read them: through the package's own disk, by the place of
// this source file, so that no resource has to be copied anywhere.

import StrandlineHost
import StrandlineSystem
import Testing

/// The folder of the package.
enum Repository {
  static let disk = POSIXFileSystem()

  /// The folder that holds Package.swift.
  static let root = String(
    #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/"))

  /// The path of python3, which runs the decoder that was written from the pages.
  ///
  /// - Throws: an `ExpectationFailedError` if this machine has none: a decoder that did not run has proved nothing.
  static func python() throws -> String {
    let folders = (ProcessEnvironment.value(of: "PATH") ?? "").split(separator: ":")
    let found = try folders.map { "\($0)/python3" }.first { try disk.kind(of: $0) != .absent }
    return try #require(found, "python3 is in none of the folders of PATH; install it and run the tests again")
  }

  static func path(_ relative: String) -> String { root + "/" + relative }

  static func bytes(_ relative: String) throws -> [UInt8] {
    let file = try disk.open(path(relative), .read)
    defer { file.close() }
    return try file.read(at: 0, count: Int(try file.size()))
  }

  static func text(_ relative: String) throws -> String { String(decoding: try bytes(relative), as: UTF8.self) }

  static func names(_ relative: String) throws -> [String] { try disk.list(path(relative)).sorted() }

  /// Replaces a file; for the golden bytes, when it was asked for.
  static func write(_ bytes: [UInt8], _ relative: String) throws {
    var folder = root
    for part in relative.split(separator: "/").dropLast() {
      folder += "/" + part
      if try disk.kind(of: folder) == .absent { try disk.makeDirectory(folder) }
    }
    if try disk.kind(of: path(relative)) != .absent { try disk.unlink(path(relative)) }
    let file = try disk.open(path(relative), .create)
    defer { file.close() }
    try file.write(bytes, at: 0)
  }
}

/// Bytes in small hexadecimal.
func hex(_ bytes: some Sequence<UInt8>) -> String {
  bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}
