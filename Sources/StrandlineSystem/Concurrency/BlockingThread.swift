// A thread that may block.
//
// Swift's concurrency pool has few threads, and none may wait for a disk or a socket. Code that waits for one runs on
// a thread of this type.

internal import CStrandline
internal import Dispatch

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// A thread of the operating system.
package final class BlockingThread: Sendable {
  private let completion: Completion

  private init(_ completion: Completion) { self.completion = completion }

  /// Starts a thread that runs `body` and then ends.
  ///
  /// - Parameters:
  ///   - name: Shown by debuggers; only the first 15 bytes are used.
  ///   - stackBytes: The size of its stack, of which the system gives memory to what is used.
  /// - Throws: EAGAIN if the system cannot start another thread.
  @discardableResult
  package static func start(
    name: String, stackBytes: Int = 4 << 20, _ body: @escaping @Sendable () -> Void
  ) throws(SystemError) -> BlockingThread {
    let completion = Completion()
    let work = unsafe Unmanaged.passRetained(Work(name: name, body: body, completion: completion))
    var attributes = pthread_attr_t()
    unsafe pthread_attr_init(&attributes)
    defer { unsafe _ = pthread_attr_destroy(&attributes) }
    unsafe pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    // Apple's default of 512 KiB is too small for a recursive parser; Linux uses the process's limit.
    unsafe pthread_attr_setstacksize(&attributes, stackBytes)
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

  /// Blocks until the thread has run its body. Must not be called on a thread of Swift's concurrency pool.
  package func join() { completion.wait() }

  /// What the new thread runs.
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
      // Releases what passRetained in `start` retained.
      let work = unsafe Unmanaged<Work>.fromOpaque(raw).takeRetainedValue()
      unsafe strandline_name_thread(work.name)
      work.body()
      work.completion.finish()
      return nil
    }
  }

  /// Tells every thread that waits for it that the thread's body has returned. It needs no descriptor: a server has
  /// hundreds of threads.
  private final class Completion: Sendable {
    private let semaphore = DispatchSemaphore(value: 0)

    func finish() { semaphore.signal() }

    func wait() {
      semaphore.wait()
      // For the next thread that waits.
      semaphore.signal()
    }
  }
}

/// The two ends of a pipe, both close-on-exec.
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
