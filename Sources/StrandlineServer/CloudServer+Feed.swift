// A zone's changes, page by page: the current state of each record at the place of its latest change. Tombstones are
// kept for ever.
//
// The stale page (`ServerFaults.replayPage`). While the fault is on, the server keeps every undeleted record that it
// shows in a zone's changes, as it was at the first time, up to one page of them. After the deletion of a kept record,
// the next `changes/zone` whose token lies at or behind the deletion, and so comes from a client that has seen it, is
// answered with all kept records, the request's own token, and `moreComing: true`; the request after it gets the normal
// changes. That happens once for each deletion. An example: switch the fault on; device A creates two records and syncs
// twice (both are kept), edits one, deletes the other, and syncs twice; another record changes; A syncs again and is
// shown both records as they were. The deleted record must not return, and the edit must stay. The kept records end with
// the server.

internal import Strandline
package import StrandlineCloudKit

extension CloudServer {
  /// The records for stale pages of one zone, as they were shown first.
  struct StaleRecords: Sendable {
    var records: [WireRecord]
    var names: Set<String>
    /// The LSNs of deletions of these records that no stale page has followed yet.
    var deletions: [UInt64] = []
  }

  // MARK: Tokens

  func token(_ zone: ZoneState, _ lsn: UInt64, _ core: Core) -> String {
    SyncToken(
      kind: .zone, storeUUID: journal.storeUUID, life: zone.life, tenure: core.state.tenure(of: lsn), lsn: lsn,
      generation: core.generation
    ).text
  }

  func databaseToken(_ lsn: UInt64, _ core: Core) -> String {
    SyncToken(
      kind: .database, storeUUID: journal.storeUUID, life: 0, tenure: core.state.tenure(of: lsn), lsn: lsn,
      generation: core.generation
    ).text
  }

  /// The LSN that a token names. Throws if the token is not of this journal, zone and history.
  func position(_ text: String, kind: SyncToken.Kind, life: UInt64, _ core: Core) throws(WireReason) -> UInt64 {
    let token = try SyncToken.parse(text)
    guard token.kind == kind else { throw SyncToken.unknownType }
    guard token.storeUUID == journal.storeUUID, token.life == life, token.generation >= core.generation,
      core.state.contains(tenure: token.tenure, lsn: token.lsn)
    else { throw SyncToken.expired }
    return token.lsn
  }

  // MARK: Pages

  /// One page for each requested zone; a refusal of one zone is in its entry. A zone that is named twice has one entry.
  ///
  /// One budget of bytes holds for all pages. A zone for which none is left gets a page without records, its own token
  /// and `moreComing`, as CloudKit's empty pages are: a client asks again, and then others are without.
  package func zoneChanges(_ message: ZoneChangesRequest, in key: DatabaseKey) throws(ServerRefusal) -> ZoneChangesReply
  {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    return try runAlone { core throws(ServerRefusal) in
      guard message.zones.count <= core.limits.zonesAskedMax else {
        throw ServerRefusal(
          400,
          WireError(
            .badRequest, "\(message.zones.count) zones in one request; the limit is \(core.limits.zonesAskedMax)"))
      }
      var zones: [ZoneChangesReply.Zone] = []
      var rest = core.limits.answerBytesMax
      for asked in Self.merged(message.zones) {
        zones.append(
          asked.isContradictory
            ? ZoneChangesReply.Zone(
              zoneID: asked.zone.zoneID,
              error: WireError(.badRequest, "the zone is asked for more than once, and in different ways"))
            : try page(asked.zone, message, key, &rest, &core))
      }
      return ZoneChangesReply(zones: zones)
    }
  }

  /// The zones of a request, each once, in the order in which they are named first.
  private static func merged(
    _ zones: [ZoneChangesRequest.Zone]
  ) -> [(zone: ZoneChangesRequest.Zone, isContradictory: Bool)] {
    var result: [(zone: ZoneChangesRequest.Zone, isContradictory: Bool)] = []
    var places: [WireZoneID: Int] = [:]
    for zone in zones {
      let id = WireZoneID(zoneName: zone.zoneID.name, ownerRecordName: zone.zoneID.ownerRecordName)
      guard let place = places[id] else {
        places[id] = result.count
        result.append((zone, false))
        continue
      }
      if WireJSON.encode(result[place].zone) != WireJSON.encode(zone) { result[place].isContradictory = true }
    }
    return result
  }

