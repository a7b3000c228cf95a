// The cloud's bookmark. On the lowest floor because events keep it and projections hold it, long before anybody
// speaks to a cloud.

/// The server's position in a zone's or the database's history: opaque.
public struct ChangeToken: RawRepresentable, Hashable, Sendable {
  /// As the server wrote it.
  public let rawValue: String
  /// Takes the server's words.
  public init(rawValue: String) { self.rawValue = rawValue }
}
