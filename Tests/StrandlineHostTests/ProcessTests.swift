// Child processes, threads and the environment.

import StrandlineHost
import StrandlineSystem
import StrandlineTestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

@Suite(.timeLimit(.minutes(30)))
struct ProcessTests {
  @Test func `a child's lines and exit code arrive`() throws {
    let child = try ChildProcess(
      "/bin/sh", ["-c", "echo one; echo two; printf three; echo oops >&2; exit 7"], output: .pipe, errorOutput: .pipe)
    let output = try #require(child.output)
    #expect(try output.readLine() == "one")
    #expect(try output.readLine() == "two")
    #expect(try output.readLine() == "three")
    #expect(try output.readLine() == nil)
    #expect(try child.errorOutput?.readAll() == Array("oops\n".utf8))
    #expect(try child.wait() == .exited(7))
    #expect(try child.wait() == .exited(7))
    #expect(try child.waitNoHang() == .exited(7))
    child.kill(.kill)
  }

  @Test func `a killed child says by what`() throws {
    let child = try ChildProcess("/bin/sleep", ["100"])
    #expect(child.processID > 0)
    #expect(try child.waitNoHang() == nil)
    child.kill(.kill)
    #expect(try child.wait() == .signalled(9))
    let other = try ChildProcess("/bin/sleep", ["100"])
    other.kill(.terminate)
    #expect(try other.wait() == .signalled(15))
  }

  @Test func `input, environment and files reach the child`() throws {
    let folder = try TemporaryFolder()
    let child = try ChildProcess(
      "/bin/sh", ["-c", "cat; echo $SEA"], environment: ["SEA=north"], input: .pipe, output: .file(folder("out")))
    try child.write(Array("in\n".utf8))
    child.closeInput()
    #expect(try child.wait() == .exited(0))
    let written = try POSIXFileSystem().open(folder("out"), .read).read(at: 0, count: 100)
    #expect(written == Array("in\nnorth\n".utf8))
  }

  @Test func `a program that is not there is an error`() throws {
    let error = #expect(throws: SystemError.self) { try ChildProcess("/no/such/program", []) }
    #expect(error?.isAbsent == true)
  }

  @Test func `this process knows its program and its environment`() throws {
    let path = try currentExecutablePath()
    #expect(try POSIXFileSystem().kind(of: path) == .file)
    #expect(ProcessEnvironment.all.contains { $0.hasPrefix("PATH=") })
    #expect(ProcessEnvironment.value(of: "STRANDLINE_NO_SUCH_VARIABLE") == nil)
  }

  @Test func `output to a stream is whole`() throws {
    // Writes to the child's standard output, because this process's streams are used for the tests' report.
    let child = try ChildProcess("/bin/cat", [], input: .pipe, output: .pipe)
    let bytes = SeededRandom(seed: 3).bytes(1 << 20)
    let feeder = try BlockingThread.start(name: "feeder") {
      try? child.write(bytes)
      child.closeInput()
    }
    #expect(try child.output?.readAll() == bytes)
    feeder.join()
    #expect(try child.wait() == .exited(0))
  }

  @Test func `a stream that was closed at the start is open, and using it is an error`() async {
    await #expect(processExitsWith: .exitCode(3)) {
      // Dispatch's own thread opens files now and then, and may take a number between the close and the open: then again.
      for _ in 0..<20 {
        for number: Int32 in 0...2 { close(number) }
        StandardStreams.openClosed()
        let areOpen = (0...2).allSatisfy { fcntl(Int32($0), F_GETFD) != -1 }
        // A message must not go into the file that is opened next, and its loss must not go unnoticed.
        let isFree = try SystemPipe().reader.number > 2
        let calls: [() throws -> Void] = [
          { try StandardStreams.write("data", to: .output) }, { try StandardStreams.write("words", to: .error) },
          { _ = try StandardInput.read(max: 1) },
        ]
        let areErrors = calls.allSatisfy { call in
          do { try call() } catch { return error is SystemError }
          return false
        }
        if areOpen, isFree, areErrors { exit(3) }
      }
      exit(4)
    }
    await #expect(processExitsWith: .exitCode(3)) {
      let before = (0...2).map { fcntl(Int32($0), F_GETFL) }
      StandardStreams.openClosed()
      exit((0...2).map { fcntl(Int32($0), F_GETFL) } == before ? 3 : 4)
    }
  }

  @Test func `the first signal calls the handler, the second ends the process`() async {
    // The signal is sent to the process and not raised, because the threads that run tests block all signals.
    await #expect(processExitsWith: .exitCode(3)) {
      try Signals.onInterrupt { exit(3) }
      kill(getpid(), SIGTERM)
      // Blocks until the handler's thread has ended the process.
      try BlockingThread.start(name: "wait") { while true { pause() } }.join()
    }
    await #expect(processExitsWith: .signal(SIGINT)) {
      try Signals.onInterrupt { kill(getpid(), SIGINT) }
      kill(getpid(), SIGINT)
      try BlockingThread.start(name: "wait") { while true { pause() } }.join()
    }
  }

  @Test func `the real clocks go forward`() {
    let clock = RealClock()
    let before = clock.monotonicNanoseconds()
    clock.sleepBlocking(milliseconds: 1)
    #expect(clock.monotonicNanoseconds() >= before + 1_000_000)
    #expect(clock.wallMilliseconds() > 1_700_000_000_000)
  }
}
