// Containers and databases of the stand-in for Apple's CloudKit.

public import Foundation
internal import Strandline
internal import StrandlineCloudKit
internal import Synchronization

/// An app's place in iCloud.
public final class CKContainer: NSObject, Sendable {
  /// "iCloud." and a name.
  public let containerIdentifier: String?
  /// The signed-in user's database.
  public let privateCloudDatabase: CKDatabase
  private let cloud: StandInCloud?

  /// What containers made here reach; nil: nobody is signed in.
  @TaskLocal package static var cloud: StandInCloud?

  /// The container with an identifier.
  public convenience init(identifier: String) { self.init(identifier, Self.cloud) }

  package init(_ identifier: String, _ cloud: StandInCloud?) {
    containerIdentifier = identifier
    self.cloud = cloud
    privateCloudDatabase = CKDatabase(cloud)
  }

  /// Whether somebody is signed in.
  public func accountStatus() async throws -> CKAccountStatus { cloud == nil ? .noAccount : .available }

  /// The signed-in user.
  public func userRecordID() async throws -> CKRecord.ID {
    guard let cloud else { throw CKError(.notAuthenticated) }
    let reply = try await cloud.ask(UserReply.self, "public/users/caller", method: "GET")
    guard let name = reply.userRecordName else { throw CKError(.notAuthenticated) }
    return CKRecord.ID(recordName: name)
  }
}

/// What is known of the account of the device.
public enum CKAccountStatus: Int, Sendable {
  case couldNotDetermine, available, restricted, noAccount, temporarilyUnavailable
}

/// A database of a container.
public final class CKDatabase: NSObject, Sendable {
  private let access: StandInCloud?

  init(_ cloud: StandInCloud?) { access = cloud }

  private var cloud: StandInCloud {
    get throws {
      guard let access else { throw CKError(.notAuthenticated) }
      return access
    }
  }

  /// A change of a zone.
  public enum DatabaseChange {
    /// It has changed.
    public struct Modification: Sendable {
      /// Which one.
      public var zoneID: CKRecordZone.ID
    }
    /// It is gone.
    public struct Deletion: Sendable {
      /// Why.
      public enum Reason: Sendable {
        /// The app, or a console.
        case deleted
        /// The user, in the settings.
        case purged
        /// The user reset the encrypted data.
        case encryptedDataReset
      }
      /// Which one.
      public var zoneID: CKRecordZone.ID
      /// Why.
      public var reason: Reason
    }
  }

  /// A change of a record.
  public enum RecordZoneChange {
    /// It has changed.
    public struct Modification: Sendable {
      /// As it is now.
      public var record: CKRecord
    }
    /// It is gone.
    public struct Deletion: Sendable {
      /// Which one.
      public var recordID: CKRecord.ID
      /// Its type.
      public var recordType: CKRecord.RecordType
    }
  }

  /// Makes requests in a certain way.
  public func configuredWith<R>(
    configuration: CKOperation.Configuration? = nil, group: CKOperationGroup? = nil,
    body: (CKDatabase) async throws -> R
  ) async rethrows -> R {
    access?.note(configuration, group)
    return try await body(self)
  }

  /// Saves and deletes records.
  public func modifyRecords(
    saving recordsToSave: [CKRecord], deleting recordIDsToDelete: [CKRecord.ID],
    savePolicy: CKModifyRecordsOperation.RecordSavePolicy = .ifServerRecordUnchanged, atomically: Bool = true
  ) async throws -> (
    saveResults: [CKRecord.ID: Result<CKRecord, any Error>], deleteResults: [CKRecord.ID: Result<Void, any Error>]
  ) {
    try await cloud.modify(recordsToSave, recordIDsToDelete, savePolicy, atomically)
  }

  /// Fetches records.
  public func records(
    for ids: [CKRecord.ID], desiredKeys: [CKRecord.FieldKey]? = nil
  ) async throws -> [CKRecord.ID: Result<CKRecord, any Error>] { try await cloud.records(ids, desiredKeys) }

  /// A page of a zone's changes.
  public func recordZoneChanges(
    inZoneWith zoneID: CKRecordZone.ID, since changeToken: CKServerChangeToken?,
    desiredKeys: [CKRecord.FieldKey]? = nil, resultsLimit: Int? = nil
  ) async throws -> (
    modificationResultsByID: [CKRecord.ID: Result<RecordZoneChange.Modification, any Error>],
    deletions: [RecordZoneChange.Deletion], changeToken: CKServerChangeToken, moreComing: Bool
  ) { try await cloud.changes(zoneID, changeToken, desiredKeys, resultsLimit) }

  /// A page of the zones that have changed.
  public func databaseChanges(
    since changeToken: CKServerChangeToken?, resultsLimit: Int? = nil
  ) async throws -> (
    modifications: [DatabaseChange.Modification], deletions: [DatabaseChange.Deletion],
    changeToken: CKServerChangeToken, moreComing: Bool
  ) { try await cloud.zoneList(changeToken, resultsLimit) }

  /// Creates and deletes zones.
  public func modifyRecordZones(
    saving recordZonesToSave: [CKRecordZone], deleting recordZoneIDsToDelete: [CKRecordZone.ID]
  ) async throws -> (
    saveResults: [CKRecordZone.ID: Result<CKRecordZone, any Error>],
    deleteResults: [CKRecordZone.ID: Result<Void, any Error>]
  ) { try await cloud.modifyZones(recordZonesToSave.map(\.zoneID), recordZoneIDsToDelete) }

  /// The zones that exist.
  public func allRecordZones() async throws -> [CKRecordZone] { try await cloud.zones() }
}
