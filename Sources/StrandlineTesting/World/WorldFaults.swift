// Which kinds of faults a simulated world may have, and how often each case occurred.

/// Groups of faults that a simulated world may have. Each world draws from its seed which of them it has, half of them on
/// average, because a world in which everything fails at once never gets far.
///
/// `all` has further groups, with which the library proves its own promises; the command of a failure names them.
public struct WorldFaults: OptionSet, Hashable, Sendable, CustomStringConvertible {
  /// One bit a group.
  public let rawValue: UInt32
  /// A set of groups by their bits.
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// Requests and answers that are lost, delivered twice or late, and devices without a network.
  public static let network = WorldFaults(rawValue: 1 << 0)
  /// Power cuts, also in the middle of a sync and of a write.
  public static let power = WorldFaults(rawValue: 1 << 1)
  /// Clocks that are off by up to years, and that are turned.
  public static let clocks = WorldFaults(rawValue: 1 << 2)
  /// Single records that the server refuses for a while, with every code.
  public static let refusals = WorldFaults(rawValue: 1 << 3)
  /// A quota that is used up for a while.
  public static let quota = WorldFaults(rawValue: 1 << 4)
  /// Change tokens that expire.
  public static let tokens = WorldFaults(rawValue: 1 << 5)
  /// Zones that are deleted, and made anew later.
  public static let zones = WorldFaults(rawValue: 1 << 6)
  /// Other tools that write and delete at the server, without a stamp or with a meaningless one.
  public static let foreign = WorldFaults(rawValue: 1 << 7)
  /// References of every kind between records, and parents.
  package static let references = WorldFaults(rawValue: 1 << 8)
  /// Records that are deleted and created again in one transaction, also with another record type.
  package static let types = WorldFaults(rawValue: 1 << 9)
  /// Disks that are copied to another device, and disks that are put back to an earlier state.
  package static let copies = WorldFaults(rawValue: 1 << 10)
  /// Pages that show records as they were before their deletion, and answers about changes that were given before.
  package static let stale = WorldFaults(rawValue: 1 << 11)
  /// Compactions, also in the middle of a sync.
  public static let compaction = WorldFaults(rawValue: 1 << 12)
  /// Writes of the app in the middle of a sync, after an answer has come and before the engine gets it.
  public static let app = WorldFaults(rawValue: 1 << 13)

  /// A server that is busy, and says how long or does not.
  public static let busy = WorldFaults(rawValue: 1 << 14)

  /// Syncs that no person has asked for: what was refused, or waits, is not tried before its time. In a world without it every
  /// sync is one that a person wants.
  package static let automatic = WorldFaults(rawValue: 1 << 15)
  /// Zones of which the server refuses every change for a while.
  package static let rights = WorldFaults(rawValue: 1 << 16)
  /// Disks that are full for a while.
  public static let space = WorldFaults(rawValue: 1 << 17)
  /// Changes that several devices make alike: the same increment, the same item of a set, the same number.
  package static let equal = WorldFaults(rawValue: 1 << 18)
  /// A server of two nodes, one of which is late by its clock: its times go back from request to request.
  package static let nodes = WorldFaults(rawValue: 1 << 19)
  /// Zones that are deleted and made again, or emptied by a device, between two polls of the others.
  package static let remade = WorldFaults(rawValue: 1 << 20)
  /// Feeds from the beginning that leave records out, and deletions that the server does not find although the record lives.
  package static let omissions = WorldFaults(rawValue: 1 << 21)
  /// Zones and records whose names Unicode calls equal, most of them made by another tool.
  package static let names = WorldFaults(rawValue: 1 << 22)
  /// Values that an app read steps ago, and saves with what a person has changed in them since.
  package static let screens = WorldFaults(rawValue: 1 << 23)

  /// Zones with as many records as the engine removes without a question, or some more, that are emptied or made again.
  package static let crowds = WorldFaults(rawValue: 1 << 24)
  /// Other processes that read a device's store, also in the middle of a write or a sync.
  package static let readers = WorldFaults(rawValue: 1 << 25)
  /// Folders of stores that a person moves, or in whose place an older copy is put, while an app has them open.
  package static let moves = WorldFaults(rawValue: 1 << 26)
  /// Defaults that every device saves, edits and deletes, often before it has fetched what the others have of them.
  package static let defaults = WorldFaults(rawValue: 1 << 27)

  /// Every group.
  public static let all: WorldFaults = WorldFaults(groups.map(\.group))

  /// Groups that draw from random numbers of their own: they were added when seeds had become famous by what the others do.
  package static let later: WorldFaults = [.automatic, .rights, .space]
  /// The same, each from its own: one more changes nothing of the others.
  package static let alone: WorldFaults = [
    .equal, .nodes, .remade, .omissions, .names, .screens, .crowds, .readers, .moves, .defaults,
  ]