  private func page(
    _ asked: ZoneChangesRequest.Zone, _ message: ZoneChangesRequest, _ key: DatabaseKey, _ rest: inout Int,
    _ core: inout Core
  ) throws(ServerRefusal) -> ZoneChangesReply.Zone {
    func refused(_ code: CloudError.Code, _ words: String) -> ZoneChangesReply.Zone {
      ZoneChangesReply.Zone(zoneID: asked.zoneID, error: WireError(code, words))
    }
    if key.scope == .shared, asked.reverse == true, asked.zoneID.ownerRecordName?.isEmpty == false {
      return refused(.badRequest, "Reverse sync of share db is unsupported")
    }
    let name: String
    do throws(ServerRefusal) { name = try zoneName(asked.zoneID, in: key) } catch {
      return ZoneChangesReply.Zone(zoneID: asked.zoneID, error: error.error)
    }
    if asked.reverse == true { return refused(.badRequest, "this server has no reverse sync") }
    if name == Names.defaultZone { return refused(.badRequest, "AppDefaultZone does not support getChanges call") }
    guard let zone = core.state.zone(name, in: key) else { return refused(.zoneNotFound, "Zone does not exist") }
    var since: UInt64 = 0
    if let text = asked.syncToken, !text.isEmpty {
      do throws(WireReason) {
        since = try position(text, kind: .zone, life: zone.life, core)
      } catch {
        return refused(.badRequest, error.words)
      }
      if let stale = takeStalePage(zone, since: since, &core) {
        return ZoneChangesReply.Zone(
          zoneID: wireZone(name, key), syncToken: text, moreComing: true, records: stale)
      }
    }
    let limit = min(
      max(asked.resultsLimit ?? message.resultsLimit ?? core.limits.resultsMax, 1), core.limits.resultsMax)
    let keys = (asked.desiredKeys ?? message.desiredKeys).map(Set.init)
    let types = (asked.desiredRecordTypes ?? message.desiredRecordTypes).map(Set.init)
    var records: [WireRecord] = []
    var end = since
    var next = zone.nextCurrent(from: zone.index(after: since))
    var visited = 0
    while let index = next, visited < limit, rest > 0 {
      let change = zone.feed[index]
      visited += 1
      end = change.lsn
      next = zone.nextCurrent(from: index + 1)
      guard let entry = zone.entries[change.name], !entry.isDeleted else {
        records.append(tombstone(change.name, in: wireZone(name, key)))
        rest -= change.name.utf8.count + 64
        continue
      }
      let record = try read(entry.lsn)
      // Read is read: a record that the filter drops has cost its bytes too.
      rest -= CloudServer.size(of: record)
      // The filter by type drops records after the limit has counted them, so a page may be short, or empty, and not be
      // the last. Tombstones have no type and pass every filter.
      if let types, !types.contains(record.type) { continue }
      records.append(wire(record, keys: keys, key, zoneName: name))
    }
    // The last page's token names the zone's latest event: a client that has everything gets the same token again.
    let token = token(zone, next == nil ? max(zone.lastLSN, since) : end, core)
    keepForStalePage(records, zone, &core)
    return ZoneChangesReply.Zone(
      zoneID: wireZone(name, key), syncToken: token, moreComing: next != nil, records: records)
  }

  // MARK: The stale page

  private func keepForStalePage(_ records: [WireRecord], _ zone: ZoneState, _ core: inout Core) {
    guard core.faults.replayPage else { return }
    var stale = core.staleRecords[zone.life] ?? StaleRecords(records: [], names: [])
    for record in records where record.deleted != true && stale.records.count < core.limits.resultsMax {
      guard let name = record.recordName, stale.names.insert(name).inserted else { continue }
      stale.records.append(record)
    }
    core.staleRecords[zone.life] = stale
  }

