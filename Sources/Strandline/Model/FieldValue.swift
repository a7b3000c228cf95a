// The values that a field can hold: CloudKit's types, and no value that CloudKit cannot store.

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
  // The next three are stored indirectly, which keeps a value at two machine words: most values are text and numbers.
  /// A pointer to another record.
  indirect case reference(Reference)
  /// A place on earth.
  indirect case location(Location)
  /// A file at the server.
  indirect case asset(Asset)
  /// A list; all items are of the kind that the list names, none is itself a list.
  case list(ListKind, [FieldValue])
  /// A value that the server stores encrypted; not itself encrypted or a list of such.
  indirect case encrypted(FieldValue)

  /// Equal to the byte: texts that Unicode calls equivalent are two texts, because the server and a checksum see two.
  public static func == (left: FieldValue, right: FieldValue) -> Bool {
    switch (left, right) {
    case (.string(let left), .string(let right)): left.utf8.elementsEqual(right.utf8)
    case (.int64(let left), .int64(let right)): left == right
    case (.double(let left), .double(let right)): left == right
    case (.date(let left), .date(let right)): left == right
    case (.bytes(let left), .bytes(let right)): left == right
    case (.reference(let left), .reference(let right)): left == right
    case (.location(let left), .location(let right)): left == right
    case (.asset(let left), .asset(let right)): left == right
    case (.list(let leftKind, let left), .list(let rightKind, let right)): leftKind == rightKind && left == right
    case (.encrypted(let left), .encrypted(let right)): left == right
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

/// A file at the server. Strandline keeps what the server says of it; uploading and downloading the content
/// is not built yet.
public struct Asset: Hashable, Sendable, Codable {
  /// The server's checksum of the file, opaque.
  public var fileChecksum: String
  /// Bytes.
  public var size: Int64
  /// The server's checksum of the reference, opaque.
  public var referenceChecksum: String?
  /// The server's key, opaque.
  public var wrappingKey: String?
  /// The proof of an upload.
  public var receipt: String?
  /// Where the content can be fetched for a while.
  public var downloadURL: String?

  /// Names a file.
  public init(
    fileChecksum: String, size: Int64, referenceChecksum: String? = nil, wrappingKey: String? = nil,
    receipt: String? = nil, downloadURL: String? = nil
  ) {
    self.fileChecksum = fileChecksum
    self.size = size
    self.referenceChecksum = referenceChecksum
    self.wrappingKey = wrappingKey
    self.receipt = receipt
    self.downloadURL = downloadURL
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
    case .list, .encrypted: nil
    }
  }

  /// What is wrong with this value, if anything: numbers that JSON cannot carry, lists of mixed kinds.
  package var defect: String? {
    switch self {
    case .string, .int64, .date, .bytes, .reference, .asset: return nil
    case .double(let number): return number.isFinite ? nil : "\(number) is not a finite number"
    case .location(let place):
      return place.numbers.allSatisfy { $0?.isFinite ?? true } ? nil : "a location with a number that is not finite"
    case .list(let kind, let items):
      for item in items {
        if item.itemKind != kind { return "a list of \(kind) that holds another kind of value" }
        if let defect = item.defect { return defect }
      }
      return nil
    case .encrypted(let inner):
      if case .encrypted = inner { return "an encrypted value inside an encrypted value" }
      return inner.defect
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
