// The variables that the process was started with: an API token for the server, TMPDIR.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The variables of this process's environment.
package enum ProcessEnvironment {
  /// The value of a variable, nil if it is not set.
  package static func value(of name: String) -> String? {
    guard let value = unsafe getenv(name) else { return nil }
    return unsafe String(cString: value)
  }
}
