// The default merge: field by field, the value with the greater stamp wins (a last-writer-wins map). Also makes stamps for versions
// that arrive without.
//
// The join is associative, commutative and idempotent, so every order of delivery gives the same result. It makes no new stamps. Two
// versions with equal values and different stamps join to the greater stamps; these may be sent once more, which is no conflict.

import StrandlineSystem

/// The default merge.
package enum Join {
  /// The join of two versions of one type. Versions of different types are different records and have no join.
  package static func join(_ left: Version, _ right: Version) -> Version {
    var result = right
    for name in Set(left.fields.keys).union(left.stamp.fields.keys) {
      guard let ours = left.stamp.fields[name] else { continue }
      guard let theirs = right.stamp.fields[name], theirs >= ours else {
        result.fields[name] = left.fields[name]
        result.stamp.fields[name] = ours
        continue
      }
    }
    result.stamp.births.formUnion(left.stamp.births)
    result.stamp.joinSeen(left.stamp.seen)
    return result
  }

  /// The fields in which a version differs from `base`, in value or stamp: those to send.
  package static func difference(_ version: Version, from base: Version) -> Set<String> {
    var names = Set(version.fields.keys).union(version.stamp.fields.keys)
    names.formUnion(base.fields.keys)
    names.formUnion(base.stamp.fields.keys)
    return names.filter {
      version.fields[$0] != base.fields[$0] || version.stamp.fields[$0] != base.stamp.fields[$0]
    }
  }
}

/// A version from the server with a stamp for each field.
package struct Arrival: Sendable {
  package var version: Version
  package var system: SystemFields
  package var isStamped: Bool
  /// The stamp itself has the birth that is made from the record's creation time (LifeNames.swift).
  package var isOfUnstampedLife = false
  /// The original stamps of fields whose times were in the future and were clamped.
  package var unclampedStamps: [String: FieldStamp] = [:]

  /// Reads a version. If a field's checksum in the stamp does not match its value, a client without stamps wrote the field: it keeps
  /// the ancestor's stamp if the value is the ancestor's, and otherwise gets the server's modified time and writer 0. Times in the
  /// future are clamped here, once.
  ///
  /// - Parameter knownBirths: the births that this log knows of the name's record with the same creation time.
  package init(_ server: ServerRecord, ancestor: Version?, knownBirths: Set<Birth>?) {
    var fields = server.fields
    var wire: WireStamp?
    if case .bytes(let bytes)? = fields.removeValue(forKey: Names.stampField) {
      // A version without a readable stamp merges by the server's time.
      wire = try? StampCodec.decode(bytes)
    }
    for (name, value) in fields where value.isListOfUnknownKind {
      fields[name] = value.emptyList(checksum: wire?.fields[name]?.1, like: ancestor?.fields[name])
    }
    if let parent = server.parent { fields[Version.parentField] = .reference(Reference(parent)) }
    let modified = server.system.modified?.milliseconds ?? server.system.created?.milliseconds ?? 0
    let foreign = FieldStamp(time: HybridTime(milliseconds: modified), writer: 0)

    var version = Version(type: server.type, fields: fields)
    if let births = wire?.births, !births.isEmpty {
      version.stamp.births = births
    } else if let knownBirths, !knownBirths.isEmpty {
      version.stamp.births = knownBirths
    } else {
      let created = server.system.created?.milliseconds ?? modified
      version.stamp.births = [FirstLife(created: created).unstamped]
    }
    if let created = server.system.created?.milliseconds {
      let first = FirstLife(created: created)
      isOfUnstampedLife = wire?.births.contains(first.unstamped) == true
      version.stamp.births = first.births(of: version.stamp.births, known: knownBirths ?? [])
    }
    version.stamp.seen = wire?.seen ?? ancestor?.stamp.seen ?? [:]
    version.stamp.unknown = wire?.unknown ?? []
    // A writer that has not seen the base may know the record by one of its lives alone, because a tool has dropped the stamp. Only a
    // writer that has seen it leaves a life out because that has ended.
    if wire != nil, let ancestor, !version.stamp.dominates(ancestor.stamp), let knownBirths,
      !knownBirths.isDisjoint(with: version.stamp.births)
    {
      version.stamp.births.formUnion(knownBirths)
    }
    // An ancestor that was another record of the name does not count: its fields were not removed from this one.
    let ancestor = ancestor.flatMap { $0.stamp.births.isDisjoint(with: version.stamp.births) ? nil : $0 }
    var names = Set(fields.keys)
    if let wire { names.formUnion(wire.fields.keys) }
    if let ancestor { names.formUnion(ancestor.fields.keys) }
    for name in names {
      let value = fields[name]
      if let (stamp, checksum) = wire?.fields[name], checksum == FieldCodec.checksum(value) {
        version.stamp.fields[name] = stamp
      } else if let ancestor, ancestor.fields[name] == value, let stamp = ancestor.stamp.fields[name] {
        version.stamp.fields[name] = stamp
      } else if value != nil || ancestor?.fields[name] != nil || wire?.fields[name] != nil {
        version.stamp.fields[name] = foreign
      }
    }
    unclampedStamps = version.stamp.clamp(toModified: server.system.modified?.milliseconds)
    self.version = version
    self.system = server.system
    self.isStamped = wire != nil
  }
}

extension FieldValue {
  /// Whether it is an empty list of which the server does not say of what it is one: CloudKit's framework never says it.
  fileprivate var isListOfUnknownKind: Bool {
    switch self {
    case .list(.unknown, _): true
    case .encrypted(let inner): inner.isListOfUnknownKind
    default: false
    }
  }

  /// Such a list as what its writer meant, which the checksum in the stamp tells; else as what this store has in the field. If neither
  /// is known it stays what it is.
  fileprivate func emptyList(checksum: UInt32?, like known: FieldValue?) -> FieldValue {
    if case .encrypted(let inner) = self {
      var within: FieldValue?
      if case .encrypted(let value)? = known { within = value }
      return .encrypted(inner.emptyList(checksum: checksum, like: within, isEncrypted: true))
    }
    return emptyList(checksum: checksum, like: known, isEncrypted: false)
  }

  private func emptyList(checksum: UInt32?, like known: FieldValue?, isEncrypted: Bool) -> FieldValue {
    for kind in ListKind.allCases where kind != .unknown {
      let list = FieldValue.list(kind, [])
      if checksum == FieldCodec.checksum(isEncrypted ? .encrypted(list) : list) { return list }
    }
    if case .list(let kind, _)? = known { return .list(kind, []) }
    return self
  }
}
