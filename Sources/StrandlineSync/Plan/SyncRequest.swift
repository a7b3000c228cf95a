// Every request that the engine can make: one value is one request. The plan makes it, `perform` (Engine/PerformedRequest.swift)
// sends it, and the plan gets it back with the answer. The value says what the request is for, so nothing else has to remember it.

import StrandlineSystem

/// One request to a cloud database.
package enum SyncRequest: Sendable {
  /// Who is signed in.
  case user
  /// Which zones have changed.
  case changedZones(ListRequest)
  /// The names of all zones, to check whether this one exists.
  case allZones(ZoneID)
  /// The next page of each of some zones: of their feeds, or of one zone for another purpose.
  case pages([PageRequest])
  case newest(NewestRequest)
  case lookUp(LookupRequest)
  case createZone(ZoneID, ZoneCreation)
  case eraseZone(ZoneID)
  case modify(UploadRequest)
  case uploadContent(ContentUpload)
}

/// A page of the list of changed zones.
package struct ListRequest: Hashable, Sendable {
  /// The token that the database has.
  var known: ChangeToken?
  /// From the list's beginning, because the server has refused the token.
  var fromStart = false

  package var token: ChangeToken? { fromStart ? nil : known }
}

/// A page of a zone's changes.
package struct PageRequest: Hashable, Sendable {
  package enum Purpose: Hashable, Sendable {
    /// To apply it.
    case feed
    /// To check whether the zone is still the one that the app wants erased.
    case identity
    /// To compare it with this store's records.
    case comparison
  }
  package var zone: ZoneID
  /// The zone's token, or that of the page before.
  var known: ChangeToken?
  /// From the zone's beginning, though there is a token: it was refused, or is in doubt.
  var fromStart = false
  var limit: Int
  /// The server lists the records without their fields.
  var listsOnly = false
  var purpose = Purpose.feed

  package init(
    zone: ZoneID, known: ChangeToken? = nil, fromStart: Bool = false, limit: Int, listsOnly: Bool = false,
    purpose: Purpose = .feed
  ) {
    self.zone = zone
    self.known = known
    self.fromStart = fromStart
    self.limit = limit
    self.listsOnly = listsOnly
    self.purpose = purpose
  }

  /// The token to send; nil: from the zone's beginning.
  var token: ChangeToken? { fromStart ? nil : known }

  package var query: ZoneQuery { ZoneQuery(zone, since: token, limit: limit, listsOnly: listsOnly) }
}

/// The newest records of a type that no page has brought yet.
package struct NewestRequest: Hashable, Sendable {
  package var type: String
  package var zone: ZoneID
  package var limit: Int
  /// Where the page before ended.
  package var marker: String?
}

/// Some records of a zone, by name.
package struct LookupRequest: Sendable {
  package enum Purpose: Sendable {
    /// The engine needs the server's versions to go on.
    case question
    /// The feed has listed them without their fields.
    case listed
  }
  package var names: [CloudName]
  package var zone: ZoneID
  var purpose: Purpose
}

/// Why a zone is created.
package enum ZoneCreation: Sendable {
  /// To upload a change of this record.
  case upload(RecordID)
  /// The server has lost it, and a person or a rule has chosen this store's side.
  case again
}

/// Changes of records of one zone.
package struct UploadRequest: Sendable {
  package var zone: ZoneID
  package var uploads: [Upload]
  /// All of them or none.
  package var isAtomic: Bool
  /// Records of the same upload set; those without a wait afterwards are queued again.
  var followers: [RecordID] = []
}

/// The answer to a request.
package enum SyncAnswer: Sendable {
  case user(String)
  case changedZones(DatabasePage)
  case allZones([ZoneID])
  case pages([ZoneID: Result<ZonePage, CloudError>])
  case newest(NewestPage)
  case records([CloudName: CloudResult])
  /// A content is at the server, which calls it so.
  case content(Asset)
  case done
}

/// How a request ended.
package struct SyncOutcome: Sendable {
  package var result: Result<SyncAnswer, CloudError>
  /// How far the server's clock is ahead of this device's, in milliseconds, if the answer had its time.
  var serverOffset: Int64?

  package init(result: Result<SyncAnswer, CloudError>, serverOffset: Int64? = nil) {
    self.result = result
    self.serverOffset = serverOffset
  }
}

extension SyncRequest {
  /// The kind whose backoff it keeps to.
  package var kind: RequestKind {
    switch self {
    case .user: .account
    case .changedZones, .allZones: .zoneList
    case .pages(let pages): pages.first?.purpose == .identity ? .upload : .page
    case .newest: .query
    case .lookUp(let lookup):
      switch lookup.purpose {
      case .question: .lookup
      case .listed: .listed
      }
    case .createZone, .eraseZone, .modify: .upload
    case .uploadContent: .content
    }
  }

  /// The number of pages of zones in the answer, to apply or to compare.
  package var pageCount: Int {
    if case .pages(let pages) = self, kind == .page { pages.count } else { 0 }
  }

  /// What it does, in the words of an error message.
  package var words: String {
    switch self {
    case .user: return "asking who is signed in"
    case .changedZones: return "asking which zones changed"
    case .allZones(let zone): return "asking whether zone '\(zone)' exists"
    case .pages(let pages):
      guard pages.count == 1, let page = pages.first else { return "fetching changes of \(pages.count) zones" }
      switch page.purpose {
      case .feed: return "fetching changes of zone '\(page.zone)'"
      case .identity: return "asking whether zone '\(page.zone)' is the one to erase"
      case .comparison: return "verifying zone '\(page.zone)'"
      }
    case .newest(let newest): return "asking for the newest '\(newest.type)' of zone '\(newest.zone)'"
    case .lookUp(let lookup):
      switch lookup.purpose {
      case .question: return "looking up \(lookup.names.count) records of zone '\(lookup.zone)'"
      case .listed: return "fetching \(lookup.names.count) listed records of zone '\(lookup.zone)'"
      }
    case .createZone(let zone, _): return "creating zone '\(zone)'"
    case .eraseZone(let zone): return "erasing zone '\(zone)'"
    case .uploadContent(let upload):
      return "uploading the content of field '\(upload.place.field)' of '\(upload.item.id)'"
    case .modify(let upload): return "uploading to zone '\(upload.zone)'"
    }
  }
}

/// The records that were taken out of an upload before it left, because the log has changed meanwhile.
package struct FallenOut: Sendable {
  /// Records with a newer change, or a newer version of the server's.
  package var stale: [RecordID] = []
  /// Records that need another one, which is neither at the server nor in the request.
  package var lacking: [(id: RecordID, target: RecordID)] = []

  package init() {}
}
