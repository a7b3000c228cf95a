// What a benchmark measures besides time: the load of the machine and the peak of resident memory.

private import CStrandlineHost
private import StrandlineSystem

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

  /// The resident memory of this process in bytes: what it allocated, and pages of files, its program among them. nil
  /// where the system does not tell them apart (all but Linux).
  package static var resident: (anonymous: Int, file: Int)? {
    #if os(Linux)
      guard let anonymous = status("self", "RssAnon"), let pages = status("self", "RssFile") else { return nil }
      return (anonymous, pages)
    #else
      return nil
    #endif
  }

  /// The resident memory of a process in bytes. nil if it has ended, and where the system does not tell (all but Linux).
  package static func residentBytes(of processID: Int32) -> Int? {
    #if os(Linux)
      return status("\(processID)", "VmRSS")
    #else
      return nil
    #endif
  }

  #if os(Linux)
    /// The bytes of a line of a process's status: "RssAnon:     1234 kB".
    private static func status(_ process: String, _ key: String) -> Int? {
      guard let file = try? POSIXFileSystem().open("/proc/\(process)/status", .read) else { return nil }
      defer { file.close() }
      guard let text = try? file.read(at: 0, count: 64 << 10) else { return nil }
      let lines = String(decoding: text, as: UTF8.self).split(separator: "\n")
      guard let line = lines.first(where: { $0.hasPrefix(key + ":") }) else { return nil }
      return line.split(whereSeparator: { " \t".contains($0) }).dropFirst().first.flatMap { Int($0) }.map { $0 << 10 }
    }
  #endif
}