  private static let groups: [(name: String, group: WorldFaults)] = [
    ("network", .network), ("power", .power), ("clocks", .clocks), ("refusals", .refusals), ("quota", .quota),
    ("tokens", .tokens), ("zones", .zones), ("foreign", .foreign), ("references", .references), ("types", .types),
    ("copies", .copies), ("stale", .stale), ("compaction", .compaction), ("app", .app),
    ("busy", .busy), ("automatic", .automatic), ("rights", .rights), ("space", .space),
    ("equal", .equal), ("nodes", .nodes),
    ("remade", .remade), ("omissions", .omissions),
    ("names", .names),
    ("screens", .screens), ("crowds", .crowds), ("readers", .readers), ("moves", .moves),
    ("defaults", .defaults),
  ]

  /// The groups one by one, in a fixed order.
  package static var each: [WorldFaults] { groups.map(\.group) }

  /// Reads names with commas between them: "network,power", "all" or "none". Nil if a name is not that of a group.
  package init?(names: String) {
    if names == "all" {
      self = .all
      return
    }
    self = []
    if names == "none" { return }
    for name in names.split(separator: ",", omittingEmptySubsequences: false) {
      guard let found = Self.groups.first(where: { $0.name == name }) else { return nil }
      insert(found.group)
    }
  }

  /// The names of the groups, with commas between them; "all" or "none".
  public var description: String {
    if self == .all { return "all" }
    if isEmpty { return "none" }
    return Self.groups.filter { contains($0.group) }.map(\.name).joined(separator: ",")
  }
}

