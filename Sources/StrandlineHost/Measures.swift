// What a benchmark measures besides time: the load of the machine and the peak of resident memory.

private import CStrandlineHost

/// Measurements of this machine and this process.
package enum Measures {
  /// The load average of the last minute: threads that run or wait for a processor. nil if the system has none.
  package static var loadAverage: Double? {
    let average = strandline_load_average()
    return average < 0 ? nil : average
  }

  /// Resets `peakBytes` to the memory that is resident now. Has no effect where the system cannot reset it (all but
  /// Linux).
  package static func resetPeak() { _ = strandline_reset_peak() }

  /// The peak of resident memory in bytes since the last `resetPeak()`, or since the process began.
  package static var peakBytes: Int { Int(strandline_peak_bytes()) }
}
