// Reads every byte of a log and writes none: what is sound, what the next open would set aside, what is damaged.

package import StrandlineSystem

/// Something that `verify` found.
package struct VerificationFinding: Hashable, Sendable {
  package enum Kind: String, Hashable, Sendable {
    /// Written and never promised; the next open sets it aside.
    case tornTail
    /// Acknowledged bytes (or bytes that hold the log together) that are not what was written.
    case damage
  }
  package var kind: Kind
  package var code: LogError.Code
  package var file: String
  package var offset: UInt64
  package var end: UInt64
  package var lsns: ClosedRange<UInt64>?
  package var message: String
}

/// The result of a verification.
package struct VerificationReport: Hashable, Sendable {
  package var findings: [VerificationFinding] = []
  package var segments = 0
  package var frames: UInt64 = 0
  package var events: UInt64 = 0
  package var bytes: UInt64 = 0
  package var lastLSN: UInt64 = 0
  /// Whether a writer held the store meanwhile: its tail above the last promise was not judged.
  package var isHeldByWriter = false
  package var nanoseconds: UInt64 = 0

  package init() {}

  package var isSound: Bool { findings.isEmpty }
  package var isDamaged: Bool { findings.contains { $0.kind == .damage } }
}

/// Checks a log without touching it.
package enum LogVerifier {
  /// Reads every byte of the log at `path`.
  ///
  /// - Throws: `LogError` if there is no log there or a read fails; what is wrong with the bytes is in the report.
  package static func verify(at path: String, environment: SystemEnvironment) throws(LogError) -> VerificationReport {
    throw LogError(.io, "being built")
  }
}
