// Checks that an app outside of this package can write such tests: compiles them without the package's name, so that
// only public declarations are visible.

import StrandlineHost
import StrandlineSimulation
import StrandlineSystem
import StrandlineTestSupport
import Testing

@Suite(.timeLimit(.minutes(30)))
struct `The public interface` {
  private static let folder = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast()
    .joined(separator: "/")

  /// Compiles a file as part of another package. Returns the compiler's errors, or nil if there are none.
  private func complaints(about file: String) throws -> String? {
    let built = try currentExecutablePath().split(separator: "/", omittingEmptySubsequences: false).dropLast()
      .joined(separator: "/")
    let root = Self.folder.split(separator: "/", omittingEmptySubsequences: false).dropLast(2).joined(separator: "/")
    let compiler = try ChildProcess(
      "/usr/bin/env",
      [
        "swiftc", "-typecheck", "-parse-as-library", "-swift-version", "6", "-I", "\(built)/Modules", "-Xcc",
        "-fmodule-map-file=\(built)/CStrandline.build/module.modulemap", "-Xcc",
        "-I\(root)/Sources/CStrandline/include", file,
      ], output: .null, errorOutput: .pipe)
    let words = String(decoding: try compiler.errorOutput?.readAll() ?? [], as: UTF8.self)
    return try compiler.wait() == .exited(0) ? nil : words
  }

  @Test func `suffices for an app's tests`() throws {
    let complaints = try complaints(about: "\(Self.folder)/AppTests.swift")
    #expect(complaints == nil)
  }

  @Test func `hides the modules below it`() throws {
    // Each line compiles within the package.
    let folder = try TemporaryFolder()
    let planted = """
      import Strandline
      import StrandlineTesting
      func f(_ disk: SimulatedDisk) { _ = disk.imageAfterCrash(.none) }
      func g(_ environment: StoreEnvironment) { _ = environment.system }
      func h(_ disk: SimulatedDisk) throws { _ = try disk.folder("/") }
      """
    let file = try POSIXFileSystem().open(folder("Planted.swift"), .create)
    try file.write(Array(planted.utf8), at: 0)
    file.close()
    let complaints = try #require(try complaints(about: folder("Planted.swift")))
    for name in ["imageAfterCrash", "system", "folder"] {
      #expect(complaints.contains("'\(name)' is inaccessible due to 'package' protection level"), "\(complaints)")
    }
  }
}
