// One-line descriptions of a cloud database's values, without the values of fields.

extension CloudError.Code: CustomStringConvertible {
  /// The code as the server spells it.
  public var description: String { rawValue.oneLine }
}

extension CloudAddress: CustomStringConvertible {
  /// Container, environment and database.
  public var description: String { "\(container) \(environment) \(scope)".oneLine }
}

extension ServerRecord: CustomStringConvertible {
  /// Type, name, the number of fields, and the system fields.
  public var description: String {
    "\(type) '\(name)', \(String.count(fields.count, "field")), \(system)".oneLine
  }
}

extension CloudOperation: CustomStringConvertible {
  /// The verb, the record, and how many fields it writes.
  public var description: String {
    let parts = [
      "\(kind) '\(name)'", type.isEmpty ? nil : type, changeTag.map { "tag '\($0)'" },
      fields.isEmpty ? nil : String.count(fields.count, "field"),
    ]
    return parts.compactMap { $0 }.joined(separator: ", ").oneLine
  }
}

extension CloudResult: CustomStringConvertible {
  /// The record, "deleted", or the refusal.
  public var description: String {
    switch self {
    case .record(let record): "\(record)"
    case .deleted: "deleted"
    case .failed(let error, _): "\(error)"
    }
  }
}

extension ZoneQuery: CustomStringConvertible {
  /// The zone, the beginning and the greatest size of the page.
  public var description: String {
    "\(zone) from \(token == nil ? "the beginning" : "a token"), \(String.count(limit, "change")) at most".oneLine
  }
}

extension ZonePage: CustomStringConvertible {
  /// The number of changes, and whether more pages follow.
  public var description: String { String.count(changes.count, "change") + (moreComing ? ", more to come" : "") }
}

extension ZoneChange: CustomStringConvertible {
  /// The record, its deletion or its error.
  public var description: String {
    switch self {
    case .saved(let record): "\(record)"
    case .deleted(let name): "'\(name)' deleted".oneLine
    case .failed(let name, let error): "'\(name)': \(error)".oneLine
    }
  }
}

extension NewestPage: CustomStringConvertible {
  /// The number of records, and whether more pages follow.
  public var description: String {
    String.count(records.count, "record") + (marker == nil ? "" : ", more to come")
  }
}

extension DatabasePage: CustomStringConvertible {
  /// The zones that changed, and whether more pages follow.
  public var description: String {
    String.count(zones.count, "zone") + (zones.isEmpty ? "" : ": ")
      + zones.map { "\($0)" }.joined(separator: ", ") + (moreComing ? ", more to come" : "")
  }
}

extension DatabasePage.Zone: CustomStringConvertible {
  /// The zone, and why it is gone if it is.
  public var description: String { "\(id)\(loss.map { " (gone: \($0))" } ?? "")".oneLine }
}
