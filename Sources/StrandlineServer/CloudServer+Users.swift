// The users of a container. This server knows them by their record names alone: no sign-in gives it a name, an address or a
// telephone number, so nobody is found by one.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineJSON
internal import StrandlineSystem
internal import Synchronization

extension CloudServer {
  /// Those of the asked users whom this server knows, each once; all of them if nobody is asked for by name.
  ///
  /// - Parameters:
  ///   - asked: nil for all.
  ///   - caller: who asks.
  func usersAnswer(_ asked: [UsersRequest.User]?, of caller: String, in key: DatabaseKey) throws(ServerRefusal)
    -> [UInt8]
  {
    if let asked, asked.count > limits.operationsMax {
      throw ServerRefusal(
        400, WireError(.badRequest, "\(asked.count) users in one request; the limit is \(limits.operationsMax)"))
    }
    let known = try look { core throws(ServerRefusal) -> (Set<CloudName>, UInt64) in
      var users: Set<CloudName> = [CloudName(caller)]
      var seen: UInt64 = 0
      for database in core.state.databases.keys
      where !database.user.isEmpty && database.container.equalsUTF8(key.container)
        && database.environment.equalsUTF8(key.environment)
      {
        users.insert(CloudName(database.user))
        seen = core.state.lastLSN
      }
      return (users, seen)
    }
    var shown = asked.map { asked in asked.compactMap { $0.userRecordName.map { CloudName($0) } }.filter(known.contains)
    }
    if let names = shown {
      var once: Set<CloudName> = []
      shown = names.filter { once.insert($0).inserted }
    }
    var json = JSONWriter(capacity: 256)
    json.beginObject()
    json.key("users")
    json.beginArray()
    for name in shown ?? known.sorted() {
      json.beginObject()
      json.key("lookupInfo")
      json.beginObject()
      json.key("userRecordName")
      json.string(name.text)
      json.endObject()
      json.key("userRecordName")
      json.string(name.text)
      json.endObject()
    }
    json.endArray()
    json.endObject()
    return json.finish()
  }
}
