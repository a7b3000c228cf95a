// The endpoints of zones: create, delete, list, look up; and the zones that changed since a token.

internal import Strandline
package import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// The name of the zone that a request means. In the private database a user has no zones but the own; in the shared one
  /// a zone's owner must be named, and no zone is shared.
  func zoneName(_ id: WireZoneID?, in key: DatabaseKey) throws(ServerRefusal) -> String {
    let owner = id?.ownerRecordName ?? ""
    guard key.scope != .shared || !owner.isEmpty else {
      throw ServerRefusal(
        400, WireError(.badRequest, "zoneID needs to have ownerRecordName field for calls to sharedb"))
    }
    // As the model spells owners: the placeholder for the current user is empty.
    let zone = ZoneID(id?.name ?? Names.defaultZone, owner: owner, scope: key.scope)
    guard key.scope != .shared, zone.owner.isEmpty || zone.owner.equalsUTF8(key.user) else {
      throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist"))
    }
    return zone.name
  }

  /// A zone's ID in an answer.
  func wireZone(_ name: String, _ key: DatabaseKey) -> WireZoneID {
    WireZoneID(
      zoneName: name, ownerRecordName: key.user.isEmpty ? nil : key.user,
      zoneType: name == Names.defaultZone ? "DEFAULT_ZONE" : "REGULAR_CUSTOM_ZONE")
  }

  /// The zones of a database, the default zone first: it always exists.
  package func listZones(in key: DatabaseKey) throws(ServerRefusal) -> ZonesReply {
    try look { core throws(ServerRefusal) -> (ZonesReply, UInt64) in
      var zones: [WireZone] = []
      if key.scope != .shared { zones.append(WireZone(zoneID: wireZone(Names.defaultZone, key), atomic: false)) }
      let lives = core.state.databases[key]?.zones ?? [:]
      for name in lives.keys.sorted().texts where name != Names.defaultZone {
        guard let zone = core.state.zone(name, in: key) else { continue }
        zones.append(WireZone(zoneID: wireZone(name, key), syncToken: token(zone, zone.lastLSN, core), atomic: true))
      }
      return (ZonesReply(zones: zones), core.state.lastLSN(in: key))
    }
  }

  /// Zones, by name.
  package func lookupZones(_ ids: [WireZoneID], in key: DatabaseKey) throws(ServerRefusal) -> ZonesReply {
    guard ids.count <= limits.zonesAskedMax else {
      throw ServerRefusal(
        400, WireError(.badRequest, "\(ids.count) zones in one request; the limit is \(limits.zonesAskedMax)"))
    }
    return try look { core throws(ServerRefusal) -> (ZonesReply, UInt64) in
      let reply = ZonesReply(
        zones: ids.map { id in
          do throws(ServerRefusal) {
            let name = try zoneName(id, in: key)
            if name == Names.defaultZone { return WireZone(zoneID: wireZone(name, key), atomic: false) }
            guard let zone = core.state.zone(name, in: key) else {
              return WireZone(zoneID: id, error: WireError(.zoneNotFound, "Zone does not exist"))
            }
            return WireZone(zoneID: wireZone(name, key), syncToken: token(zone, zone.lastLSN, core), atomic: true)
          } catch {
            return WireZone(zoneID: id, error: error.error)
          }
        })
      return (reply, core.state.lastLSN(in: key))
    }
  }

  /// Creates and deletes zones, in order, each in a transaction of its own. Creating a zone that exists succeeds.
  package func modifyZones(_ message: ZonesModifyRequest, in key: DatabaseKey) throws(ServerRefusal) -> ZonesReply {
    guard key.scope == .private else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    guard message.operations.count <= limits.operationsMax else {
      throw ServerRefusal(
        400,
        WireError(
          .badRequest, "\(message.operations.count) operations in one request; the limit is \(limits.operationsMax)"))
    }
    return try look { core throws(ServerRefusal) -> (ZonesReply, UInt64) in
      var results: [WireZone] = []
      for operation in message.operations {
        let id = operation.zone.zoneID
        do throws(ServerRefusal) { _ = try zoneName(id, in: key) } catch {
          results.append(WireZone(zoneID: id, error: error.error))
          continue
        }
        if let defect = defect(zoneName: id.name) {
          results.append(WireZone(zoneID: id, error: WireError(.badRequest, defect)))
          continue
        }
        let zone = core.state.zone(id.name, in: key)
        switch operation.operationType {
        case "create":
          if zone == nil {
            guard core.state.databases[key]?.zones.count ?? 0 < limits.zonesMax else {
              results.append(
                WireZone(
                  zoneID: id, error: WireError(.limitExceeded, "a database has at most \(limits.zonesMax) zones")))
              continue
            }
            try write(.zoneCreated(life: environment.random.next(), key, name: id.name), &core)
          }
          guard let zone = core.state.zone(id.name, in: key) else { continue }
          results.append(
            WireZone(zoneID: wireZone(id.name, key), syncToken: token(zone, zone.lastLSN, core), atomic: true))
        case "delete":
          guard let zone else {
            results.append(WireZone(zoneID: id, error: WireError(.zoneNotFound, "Zone does not exist")))
            continue
          }
          try write(.zoneDeleted(life: zone.life), &core)
          results.append(WireZone(zoneID: wireZone(id.name, key), deleted: true))
        default:
          let words = "unknown operationType '\(operation.operationType.prefix(40))'"
          results.append(WireZone(zoneID: id, error: WireError(.badRequest, words)))
        }
      }
      return (ZonesReply(zones: results), core.state.lastLSN(in: key))
    }
  }

  private func defect(zoneName name: String) -> String? {
    if name == Names.defaultZone { return "the default zone can be neither created nor deleted" }
    if name.isEmpty || name.unicodeScalars.count > limits.nameCharactersMax {
      return "a zone's name has 1 to \(limits.nameCharactersMax) characters"
    }
    return name.hasPrefix("_") ? "zone names that begin with '_' are reserved" : nil
  }

  /// What zones/changes answers: the same as changes/database, with another name for the token.
  func zonesChangesAnswer(_ message: ZonesChangesRequest, in key: DatabaseKey) throws(ServerRefusal) -> [UInt8] {
    let reply = try databaseChanges(
      DatabaseChangesRequest(syncToken: message.metaSyncToken, resultsLimit: message.resultsLimit), in: key)
    var json = JSONWriter(capacity: 1024)
    json.beginObject()
    json.key("metaSyncToken")
    json.string(reply.syncToken)
    json.key("moreComing")
    json.bool(reply.moreComing ?? false)
    // As Apple's reference spells it.
    json.key("syncToken")
    json.string(reply.syncToken)
    json.key("zones")
    reply.zones.write(into: &json)
    json.endObject()
    return json.finish()
  }

  /// The zones that changed since a token, in the order of their latest change.
  package func databaseChanges(
    _ message: DatabaseChangesRequest, in key: DatabaseKey
  ) throws(ServerRefusal) -> DatabaseChangesReply {
    guard key.scope != .public else {
      throw ServerRefusal(400, WireError(.badRequest, "endpoint not applicable in the database type"))
    }
    return try look { core throws(ServerRefusal) -> (DatabaseChangesReply, UInt64) in
      var since: UInt64 = 0
      if let text = message.syncToken, !text.isEmpty {
        do throws(WireReason) {
          since = try position(text, kind: .database, life: 0, core)
        } catch {
          throw ServerRefusal(400, WireError(.badRequest, error.words))
        }
      }
      let database = core.state.databases[key] ?? DatabaseState()
      // The life is nil if the zone was deleted. Names of deleted zones have no limit, so only those of the page are shown.
      var changes: [(lsn: UInt64, name: String, life: UInt64?)] = []
      for (name, life) in database.zones where name.text != Names.defaultZone {
        guard let zone = core.state.zones[life], zone.lastLSN > since else { continue }
        changes.append((zone.lastLSN, name.text, life))
      }
      for (name, lsn) in database.deleted where lsn > since { changes.append((lsn, name.text, nil)) }
      changes.sort { $0.lsn < $1.lsn }
      let limit = min(max(message.resultsLimit ?? limits.resultsMax, 1), limits.resultsMax)
      let page = changes.prefix(limit)
      let end = page.last?.lsn ?? since
      let zones = page.map { change in
        WireZone(
          zoneID: wireZone(change.name, key),
          syncToken: change.life.flatMap { core.state.zones[$0] }.map { token($0, $0.lastLSN, core) },
          deleted: change.life == nil)
      }
      let reply = DatabaseChangesReply(
        zones: zones, syncToken: databaseToken(end, core), moreComing: page.count < changes.count)
      return (reply, core.state.lastLSN(in: key))
    }
  }
}
