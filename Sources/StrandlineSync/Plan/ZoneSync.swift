// The engine's state of one zone, as phases. Without an entry, only the log says whether the zone has changed.
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
// A zone with a `refusal` is left alone until the next cycle, in any phase.

import StrandlineSystem

/// The engine's state of one zone.
package struct ZoneSync: Sendable {
  package enum Phase: Sendable {
    /// Its pages are fetched, if the log says that it has changed, or if an upload waits for its feed.
    case open
    /// The server has refused its token: the next page is asked for without one.
    case tokenRefused
    /// The server has said that it does not have the zone: the list of all zones is fetched to confirm it.
    indirect case missing(LossQuestion, then: Phase)
    /// The server has lost the zone, and a person or a rule has chosen this store's side: it is created.
    case recreating
    /// The last page has been applied.
    case ending(Ending)
    /// The app wants the zone erased.
    case erasing(Erasure)
  }

  package var phase = Phase.open
  var feed = Feed()
  /// The error with which the server refused the zone in this cycle.
  package var refusal: CloudError?
  /// How often its token was refused in this cycle.
  var tokenRefusals = 0
  package var lookups = LookupQueue()
  /// The listed records to fetch next.
  var listing: ListedRecords?
  /// Lookups of listed records that were refused.
  var listedRefused = RefusedLookups()
  /// Queries for its newest records, before it is fetched for the first time.
  var newest: NewestRecords?
  /// It may have children of deleted records to which the app's rule was not applied yet.
  var reviewsChildren = false
  /// It was found to be lost in this cycle.
  var isLossNoted = false

  /// Whether it is in its initial state, and need not be kept.
  var isAtRest: Bool {
    guard case .open = phase else { return false }
    return feed == Feed() && refusal == nil && tokenRefusals == 0 && lookups.isEmpty && listing == nil
      && listedRefused.refusals.isEmpty && newest == nil && !reviewsChildren && !isLossNoted
  }

  /// Whether it is to be created again.
  var isRecreating: Bool { if case .recreating = phase { true } else { false } }

  /// Whether the app wants it erased, and it was found to be that zone.
  var isToBeDeleted: Bool { if case .erasing(.deleting) = phase { true } else { false } }

  /// Whether it is not known if the server has the zone.
  package var isInQuestion: Bool {
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
    // `erasing` too: it may be one that the app has taken back.
    case .open, .tokenRefused, .erasing: refusal == nil
    case .missing, .recreating, .ending: false
    }
  }
}

/// The fetch of one zone, page by page.
package struct Feed: Hashable, Sendable {
  enum Start: Hashable, Sendable {
    case token
    /// From the zone's beginning, though it has a token; and whether the server has just accepted that token.
    case beginning(tokenWasTaken: Bool)
  }
  /// An upload waits for its end, so the zone is fetched even if the server has not named it as changed.
  var isAwaited = false
  var start = Start.token
  package var limit = SyncPlan.pageLimit
  /// Detects a feed that repeats itself.
  package var progress = FeedProgress()
  /// A pause, after a page that brought nothing new or a server that was busy.
  var rest: FeedRest?

  package init() {}

  /// Whether its next page may be asked for together with those of other zones: it is the first one since the zone's token.
  var isShareable: Bool { start == .token && limit == SyncPlan.pageLimit && progress == FeedProgress() }
}

/// A pause in the fetch of a zone.
package struct FeedRest: Hashable, Sendable {
  /// By the monotonic clock.
  var until: UInt64
  var error: CloudError

  /// Whether the server has named the time: a person cannot end it.
  var isServers: Bool { error.retryAfterMilliseconds ?? 0 > 0 }
}

/// Detects a feed in a loop: it promises more pages, and its token repeats, or its pages stay empty. Tokens are opaque, so they can
/// only be compared.
package struct FeedProgress: Hashable, Sendable {
  /// How many empty pages in a row are accepted: the live service was seen to send dozens.
  static let emptyPagesMax = 200

  /// The tokens of its pages so far.
  private var tokens: Set<ChangeToken> = []
  /// Pages in a row that were empty and said that more is to come.
  private var emptyPages = 0
  /// Pages in a row that brought nothing new.
  package private(set) var repeats = 0

  /// Counts a page.
  ///
  /// - Parameters:
  ///   - asked: the token in the request.
  ///   - token: the token in the answer.
  /// - Returns: the defect of the page; nil if its token is a new one, or the last one.
  package mutating func count(asked: ChangeToken?, token: ChangeToken, isEmpty: Bool, moreComing: Bool) -> String? {
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

  /// A request for pages of several zones brought none of this zone: its next page is asked for alone.
  mutating func noteUnanswered(_ asked: ChangeToken?) { if let asked { tokens.insert(asked) } }

  /// The server has no page for now.
  mutating func noteBusy() { repeats += 1 }

  /// It has answered a request for a page that is not of the feed.
  mutating func noteAnswered() { repeats = 0 }

  /// A person wants a cycle now: the count of empty pages begins again.
  mutating func forgetEmpty() { emptyPages = 0 }

  /// Whether a page with this token may lead on.
  func isNew(_ token: ChangeToken) -> Bool { !tokens.contains(token) }
}

/// The server has said that it does not have a zone.
package struct LossQuestion: Sendable {
  var error: CloudError
  /// The reason of the loss, if the list of all zones confirms it.
  var loss = ZoneLoss.notFound
  /// The requests that back off if the zone exists after all, for pages those of this zone only; nil for none.
  var kind: RequestKind?
}

/// The work that is left after the last page of a zone.
package struct Ending: Sendable {
  package enum Stage: Sendable {
    /// Records are looked up of which the feed showed older versions: a server that went back to an older state removes nothing.
    case older(Set<CloudName>)
    /// Children of deleted records are settled; then a proof that was begun before goes on.
    case children(AbsenceProof?)
    /// The store looks for the records that the feed has not shown.
    case finding
    /// Lookups prove which of these are gone.
    case absent(AbsenceProof)
  }
  /// Why the zone is compared with the server's list.
  package enum Cause: Sendable {
    /// Its feed has ended, perhaps with a sweep.
    case feed
    /// A person has asked whether both are the same.
    case audit
  }
  var stage: Stage
  var cause = Cause.feed
  /// The error with which lookups were refused in this cycle.
  package var refusal: CloudError?

  package init(stage: Stage, cause: Cause = .feed, refusal: CloudError? = nil) {
    self.stage = stage
    self.cause = cause
    self.refusal = refusal
  }

  /// This cycle does not go on with it.
  package var isPaused: Bool {
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

/// How far the engine has checked that a zone is still the one that the app wants erased.
package enum Erasure: Sendable {
  /// The server is asked whether it accepts the zone's token.
  case askingByToken
  /// Its feed is read from the beginning. If the token was refused, one of the records has to be known here.
  case readingFeed(Feed, from: ChangeToken?, tokenWasRefused: Bool)
  /// It is that zone.
  case deleting
}

/// Records of one zone that are to be looked up.
package struct LookupQueue: Sendable {
  package var names: Set<CloudName> = []
  /// Records whose lookups were refused, each alone, since the last lookup that was answered.
  var refused = RefusedLookups()

  package var isEmpty: Bool { names.isEmpty && refused.refusals.isEmpty }

  mutating func insert(_ name: CloudName) { names.insert(name) }
}
