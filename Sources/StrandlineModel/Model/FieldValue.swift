// The values that a field can hold: CloudKit's types, and no value that CloudKit cannot store. A value of a type that
// this version does not know is kept as it came.

import StrandlineSystem

/// A field's value. "No value" is nil: an explicit null and an absent field are one on the wire.
public enum FieldValue: Hashable, Sendable {
  /// Text.
  case string(String)
  /// A whole number. CloudKit has no Boolean; 0 and 1 stand for it.
  case int64(Int64)
  /// A number; finite. −0 is stored as 0.
  case double(Double)
  /// A time in whole milliseconds since 1970.
  case date(milliseconds: Int64)
  /// Raw bytes.
  case bytes([UInt8])
  // The next three, and the last, are stored indirectly, which keeps a value at two machine words: most values are text
  // and numbers.
  /// A pointer to another record.
  indirect case reference(Reference)
  /// A place on earth.
  indirect case location(Location)
  /// A file.
  indirect case asset(Asset)
  /// A list; all items are of the kind that the list names, none is itself a list.
  case list(ListKind, [FieldValue])
  /// A value that the server stores encrypted; not itself encrypted or a list of such.
  indirect case encrypted(FieldValue)
  /// A value of a type that this version does not know, as the server sent it. It is kept and sent back; an app cannot
  /// make one.
  indirect case opaque(OpaqueValue)

  /// Equal to the byte: texts that Unicode calls equivalent are two texts, because the server and a checksum see two.
  public static func == (left: FieldValue, right: FieldValue) -> Bool {
    switch (left, right) {
    case (.string(let left), .string(let right)): left.equalsUTF8(right)
    case (.int64(let left), .int64(let right)): left == right
    case (.double(let left), .double(let right)): left == right
    case (.date(let left), .date(let right)): left == right
    case (.bytes(let left), .bytes(let right)): left == right
    case (.reference(let left), .reference(let right)): left == right
    case (.location(let left), .location(let right)): left == right
    case (.asset(let left), .asset(let right)): left == right
    case (.list(let leftKind, let left), .list(let rightKind, let right)): leftKind == rightKind && left == right
    case (.encrypted(let left), .encrypted(let right)): left == right
    case (.opaque(let left), .opaque(let right)): left == right
    default: false
    }
  }

  /// Whether a field that takes this value takes another one too. Of a type that this version does not know, and of the items of a
  /// list that the server calls unknown, nothing is said against it.
  package func isOfSameType(as other: FieldValue) -> Bool {
    switch (self, other) {
    case (.string, .string), (.int64, .int64), (.double, .double), (.date, .date), (.bytes, .bytes),
      (.reference, .reference), (.location, .location), (.asset, .asset), (.opaque, _), (_, .opaque):
      true
    case (.list(let kind, _), .list(let otherKind, _)): kind == otherKind || kind == .unknown || otherKind == .unknown
    case (.encrypted(let value), .encrypted(let otherValue)): value.isOfSameType(as: otherValue)
    default: false
    }
  }

  /// What a list holds. An empty list still has a kind.
  public enum ListKind: UInt8, Hashable, Sendable, CaseIterable {
    /// Texts.
    case strings = 1
    /// Whole numbers.
    case int64s = 2
    /// Numbers.
    case doubles = 3
    /// Times.
    case dates = 4
    /// Byte strings.
    case bytes = 5
    /// Pointers.
    case references = 6
    /// Places.
    case locations = 7
    /// Files.
    case assets = 8
    /// The server said `UNKNOWN_LIST`, as it does of some empty lists.
    case unknown = 9
  }
}

/// A pointer to a record.
public struct Reference: Hashable, Sendable, Codable {
  /// What happens to the pointing record when its target is deleted.
  public enum Action: UInt8, Hashable, Sendable, Codable, CaseIterable {
    /// Nothing.
    case none = 0
    /// It is deleted too. Only within one zone.
    case deleteSelf = 1
    /// The target cannot be deleted while it is pointed at. Only within one zone.
    case validate = 2
  }
  /// The target's name.
  public var name: String
  /// The target's zone; nil for the pointing record's own.
  public var zone: ZoneID?
  /// What happens when the target is deleted.
  public var action: Action

  /// Points at a record.
  public init(_ name: String, zone: ZoneID? = nil, action: Action = .none) {
    self.name = name
    self.zone = zone
    self.action = action
  }

  /// Equal to the byte, as the identities that it names.
  public static func == (left: Reference, right: Reference) -> Bool {
    left.name.equalsUTF8(right.name) && left.zone == right.zone && left.action == right.action
  }

  /// Hashes what `==` compares.
  public func hash(into hasher: inout Hasher) {
    name.hashUTF8(into: &hasher)
    hasher.combine(zone)
    hasher.combine(action)
  }
}

