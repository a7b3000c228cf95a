// Everything that the engine ever asks of a server: one value is one request. The plan makes it, `perform`
// (Engine/PerformedRequest.swift) sends it, and the answer goes back to the plan together with it. What a request is for is its
// payload, so nothing else remembers it.

import StrandlineSystem

/// One request to a cloud database.
enum SyncRequest: Sendable {
  /// Who is signed in.
  case user
  /// Which zones have changed.
  case changedZones(ListRequest)
  /// The names of all zones: asked when the server says that it does not have this one.
  case allZones(ZoneID)
  case page(PageRequest)
  /// The next pages of several zones' feeds.
  case pages([PageRequest])
  case newest(NewestRequest)
  case lookUp(LookupRequest)
  case createZone(ZoneID, ZoneCreation)
  case eraseZone(ZoneID)
  case modify(UploadRequest)
}

/// A page of the list of changed zones.
struct ListRequest: Hashable, Sendable {
  /// The token that the database has.
  var known: ChangeToken?
  /// The list is asked for from its beginning, because the server has refused the token.
  var fromStart = false

  var token: ChangeToken? { fromStart ? nil : known }
}

/// A page of a zone's changes.
struct PageRequest: Hashable, Sendable {
  enum Purpose: Hashable, Sendable {
    /// To apply it.
    case feed
    /// To see whether the zone is the one that the app wants ended.
    case identity
    /// To compare it with what is here.
    case comparison
  }
  var zone: ZoneID
  /// The token that the zone has, or that the page before has given.
  var known: ChangeToken?
  /// The page is asked for from the zone's beginning, though there is a token: it was refused, or is in doubt.
  var fromStart = false
  var limit: Int
  /// The server lists the records without their fields.
  var listsOnly = false
  var purpose = Purpose.feed

  /// Where it begins; nil: at the zone's beginning.
  var token: ChangeToken? { fromStart ? nil : known }

  var query: ZoneQuery { ZoneQuery(zone, since: token, limit: limit, listsOnly: listsOnly) }
}

/// The newest records of a type that no page has brought yet.
struct NewestRequest: Hashable, Sendable {
  var type: String
  var zone: ZoneID
  var limit: Int
  /// Where the page before ended.
  var marker: String?
}

/// Some records of a zone, by name.
struct LookupRequest: Sendable {
  enum Purpose: Sendable {
    /// What the server has of them has to be known before something else can go on.
    case question
    /// The feed has listed them without their fields.
    case listed
  }
  var names: [CloudName]
  var zone: ZoneID
  var purpose: Purpose
}

/// Why a zone is created.
enum ZoneCreation: Sendable {
  /// A change of this record is to be sent to it.
  case upload(RecordID)
  /// The app lets this store's side decide, and the server has lost the zone.
  case again
}

/// Changes of records of one zone.
struct UploadRequest: Sendable {
  var zone: ZoneID
  var uploads: [Upload]
  /// All of them or none.
  var isAtomic: Bool
  /// Records that go together with these. Those of them that wait for nothing afterwards are looked at again.
  var followers: [RecordID] = []
}

/// What a server answers.
enum SyncAnswer: Sendable {
  case user(String)
  case changedZones(DatabasePage)
  case allZones([ZoneID])
  case page(ZonePage)
  case pages([ZoneID: Result<ZonePage, CloudError>])
  case newest(NewestPage)
  case records([CloudName: CloudResult])
  case done
}

/// How a request ended.
struct SyncOutcome: Sendable {
  var result: Result<SyncAnswer, CloudError>
  /// How far the server's clock is ahead of this device's, in milliseconds, if the transport has heard it.
  var serverOffset: Int64?
}

extension SyncRequest {
  /// Whose waits hold it.
  var kind: RequestKind {
    switch self {
    case .user: .account
    case .changedZones, .allZones: .zoneList
    case .page(let page): page.purpose == .identity ? .upload : .page
    case .pages: .page
    case .newest: .query
    case .lookUp(let lookup):
      switch lookup.purpose {
      case .question: .lookup
      case .listed: .listed
      }
    case .createZone, .eraseZone, .modify: .upload
    }
  }

  /// How many pages of zones it asks for, to apply or to compare them.
  var pageCount: Int {
    if case .pages(let pages) = self { return pages.count }
    return kind == .page ? 1 : 0
  }

  /// What it does, as an error says it.
  var words: String {
    switch self {
    case .user: return "asking who is signed in"
    case .changedZones: return "asking which zones changed"
    case .allZones(let zone): return "asking whether zone '\(zone)' exists"
    case .page(let page):
      switch page.purpose {
      case .feed: return "fetching changes of zone '\(page.zone)'"
      case .identity: return "asking whether zone '\(page.zone)' is the one to erase"
      case .comparison: return "verifying zone '\(page.zone)'"
      }
    case .pages(let pages): return "fetching changes of \(pages.count) zones"
    case .newest(let newest): return "asking for the newest '\(newest.type)' of zone '\(newest.zone)'"
    case .lookUp(let lookup):
      switch lookup.purpose {
      case .question: return "looking up \(lookup.names.count) records of zone '\(lookup.zone)'"
      case .listed: return "fetching \(lookup.names.count) listed records of zone '\(lookup.zone)'"
      }
    case .createZone(let zone, _): return "creating zone '\(zone)'"
    case .eraseZone(let zone): return "erasing zone '\(zone)'"
    case .modify(let upload): return "uploading to zone '\(upload.zone)'"
    }
  }
}

/// What does not leave with an upload, because the log says something else by now.
struct FallenOut: Sendable {
  /// Records of which the server has said something newer.
  var stale: [RecordID] = []
  /// Records that need another one, which neither the server has nor the request.
  var lacking: [(id: RecordID, target: RecordID)] = []
}
