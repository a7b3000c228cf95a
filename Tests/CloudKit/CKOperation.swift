// How the stand-in's requests are made: the parts of Apple's operations that its async functions take.

public import Foundation

/// A request. The stand-in has only what its async functions take.
public enum CKOperation {
  /// How a request is made.
  public final class Configuration {
    /// Its urgency.
    public var qualityOfService: QualityOfService = .default
    /// Whether it may use a cellular network.
    public var allowsCellularAccess = true
    /// Seconds until a part of it must have been answered.
    public var timeoutIntervalForRequest: TimeInterval = 60
    /// Seconds that all of it may take.
    public var timeoutIntervalForResource: TimeInterval = 7 * 24 * 3600

    /// Apple's defaults.
    public init() {}
  }
}

/// Requests that belong together, for Apple's console.
public final class CKOperationGroup {
  /// The group's name.
  public var name: String?

  /// A group without a name.
  public init() {}
}

/// A request that changes records. The stand-in has only what its async function takes.
public enum CKModifyRecordsOperation {
  /// When a record is saved.
  public enum RecordSavePolicy: Int, Sendable {
    /// If the server has the version with the record's tag: the changed fields are written.
    case ifServerRecordUnchanged = 0
    /// Always: the changed fields are written.
    case changedKeys = 1
    /// Always: all fields of the record are written.
    case allKeys = 2
  }
}

/// A position in a feed.
public final class CKServerChangeToken: NSObject, NSSecureCoding, NSCopying, Sendable {
  /// The server's text.
  package let text: String

  package init(_ text: String) { self.text = text }

  /// Itself: it never changes.
  public func copy(with zone: NSZone? = nil) -> Any { self }
  /// Yes.
  public static var supportsSecureCoding: Bool { true }
  /// Reads a token.
  public init?(coder: NSCoder) {
    guard let text = coder.decodeObject(of: NSString.self, forKey: "token") else { return nil }
    self.text = "\(text)"
  }
  /// Writes a token.
  public func encode(with coder: NSCoder) { coder.encode(NSString(string: text), forKey: "token") }
}
