// A zone's changes, page by page: the current state of each record at the place of its latest change, tombstones
// for ever.
//
// The stale page (`ServerFaults.replayPage`). While it is on, every living record that a zone's changes show to
// anybody is remembered as it was shown first, bodies and all, up to a page of them. After a deletion of a record
// that is so remembered, the next `changes/zone` whose token lies at or past the deletion is answered with all that
// is remembered, under the token that was asked with and `moreComing: true`; the request after that gets the normal
// changes. Once for each such deletion, and so to somebody who has seen the deletion already. A script: switch it
// on; let device A make two records and sync twice (both are remembered); edit one of the records and delete the
// other; let A sync twice, change anything else elsewhere, and let A sync again: it is shown both as they were.
// Nothing may come back, and the edit must stay. The memory ends with the server.

internal import Strandline
package import StrandlineCloudKit

extension CloudServer {
  /// Records as they were shown first, kept to be shown again out of time.
  struct Recording: Sendable {
    var records: [WireRecord]
    var names: Set<String>
    /// The deletions of its records that a stale page has not followed yet, each by its place in the feed.
    var pending: [UInt64] = []
  }

  // MARK: tokens

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

  /// The place that a token names, if it is one of this history.
  func position(_ text: String, kind: SyncToken.Kind, life: UInt64, _ core: Core) throws(WireReason) -> UInt64 {
    let token = try SyncToken.parse(text)
    guard token.kind == kind else { throw SyncToken.unknownType }
    guard token.storeUUID == journal.storeUUID, token.life == life, token.generation >= core.generation,
      core.state.knows(tenure: token.tenure, lsn: token.lsn)
    else { throw SyncToken.expired }
    return token.lsn
  }

  // MARK: pages

  /// One page for each zone asked for; what is wrong with one zone is in its entry.
  package func zoneChanges(_ message: ZoneChangesRequest, in key: DatabaseKey) throws(ServerRefusal) -> ZoneChangesReply
  {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    return try request { core throws(ServerRefusal) in
      var zones: [ZoneChangesReply.Zone] = []
      for asked in message.zones {
        zones.append(try page(asked, message, key, &core))
      }
      return ZoneChangesReply(zones: zones)
    }
  }

  private func page(
    _ asked: ZoneChangesRequest.Zone, _ message: ZoneChangesRequest, _ key: DatabaseKey, _ core: inout Core
  ) throws(ServerRefusal) -> ZoneChangesReply.Zone {
    func refused(_ code: CloudError.Code, _ words: String) -> ZoneChangesReply.Zone {
      ZoneChangesReply.Zone(zoneID: asked.zoneID, error: WireError(code, words))
    }
    let name = asked.zoneID.name
    if key.scope == .shared, asked.zoneID.ownerRecordName == nil {
      return refused(.badRequest, "zoneID needs to have ownerRecordName field for calls to sharedb")
    }
    if name == Names.defaultZone { return refused(.badRequest, "AppDefaultZone does not support getChanges call") }
    if asked.reverse == true { return refused(.badRequest, "Reverse sync is unsupported") }
    guard let zone = core.state.zone(name, in: key) else { return refused(.zoneNotFound, "Zone does not exist") }
    var since: UInt64 = 0
    if let text = asked.syncToken, !text.isEmpty {
      do throws(WireReason) {
        since = try position(text, kind: .zone, life: zone.life, core)
      } catch {
        return refused(.badRequest, error.words)
      }
      if let stale = stalePage(zone, since: since, &core) {
        return ZoneChangesReply.Zone(
          zoneID: wireZone(name, key), syncToken: text, moreComing: true, records: stale)
      }
    }
    let limit = min(
      max(asked.resultsLimit ?? message.resultsLimit ?? core.limits.resultsMax, 1), core.limits.resultsMax)
    let keys = (asked.desiredKeys ?? message.desiredKeys).map(Set.init)
    let types = (asked.desiredRecordTypes ?? message.desiredRecordTypes).map(Set.init)
    var records: [WireRecord] = []
    var bytes = 0
    var end = since
    var next = zone.nextCurrent(from: zone.index(after: since))
    var looked = 0
    while let index = next, looked < limit, bytes < core.limits.pageBytesMax {
      let change = zone.feed[index]
      looked += 1
      end = change.lsn
      next = zone.nextCurrent(from: index + 1)
      guard let entry = zone.entries[change.name], !entry.isDeleted else {
        records.append(tombstone(change.name, in: wireZone(name, key)))
        bytes += change.name.utf8.count + 64
        continue
      }
      let record = try read(entry.lsn)
      // Tombstones pass any filter; a page may thus be short, or empty, and still not be the last.
      if let types, !types.contains(record.type) { continue }
      bytes += CloudServer.size(of: record)
      records.append(wire(record, keys: keys, key, zoneName: name))
    }
    // At the end the token names the zone's latest event: the token of one who has everything does not change.
    let token = token(zone, next == nil ? max(zone.lastLSN, since) : end, core)
    record(records, zone, core: &core)
    return ZoneChangesReply.Zone(
      zoneID: wireZone(name, key), syncToken: token, moreComing: next != nil, records: records)
  }

  // MARK: the stale page

  private func record(_ records: [WireRecord], _ zone: ZoneState, core: inout Core) {
    guard core.faults.replayPage else { return }
    var recording = core.recordings[zone.life] ?? Recording(records: [], names: [])
    for record in records where record.deleted != true && recording.records.count < core.limits.resultsMax {
      guard let name = record.recordName, recording.names.insert(name).inserted else { continue }
      recording.records.append(record)
    }
    core.recordings[zone.life] = recording
  }

  private func stalePage(_ zone: ZoneState, since: UInt64, _ core: inout Core) -> [WireRecord]? {
    guard core.faults.replayPage, let recording = core.recordings[zone.life],
      let place = recording.pending.firstIndex(where: { $0 <= since })
    else { return nil }
    core.recordings[zone.life]?.pending.remove(at: place)
    core.statistics.replayedPages += 1
    return recording.records
  }

  /// Notes the deletion of a record that may be on a remembered page.
  func noteDeletion(_ name: String, zone life: UInt64, at lsn: UInt64, _ core: inout Core) {
    guard core.recordings[life]?.names.contains(name) == true else { return }
    core.recordings[life]?.pending.append(lsn)
  }

  // MARK: records on the wire

  /// A record as answers show it: with the fields that were asked for, or all.
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
    var fields: [String: FieldValue?] = [:]
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

  /// Some records by name.
  package func lookup(_ message: LookupRequest, in key: DatabaseKey) throws(ServerRefusal) -> RecordsReply {
    try request { core throws(ServerRefusal) in
      guard message.records.count <= core.limits.operationsMax else {
        throw ServerRefusal(400, WireError(.badRequest, "too many records in one request"))
      }
      let name = (message.zoneID ?? WireZoneID(zoneName: nil)).name
      let zone = core.state.zone(name, in: key)
      guard zone != nil || name == Names.defaultZone else {
        throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
      }
      var records: [WireRecord] = []
      for asked in message.records {
        guard let entry = zone?.entries[asked.recordName], !entry.isDeleted else {
          records.append(
            WireRecord(recordName: asked.recordName, error: WireError(.notFound, "Record not found")))
          continue
        }
        let keys = (asked.desiredKeys ?? message.desiredKeys).map(Set.init)
        records.append(wire(try read(entry.lsn), keys: keys, key, zoneName: name))
      }
      return RecordsReply(records: records)
    }
  }
}

extension FieldValue {
  /// The value as the service shows it: every reference names its zone.
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