/// A place on earth, with what the sensor said about it. All numbers are finite.
public struct Location: Hashable, Sendable, Codable {
  /// Degrees north.
  public var latitude: Double
  /// Degrees east.
  public var longitude: Double
  /// Metres.
  public var horizontalAccuracy: Double?
  /// Metres.
  public var verticalAccuracy: Double?
  /// Metres above the sea.
  public var altitude: Double?
  /// Metres a second.
  public var speed: Double?
  /// Degrees from north.
  public var course: Double?
  /// When, in milliseconds since 1970.
  public var timestamp: Int64?

  /// Names a place.
  public init(
    latitude: Double, longitude: Double, horizontalAccuracy: Double? = nil, verticalAccuracy: Double? = nil,
    altitude: Double? = nil, speed: Double? = nil, course: Double? = nil, timestamp: Int64? = nil
  ) {
    self.latitude = latitude
    self.longitude = longitude
    self.horizontalAccuracy = horizontalAccuracy
    self.verticalAccuracy = verticalAccuracy
    self.altitude = altitude
    self.speed = speed
    self.course = course
    self.timestamp = timestamp
  }

  package var numbers: [Double?] {
    [latitude, longitude, horizontalAccuracy, verticalAccuracy, altitude, speed, course]
  }
}

/// A file: what is known of its content here, and what the server knows of it. The content itself is no part of the
/// value: `RecordStore.stage` copies it into the store before a transaction names it. Uploading and downloading it is not built yet.
public struct Asset: Hashable, Sendable, Codable {
  /// Where the content is.
  public enum State: String, Hashable, Sendable, CaseIterable {
    /// On this device only. The record cannot be sent before the content was uploaded.
    case local
    /// At the server, with the receipt of its upload: a record may name it until the receipt expires.
    case uploaded
    /// At the server, as the file of a record.
    case downloadable
  }

  /// What the server knows of a file.
  package struct ServerFile: Hashable, Sendable, Codable {
    /// The server's checksum of the file, opaque. The web always has one; a native client never sees it.
    package var fileChecksum: String?
    /// The server's checksum of the reference, opaque.
    package var referenceChecksum: String?
    /// The server's key, opaque.
    package var wrappingKey: String?
    /// The proof of an upload.
    package var receipt: String?
    /// Where the content can be fetched for a while.
    package var downloadURL: String?

    /// Joins the parts.
    package init(
      fileChecksum: String? = nil, referenceChecksum: String? = nil, wrappingKey: String? = nil,
      receipt: String? = nil, downloadURL: String? = nil
    ) {
      self.fileChecksum = fileChecksum
      self.referenceChecksum = referenceChecksum
      self.wrappingKey = wrappingKey
      self.receipt = receipt
      self.downloadURL = downloadURL
    }

    /// Whether both say the same of the file. An address is another one with each answer of the server, and counts for nothing.
    package static func == (left: ServerFile, right: ServerFile) -> Bool {
      left.fileChecksum == right.fileChecksum && left.referenceChecksum == right.referenceChecksum
        && left.wrappingKey == right.wrappingKey && left.receipt == right.receipt
    }

    /// Hashes the checksum.
    package func hash(into hasher: inout Hasher) { hasher.combine(fileChecksum) }
  }

  /// The content's hash; nil if this device never had the content.
  public private(set) var contentHash: ContentHash?
  /// Bytes.
  public var size: Int64
  /// What the server knows of the file; nil if it has no such file yet.
  package private(set) var server: ServerFile?

  /// Where the content is.
  public var state: State {
    guard let server else { return .local }
    return server.receipt == nil ? .downloadable : .uploaded
  }

  /// Names a file that is on this device only.
  public init(contentHash: ContentHash, size: Int64) {
    self.contentHash = contentHash
    self.size = size
  }

  /// Names a file at the server.
  package init(server: ServerFile, size: Int64, contentHash: ContentHash? = nil) {
    self.contentHash = contentHash
    self.size = size
    self.server = server
  }

  /// Names a file at the server by what the web says of it.
  public init(
    fileChecksum: String, size: Int64, referenceChecksum: String? = nil, wrappingKey: String? = nil,
    receipt: String? = nil, downloadURL: String? = nil
  ) {
    self.init(
      server: ServerFile(
        fileChecksum: fileChecksum, referenceChecksum: referenceChecksum, wrappingKey: wrappingKey, receipt: receipt,
        downloadURL: downloadURL), size: size)
  }
}

/// The SHA-256 of a file's content.
public struct ContentHash: Hashable, Comparable, Sendable, Codable {
  /// The number of its bytes.
  package static let byteCount = 32
  // Four words and not a list of bytes, so that there is no hash of another length, wherever it was decoded from.
  private let first, second, third, fourth: UInt64

