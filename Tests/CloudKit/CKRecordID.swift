// A stand-in for Apple's CloudKit, for the tests of StrandlineNativeCloudKit on systems without it: exactly the declarations that
// the adapter uses, as https://developer.apple.com/documentation/cloudkit has them, over the semantics of the local server. What
// is `package` here is a door for tests that Apple's module does not have.
//
// This file has the names of things: records, zones and references.

public import Foundation
package import Strandline

/// The owner's name in the ID of a zone of the signed-in user.
public let CKCurrentUserDefaultName = "__defaultOwner__"

/// A partition of a database.
public final class CKRecordZone: NSObject, Sendable {
  /// A zone's name and owner.
  public final class ID: NSObject, NSCopying, Sendable {
    /// The name of the zone that every database has.
    public static let defaultZoneName = "_defaultZone"
    /// The zone that every database has.
    public static let `default` = ID()
    /// The zone's name.
    public let zoneName: String
    /// The record name of its owner.
    public let ownerName: String

    /// Names a zone.
    public init(zoneName: String = ID.defaultZoneName, ownerName: String = CKCurrentUserDefaultName) {
      self.zoneName = zoneName
      self.ownerName = ownerName
    }

    /// Two IDs are equal if their names are.
    public override func isEqual(_ object: Any?) -> Bool {
      guard let other = object as? ID else { return false }
      return Array(zoneName.utf8) == Array(other.zoneName.utf8) && Array(ownerName.utf8) == Array(other.ownerName.utf8)
    }
    /// Hashes what `isEqual` compares.
    public override var hash: Int { Array("\(zoneName)/\(ownerName)".utf8).hashValue }
    /// Itself: it never changes.
    public func copy(with zone: NSZone? = nil) -> Any { self }

    /// The zone in the model.
    package var zone: ZoneID { ZoneID(zoneName, owner: ownerName) }
  }

  /// The zone's ID.
  public let zoneID: ID

  /// A zone to create.
  public init(zoneID: ID) { self.zoneID = zoneID }
}

extension CKRecord {
  /// A record's name and zone.
  public final class ID: NSObject, NSCopying, Sendable {
    /// The name, unique in its zone.
    public let recordName: String
    /// The zone.
    public let zoneID: CKRecordZone.ID

    /// Names a record.
    public init(recordName: String = UUID().uuidString, zoneID: CKRecordZone.ID = .default) {
      self.recordName = recordName
      self.zoneID = zoneID
    }

    /// Two IDs are equal if their names and zones are.
    public override func isEqual(_ object: Any?) -> Bool {
      guard let other = object as? ID else { return false }
      return Array(recordName.utf8) == Array(other.recordName.utf8) && zoneID.isEqual(other.zoneID)
    }
    /// Hashes what `isEqual` compares.
    public override var hash: Int { Array(recordName.utf8).hashValue }
    /// Itself: it never changes.
    public func copy(with zone: NSZone? = nil) -> Any { self }
  }

  /// A pointer to a record.
  public final class Reference: NSObject, Sendable {
    /// What happens to the pointing record when its target is deleted.
    public enum Action: UInt, Sendable {
      /// Nothing.
      case none = 0
      /// It is deleted too.
      case deleteSelf = 1
    }
    /// The target.
    public let recordID: CKRecord.ID
    /// What happens when it is deleted.
    public let action: Action

    /// Points at a record.
    public init(recordID: CKRecord.ID, action: Action) {
      self.recordID = recordID
      self.action = action
    }
  }
}

/// A file of a record. The stand-in moves no contents.
public final class CKAsset: NSObject, Sendable {
  /// Where the content is; nil if it is not on this device.
  public let fileURL: URL?
  /// What the server says of the file.
  package let asset: Asset?

  /// A file to upload.
  public init(fileURL: URL) {
    self.fileURL = fileURL
    self.asset = nil
  }

  /// A file at the server.
  package init(_ asset: Asset) {
    self.fileURL = nil
    self.asset = asset
  }
}
