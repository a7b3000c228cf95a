// The one spelling of the zones that references name. A record is compared, stamped and stored in this form alone, on its
// way from the app as on its way from the server: else the same reference would count as two values.

import StrandlineSystem

extension FieldValue {
  /// Whether a reference in it names its target's zone.
  package var namesZone: Bool {
    switch self {
    case .reference(let reference): reference.zone != nil
    case .list(.references, _): references.contains { $0.zone != nil }
    default: false
    }
  }

  /// The value with the zones of its references as the model has them: nil for the record's own zone, else with the
  /// record's scope, and with an owner in the shared database alone. In the others every zone is the user's own,
  /// whatever owner the server names.
  package func relative(to zone: ZoneID) -> FieldValue {
    switch self {
    case .reference(let reference): return .reference(reference.relative(to: zone))
    case .list(.references, let items): return .list(.references, items.map { $0.relative(to: zone) })
    default: return self
    }
  }
}

extension Reference {
  fileprivate func relative(to own: ZoneID) -> Reference {
    guard let zone else { return self }
    var result = self
    let absolute = ZoneID(zone.name, owner: own.scope == .shared ? zone.owner : "", scope: own.scope)
    result.zone =
      absolute.name.equalsUTF8(own.name)
        && (own.scope != .shared || absolute.owner.equalsUTF8(own.owner) || zone.owner.isEmpty)
      ? nil : absolute
    return result
  }
}
