// CloudKit's own framework as a CloudDatabase: the account of the device, without a web session.
//
// A save goes out with the system fields that came with its base, under `ifServerRecordUnchanged`: the server takes it only if
// that version is still its newest. Three kinds of operations need one look at the server first, all of a request in one: a
// replacement, because the framework can only remove fields that it knows of; an update whose base came by the web, and has no
// archive; and a deletion, because the framework deletes whatever is there. Between that look and the deletion another device
// may still change the record: a moment, where the web compares at the server.

#if canImport(CloudKit)
  package import CloudKit
  internal import Foundation
  package import Strandline
  internal import StrandlineCloudKit
  internal import StrandlineSystem

  /// The private database of a container, through CloudKit's framework.
  package final class NativeCloudDatabase: CloudDatabase, CustomStringConvertible {
    /// Container, environment, scope.
    package let address: CloudAddress

    private struct State {
      /// Who is signed in, once the server has said so.
      var user: String?
      var isUrgent = false
    }
    private let state = OrderedMutex(State())
    private let container: CKContainer
    private let options: NativeRequestOptions

    /// The most operations, or records looked up, in one request: what Apple's header advises.
    static let itemsMax = 400
    /// The most operations of a `modify`.
    package var operationsMax: Int { Self.itemsMax }

    /// A client of a container's private database.
    ///
    /// - Parameter environment: that for which the app is signed. It cannot be chosen here; it is the name under which a store
    ///   remembers what it belongs to.
    package init(
      _ container: CKContainer, environment: CloudEnvironment, options: NativeRequestOptions = NativeRequestOptions()
    ) {
      address = CloudAddress(
        container: container.containerIdentifier ?? "", environment: environment, scope: .private)
      self.container = container
      self.options = options
    }

    /// The database, and how it is reached.
    package var description: String { "\(address) by CloudKit's framework" }

    /// A sync that a person asked for is urgent.
    package func beginCycle(isUserInitiated: Bool) { state.withLock { $0.isUrgent = isUserInitiated } }

    // MARK: Account and zones

    /// The record name of the signed-in user. Throws `.noAccount` if the device has none.
    package func user() async throws -> String {
      let name: String
      do { name = try await container.userRecordID().recordName } catch {
        // The error alone is said of an account, too, that is restricted or not known yet; a sign-out may remove a store.
        guard (error as? CKError)?.code == .notAuthenticated, try await container.accountStatus() == .noAccount
        else { throw failure(error) }
        throw CloudError(.noAccount, reason: "nobody is signed in to iCloud on this device")
      }
      state.withLock { $0.user = name }
      return name
    }

    /// The zones that exist, without CloudKit's default zone.
    package func zones() async throws -> [ZoneID] {
      let found = try await ask { try await $0.allRecordZones() }
      return found.map(\.zoneID).filter { $0.zoneName != CKRecordZone.ID.defaultZoneName }.map { ZoneID($0.zoneName) }
    }

    /// Creates a zone; succeeds if it exists already.
    package func createZone(_ zone: ZoneID) async throws {
      let id = CKRecordZone.ID(zone)
      let results = try await ask {
        try await $0.modifyRecordZones(saving: [CKRecordZone(zoneID: id)], deleting: []).saveResults
      }
      try take(results, of: id)
    }

    /// Deletes a zone with all its records; throws `.zoneNotFound` if it is not there.
    package func deleteZone(_ zone: ZoneID) async throws {
      let id = CKRecordZone.ID(zone)
      let results = try await ask { try await $0.modifyRecordZones(saving: [], deleting: [id]).deleteResults }
      try take(results, of: id)
    }

    /// The result of one zone, by its name: the framework may spell the owner in another way.
    private func take<Value>(_ results: [CKRecordZone.ID: Result<Value, any Error>], of id: CKRecordZone.ID) throws {
      guard let result = results.first(where: { $0.key.zoneName.equalsUTF8(id.zoneName) })?.value else {
        throw CloudError(.unexpectedServerResponse, reason: "the answer has no result for zone '\(id.zoneName)'")
      }
      do { _ = try result.get() } catch { throw failure(error) }
    }

    // MARK: Records

    /// The current versions of records of one zone.
    package func lookup(_ names: [String], in zone: ZoneID) async throws -> [CloudName: CloudResult] {
      guard !names.isEmpty else { return [:] }
      guard names.count <= Self.itemsMax else {
        throw CloudError(
          .badRequest, reason: "\(names.count) records looked up in one request; the limit is \(Self.itemsMax)")
      }
      let found = try await fetch(names, in: zone, desiredKeys: nil)
      let user = state.withLock { $0.user }
      var results: [CloudName: CloudResult] = [:]
      for name in names {
        switch found[name] {
        case .success(let record)?: results[name] = .record(ServerRecord(record, in: zone, user: user))
        case .failure(let error)?: results[name] = .failed(error, serverRecord: nil)
        case nil: results[name] = .failed(Self.unanswered, serverRecord: nil)
        }
      }
      return results
    }

    private static let unanswered = CloudError(
      .unexpectedServerResponse, reason: "the answer has no result for this record")

    private func fetch(
      _ names: [String], in zone: ZoneID, desiredKeys: [String]?
    ) async throws -> [CloudName: Result<CKRecord, CloudError>] {
      let zoneID = CKRecordZone.ID(zone)
      let ids = names.map { CKRecord.ID(recordName: $0, zoneID: zoneID) }
      let found: [CKRecord.ID: Result<CKRecord, any Error>]
      do { found = try await perform { try await $0.records(for: ids, desiredKeys: desiredKeys) } } catch {
        guard let parts = Self.parts(of: error) else { throw failure(error) }
        return parts.mapValues { .failure(CloudError(native: $0)) }
      }
      var results: [CloudName: Result<CKRecord, CloudError>] = [:]
      for (id, result) in found { results[id.recordName] = result.mapError { CloudError(native: $0) } }
      return results
    }

    /// The errors of single records, if an error is of that kind.
    private static func parts(of error: any Error) -> [CloudName: any Error]? {
      guard let error = error as? CKError, error.code == .partialFailure, let parts = error.partialErrorsByItemID
      else { return nil }
      var errors: [CloudName: any Error] = [:]
      for (id, error) in parts {
        guard let id = id.base as? CKRecord.ID else { return nil }
        errors[id.recordName] = error
      }
      return errors
    }

    /// One page of changes of the first of some zones: the framework's function takes one.
    package func zoneChanges(of queries: [ZoneQuery]) async throws -> [ZoneID: Result<ZonePage, CloudError>] {
      guard let query = queries.first else { return [:] }
      let token: CKServerChangeToken?
      do { token = try native(query.token) } catch { return [query.zone: .failure(error)] }
      do {
        let zone = CKRecordZone.ID(query.zone)
        let keys: [String]? = query.listsOnly ? [] : nil
        let page = try await perform {
          try await $0.recordZoneChanges(
            inZoneWith: zone, since: token, desiredKeys: keys, resultsLimit: max(query.limit, 1))
        }
        let next = try ChangeToken(page.changeToken)
        return [
          query.zone: .success(
            ZonePage(
              changes: changes(page.modificationResultsByID, page.deletions, in: query.zone), token: next,
              moreComing: page.moreComing, hasFields: !query.listsOnly))
        ]
      } catch {
        guard let known = error as? CKError, known.isOfZone || known.code == .partialFailure else {
          throw failure(error)
        }
        return [query.zone: .failure(CloudError(native: known))]
      }
    }

    /// In the order of the names: the framework does not say in which order the changes came.
    private func changes(
      _ found: [CKRecord.ID: Result<CKDatabase.RecordZoneChange.Modification, any Error>],
      _ deletions: [CKDatabase.RecordZoneChange.Deletion], in zone: ZoneID
    ) -> [ZoneChange] {
      let user = state.withLock { $0.user }
      let saved = found.sorted { $0.key.recordName.precedesByUTF8($1.key.recordName) }.map { id, result in
        switch result {
        case .success(let change): ZoneChange.saved(ServerRecord(change.record, in: zone, user: user))
        case .failure(let error): ZoneChange.failed(name: id.recordName, CloudError(native: error))
        }
      }
      // The type does not belong to a record's identity, and the log has it.
      let names = deletions.map(\.recordID.recordName).sorted { $0.precedesByUTF8($1) }
      return saved + names.map { .deleted(name: $0) }
    }

    /// One page of the zones that changed since a token.
    package func databaseChanges(since token: ChangeToken?, limit: Int) async throws -> DatabasePage {
      let since = try native(token)
      let page = try await ask { try await $0.databaseChanges(since: since, resultsLimit: max(limit, 1)) }
      let changed = page.modifications.map { DatabasePage.Zone(id: ZoneID($0.zoneID.zoneName)) }
      let gone = page.deletions.map { deletion in
        DatabasePage.Zone(id: ZoneID(deletion.zoneID.zoneName), loss: ZoneLoss(deletion.reason))
      }
      let zones = (changed + gone).filter { $0.id.name != Names.defaultZone }
      return DatabasePage(zones: zones, token: try ChangeToken(page.changeToken), moreComing: page.moreComing)
    }

    /// The framework's token. A token of the web is as one that has expired: the feed begins anew.
    private func native(_ token: ChangeToken?) throws(CloudError) -> CKServerChangeToken? {
      guard let token else { return nil }
      if let native = token.native { return native }
      throw CloudError(.changeTokenExpired, reason: "the change token is not one of CloudKit's framework")
    }

    // MARK: One request

    /// Makes a request, and throws what the engine is told of its failure.
    private func ask<Answer>(_ body: (CKDatabase) async throws -> Answer) async throws -> Answer {
      do { return try await perform(body) } catch { throw failure(error) }
    }

    /// Makes a request in the app's way, and throws what the framework says.
    private func perform<Answer>(_ body: (CKDatabase) async throws -> Answer) async throws -> Answer {
      let configuration = CKOperation.Configuration()
      configuration.qualityOfService = state.withLock { $0.isUrgent } ? .userInitiated : .utility
      configuration.allowsCellularAccess = options.allowsCellularAccess
      configuration.timeoutIntervalForRequest = options.requestTimeout / .seconds(1)
      configuration.timeoutIntervalForResource = options.resourceTimeout / .seconds(1)
      let group = CKOperationGroup()
      group.name = options.groupName
      return try await container.privateCloudDatabase.configuredWith(
        configuration: configuration, group: group, body: body)
    }

    /// What the engine is told of an error of a whole request.
    private func failure(_ error: any Error) -> any Error {
      if error is CancellationError || error is CloudError { return error }
      // A request that the system cancels for its own reasons may have been carried out.
      if (error as? CKError)?.code == .operationCancelled, Task.isCancelled { return CancellationError() }
      return CloudError(native: error)
    }

    // MARK: Changes of records

    /// Applies operations to records of one zone.
    package func modify(
      _ operations: [CloudOperation], in zone: ZoneID, atomic: Bool
    ) async throws -> [CloudName: CloudResult] {
      guard !operations.isEmpty else { return [:] }
      var batch = NativeBatch(zone: zone, user: state.withLock { $0.user })
      try batch.add(operations)
      if let question = batch.question {
        batch.take(try await fetch(question.names, in: zone, desiredKeys: question.desiredKeys))
      }
      if atomic, batch.hasFailed { return batch.refusedTogether() }
      guard !batch.isEmpty else { return batch.results }
      let (saves, deletions) = (batch.saves, batch.deletions)
      do {
        let answer = try await perform {
          try await $0.modifyRecords(
            saving: saves, deleting: deletions, savePolicy: .ifServerRecordUnchanged, atomically: atomic)
        }
        batch.take(answer.saveResults, answer.deleteResults)
      } catch {
        guard let parts = Self.parts(of: error) else { throw failure(error) }
        batch.take(parts, isAtomic: atomic)
      }
      return batch.results
    }
  }

  extension ZoneLoss {
    fileprivate init(_ reason: CKDatabase.DatabaseChange.Deletion.Reason) {
      switch reason {
      case .purged: self = .purged
      case .encryptedDataReset: self = .encryptedDataReset
      default: self = .deleted
      }
    }
  }
#endif
