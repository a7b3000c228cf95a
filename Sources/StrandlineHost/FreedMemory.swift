// What becomes of memory that was freed: of a process with hundreds of threads each of them keeps some.

private import CStrandlineHost

/// The memory that this process has freed.
package enum FreedMemory {
  /// From now on a large block that is freed goes back to the system at once. Has no effect where the system's allocator has no
  /// such setting (all but Linux with glibc).
  package static func goesBack() { strandline_return_large_blocks() }
}
