// What a page for people asks besides what clients do: which databases and zones there are, and a read of one of them, without
// a sign-in, without a fault and without being counted: an app under test must not notice that somebody looks.

package import StrandlineCloudKit
internal import Strandline
internal import StrandlineSystem

extension CloudServer {
  /// A zone, and how much is in it.
  package struct ZoneCount: Sendable {
    package var name: String
    /// Living records by type.
    package var types: [String: Int]
    package var deleted: Int
    /// The zone's newest event in the journal.
    package var lastLSN: UInt64
  }

  /// The databases, each with its zones in the order of their names.
  ///
  /// - Complexity: O(records), during which no request is answered.
  package func databases() throws -> [(key: DatabaseKey, zones: [ZoneCount])] {
    try look { core throws(ServerRefusal) -> ([(key: DatabaseKey, zones: [ZoneCount])], UInt64) in
      let found = core.state.databases.map { key, database in
        let zones = database.zones.keys.sorted { $0.text.precedesByUTF8($1.text) }.compactMap { name in
          core.state.zone(name.text, in: key).map { ZoneCount($0) }
        }
        return (key: key, zones: zones)
      }
      return (found.sorted { "\($0.key)" < "\($1.key)" }, core.state.lastLSN)
    }
  }

  /// The comparators of queries.
  package static var comparators: [String] { QueryCondition.comparators }

  /// The newest event of the journal that is durable.
  package func newestLSN() throws -> UInt64 {
    try look { core throws(ServerRefusal) -> (UInt64, UInt64) in (core.state.lastLSN, core.state.lastLSN) }
  }

  /// Answers a request that only reads, of the user whom `key` names.
  ///
  /// - Parameter name: of an endpoint, such as "records/query".
  /// - Returns: nil if no endpoint that only reads has the name.
  package func look(_ name: String, _ body: [UInt8], in key: DatabaseKey) -> HTTPResponse? {
    guard let endpoint = Endpoint(rawValue: name) else { return nil }
    switch endpoint {
    case .recordsModify, .zonesModify, .usersCaller, .usersCurrent, .usersDiscover, .usersByEmail, .usersByName,
      .usersOfContacts, .subscriptionsModify, .tokensCreate, .tokensRegister, .assetsUpload, .assetsRereference:
      return nil
    case .subscriptionsList, .subscriptionsLookup, .recordsLookup, .recordsQuery, .recordsChanges, .changesZone,
      .changesDatabase, .zonesList, .zonesLookup,
      .zonesChanges:
      break
    }
    let headers: HTTPHeaders = ["Content-Type": "application/json; charset=UTF-8"]
    do throws(ServerRefusal) {
      let request = HTTPRequest(origin: "", path: "/", body: body)
      var memory = RequestMemory(large)
      return HTTPResponse(status: 200, headers: headers, body: try reply(endpoint, request, key, key.user, &memory))
    } catch {
      return HTTPResponse(status: error.status, headers: headers, body: WireJSON.encode(error.error))
    }
  }
}

extension CloudServer.ZoneCount {
  fileprivate init(_ zone: ZoneState) {
    name = zone.name
    lastLSN = zone.lastLSN
    types = [:]
    deleted = 0
    for entry in zone.entries.values {
      if entry.isDeleted { deleted += 1 } else { types[entry.type, default: 0] += 1 }
    }
  }
}