/// A case that a campaign of worlds must have met to have tested it.
package enum WorldCase: String, Hashable, Sendable, CaseIterable {
  /// An app's transaction that was acknowledged.
  case write
  /// A record that an app deleted.
  case delete
  /// A deleted record that a person had back as it was.
  case restoredRecord
  /// A record that an app deleted and created again in one transaction.
  case recreate
  /// A transaction of several records.
  case together
  /// A sync that returned.
  case sync
  /// A sync that threw.
  case failedSync
  /// A mutation that the server acknowledged.
  case uploaded
  /// A version or deletion that was fetched and applied.
  case fetched
  /// A conflict that was merged.
  case merged
  /// An upload whose answer was lost, and that was recognized as the device's own.
  case recognized
  /// A version that was not applied, or an edit that was given up.
  case blocked
  /// A request that was lost on its way.
  case lostRequest
  /// An answer that was lost, after the server had done what was asked.
  case lostAnswer
  /// A request that the server got twice.
  case duplicate
  /// A request that came late.
  case delay
  /// A request that a device without a network wanted to send.
  case offline
  /// A request that was refused because the server was busy.
  case throttled
  /// A power cut between two syncs.
  case powerCut
  /// A power cut inside a sync.
  case powerCutInSync
  /// A power cut inside a write.
  case powerCutInWrite
  /// A clock that was turned.
  case turnedClock
  /// A refusal of a single record.
  case refusal
  /// A time in which the quota was used up.
  case fullQuota
  /// Tokens that expired.
  case expiredTokens
  /// A zone that was deleted at the server.
  case deletedZone
  /// A lost zone that a person let a device sync again.
  case resumedZone
  /// A record that another tool wrote without a stamp.
  case foreignWrite
  /// A record that another tool gave a meaningless stamp.
  case garbageStamp
  /// A record that another tool deleted.
  case foreignDelete
  /// A reference or a parent that an app wrote.
  case reference
  /// A name that was created again with another record type.
  case retype
  /// A device that began with a copy of another one's disk.
  case copy
  /// A disk that was put back to an earlier state.
  case restore
  /// A stale page.
  case stalePage
  /// An answer about a zone's changes that had been given before.
  case oldAnswer
  /// A compaction between two syncs.
  case compaction
  /// A compaction inside a sync.
  case compactionInSync
  /// An app's write inside a sync.
  case writeInSync
  /// A sync that no person has asked for.
  case automaticSync
  /// A request that the server refused because of its zone.
  case deniedRequest
  /// A write, a sync or a compaction that met a full disk.
  case fullDisk
  /// A record under a name that Unicode calls equal to another one, or in such a zone, made by another tool.
  case equalName
  /// A zone that was deleted and made again at once.
  case remadeZone
  /// A zone of which a device deleted every record that it saw.
  case emptiedZone
  /// A feed from the beginning that left records out.
  case omittedRecords
  /// A comparison with the server after such a feed.
  case verifiedZone
  /// A change that other devices make too.
  case equalWrite
  /// A request that reached another node of the server than the one before.
  case otherNode
  /// A save of a value that was read some steps before.
  case screenSave
  /// A zone that another tool filled with as many records as the engine removes without a question, or some more.
  case crowd
  /// A reader in another process that was opened right after a write.
  case otherReader
  /// A reader in another process that was brought up to date between two steps.
  case refreshedReader
  /// A reader in another process that was opened or brought up to date in the middle of a write or a sync.
  case readerMeanwhile
  /// A store whose folder was moved between two steps while it was open.
  case movedFolder
  /// A store whose folder was moved in the middle of a write or a sync.
  case movedFolderMeanwhile
  /// An older copy that was put in the place of an open store, which was moved away.
  case replacedFolder
  /// Another store that was put in the place of an open one, which was moved away.
  case otherStoreInPlace
  /// An open store that was removed.
  case removedFolder
  /// An older copy that was put over the files of an open store, or into its emptied folder.
  case refilledFolder
  /// An open store whose disk was mounted again.
  case remountedFolder
  /// A power cut soon after the folder of an open store was moved.
  case powerCutAfterMove
  /// A write or a sync that was refused because the store's folder was moved in the middle of it.
  case refusedAfterMove
  /// A default that an app saved.
  case savedDefault
  /// A default that an app wanted to save, and that its store knew to be there, or deleted.
  case knownDefault
  /// A default in which a person changed something.
  case editedDefault

  /// The groups of which one must be on for the case to occur; empty if it occurs without faults.
  package var faults: WorldFaults {
    switch self {
    case .write, .delete, .restoredRecord, .together, .sync, .uploaded, .fetched, .merged, .otherReader: []
    case .failedSync: [.network, .busy]
    case .lostRequest, .lostAnswer, .duplicate, .delay, .offline: .network
    case .throttled: .busy
    case .recognized: .network
    case .blocked: []
    case .powerCut, .powerCutInSync, .powerCutInWrite: .power
    case .turnedClock: .clocks
    case .refusal: .refusals
    case .fullQuota: .quota
    case .expiredTokens: .tokens
    case .deletedZone, .resumedZone: .zones
    case .foreignWrite, .garbageStamp, .foreignDelete: .foreign
    case .reference: .references
    case .recreate, .retype: .types
    case .copy, .restore: .copies
    case .stalePage, .oldAnswer: .stale
    case .compaction: .compaction
    case .compactionInSync: .compaction
    case .writeInSync: .app
    case .automaticSync: .automatic
    case .deniedRequest: .rights
    case .fullDisk: .space
    case .equalName: .names
    case .remadeZone, .emptiedZone: .remade
    case .omittedRecords, .verifiedZone: .omissions
    case .equalWrite: .equal
    case .otherNode: .nodes
    case .screenSave: .screens
    case .crowd: .crowds
    case .refreshedReader, .readerMeanwhile: .readers
    case .movedFolder, .movedFolderMeanwhile, .replacedFolder, .otherStoreInPlace, .removedFolder, .refilledFolder,
      .remountedFolder, .powerCutAfterMove, .refusedAfterMove:
      .moves
    case .savedDefault, .knownDefault, .editedDefault: .defaults
    }
  }
}

/// How often each case occurred.
package struct WorldTally: Hashable, Sendable, CustomStringConvertible {
  private var counts: [WorldCase: Int] = [:]
  /// Steps that were taken.
  package var steps = 0
  /// Requests that the devices sent.
  package var requests = 0
  /// The most requests that one sync sent.
  package var requestsMax = 0
  /// Milliseconds that passed in the worlds, times the number of devices.
  package var deviceMilliseconds: Int64 = 0
  /// A tally of nothing.
  package init() {}

  /// How often a case occurred.
  package internal(set) subscript(what: WorldCase) -> Int {
    get { counts[what] ?? 0 }
    set { counts[what] = newValue }
  }

  /// Adds the counts of another world.
  package mutating func add(_ other: WorldTally) {
    for (what, count) in other.counts { counts[what, default: 0] += count }
    steps += other.steps
    requests += other.requests
    requestsMax = max(requestsMax, other.requestsMax)
    deviceMilliseconds += other.deviceMilliseconds
  }

  /// The cases that worlds with these faults should have met, and that never occurred.
  package func missing(with faults: WorldFaults) -> [WorldCase] {
    WorldCase.allCases.filter { self[$0] == 0 && ($0.faults.isEmpty || !$0.faults.isDisjoint(with: faults)) }
  }

  /// Every case that occurred and its count, in the order of the cases.
  package var description: String {
    var words = ["\(steps) steps", "\(requests) requests"]
    words += WorldCase.allCases.filter { self[$0] > 0 }.map { "\($0.rawValue) \(self[$0])" }
    return words.joined(separator: ", ")
  }
}
