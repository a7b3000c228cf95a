// The environment variables of the process, of which the package reads a server's API token and TMPDIR.

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The environment variables of this process.
package enum ProcessEnvironment {
  /// Returns the value of a variable, or nil if it is not set.
  package static func value(of name: String) -> String? {
    guard let value = unsafe getenv(name) else { return nil }
    return unsafe String(cString: value)
  }
}
