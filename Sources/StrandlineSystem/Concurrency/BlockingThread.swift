// A thread that is allowed to block.
//
// Swift's own threads are few and must never wait for a disk or a socket; whoever has to, does it here.

internal import CStrandline
internal import Synchronization

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A plain thread of the system.
package final class BlockingThread: Sendable {
  private let completion: Completion

  private init(_ completion: Completion) { self.completion = completion }

  /// Starts a thread that runs `body` and ends.
  ///
  /// - Parameter name: for debuggers; 15 bytes of it count.
  /// - Throws: EAGAIN if the system has no room for a thread.
  @discardableResult
  package static func start(
    name: String, _ body: @escaping @Sendable () -> Void
  ) throws(SystemError) -> BlockingThread {
    let completion = try Completion()
    let work = unsafe Unmanaged.passRetained(Work(name: name, body: body, completion: completion))
    var attributes = pthread_attr_t()
    unsafe pthread_attr_init(&attributes)
    defer { unsafe _ = pthread_attr_destroy(&attributes) }
    unsafe pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    // Apple's default of 512 KiB is little for a parser; Linux goes by the process's limit.
    unsafe pthread_attr_setstacksize(&attributes, 4 << 20)
    #if canImport(Darwin)
      var thread: pthread_t?
      let code = unsafe pthread_create(
        &thread, &attributes,
        { unsafe Work.run($0) }, work.toOpaque())
    #else
      var thread = pthread_t()
      let code = unsafe pthread_create(
        &thread, &attributes,
        { raw in
          if let raw = unsafe raw { return unsafe Work.run(raw) }
          return nil
        }, work.toOpaque())
    #endif
    guard code == 0 else {
      unsafe work.release()
      throw SystemError(call: "pthread_create", subject: name, errno: code)
    }
    return BlockingThread(completion)
  }

  /// Blocks until the thread's work is done. Not for Swift's own threads.
  package func join() { completion.wait() }

  /// What the new thread is handed.
  private final class Work {
    let name: String
    let body: @Sendable () -> Void
    let completion: Completion

    init(name: String, body: @escaping @Sendable () -> Void, completion: Completion) {
      self.name = name
      self.body = body
      self.completion = completion
    }

    static func run(_ raw: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
      // Balances passRetained in start.
      let work = unsafe Unmanaged<Work>.fromOpaque(raw).takeRetainedValue()
      unsafe strandline_name_thread(work.name)
      work.body()
      work.completion.finish()
      return nil
    }
  }

  /// Said once, heard by any number of waiters: a pipe whose writing end is closed when the work is done, so
  /// that every reader meets its end.
  private final class Completion: Sendable {
    private let reader: Descriptor
    private let writer: Mutex<Descriptor?>

    init() throws(SystemError) {
      let pipe = try SystemPipe()
      reader = pipe.reader
      writer = Mutex(pipe.writer)
    }

    func finish() { writer.withLock { $0 = nil } }

    func wait() {
      var byte: UInt8 = 0
      while true {
        let got = unsafe withUnsafeMutableBytes(of: &byte) { buffer -> Int in
          guard let base = buffer.baseAddress else { return 0 }
          return unsafe SystemCall.read(reader.number, base, 1)
        }
        if got >= 0 || SystemCall.lastError != EINTR { return }
      }
    }
  }
}

/// The two ends of a pipe, closed on exec.
package struct SystemPipe {
  package let reader: Descriptor
  package let writer: Descriptor

  package init() throws(SystemError) {
    var ends: (Int32, Int32) = (-1, -1)
    let code = unsafe withUnsafeMutableBytes(of: &ends) { raw -> Int32 in
      guard let base = unsafe raw.assumingMemoryBound(to: Int32.self).baseAddress else { return EINVAL }
      return unsafe strandline_pipe(base)
    }
    guard code == 0 else { throw SystemError(call: "pipe", subject: "", errno: code) }
    reader = Descriptor(ends.0)
    writer = Descriptor(ends.1)
  }
}
