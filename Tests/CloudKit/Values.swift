// Values between the wire and Foundation's classes, as the stand-in has them. This is its own reading of Apple's documentation,
// and shares nothing with the adapter's tables but the model.

internal import CoreLocation
internal import Foundation
internal import Strandline

extension FieldValue {
  /// The value as Apple's runtime shows it; nil for one that it has no class for.
  func foundation(in zone: CKRecordZone.ID) -> (any CKRecordValueProtocol)? {
    switch self {
    case .string(let text): return NSString(string: text)
    case .int64(let number): return NSNumber(value: number)
    case .double(let number): return NSNumber(value: number)
    case .date(let milliseconds): return NSDate(timeIntervalSince1970: Double(milliseconds) / 1000)
    case .bytes(let bytes): return NSData(data: Data(bytes))
    case .reference(let reference):
      let target = reference.zone.map {
        CKRecordZone.ID(zoneName: $0.name, ownerName: $0.owner.isEmpty ? CKCurrentUserDefaultName : $0.owner)
      }
      return CKRecord.Reference(
        recordID: CKRecord.ID(recordName: reference.name, zoneID: target ?? zone),
        action: reference.action == .deleteSelf ? .deleteSelf : .none)
    case .location(let place): return CLLocation(place)
    case .asset(let asset): return CKAsset(asset)
    case .list(_, let items): return NSArray(array: items.compactMap { $0.foundation(in: zone) })
    case .encrypted(let inner): return inner.foundation(in: zone)
    case .opaque: return nil
    }
  }

  /// What the server gets of a value.
  init(foundation value: Any) {
    switch value {
    case let text as NSString: self = .string("\(text)")
    case let text as String: self = .string(text)
    case let number as NSNumber: self = number.isReal ? .double(number.doubleValue) : .int64(number.int64Value)
    case let date as NSDate:
      self = .date(Date(timeIntervalSinceReferenceDate: date.timeIntervalSinceReferenceDate))
    case let date as Date: self = .date(date)
    case let data as NSData: self = .bytes(Array(Data(referencing: data)))
    case let data as Data: self = .bytes(Array(data))
    case let reference as CKRecord.Reference:
      self = .reference(
        Reference(
          reference.recordID.recordName, zone: reference.recordID.zoneID.zone,
          action: reference.action == .deleteSelf ? .deleteSelf : .none))
    case let place as CLLocation: self = .location(Location(place))
    case let asset as CKAsset: self = asset.asset.map { .asset($0) } ?? .opaque(Self.noContent)
    case let list as NSArray:
      let items = list.map { FieldValue(foundation: $0) }
      self = .list(items.first?.itemKind ?? .unknown, items)
    default: self = .opaque(Self.noContent)
    }
  }

  /// What the server refuses.
  private static let noContent = OpaqueValue(type: "NONE", json: Array("{}".utf8))
}

extension NSNumber {
  /// Whether it has a fraction, or could have one.
  private var code: String { unsafe String(cString: objCType) }
  fileprivate var isReal: Bool { code == "d" || code == "f" }
}

extension CLLocation {
  /// Of what the server does not have the device says that it is not valid; of a time that it is long past.
  fileprivate convenience init(_ place: Location) {
    self.init(
      coordinate: CLLocationCoordinate2D(latitude: place.latitude, longitude: place.longitude),
      altitude: place.altitude ?? 0, horizontalAccuracy: place.horizontalAccuracy ?? -1,
      verticalAccuracy: place.verticalAccuracy ?? -1, course: place.course ?? -1, speed: place.speed ?? -1,
      timestamp: place.timestamp.map { Date(timeIntervalSince1970: Double($0) / 1000) } ?? .distantPast)
  }
}

extension Location {
  fileprivate init(_ place: CLLocation) {
    self.init(
      latitude: place.coordinate.latitude, longitude: place.coordinate.longitude,
      horizontalAccuracy: place.horizontalAccuracy, verticalAccuracy: place.verticalAccuracy,
      altitude: place.altitude, speed: place.speed, course: place.course,
      timestamp: Int64((place.timestamp.timeIntervalSince1970 * 1000).rounded()))
  }
}