  /// The 32 bytes.
  public var bytes: [UInt8] {
    [first, second, third, fourth].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (56 - 8 * $0)) } }
  }

  /// In the order of the bytes.
  public static func < (left: ContentHash, right: ContentHash) -> Bool {
    (left.first, left.second, left.third, left.fourth) < (right.first, right.second, right.third, right.fourth)
  }

  /// The bytes in 64 hexadecimal digits.
  package var hexadecimal: String {
    String(
      decoding: bytes.flatMap { [Self.digits[Int($0 >> 4)], Self.digits[Int($0 & 15)]] }, as: UTF8.self)
  }

  private static let digits = Array("0123456789abcdef".utf8)

  /// Reads 64 hexadecimal digits in lower case; nil for any other text.
  package init?(hexadecimal text: some StringProtocol) {
    let places = text.utf8.map { digit in Self.digits.firstIndex(of: digit) }
    guard places.count == 2 * Self.byteCount, places.allSatisfy({ $0 != nil }) else { return nil }
    let nibbles = places.map { UInt8(truncatingIfNeeded: $0 ?? 0) }
    self.init(stride(from: 0, to: nibbles.count, by: 2).map { nibbles[$0] << 4 | nibbles[$0 + 1] })
  }

  /// Takes 32 bytes; nil for any other number of them.
  public init?(_ bytes: [UInt8]) {
    guard bytes.count == Self.byteCount else { return nil }
    func word(_ place: Int) -> UInt64 { bytes[place * 8..<place * 8 + 8].reduce(0) { $0 << 8 | UInt64($1) } }
    (first, second, third, fourth) = (word(0), word(1), word(2), word(3))
  }
}

/// A value of a type that this version does not know: the type's name and the JSON that the server sent.
///
/// Two are equal if name and text are equal to the byte; in an order they stand by the bytes of the name, then by those of
/// the text.
public struct OpaqueValue: Hashable, Comparable, Sendable {
  /// The type, as the server spells it.
  public let type: String
  /// The value as JSON, byte for byte as the server sent it.
  public let json: [UInt8]

  package init(type: String, json: [UInt8]) {
    self.type = type
    self.json = json
  }

  /// Equal to the byte, as `FieldValue`.
  public static func == (left: OpaqueValue, right: OpaqueValue) -> Bool {
    left.type.equalsUTF8(right.type) && left.json == right.json
  }

  /// Order by the type's UTF-8, then by the JSON's bytes.
  public static func < (left: OpaqueValue, right: OpaqueValue) -> Bool {
    if !left.type.equalsUTF8(right.type) { return left.type.precedesByUTF8(right.type) }
    return left.json.lexicographicallyPrecedes(right.json)
  }
}

extension FieldValue {
  /// The list kind that items of this value's kind make; nil for lists and encrypted values.
  package var itemKind: ListKind? {
    switch self {
    case .string: .strings
    case .int64: .int64s
    case .double: .doubles
    case .date: .dates
    case .bytes: .bytes
    case .reference: .references
    case .location: .locations
    case .asset: .assets
    case .list, .encrypted, .opaque: nil
    }
  }

  /// What is wrong with this value as one that an app or a client makes, if anything: numbers that JSON cannot carry,
  /// lists of mixed kinds, a type that this version does not know.
  package var defect: String? { defect(isKept: false) }

  /// The same; `isKept`: the server sent the value, and may have it back.
  package func defect(isKept: Bool) -> String? {
    switch self {
    case .string, .int64, .bytes, .reference, .asset: return nil
    case .date(let milliseconds):
      return isKept || (milliseconds > .min && milliseconds < .max)
        ? nil : "a date that is not finite, or beyond what 64 bits of milliseconds hold"
    case .opaque(let value):
      return isKept
        ? nil : "a value of the type '\(value.type.prefix(40))', which this version does not know and cannot make"
    case .double(let number): return number.isFinite ? nil : "\(number) is not a finite number"
    case .location(let place):
      return place.numbers.allSatisfy { $0?.isFinite ?? true } ? nil : "a location with a number that is not finite"
    case .list(let kind, let items):
      for item in items {
        if item.itemKind != kind { return "a list of \(kind) that holds another kind of value" }
        if let defect = item.defect(isKept: isKept) { return defect }
      }
      return nil
    case .encrypted(let inner):
      switch inner {
      case .encrypted: return "an encrypted value inside an encrypted value"
      case .reference, .list(.references, _): return "an encrypted reference, which CloudKit does not take"
      case .asset, .list(.assets, _):
        return "an encrypted asset, which CloudKit does not take; it encrypts assets itself"
      default: break
      }
      return inner.defect(isKept: isKept)
    }
  }

  /// Whether it is a list without items, which CloudKit takes in place of a value and not as a field's first one.
  package var isEmptyList: Bool {
    switch self {
    case .list(_, let items): items.isEmpty
    case .encrypted(let inner): inner.isEmptyList
    default: false
    }
  }

  /// The references in this value.
  package var references: [Reference] {
    switch self {
    case .reference(let reference): [reference]
    case .list(.references, let items): items.flatMap(\.references)
    default: []
    }
  }
}

extension FieldValue: ExpressibleByStringLiteral {
  /// Text.
  public init(stringLiteral value: String) { self = .string(value) }
}

extension FieldValue: ExpressibleByIntegerLiteral {
  /// A whole number.
  public init(integerLiteral value: Int64) { self = .int64(value) }
}

extension FieldValue: ExpressibleByFloatLiteral {
  /// A number.
  public init(floatLiteral value: Double) { self = .double(value) }
}
