// What the engine has in hand of one zone. Absent: nothing, and the log alone says whether the zone has changed.
//
//                        refused token            the server does not have it
//            open  ────────────────────▶ tokenRefused     │
//           ▲ │ ▲ ◀──── a page ──────────────┘            ▼
//           │ │ └───────────────── it exists ──────── missing ──▶ lost (in the log), forgotten, or created again
//           │ │ last page
//           │ ▼
//           ending: older versions are looked up ▶ children are settled ▶ absent records are found, looked up and removed
//
// A zone that the app wants erased is `erasing`: the server is asked whether it is still that zone, then it is deleted there.
// What a cycle was refused (`refusal`) lets a zone rest until the next cycle, whatever its phase.

import StrandlineSystem

/// What the engine has in hand of one zone.
struct ZoneSync: Sendable {
  enum Phase: Sendable {
    /// Its pages are asked for, if the log says that it has changed, or if something waits for its feed.
    case open
    /// The server has refused its token: the next page is asked for without one.
    case tokenRefused
    /// The server has said that it does not have the zone: it is asked for the names of all zones.
    indirect case missing(LossQuestion, then: Phase)
    /// The app wants this store's side to stand, and the server has lost the zone: it is created.
    case recreating
    /// The last page is in.
    case ending(Ending)
    /// The app wants the zone erased.
    case erasing(Erasure)
  }

  var phase = Phase.open
  var feed = Feed()
  /// What the server has refused in this cycle.
  var refusal: CloudError?
  /// How often its token was refused in this cycle.
  var tokenRefusals = 0
  var lookups = LookupQueue()
  /// What is fetched next of what the zone has listed.
  var listing: ListedRecords?
  /// Lookups of listed records that were refused.
  var listedRefused = RefusedLookups()
  /// Queries for its newest records, before it is fetched for the first time.
  var newest: NewestRecords?
  /// Children of deleted records may be in it that the app's rules for them were not applied to.
  var reviewsChildren = false
  /// It was found to be lost in this cycle.
  var isLossNoted = false

  /// Whether it has to be kept in mind.
  var isAtRest: Bool {
    guard case .open = phase else { return false }
    return feed == Feed() && refusal == nil && tokenRefusals == 0 && lookups.isEmpty && listing == nil
      && listedRefused.refusals.isEmpty && newest == nil && !reviewsChildren && !isLossNoted
  }

  /// Whether it is to be created again.
  var isRecreating: Bool { if case .recreating = phase { true } else { false } }

  /// Whether the server is asked whether the zone exists.
  var isInQuestion: Bool {
    switch phase {
    case .missing, .recreating: true
    case .open, .tokenRefused, .ending, .erasing: false
    }
  }

  /// Whether its next page may be asked for together with those of other zones.
  var sharesRequests: Bool { if case .open = phase { feed.isShareable } else { false } }

  /// Whether a page may be asked for.
  var takesPages: Bool {
    switch phase {
    // An erasure that the app has taken back is over.
    case .open, .tokenRefused, .erasing: refusal == nil
    case .missing, .recreating, .ending: false
    }
  }
}

/// The fetch of one zone, page by page.
struct Feed: Hashable, Sendable {
  enum Start: Hashable, Sendable {
    case token
    /// From the zone's beginning, though it has a token; and whether the server has just taken that token.
    case beginning(tokenWasTaken: Bool)
  }
  /// Something waits for its end, so the zone is fetched though the server has not named it.
  var isAwaited = false
  var start = Start.token
  var limit = SyncPlan.pageLimit
  /// What tells whether it goes on.
  var progress = FeedProgress()
  /// It has brought nothing new, or the server has no page of it for now.
  var rest: FeedRest?

  /// Whether its next page may be asked for together with those of other zones: the first one since its token, and as large as
  /// that request has room for.
  var isShareable: Bool { start == .token && limit == SyncPlan.pageLimit && progress == FeedProgress() }
}

/// No page of a zone is asked for until then, and why.
struct FeedRest: Hashable, Sendable {
  /// By the monotonic clock.
  var until: UInt64
  var error: CloudError

  /// Whether the server has named the time: a person does not end it.
  var isServers: Bool { error.retryAfterMilliseconds ?? 0 > 0 }
}

