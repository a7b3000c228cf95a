// An index that an app declares: which records it has and in which order. It makes queries faster and never changes what
// they answer.

/// An index on a field of the records of a type, kept on this device.
///
/// A query uses an index for a condition that names one value, several, a range or a beginning, for a condition on the
/// items of a list, and for its first sort, if the index has that direction. `StoreView/explain(_:)` says which one a
/// query uses, and which one would help.
public struct RecordIndex: Hashable, Sendable, CustomStringConvertible {
  /// The records' type.
  public let recordType: String
  /// What the records are ordered by: one field, or none for all records of the type in the order of zone and name.
  public let fields: [RecordSort]

  /// An index on a field. A query that sorts by the field in the other direction cannot use it for its order.
  public init(_ recordType: String, _ field: String, ascending: Bool = true) {
    self.recordType = recordType
    fields = [RecordSort(field, ascending: ascending)]
  }

  /// An index of a type's records in the order of zone and name: for queries without conditions, of a type that few
  /// records of a store have.
  public init(_ recordType: String) {
    self.recordType = recordType
    fields = []
  }

  package init(_ recordType: String, fields: [RecordSort]) {
    self.recordType = recordType
    self.fields = fields
  }

  /// `Note(made descending)`.
  public var description: String {
    "\(recordType)(\(fields.map(\.description).joined(separator: ", ")))".oneLine
  }
}

/// A declared index, and whether queries can use it yet.
public struct RecordIndexStatus: Hashable, Sendable, CustomStringConvertible {
  /// The index.
  public var index: RecordIndex
  /// Whether it is built: queries use it. Until then they read all records of the type.
  public var isReady: Bool

  package init(index: RecordIndex, isReady: Bool) {
    self.index = index
    self.isReady = isReady
  }

  /// The index, and whether it is ready.
  public var description: String { "\(index) \(isReady ? "ready" : "building")" }
}
