// The engine's state of one zone, as phases. Without an entry, only the log says whether the zone has changed.
//
//                        refused token            the server does not have it
//             the server refuses it         the server does not have it
//   refused ◀───────────────────── open ───────────────────────▶ missing ──▶ lost (in the log), forgotten, or recreating
//                                  │  ▲                              │
//                        last page │  └────────── it exists ─────────┘
//                                  ▼
//   ending: older versions are looked up ▶ children are settled ▶ absent records are found, looked up and removed
//
// A zone that the app wants erased is `erasing`: the server is asked whether it is still that zone, then it is deleted there.
//
// The phase is of one cycle: the next one begins with `open`. A refused zone is left alone until then; the end of a fetch and the
// question of a missing zone keep their own refusal, as their answers may still arrive. What a cycle has to outlive is not a phase: how
// far the feed was read, and which records are to be looked up.

import StrandlineSystem

/// The engine's state of one zone.
package struct ZoneSync: Sendable {
  package enum Phase: Sendable {
    /// Its pages are fetched, if the log says that it has changed, or if an upload waits for its feed.
    case open
    /// The server has said that it does not have the zone: the list of all zones is fetched to confirm it.
    indirect case missing(LossQuestion, then: Phase)
    /// The server has lost the zone, and a person or a rule has chosen this store's side: it is created.
    case recreating
    /// The last page has been applied.
    case ending(Ending)
    /// The app wants the zone erased.
    case erasing(Erasure)
    /// The server has refused it, or this cycle has given it up.
    case refused(CloudError)

    /// The error with which the server refused the zone.
    var refusal: CloudError? {
      switch self {
      case .open, .recreating, .erasing: nil
      case .missing(_, let then): then.refusal
      case .ending(let ending): ending.zoneRefusal
      case .refused(let error): error
      }
    }

    /// The server has refused the zone.
    mutating func refuse(_ error: CloudError) {
      switch self {
      case .open, .recreating, .erasing, .refused: self = .refused(error)
      case .missing(let question, var then):
        then.refuse(error)
        self = .missing(question, then: then)
      case .ending(var ending):
        ending.refusal = .ofZone(error)
        self = .ending(ending)
      }
    }
  }

  package var phase = Phase.open
  var feed = Feed()
  package var lookups = LookupQueue()
  /// The listed records to fetch next.
  var listing: ListedRecords?
  /// It may have children of deleted records to which the app's rule was not applied yet.
  var reviewsChildren = false

  /// The work that is left after its last page; nil in any other phase, and then it cannot be set.
  package var ending: Ending? {
    get { if case .ending(let ending) = phase { ending } else { nil } }
    set { if let newValue, case .ending = phase { phase = .ending(newValue) } }
  }

  /// The proof that records are gone, while lookups are made for it; nil at any other time, and then it cannot be set.
  var proof: AbsenceProof? {
    get { if case .absent(let proof)? = ending?.stage { proof } else { nil } }
    set { if let newValue, proof != nil { ending?.stage = .absent(newValue) } }
  }

  /// Whether it is in its initial state, and need not be kept.
  var isAtRest: Bool {
    guard case .open = phase else { return false }
    return feed == Feed() && lookups.isEmpty && listing == nil && !reviewsChildren
  }

  /// The error with which the server refused the zone in this cycle.
  package var refusal: CloudError? { phase.refusal }

  /// The server has refused the zone: it is left alone until the next cycle.
  mutating func refuse(_ error: CloudError) { phase.refuse(error) }

  /// Whether it is to be created again.
  var isRecreating: Bool { if case .recreating = phase { true } else { false } }

  /// Whether the app wants it erased, and it was found to be that zone.
  var isToBeDeleted: Bool { if case .erasing(.deleting) = phase { true } else { false } }

  /// Whether it is not known if the server has the zone.
  package var isInQuestion: Bool {
    switch phase {
    case .missing, .recreating: true
    case .open, .ending, .erasing, .refused: false
    }
  }

  /// Whether its next page may be asked for together with those of other zones.
  var sharesRequests: Bool { if case .open = phase { feed.isShareable } else { false } }

  /// Whether a page may be asked for.
  var takesPages: Bool {
    switch phase {
    // `erasing` too: it may be one that the app has taken back.
    case .open, .erasing: true
    case .missing, .recreating, .ending, .refused: false
    }
  }
}

/// The fetch of one zone, page by page.
package struct Feed: Hashable, Sendable {
  enum Start: Hashable, Sendable {
    case token
    /// From the zone's beginning, though it has a token; and whether the server has just accepted that token.
    case beginning(tokenWasTaken: Bool)
    /// From the zone's beginning, because the server has refused its token. If it refuses that too, the token was not the cause.
    case tokenRefused

    /// A new cycle begins. What an earlier one heard of the token proves nothing now.
    mutating func beginCycle() {
      switch self {
      case .token, .tokenRefused: self = .token
      case .beginning: self = .beginning(tokenWasTaken: false)
      }
    }
  }
  /// An upload waits for its end, so the zone is fetched even if the server has not named it as changed.
  var isAwaited = false
  var start = Start.token
  package var limit = SyncPlan.pageLimit
  /// Detects a feed that repeats itself.
  package var progress = FeedProgress()
  /// A pause, after a page that brought nothing new or a server that was busy.
  var rest: FeedRest?
  /// Queries for the zone's newest records, before its first page.
  var newest: NewestRecords?

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
  /// What the server refused in this cycle.
  enum Refusal: Sendable {
    /// Lookups: uploads to the zone go on.
    case ofLookups(CloudError)
    /// Every request about the zone.
    case ofZone(CloudError)

    var error: CloudError {
      switch self {
      case .ofLookups(let error), .ofZone(let error): error
      }
    }
  }
  var stage: Stage
  var cause = Cause.feed
  var refusal: Refusal?

  package init(stage: Stage, cause: Cause = .feed) {
    self.stage = stage
    self.cause = cause
  }

  /// The server has refused the lookups that it needs.
  mutating func refuseLookups(_ error: CloudError) { if zoneRefusal == nil { refusal = .ofLookups(error) } }

  /// The error with which the server refused the zone or the lookups.
  package var refusedWith: CloudError? { refusal?.error }

  /// The error with which the server refused the zone, and not the lookups alone.
  var zoneRefusal: CloudError? { if case .ofZone(let error)? = refusal { error } else { nil } }

  /// This cycle does not go on with it.
  package var isPaused: Bool {
    if refusal != nil { return true }
    if case .absent(let proof) = stage { return proof.isPaused }
    return false
  }
  /// Why it is not over.
  var failure: CloudError? {
    if let refusedWith { return refusedWith }
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

  /// Whether a record is to be looked up.
  func has(_ name: CloudName) -> Bool { names.contains(name) || refused.names.contains(name) }
}
