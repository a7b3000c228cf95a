// A zone's changes, page by page: the current state of each record at the place of its latest change. Tombstones are
// kept for ever.
//
// The stale page (`ServerFaults.replayPage`). While the fault is on, the server keeps every undeleted record that it
// shows in a zone's changes, as it was at the first time, up to one page of them. After the deletion of a kept record,
// the next `changes/zone` whose token lies at or behind the deletion, and so comes from a client that has seen it, is
// answered with all kept records, the request's own token, and `moreComing: true`; the request after it gets the normal
// changes. That happens once for each deletion. Requests for some of the fields are left out of all this: what was kept for one
// of them is no answer to another. An example: switch the fault on; device A creates two records and syncs
// twice (both are kept), edits one, deletes the other, and syncs twice; another record changes; A syncs again and is
// shown both records as they were. The deleted record must not return, and the edit must stay. The kept records end with
// the server.

internal import Strandline
package import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// The records for stale pages of one zone, as they were shown first.
  struct StaleRecords: Sendable {
    /// Each as JSON.
    var records: [[UInt8]] = []
    var names: Set<CloudName> = []
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

  /// What `zoneChangesAnswer` writes.
  ///
  /// For tests: they ask without HTTP.
  package func zoneChanges(_ message: ZoneChangesRequest, in key: DatabaseKey) throws(ServerRefusal) -> ZoneChangesReply
  {
    var memory = RequestMemory(large)
    return try decoded(try zoneChangesAnswer(message, in: key, &memory))
  }

  /// One page for each requested zone; a refusal of one zone is in its entry. A zone that is named twice has one entry.
  ///
  /// One budget of bytes holds for all pages. A zone for which none is left gets a page without records, its own token
  /// and `moreComing`, as CloudKit's empty pages are: a client asks again, and then others are without.
  func zoneChangesAnswer(
    _ message: ZoneChangesRequest, in key: DatabaseKey, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    guard message.zones.count <= limits.zonesAskedMax else {
      throw ServerRefusal(
        400,
        WireError(.badRequest, "\(message.zones.count) zones in one request; the limit is \(limits.zonesAskedMax)"))
    }
    var json = JSONWriter(capacity: 4096)
    var rest = limits.answerBytesMax
    json.beginObject()
    json.key("zones")
    json.beginArray()
    for asked in Self.merged(message.zones) {
      let refusal: ServerRefusal? =
        if asked.isContradictory {
          ServerRefusal(400, WireError(.badRequest, "the zone is asked for more than once, and in different ways"))
        } else {
          try writePage(asked.zone, message, key, &rest, &memory, to: &json)
        }
      if let refusal { ZoneChangesReply.Zone(zoneID: asked.zone.zoneID, error: refusal.error).write(into: &json) }
      rest = min(rest, limits.answerBytesMax - json.bytes.count)
    }
    json.endArray()
    json.endObject()
    return json.finish()
  }

  /// What records/changes answers: one page of one zone, or a refusal of the request.
  func recordChangesAnswer(
    _ message: RecordChangesRequest, in key: DatabaseKey, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    var json = JSONWriter(capacity: 4096)
    var rest = limits.answerBytesMax
    let whole = ZoneChangesRequest(zones: [message.zone])
    if let refusal = try writePage(message.zone, whole, key, &rest, &memory, to: &json) {
      throw refusal
    }
    return json.finish()
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

  /// The changes of a zone from a token on, as many as a page may have: where their records lie, not what is in them.
  private struct FeedPart: Sendable {
    struct Change: Sendable {
      var lsn: UInt64
      var name: String
      var isDeleted: Bool
    }
    var life: UInt64
    var since: UInt64
    var changes: [Change] = []
    /// The change after these; nil if there is none.
    var next: UInt64?
    /// Whether the newest changes come first.
    var isReverse = false
    /// The zone's latest event.
    var lastLSN: UInt64
    var tenures: [ServerState.Tenure]
    var generation: UInt32
    /// The records of a stale page, which is then the whole answer, if one is due.
    var stale: [[UInt8]]?
    var keepsStale: Bool
  }

  /// Writes the page of a zone.
  ///
  /// - Returns: the refusal of this zone alone, if nothing was written.
  private func writePage(
    _ asked: ZoneChangesRequest.Zone, _ message: ZoneChangesRequest, _ key: DatabaseKey, _ rest: inout Int,
    _ memory: inout RequestMemory, to json: inout JSONWriter
  ) throws(ServerRefusal) -> ServerRefusal? {
    func refusal(_ words: String) -> ServerRefusal { ServerRefusal(400, WireError(.badRequest, words)) }
    let isReverse = asked.reverse ?? message.reverse ?? false
    if key.scope == .shared, isReverse, asked.zoneID.ownerRecordName?.isEmpty == false {
      return refusal("Reverse sync of share db is unsupported")
    }
    let name: String
    do throws(ServerRefusal) { name = try zoneName(asked.zoneID, in: key) } catch { return error }
    if name == Names.defaultZone { return refusal("AppDefaultZone does not support getChanges call") }
    // Of a page for which no byte is left only its token is needed.
    let resultsMax = rest > 0 ? limits.resultsMax : 0
    let limit = min(max(asked.resultsLimit ?? message.resultsLimit ?? resultsMax, 1), resultsMax)
    let desired = DesiredFields(asked.desiredKeys ?? message.desiredKeys)
    let found =
      try isReverse
      ? reversePart(of: name, key, from: asked.syncToken, limit: limit)
      : part(of: name, key, from: asked.syncToken, limit: limit, mayBeStale: desired.areAll)
    switch found {
    case .success(let part): try write(part, of: name, desired, asked, message, key, &rest, &memory, to: &json)
    case .failure(let refusal): return refusal
    }
    return nil
  }

  private func write(
    _ part: FeedPart, of name: String, _ desired: DesiredFields, _ asked: ZoneChangesRequest.Zone,
    _ message: ZoneChangesRequest, _ key: DatabaseKey, _ rest: inout Int, _ memory: inout RequestMemory,
    to json: inout JSONWriter
  ) throws(ServerRefusal) {
    let form = AnswerForm(
      wireZone(name, key), own: ZoneID(name, owner: key.user, scope: key.scope), links: contentLinks())
    let numbersAsStrings = asked.numbersAsStrings ?? message.numbersAsStrings ?? false
    let types = (asked.desiredRecordTypes ?? message.desiredRecordTypes).map { Set(texts: $0) }
    var shown: [(name: String, json: Range<Int>)] = []
    json.beginObject()
    json.key("records")
    json.beginArray()
    var end = part.since
    var next = part.next
    for record in part.stale ?? [] { json.raw(record) }
    for change in part.changes where part.stale == nil {
      guard rest > 0 else {
        next = change.lsn
        break
      }
      end = change.lsn
      let begin = json.bytes.count
      memory.hold(begin)
      guard !change.isDeleted else {
        form.writeTombstone(change.name, to: &json)
        rest -= json.bytes.count - begin
        continue
      }
      let record = try read(change.lsn)
      // The filter by type drops records after the limit has counted them, so a page may be short, or empty, and not be
      // the last. They have been read, so they count. Tombstones have no type and pass every filter.
      if let types, !types.contains(record.text(record.type)) {
        rest -= record.body.count
        continue
      }
      do throws(ByteReaderError) {
        try form.write(record, desired: desired, numbersAsStrings: numbersAsStrings, to: &json)
      } catch {
        throw ServerRefusal(500, WireError(.internalError, "event \(change.lsn) of the journal: \(error)"))
      }
      rest -= json.bytes.count - begin
      if part.keepsStale {
        // Behind the comma, if there is one.
        let start = json.bytes[begin] == UInt8(ascii: ",") ? begin + 1 : begin
        shown.append((change.name, start..<json.bytes.count))
      }
    }
    json.endArray()
    json.key("moreComing")
    json.bool(part.stale != nil || next != nil)
    // The last page's token names the zone's latest event: a client that has everything gets the same token again. One that
    // goes back in time begins with the change that its token names.
    let lsn =
      part.isReverse
      ? next ?? 0 : part.stale != nil ? part.since : next == nil ? max(part.lastLSN, part.since) : end
    json.key("syncToken")
    json.string(
      SyncToken(
        kind: part.isReverse ? .reverse : .zone, storeUUID: journal.storeUUID, life: part.life,
        tenure: part.tenures.tenure(of: lsn), lsn: lsn, generation: part.generation
      ).text)
    json.key("zoneID")
    json.raw(form.zoneID)
    json.endObject()
    if !shown.isEmpty { keepForStalePage(shown.map { ($0.name, Array(json.bytes[$0.json])) }, part.life) }
  }

  /// The changes of a zone since a token. What it names is durable.
  ///
  /// - Returns: a failure if this zone alone is refused.
  private func part(
    of name: String, _ key: DatabaseKey, from text: String?, limit: Int, mayBeStale: Bool
  ) throws(ServerRefusal) -> Result<FeedPart, ServerRefusal> {
    try look { core throws(ServerRefusal) -> (Result<FeedPart, ServerRefusal>, UInt64) in
      guard let zone = core.state.zone(name, in: key) else {
        let refusal = ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
        return (.failure(refusal), core.state.databases[key]?.deleted[name] ?? 0)
      }
      var since: UInt64 = 0
      if let text, !text.isEmpty {
        do throws(WireReason) {
          since = try position(text, kind: .zone, life: zone.life, core)
        } catch {
          return (.failure(ServerRefusal(400, WireError(.badRequest, error.words))), zone.createdLSN)
        }
      }
      var part = FeedPart(
        life: zone.life, since: since, lastLSN: zone.lastLSN, tenures: core.state.tenures,
        generation: core.generation, keepsStale: mayBeStale && core.staleRecords != nil)
      if mayBeStale, text?.isEmpty == false { part.stale = takeStalePage(zone, since: since, &core) }
      var next = zone.nextCurrent(from: zone.index(after: since))
      while let index = next, part.changes.count < limit {
        let change = zone.feed[index]
        part.changes.append(
          FeedPart.Change(
            lsn: change.lsn, name: change.name.text, isDeleted: zone.entries[change.name]?.isDeleted ?? true))
        next = zone.nextCurrent(from: index + 1)
      }
      part.next = next.map { zone.feed[$0].lsn }
      // All of the zone, and not the page alone: a record whose newest version is not durable yet is missing at the place of
      // its last one, and stands there again if a power cut takes the newest back.
      return (.success(part), zone.lastLSN)
    }
  }

  /// The same, the newest changes first: from the newest one, or from that which a token names, back to the oldest. Changes
  /// that come later are not shown to whoever has such a token.
  private func reversePart(
    of name: String, _ key: DatabaseKey, from text: String?, limit: Int
  ) throws(ServerRefusal) -> Result<FeedPart, ServerRefusal> {
    try look { core throws(ServerRefusal) -> (Result<FeedPart, ServerRefusal>, UInt64) in
      guard let zone = core.state.zone(name, in: key) else {
        let refusal = ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
        return (.failure(refusal), core.state.databases[key]?.deleted[name] ?? 0)
      }
      var first = zone.lastLSN
      if let text, !text.isEmpty {
        do throws(WireReason) { first = try position(text, kind: .reverse, life: zone.life, core) } catch {
          return (.failure(ServerRefusal(400, WireError(.badRequest, error.words))), zone.createdLSN)
        }
      }
      var part = FeedPart(
        life: zone.life, since: first, lastLSN: zone.lastLSN, tenures: core.state.tenures,
        generation: core.generation, keepsStale: false)
      part.isReverse = true
      for change in zone.feed[..<zone.index(after: first)].reversed() {
        guard let entry = zone.entries[change.name], entry.lsn == change.lsn else { continue }
        guard part.changes.count < limit else {
          part.next = change.lsn
          break
        }
        part.changes.append(FeedPart.Change(lsn: change.lsn, name: change.name.text, isDeleted: entry.isDeleted))
      }
      return (.success(part), zone.lastLSN)
    }
  }

  // MARK: The stale page

  private func keepForStalePage(_ records: [(name: String, json: [UInt8])], _ life: UInt64) {
    core.withLock { core in
      guard core.staleRecords != nil else { return }
      var stale = core.staleRecords?[life] ?? StaleRecords()
      for record in records where stale.records.count < limits.resultsMax {
        guard stale.names.insert(CloudName(record.name)).inserted else { continue }
        stale.records.append(record.json)
      }
      core.staleRecords?[life] = stale
    }
  }

  /// The records of a stale page, if one is due. It is due once for each deletion.
  private func takeStalePage(_ zone: ZoneState, since: UInt64, _ core: inout Core) -> [[UInt8]]? {
    guard let stale = core.staleRecords?[zone.life],
      let place = stale.deletions.firstIndex(where: { $0 <= since })
    else { return nil }
    core.staleRecords?[zone.life]?.deletions.remove(at: place)
    front.withLock { $0.statistics.replayedPages += 1 }
    return stale.records
  }

  /// Makes a stale page due if the deleted record is one of those that it would show.
  func scheduleStalePage(afterDeletionOf name: String, zone life: UInt64, at lsn: UInt64, _ core: inout Core) {
    guard core.staleRecords?[life]?.names.contains(name) == true else { return }
    core.staleRecords?[life]?.deletions.append(lsn)
  }

  // MARK: Lookups

  /// What `lookupAnswer` writes.
  ///
  /// For tests: they ask without HTTP.
  package func lookup(_ message: RecordsLookupRequest, in key: DatabaseKey) throws(ServerRefusal) -> RecordsReply {
    var memory = RequestMemory(large)
    return try decoded(try lookupAnswer(message, in: key, &memory))
  }

  /// The current versions of records, by name.
  ///
  /// - Parameter showsToken: whether the answer has the zone's change token too.
  func lookupAnswer(
    _ message: RecordsLookupRequest, in key: DatabaseKey, showsToken: Bool = false, _ memory: inout RequestMemory
  ) throws(ServerRefusal) -> [UInt8] {
    guard message.records.count <= limits.operationsMax else {
      throw ServerRefusal(
        400,
        WireError(.badRequest, "\(message.records.count) records in one request; the limit is \(limits.operationsMax)"))
    }
    let name = try zoneName(message.zoneID, in: key)
    if showsToken { try checkHasToken(name) }
    let (lsns, token) = try look { core throws(ServerRefusal) -> (([UInt64?], String?), UInt64) in
      let zone = core.state.zone(name, in: key)
      guard zone != nil || name == Names.defaultZone else {
        throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
      }
      var seen = zone?.createdLSN ?? 0
      let lsns = message.records.map { asked -> UInt64? in
        guard let entry = zone?.entries[asked.recordName] else { return nil }
        seen = max(seen, entry.lsn)
        return entry.isDeleted ? nil : entry.lsn
      }
      guard showsToken, let zone else { return ((lsns, nil), seen) }
      return ((lsns, self.token(zone, zone.lastLSN, core)), zone.lastLSN)
    }
    let form = AnswerForm(
      wireZone(name, key), own: ZoneID(name, owner: key.user, scope: key.scope), links: contentLinks())
    let desired = DesiredFields(message.desiredKeys)
    var json = JSONWriter(capacity: 512 * (lsns.count + 1))
    json.beginObject()
    json.key("records")
    json.beginArray()
    for (asked, lsn) in zip(message.records, lsns) {
      memory.hold(json.bytes.count)
      if let lsn {
        let record = try read(lsn)
        do throws(ByteReaderError) {
          try form.write(
            record, desired: asked.desiredKeys.map { DesiredFields($0) } ?? desired,
            numbersAsStrings: message.numbersAsStrings ?? false, to: &json)
        } catch {
          throw ServerRefusal(500, WireError(.internalError, "event \(lsn) of the journal: \(error)"))
        }
      } else {
        WireRecord(recordName: asked.recordName, error: WireError(.notFound, "Record not found")).write(into: &json)
      }
      // What CloudKit's web does here is not known; its native service refuses the whole of too large an operation, and
      // a client halves it. A refusal of single records would leave a client that asks for all of them again with the
      // same ones each time.
      guard json.bytes.count <= limits.answerBytesMax || message.records.count == 1 else {
        throw ServerRefusal(
          413,
          WireError(
            .limitExceeded,
            "the answer for \(message.records.count) records has more than \(limits.answerBytesMax) bytes; ask for fewer "
              + "at a time"))
      }
    }
    json.endArray()
    if let token {
      json.key("syncToken")
      json.string(token)
    }
    json.endObject()
    return json.finish()
  }

  /// Refuses the token of a zone that has none.
  func checkHasToken(_ zone: String) throws(ServerRefusal) {
    guard zone == Names.defaultZone else { return }
    throw ServerRefusal(400, WireError(.badRequest, "syncToken operations supported only in SyncZone"))
  }

  /// An answer as a message.
  func decoded<Message: WireMessage>(_ answer: [UInt8]) throws(ServerRefusal) -> Message {
    do throws(JSONError) { return try WireJSON.decode(Message.self, answer) } catch {
      throw ServerRefusal(500, WireError(.internalError, "the server's own answer: \(error)"))
    }
  }
}