  /// The records of a stale page, if one is due. It is due once for each deletion.
  private func takeStalePage(_ zone: ZoneState, since: UInt64, _ core: inout Core) -> [WireRecord]? {
    guard core.faults.replayPage, let stale = core.staleRecords[zone.life],
      let place = stale.deletions.firstIndex(where: { $0 <= since })
    else { return nil }
    core.staleRecords[zone.life]?.deletions.remove(at: place)
    core.statistics.replayedPages += 1
    return stale.records
  }

  /// Makes a stale page due if the deleted record is one of those that it would show.
  func scheduleStalePage(afterDeletionOf name: String, zone life: UInt64, at lsn: UInt64, _ core: inout Core) {
    guard core.staleRecords[life]?.names.contains(name) == true else { return }
    core.staleRecords[life]?.deletions.append(lsn)
  }

  // MARK: Records in answers

  /// A record as answers show it; `keys`: the requested fields, nil for all.
  func wire(_ record: JournalRecord, keys: Set<String>?, _ key: DatabaseKey, zoneName: String) -> WireRecord {
    var result = WireRecord(recordName: record.name)
    result.recordType = record.type
    result.recordChangeTag = record.tag
    result.parent = record.parent
    result.created = record.created
    result.modified = record.modified
    result.deleted = false
    result.zoneID = wireZone(zoneName, key)
    let own = ZoneID(zoneName, owner: key.user, scope: key.scope)
    var fields: [String: FieldValue] = [:]
    for (name, value) in record.fields where keys?.contains(name) ?? true {
      fields[name] = value.namingZones(own)
    }
    result.fields = fields
    return result
  }

  func tombstone(_ name: String, in zone: WireZoneID) -> WireRecord {
    var result = WireRecord(recordName: name)
    result.deleted = true
    result.zoneID = zone
    return result
  }

  /// The current versions of records, by name.
  package func lookup(_ message: LookupRequest, in key: DatabaseKey) throws(ServerRefusal) -> RecordsReply {
    try runAlone { core throws(ServerRefusal) in
      guard message.records.count <= core.limits.operationsMax else {
        throw ServerRefusal(
          400,
          WireError(
            .badRequest, "\(message.records.count) records in one request; the limit is \(core.limits.operationsMax)"))
      }
      let name = try zoneName(message.zoneID, in: key)
      let zone = core.state.zone(name, in: key)
      guard zone != nil || name == Names.defaultZone else {
        throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
      }
      var records: [WireRecord] = []
      var rest = core.limits.answerBytesMax
      for asked in message.records {
        guard let entry = zone?.entries[asked.recordName], !entry.isDeleted else {
          records.append(
            WireRecord(recordName: asked.recordName, error: WireError(.notFound, "Record not found")))
          continue
        }
        let keys = (asked.desiredKeys ?? message.desiredKeys).map(Set.init)
        let record = try read(entry.lsn)
        rest -= CloudServer.size(of: record)
        // What CloudKit's web does here is not known; its native service refuses the whole of too large an operation, and
        // a client halves it. A refusal of single records would leave a client that asks for all of them again with the
        // same ones each time.
        guard rest >= 0 || message.records.count == 1 else {
          throw ServerRefusal(
            413,
            WireError(
              .limitExceeded,
              "the \(message.records.count) records have more than \(core.limits.answerBytesMax) bytes in all; ask for "
                + "fewer at a time"))
        }
        records.append(wire(record, keys: keys, key, zoneName: name))
      }
      return RecordsReply(records: records)
    }
  }
}

extension FieldValue {
  /// The value with the zone in every reference, as the service shows it.
  fileprivate func namingZones(_ own: ZoneID) -> FieldValue {
    switch self {
    case .reference(var reference):
      var zone = reference.zone ?? own
      if zone.owner.isEmpty { zone.owner = own.owner }
      reference.zone = zone
      return .reference(reference)
    case .list(.references, let items): return .list(.references, items.map { $0.namingZones(own) })
    default: return self
    }
  }
}
