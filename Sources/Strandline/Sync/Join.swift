// The default merge: a join of stamps, field by field. And how a version that arrived becomes comparable at all.
//
// A join is associative, commutative and idempotent, so all orders of delivery end alike. It makes no new stamp: the
// greater one wins together with its value. Two versions with equal values but different stamps join to the greater
// stamps, which may have to be sent once more and is nobody's conflict.

import StrandlineSystem

/// The default merge.
package enum Join {
  /// The join of two versions.
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

  /// The fields in which two versions differ, in value or stamp: what has to be sent to make the second into the first.
  package static func difference(_ version: Version, from base: Version) -> Set<String> {
    var names = Set(version.fields.keys).union(version.stamp.fields.keys)
    names.formUnion(base.fields.keys)
    names.formUnion(base.stamp.fields.keys)
    return names.filter {
      version.fields[$0] != base.fields[$0] || version.stamp.fields[$0] != base.stamp.fields[$0]
    }
  }
}

/// A server's version as this device understands it.
package struct Arrival: Sendable {
  package var version: Version
  package var system: SystemFields
  package var isStamped: Bool

  /// Reads a version as it came. A field whose checksum in the stamp does not match its value was written by another
  /// tool; one that equals the ancestor was not touched by it; any other is stamped with the server's modified time and
  /// nobody's name. Times from the future are clamped here, once.
  ///
  /// `knownBirths` are the lives that this log knows under the name and the same creation time.
  package init(_ server: ServerRecord, ancestor: Version?, knownBirths: Set<Birth>?) {
    var fields = server.fields
    var wire: WireStamp?
    if case .bytes(let bytes)? = fields.removeValue(forKey: Names.stampField) {
      // A stamp that cannot be read is no stamp: the version then merges by the server's time.
      wire = try? StampCodec.decode(bytes)
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
      version.stamp.births = [Birth(time: HybridTime(milliseconds: created), writer: 0)]
    }
    version.stamp.seen = wire?.seen ?? ancestor?.stamp.seen ?? [:]
    version.stamp.unknown = wire?.unknown ?? []
    // What another life held says nothing of this one: a field that only the old one had was removed by nobody.
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
    version.stamp.clamp(toModified: server.system.modified?.milliseconds)
    self.version = version
    self.system = server.system
    self.isStamped = wire != nil
  }
}
