// A stand-in for Apple's module of this name, for the tests of StrandlineNativeCloudKit on systems without it: a place as
// https://developer.apple.com/documentation/corelocation has it, and nothing that measures one.

public import Foundation

/// Degrees, north or east.
public typealias CLLocationDegrees = Double
/// Metres.
public typealias CLLocationDistance = Double
/// Metres; below zero the value that it is about is not valid.
public typealias CLLocationAccuracy = Double
/// Metres a second; below zero not valid.
public typealias CLLocationSpeed = Double
/// Degrees from north; below zero not valid.
public typealias CLLocationDirection = Double

/// Latitude and longitude.
public struct CLLocationCoordinate2D: Sendable {
  /// Degrees north.
  public var latitude: CLLocationDegrees
  /// Degrees east.
  public var longitude: CLLocationDegrees

  /// Names a point.
  public init(latitude: CLLocationDegrees, longitude: CLLocationDegrees) {
    self.latitude = latitude
    self.longitude = longitude
  }
}

/// A place, with what the sensor said about it.
public final class CLLocation: NSObject, Sendable {
  /// The point.
  public let coordinate: CLLocationCoordinate2D
  /// Metres above the sea.
  public let altitude: CLLocationDistance
  /// Metres; below zero the point is not valid.
  public let horizontalAccuracy: CLLocationAccuracy
  /// Metres; below zero the altitude is not valid.
  public let verticalAccuracy: CLLocationAccuracy
  /// Degrees from north; below zero not valid.
  public let course: CLLocationDirection
  /// Metres a second; below zero not valid.
  public let speed: CLLocationSpeed
  /// When it was measured.
  public let timestamp: Date

  /// Joins the parts.
  public init(
    coordinate: CLLocationCoordinate2D, altitude: CLLocationDistance, horizontalAccuracy: CLLocationAccuracy,
    verticalAccuracy: CLLocationAccuracy, course: CLLocationDirection, speed: CLLocationSpeed, timestamp: Date
  ) {
    self.coordinate = coordinate
    self.altitude = altitude
    self.horizontalAccuracy = horizontalAccuracy
    self.verticalAccuracy = verticalAccuracy
    self.course = course
    self.speed = speed
    self.timestamp = timestamp
  }
}
