// What a benchmark reads beside its clocks.

private import CStrandlineHost

/// Readings of this machine and this process.
package enum Measures {
  /// How many threads wanted a processor, averaged over the last minute; nil if the system does not say.
  package static var loadAverage: Double? {
    let average = strandline_load_average()
    return average < 0 ? nil : average
  }

  /// Begins a new peak of resident memory, where the system can (Linux); elsewhere the peak is the process's.
  package static func forgetPeak() { _ = strandline_forget_peak() }

  /// The most bytes that were resident since then.
  package static var peakBytes: Int { Int(strandline_peak_bytes()) }
}
