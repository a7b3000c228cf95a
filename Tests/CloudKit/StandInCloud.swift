// What the stand-in for Apple's CloudKit speaks to: the local server, by the messages of CloudKit Web Services, over any transport.
// Faults of the transport and of the server become the errors that Apple's framework has for them; a test may name one more.

internal import Foundation
package import Strandline
package import StrandlineCloudKit
internal import Synchronization

/// A server as the stand-in reaches it.
package final class StandInCloud: Sendable {
  /// A way in which a request was made.
  package struct Manner: Sendable, Equatable {
    package var isUrgent: Bool
    package var allowsCellularAccess: Bool
    package var requestSeconds: Double
    package var resourceSeconds: Double
    package var group: String?

    package init(
      isUrgent: Bool, allowsCellularAccess: Bool, requestSeconds: Double, resourceSeconds: Double, group: String?
    ) {
      self.isUrgent = isUrgent
      self.allowsCellularAccess = allowsCellularAccess
      self.requestSeconds = requestSeconds
      self.resourceSeconds = resourceSeconds
      self.group = group
    }
  }

  private struct State {
    var manners: [Manner] = []
    var errors: [CKError] = []
    var reasons: [String: CKDatabase.DatabaseChange.Deletion.Reason] = [:]
    var requests: [String] = []
  }
  private let state = Mutex(State())
  private let transport: any Transport
  private let path: String
  let ownUser: String
  /// The most records of a request, as Apple's header names it.
  private static let itemsMax = 400

  /// - Parameter ownUser: who is signed in: Apple's framework shows a placeholder in place of the name.
  package init(_ address: CloudAddress, over transport: any Transport, ownUser: String) {
    self.transport = transport
    self.ownUser = ownUser
    path = "/database/1/\(address.container)/\(address.environment.rawValue)/"
  }

  // MARK: For tests

  /// How requests were made, since this was asked last.
  package func takeManners() -> [Manner] {
    state.withLock { state in
      defer { state.manners = [] }
      return state.manners
    }
  }
  /// The requests by their endpoints, since this was asked last.
  package func takeRequests() -> [String] {
    state.withLock { state in
      defer { state.requests = [] }
      return state.requests
    }
  }
  /// The next requests fail with these errors, one each, and do not reach the server.
  package func failNext(_ errors: CKError...) { state.withLock { $0.errors += errors } }
  /// Says why a zone is gone.
  package func name(_ reason: CKDatabase.DatabaseChange.Deletion.Reason, forZone name: String) {
    state.withLock { $0.reasons[name] = reason }
  }

  func note(_ configuration: CKOperation.Configuration?, _ group: CKOperationGroup?) {
    let used = configuration ?? CKOperation.Configuration()
    let manner = Manner(
      isUrgent: used.qualityOfService == .userInitiated, allowsCellularAccess: used.allowsCellularAccess,
      requestSeconds: used.timeoutIntervalForRequest, resourceSeconds: used.timeoutIntervalForResource,
      group: group?.name)
    state.withLock { $0.manners.append(manner) }
  }

  // MARK: One request

  func ask<Reply: WireMessage>(
    _ type: Reply.Type, _ endpoint: String, method: String = "POST", _ message: (any WireMessage)? = nil
  ) async throws -> Reply {
    let planned = state.withLock { state in
      state.requests.append(endpoint)
      return state.errors.isEmpty ? nil : state.errors.removeFirst()
    }
    if let planned { throw planned }
    let request = HTTPRequest(
      method: method, origin: "http://cloud.invalid", path: path + endpoint,
      body: message.map { WireJSON.encode($0) } ?? [])
    let response: HTTPResponse
    do { response = try await transport.send(request) } catch is CancellationError {
      throw CKError(.operationCancelled)
    } catch is CloudError { throw CKError(.networkFailure) }
    guard response.status == 200 else {
      let seconds = response.headers["Retry-After"].flatMap { Double($0) }
      guard var refusal = try? WireJSON.decode(WireError.self, response.body) else {
        let info = seconds.map { [CKErrorRetryAfterKey: NSNumber(value: $0)] } ?? [:]
        throw CKError(response.status == 503 ? .serviceUnavailable : .networkFailure, userInfo: info)
      }
      refusal.retryAfter = seconds ?? refusal.retryAfter
      throw Self.error(refusal, sentToken: false)
    }
    do { return try WireJSON.decode(Reply.self, response.body) } catch {
      throw CKError(.internalError, userInfo: [NSLocalizedDescriptionKey: "\(error)"])
    }
  }

  /// What Apple's framework says for a refusal of the server.
  static func error(_ refusal: WireError, sentToken: Bool, _ more: [String: Any] = [:]) -> CKError {
    let code: CKError.Code =
      switch CloudError.Code(rawValue: refusal.serverErrorCode) {
      case .accessDenied: .permissionFailure
      case .atomicError: .batchRequestFailed
      case .authenticationFailed, .authenticationRequired: .notAuthenticated
      case .badRequest where sentToken: .changeTokenExpired
      case .badRequest where refusal.reason?.contains("operations in one request") == true: .limitExceeded
      case .badRequest: .invalidArguments
      case .conflict, .exists: .serverRecordChanged
      case .internalError: .internalError
      case .notFound: .unknownItem
      case .quotaExceeded: .quotaExceeded
      case .throttled: .requestRateLimited
      case .tryAgainLater, .serviceUnavailable: .serviceUnavailable
      case .validatingReferenceError: .referenceViolation
      case .zoneNotFound: .zoneNotFound
      case .uniqueFieldError: .constraintViolation
      case .zoneBusy: .zoneBusy
      case .limitExceeded: .limitExceeded
      default: .serverRejectedRequest
      }
    var info = more
    info[NSLocalizedDescriptionKey] = refusal.reason ?? refusal.serverErrorCode
    info["RequestUUID"] = refusal.uuid
    if let seconds = refusal.retryAfter { info[CKErrorRetryAfterKey] = NSNumber(value: seconds) }
    return CKError(code, userInfo: info)
  }

  /// Refuses what Apple's framework does not send.
  private func check(_ count: Int) throws {
    guard count <= Self.itemsMax else {
      throw CKError(.limitExceeded, userInfo: [NSLocalizedDescriptionKey: "\(count) items in one operation"])
    }
  }

  // MARK: Records

  private func record(_ wire: WireRecord, _ id: CKRecord.ID, isWhole: Bool) -> CKRecord {
    var state = CKRecord.State()
    for (name, value) in wire.fields ?? [:] {
      if case .encrypted(let inner) = value {
        state.encrypted.values[WireName.wire(name)] = inner
      } else {
        state.plain.values[WireName.wire(name)] = value
      }
    }
    state.parent = wire.parent
    state.isWhole = isWhole
    func shown(_ touch: ServerTimestamp?) -> ServerTimestamp? {
      guard var touch else { return nil }
      if touch.user.utf8.elementsEqual(ownUser.utf8) { touch.user = CKCurrentUserDefaultName }
      touch.device = ""
      return touch
    }
    state.system = SystemFields(
      changeTag: wire.recordChangeTag, created: shown(wire.created), modified: shown(wire.modified))
    return CKRecord(recordType: WireName.wire(wire.recordType ?? ""), recordID: id, state)
  }

  func records(
    _ ids: [CKRecord.ID], _ desired: [String]?
  ) async throws -> [CKRecord.ID: Result<CKRecord, any Error>] {
    try check(ids.count)
    var results: [CKRecord.ID: Result<CKRecord, any Error>] = [:]
    let zones = Set(ids.map(\.zoneID))
    for zone in zones {
      let own = ids.filter { $0.zoneID == zone }
      let reply = try await ask(
        RecordsReply.self, "private/records/lookup",
        RecordsLookupRequest(
          zoneID: WireZoneID(zone.zone), records: own.map { .init(recordName: $0.recordName) }, desiredKeys: desired))
      for wire in reply.records {
        let id = CKRecord.ID(recordName: wire.recordName ?? "", zoneID: zone)
        results[id] =
          wire.error.map { .failure(Self.error($0, sentToken: false)) }
          ?? .success(record(wire, id, isWhole: desired == nil))
      }
    }
    return results
  }

  private func operation(
    saving record: CKRecord, _ policy: CKModifyRecordsOperation.RecordSavePolicy
  ) -> ModifyRequest.Operation {
    record.state.withLock { state in
      var wire = WireRecord(recordName: record.recordID.recordName)
      wire.recordType = record.recordType
      wire.recordChangeTag = state.system.changeTag
      wire.parent = state.parent
      // A parent is taken away by a replacement alone.
      let replaces = state.parentIsChanged && state.parent == nil && state.isWhole && state.system.changeTag != nil
      let isAll = replaces || policy == .allKeys || state.system.changeTag == nil
      var fields: [String: FieldValue] = [:]
      var nulls: [String] = []
      for (part, isEncrypted) in [(state.plain, false), (state.encrypted, true)] {
        for name in isAll ? Set(part.values.keys).union(part.changed) : part.changed {
          let model = WireName.model(name)
          if let value = part.values[name] {
            fields[model] = isEncrypted ? .encrypted(value) : value
          } else {
            nulls.append(model)
          }
        }
      }
      (wire.fields, wire.nulls) = (fields, nulls)
      let kind: CloudOperation.Kind =
        policy != .ifServerRecordUnchanged
        ? .forceUpdate : replaces ? .replace : state.system.changeTag == nil ? .create : .update
      if kind == .forceUpdate { wire.recordChangeTag = nil }
      return ModifyRequest.Operation(operationType: kind.rawValue, record: wire)
    }
  }

  func modify(
    _ saves: [CKRecord], _ deletes: [CKRecord.ID], _ policy: CKModifyRecordsOperation.RecordSavePolicy,
    _ isAtomic: Bool
  ) async throws -> (
    saveResults: [CKRecord.ID: Result<CKRecord, any Error>], deleteResults: [CKRecord.ID: Result<Void, any Error>]
  ) {
    try check(saves.count + deletes.count)
    var results:
      (
        saveResults: [CKRecord.ID: Result<CKRecord, any Error>], deleteResults: [CKRecord.ID: Result<Void, any Error>]
      ) = ([:], [:])
    guard let zone = saves.first?.recordID.zoneID ?? deletes.first?.zoneID else { return results }
    let operations =
      saves.map { operation(saving: $0, policy) }
      + deletes.map {
        ModifyRequest.Operation(operationType: "forceDelete", record: WireRecord(recordName: $0.recordName))
      }
    let reply = try await ask(
      RecordsReply.self, "private/records/modify",
      ModifyRequest(zoneID: WireZoneID(zone.zone), atomic: isAtomic, desiredKeys: [], operations: operations))
    var replies: [CKRecord.ID: WireRecord] = [:]
    for wire in reply.records { replies[CKRecord.ID(recordName: wire.recordName ?? "", zoneID: zone)] = wire }
    let current = try await currentVersions(replies)
    var failures: [AnyHashable: any Error] = [:]
    for save in saves {
      guard let wire = replies[save.recordID] else { continue }
      if let refusal = wire.error {
        var info: [String: Any] = [:]
        if case .success(let record)? = current[save.recordID] { info[CKRecordChangedErrorServerRecordKey] = record }
        let error = Self.error(refusal, sentToken: false, info)
        failures[save.recordID] = error
        results.saveResults[save.recordID] = .failure(error)
      } else {
        results.saveResults[save.recordID] = .success(saved(save, wire))
      }
    }
    for id in deletes {
      guard let wire = replies[id] else { continue }
      let error = wire.error.map { Self.error($0, sentToken: false) }
      failures[id] = error
      results.deleteResults[id] = error.map { .failure($0) } ?? .success(())
    }
    // Apple's documentation: an atomic request fails as a whole.
    if isAtomic, !failures.isEmpty {
      throw CKError(.partialFailure, userInfo: [CKPartialErrorsByItemIDKey: failures])
    }
    return results
  }

  /// The record that was saved, with the server's fields.
  private func saved(_ record: CKRecord, _ wire: WireRecord) -> CKRecord {
    var state = self.record(wire, record.recordID, isWhole: false).state.withLock { $0 }
    let (plain, encrypted) = record.state.withLock { ($0.plain.values, $0.encrypted.values) }
    (state.plain.values, state.encrypted.values) = (plain, encrypted)
    return CKRecord(recordType: record.recordType, recordID: record.recordID, state)
  }

  /// The versions that the server has of records that were refused for their tag: Apple's server sends them along.
  private func currentVersions(
    _ replies: [CKRecord.ID: WireRecord]
  ) async throws -> [CKRecord.ID: Result<CKRecord, any Error>] {
    let changed = replies.filter { entry in
      entry.value.error.map { Self.error($0, sentToken: false).code == .serverRecordChanged } ?? false
    }
    guard !changed.isEmpty else { return [:] }
    return try await records(changed.keys.sorted { $0.recordName < $1.recordName }, nil)
  }

  // MARK: Feeds

  func changes(
    _ zone: CKRecordZone.ID, _ token: CKServerChangeToken?, _ desired: [String]?, _ limit: Int?
  ) async throws -> (
    modificationResultsByID: [CKRecord.ID: Result<CKDatabase.RecordZoneChange.Modification, any Error>],
    deletions: [CKDatabase.RecordZoneChange.Deletion], changeToken: CKServerChangeToken, moreComing: Bool
  ) {
    let reply = try await ask(
      ZoneChangesReply.self, "private/changes/zone",
      ZoneChangesRequest(zones: [
        .init(zoneID: WireZoneID(zone.zone), syncToken: token?.text, resultsLimit: limit, desiredKeys: desired)
      ]))
    guard let page = reply.zones.first else { throw CKError(.internalError) }
    if let refusal = page.error { throw Self.error(refusal, sentToken: token != nil) }
    guard let next = page.syncToken else { throw CKError(.internalError) }
    var results: [CKRecord.ID: Result<CKDatabase.RecordZoneChange.Modification, any Error>] = [:]
    var deletions: [CKDatabase.RecordZoneChange.Deletion] = []
    for wire in page.records ?? [] {
      let id = CKRecord.ID(recordName: wire.recordName ?? "", zoneID: zone)
      if wire.deleted == true {
        deletions.append(.init(recordID: id, recordType: wire.recordType ?? ""))
      } else if let refusal = wire.error {
        results[id] = .failure(Self.error(refusal, sentToken: false))
      } else {
        results[id] = .success(.init(record: record(wire, id, isWhole: desired == nil)))
      }
    }
    return (results, deletions, CKServerChangeToken(next), page.moreComing ?? false)
  }

  func zoneList(
    _ token: CKServerChangeToken?, _ limit: Int?
  ) async throws -> (
    modifications: [CKDatabase.DatabaseChange.Modification], deletions: [CKDatabase.DatabaseChange.Deletion],
    changeToken: CKServerChangeToken, moreComing: Bool
  ) {
    let reply: DatabaseChangesReply
    do {
      reply = try await ask(
        DatabaseChangesReply.self, "private/changes/database",
        DatabaseChangesRequest(syncToken: token?.text, resultsLimit: limit))
    } catch let error as CKError where error.code == .invalidArguments && token != nil {
      throw CKError(.changeTokenExpired)
    }
    var modifications: [CKDatabase.DatabaseChange.Modification] = []
    var deletions: [CKDatabase.DatabaseChange.Deletion] = []
    for zone in reply.zones {
      let id = CKRecordZone.ID(zoneName: zone.zoneID?.name ?? "")
      if zone.deleted == true {
        let reason = state.withLock { $0.reasons[id.zoneName] } ?? .deleted
        deletions.append(.init(zoneID: id, reason: reason))
      } else {
        modifications.append(.init(zoneID: id))
      }
    }
    return (modifications, deletions, CKServerChangeToken(reply.syncToken), reply.moreComing ?? false)
  }

  // MARK: Zones

  func zones() async throws -> [CKRecordZone] {
    let reply = try await ask(ZonesReply.self, "private/zones/list", method: "GET")
    let names = reply.zones.compactMap { $0.zoneID?.name }.filter { $0 != CKRecordZone.ID.defaultZoneName }
    return [CKRecordZone(zoneID: .default)] + names.map { CKRecordZone(zoneID: CKRecordZone.ID(zoneName: $0)) }
  }

  func modifyZones(
    _ saves: [CKRecordZone.ID], _ deletes: [CKRecordZone.ID]
  ) async throws -> (
    saveResults: [CKRecordZone.ID: Result<CKRecordZone, any Error>],
    deleteResults: [CKRecordZone.ID: Result<Void, any Error>]
  ) {
    let operations = [("create", saves), ("delete", deletes)].flatMap { kind, ids in
      ids.map { ZonesModifyRequest.Operation(operationType: kind, zone: .init(zoneID: WireZoneID($0.zone))) }
    }
    let reply = try await ask(
      ZonesReply.self, "private/zones/modify", ZonesModifyRequest(operations: operations))
    var failures: [CKRecordZone.ID: any Error] = [:]
    for zone in reply.zones {
      guard let refusal = zone.error, let id = zone.zoneID else { continue }
      failures[CKRecordZone.ID(zoneName: id.name)] = Self.error(refusal, sentToken: false)
    }
    var results:
      (
        saveResults: [CKRecordZone.ID: Result<CKRecordZone, any Error>],
        deleteResults: [CKRecordZone.ID: Result<Void, any Error>]
      ) = ([:], [:])
    for id in saves {
      results.saveResults[id] = failures[id].map { .failure($0) } ?? .success(CKRecordZone(zoneID: id))
    }
    for id in deletes { results.deleteResults[id] = failures[id].map { .failure($0) } ?? .success(()) }
    return results
  }
}
