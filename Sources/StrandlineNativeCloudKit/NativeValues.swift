// The two tables of values: the model's in Foundation's classes, and Foundation's in the model.
//
//     model         class                 of it
//     string        NSString
//     int64         NSNumber              its type letter is neither d nor f; a truth value is 0 or 1
//     double        NSNumber              its type letter is d or f
//     date          NSDate                rounded to whole milliseconds, both ways
//     bytes         NSData
//     reference     CKRecord.Reference    no VALIDATE: CloudKit's framework does not have it
//     location      CLLocation            what is not known is -1, a time that is not known is the distant past
//     asset         CKAsset               its content is not read: an opaque value, which is never sent
//     list          NSArray               an empty one does not know of what it is a list
//     encrypted     as the value within, among the record's encrypted values
//     opaque        anything else         never sent
//
// What cannot be sent as it is refuses its record: nothing is sent in another form.

#if canImport(CloudKit)
  internal import CloudKit
  internal import CoreLocation
  internal import Foundation
  internal import Strandline

  /// Why a value cannot be sent.
  struct UnsendableValue: Error {
    var words: String
  }

  /// Values in Foundation's classes.
  enum NativeValues {
    /// A content that this version does not read.
    static let asset = FieldValue.opaque(OpaqueValue(type: "ASSETID", json: Array("{}".utf8)))
    private static let assets = FieldValue.opaque(OpaqueValue(type: "ASSETID_LIST", json: Array("[]".utf8)))
    private static let unknown = FieldValue.opaque(OpaqueValue(type: "UNKNOWN", json: Array("{}".utf8)))

    /// Whether a value stays at the server as it is, and cannot be written from here.
    static func isKept(_ value: FieldValue) -> Bool {
      switch value {
      case .asset, .opaque, .list(.assets, _), .encrypted(.opaque): true
      default: false
      }
    }

    // MARK: To the server

    /// The class of a value, which is not an encrypted one.
    static func native(
      _ value: FieldValue, in zone: CKRecordZone.ID
    ) throws(UnsendableValue) -> any CKRecordValueProtocol {
      switch value {
      case .string(let text): return NSString(string: text)
      case .int64(let number): return NSNumber(value: number)
      case .double(let number):
        guard number.isFinite else { throw UnsendableValue(words: "\(number), which is not a finite number") }
        return NSNumber(value: number)
      case .date(let milliseconds): return try date(milliseconds)
      case .bytes(let bytes): return NSData(data: Data(bytes))
      case .reference(let reference): return try native(reference, in: zone)
      case .location(let place): return try native(place)
      case .list(let kind, let items):
        guard kind != .assets else { throw UnsendableValue(words: "a list of contents, which cannot be sent yet") }
        return NSArray(array: try items.map { (item) throws(UnsendableValue) in try native(item, in: zone) })
      case .encrypted: throw UnsendableValue(words: "an encrypted value inside another value")
      case .asset: throw UnsendableValue(words: "a content, which cannot be sent yet")
      case .opaque(let value):
        throw UnsendableValue(words: "a value of the type '\(value.type)', for which CloudKit's framework has no class")
      }
    }

    private static func date(_ milliseconds: Int64) throws(UnsendableValue) -> NSDate {
      let date = NSDate(timeIntervalSince1970: Double(milliseconds) / 1000)
      guard value(of: date) == .date(milliseconds: milliseconds) else {
        throw UnsendableValue(words: "a time that CloudKit's framework cannot hold to the millisecond")
      }
      return date
    }

    private static func native(
      _ reference: Reference, in zone: CKRecordZone.ID
    ) throws(UnsendableValue) -> CKRecord.Reference {
      let target = reference.zone.map { CKRecordZone.ID($0) } ?? zone
      let action: CKRecord.Reference.Action
      switch reference.action {
      case .none: action = .none
      case .deleteSelf: action = .deleteSelf
      case .validate: throw UnsendableValue(words: "a VALIDATE reference, which CloudKit's framework does not have")
      }
      return CKRecord.Reference(
        recordID: CKRecord.ID(recordName: reference.name, zoneID: target), action: action)
    }

    private static func native(_ place: Location) throws(UnsendableValue) -> CLLocation {
      guard place.numbers.allSatisfy({ $0?.isFinite ?? true }) else {
        throw UnsendableValue(words: "a place with a number that is not finite")
      }
      let time: NSDate? = if let timestamp = place.timestamp { try date(timestamp) } else { nil }
      return CLLocation(
        coordinate: CLLocationCoordinate2D(latitude: place.latitude, longitude: place.longitude),
        altitude: place.altitude ?? 0, horizontalAccuracy: place.horizontalAccuracy ?? -1,
        verticalAccuracy: place.verticalAccuracy ?? -1, course: place.course ?? -1, speed: place.speed ?? -1,
        timestamp: time.map { Date(timeIntervalSinceReferenceDate: $0.timeIntervalSinceReferenceDate) } ?? .distantPast)
    }

    // MARK: From the server

    /// The value of a field that is not encrypted, or the inner one of a field that is.
    static func value(_ native: Any, in zone: ZoneID) -> FieldValue {
      switch native {
      case let number as NSNumber: return value(of: number)
      case let text as NSString: return .string("\(text)")
      case let text as String: return .string(text)
      case let date as NSDate: return value(of: date)
      case let date as Date: return .date(date)
      case let data as NSData: return .bytes(Array(Data(referencing: data)))
      case let data as Data: return .bytes(Array(data))
      case let reference as CKRecord.Reference: return FieldValue.reference(Reference(reference)).relative(to: zone)
      case let place as CLLocation: return value(of: place)
      case is CKAsset: return asset
      case let list as NSArray: return value(of: list, in: zone)
      default: return unknown
      }
    }

    private static func value(of number: NSNumber) -> FieldValue {
      number.whole.map { .int64($0) } ?? number.real.map { .double($0) } ?? unknown
    }

    private static func value(of date: NSDate) -> FieldValue {
      .date(Date(timeIntervalSinceReferenceDate: date.timeIntervalSinceReferenceDate))
    }

    private static func value(of list: NSArray, in zone: ZoneID) -> FieldValue {
      let items = list.map { value($0, in: zone) }
      guard let first = items.first else { return .list(.unknown, []) }
      if items.allSatisfy({ $0 == asset }) { return assets }
      guard let kind = first.itemKind, items.allSatisfy({ $0.itemKind == kind }) else { return unknown }
      return .list(kind, items)
    }

    private static func value(of place: CLLocation) -> FieldValue {
      func known(_ number: Double) -> Double? { number < 0 ? nil : number }
      let hasAltitude = place.verticalAccuracy >= 0 || place.altitude != 0
      let location = Location(
        latitude: place.coordinate.latitude, longitude: place.coordinate.longitude,
        horizontalAccuracy: known(place.horizontalAccuracy), verticalAccuracy: known(place.verticalAccuracy),
        altitude: hasAltitude ? place.altitude : nil, speed: known(place.speed), course: known(place.course),
        timestamp: place.timestamp == .distantPast ? nil : ServerTimestamp(place.timestamp).milliseconds)
      return location.numbers.allSatisfy { $0?.isFinite ?? true } ? .location(location) : unknown
    }
  }

  extension CKRecordZone.ID {
    /// The framework's ID of a zone.
    convenience init(_ zone: ZoneID) {
      self.init(zoneName: zone.name, ownerName: zone.owner.isEmpty ? CKCurrentUserDefaultName : zone.owner)
    }
  }

  extension Reference {
    fileprivate init(_ reference: CKRecord.Reference) {
      let (id, action) = (reference.recordID, reference.action.rawValue)
      // The web has a third one, for which the framework has no name.
      self.init(
        id.recordName, zone: ZoneID(id.zoneID.zoneName, owner: id.zoneID.ownerName),
        action: action == 0 ? .none : action == 1 ? .deleteSelf : .validate)
    }
  }
#endif
