// The references that bind records, and by target which records refer to it.
//
// A save costs what the record has of them and what it changes, never what others have: the index says of each record how it
// refers to a target, so that nobody looks through the references of another record, and it counts those with DELETE_SELF.

internal import Strandline

/// A reference that binds two records: DELETE_SELF or VALIDATE.
struct RecordLink: Hashable, Sendable {
  var field: String
  var target: CloudName
  var action: Reference.Action
}

/// How a record refers to another one.
struct LinkActions: OptionSet, Sendable {
  let rawValue: UInt8
  static let deleteSelf = LinkActions(rawValue: 1)
  static let validate = LinkActions(rawValue: 2)
}

/// What a new version of a record changes in how it refers to one target.
private struct LinkChange {
  var target: CloudName
  var before: LinkActions
  var after: LinkActions

  /// The number of records that refer to the target with DELETE_SELF becomes so much larger.
  var deleteSelfCount: Int { (after.contains(.deleteSelf) ? 1 : 0) - (before.contains(.deleteSelf) ? 1 : 0) }

  static func all(from old: [RecordLink], to new: [RecordLink]) -> [LinkChange] {
    if old.elementsEqual(new, by: { $0.target == $1.target && $0.action == $1.action }) { return [] }
    var targets: [CloudName: LinkChange] = [:]
    for link in old {
      targets[link.target, default: LinkChange(target: link.target, before: [], after: [])].before.formUnion(
        link.actions)
    }
    for link in new {
      targets[link.target, default: LinkChange(target: link.target, before: [], after: [])].after.formUnion(
        link.actions)
    }
    return targets.values.filter { $0.before != $0.after }
  }
}

extension RecordLink {
  fileprivate var actions: LinkActions {
    switch action {
    case .deleteSelf: .deleteSelf
    case .validate: .validate
    case .none: []
    }
  }
}

/// By target: the records that refer to it.
struct LinkIndex: Sendable {
  struct Sources: Sendable {
    fileprivate(set) var actions: [CloudName: LinkActions] = [:]
    /// How many of them refer to it with DELETE_SELF.
    fileprivate(set) var deleteSelfCount = 0
  }
  private var targets: [CloudName: Sources] = [:]

  subscript(_ target: CloudName) -> Sources? { targets[target] }

  /// A record has other references than before.
  mutating func change(_ source: CloudName, from old: [RecordLink], to new: [RecordLink]) {
    for change in LinkChange.all(from: old, to: new) {
      targets[change.target, default: Sources()].deleteSelfCount += change.deleteSelfCount
      targets[change.target]?.actions[source] = change.after.isEmpty ? nil : change.after
      if targets[change.target]?.actions.isEmpty == true { targets[change.target] = nil }
    }
  }
}

/// The index of a zone as a request would leave it.
struct LinkDraft: Sendable {
  private let base: LinkIndex
  /// By target and source: how the source refers to it after the request. Empty: not any more.
  private var changed: [CloudName: [CloudName: LinkActions]] = [:]
  private var deleteSelfCounts: [CloudName: Int] = [:]
  /// How many references it has looked at.
  private(set) var looked = 0

  init(_ base: LinkIndex) { self.base = base }

  /// The records that refer to a target with an action, in the order of their names.
  mutating func sources(of target: CloudName, _ action: LinkActions) -> [CloudName] {
    let before = base[target]?.actions ?? [:]
    let changed = changed[target] ?? [:]
    looked += before.count + changed.count
    var names: [CloudName] = []
    for (name, actions) in before where actions.contains(action) && changed[name] == nil { names.append(name) }
    for (name, actions) in changed where actions.contains(action) { names.append(name) }
    return names.sorted()
  }

  /// The first record, by name, that referred to a target with an action before the request, without those that the request
  /// changes.
  mutating func firstSource(
    of target: CloudName, _ action: LinkActions, butNot isChanged: (CloudName) -> Bool
  ) -> CloudName? {
    let before = base[target]?.actions ?? [:]
    looked += before.count
    var first: CloudName?
    for (name, actions) in before where actions.contains(action) && !isChanged(name) {
      if let least = first, least < name { continue }
      first = name
    }
    return first
  }

  /// A record has other references than before.
  ///
  /// - Parameter limit: the most records that may refer to one target with DELETE_SELF.
  /// - Returns: a target that has as many already, in which case nothing changes; nil if there is none.
  mutating func change(
    _ source: CloudName, from old: [RecordLink], to new: [RecordLink], limit: Int = .max
  ) -> CloudName? {
    looked += old.count + new.count
    let changes = LinkChange.all(from: old, to: new)
    let full = changes.filter { $0.deleteSelfCount > 0 && deleteSelfCount(of: $0.target) >= limit }
    if let first = full.map(\.target).min() { return first }
    for change in changes {
      changed[change.target, default: [:]][source] = change.after
      deleteSelfCounts[change.target, default: 0] += change.deleteSelfCount
    }
    return nil
  }

  private func deleteSelfCount(of target: CloudName) -> Int {
    (base[target]?.deleteSelfCount ?? 0) + (deleteSelfCounts[target] ?? 0)
  }
}