/// Whether a feed that says that more is to come goes on. Its tokens are opaque, so that only one that was there before says that it
/// goes in a circle.
struct FeedProgress: Hashable, Sendable {
  /// So many pages in a row may be empty, as the live service was seen to send them by the dozen.
  static let emptyPagesMax = 200

  /// The tokens of its pages. They are forgotten where it begins again.
  private var tokens: Set<ChangeToken> = []
  /// Pages in a row that were empty and said that more is to come.
  private var emptyPages = 0
  /// Pages in a row that brought nothing new.
  private(set) var repeats = 0

  /// Counts a page.
  ///
  /// - Parameters:
  ///   - asked: the token that it was asked with.
  ///   - token: the one that it has brought.
  /// - Returns: the defect of the page; nil if its token is a new one, or the last one.
  mutating func count(asked: ChangeToken?, token: ChangeToken, isEmpty: Bool, moreComing: Bool) -> String? {
    guard moreComing else {
      self = FeedProgress()
      return nil
    }
    if let asked { tokens.insert(asked) } else { tokens = [] }
    let isNew = tokens.insert(token).inserted
    emptyPages = isEmpty ? emptyPages + 1 : 0
    guard isNew, emptyPages <= Self.emptyPagesMax else {
      repeats += 1
      return isNew
        ? "that more is to come, and \(emptyPages) pages in a row were empty"
        : "that more is to come, and its token \(token == asked ? "stays the same" : "was there before")"
    }
    repeats = 0
    return nil
  }

  /// The server was asked with a token for a page, together with those of other zones, and has given none: it is asked alone.
  mutating func noteUnanswered(_ asked: ChangeToken?) { if let asked { tokens.insert(asked) } }

  /// The same, and it wants to be asked later.
  mutating func noteBusy(_ asked: ChangeToken?) {
    noteUnanswered(asked)
    repeats += 1
  }

  /// A person wants it now: as many pages in a row may be empty once more.
  mutating func forgetEmpty() { emptyPages = 0 }

  /// Whether a page with this token may lead on.
  func isNew(_ token: ChangeToken) -> Bool { !tokens.contains(token) }
}

/// The server has said that it does not have a zone.
struct LossQuestion: Sendable {
  var error: CloudError
  /// Why it is lost if the list of all zones agrees.
  var loss = ZoneLoss.notFound
  /// The requests that wait if the zone is there; nil if they need not.
  var kind: RequestKind?
}

/// A zone that was fetched to its end, and what is left to do before the fetch is over.
struct Ending: Sendable {
  enum Stage: Sendable {
    /// Records are looked up that the feed showed in older versions: a server that went back in time must remove nothing.
    case older(Set<CloudName>)
    /// Children of deleted records are settled, and then what was begun before goes on.
    case children(AbsenceProof?)
    /// The store looks for the records that the feed has not shown.
    case finding
    /// These are proved to be gone, or found.
    case absent(AbsenceProof)
  }
  /// Why the zone is compared with the server's list.
  enum Cause: Sendable {
    /// Its feed has ended, perhaps with a sweep.
    case feed
    /// A person has asked whether both are the same.
    case audit
  }
  var stage: Stage
  var cause = Cause.feed
  /// What lookups were refused with in this cycle.
  var refusal: CloudError?

  /// This cycle does not go on with it.
  var isPaused: Bool {
    if refusal != nil { return true }
    if case .absent(let proof) = stage { return proof.isPaused }
    return false
  }
  /// Why it is not over.
  var failure: CloudError? {
    if let refusal { return refusal }
    if case .absent(let proof) = stage { return proof.failure }
    return nil
  }
}

/// A zone that the app wants erased: whether it is still that zone, by its token or by its records.
enum Erasure: Sendable {
  /// The server is asked whether it takes the zone's token.
  case askingByToken
  /// Its feed is read from the beginning. If the token was refused, one of its records has to be known here.
  case readingFeed(Feed, from: ChangeToken?, tokenWasRefused: Bool)
  /// It is that zone.
  case deleting
}

/// Records of one zone that are to be looked up.
struct LookupQueue: Sendable {
  var names: Set<CloudName> = []
  /// Those whose lookups were refused, each alone, while none of another record was answered.
  var refused = RefusedLookups()

  var isEmpty: Bool { names.isEmpty && refused.refusals.isEmpty }

  mutating func insert(_ name: CloudName) { names.insert(name) }
}
