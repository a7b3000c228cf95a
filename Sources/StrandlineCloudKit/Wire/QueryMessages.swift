// The request and the reply of records/query.

package import Strandline
package import StrandlineJSON

/// POST records/query.
package struct QueryRequest: WireMessage {
  /// A condition.
  package struct Filter: WireMessage {
    package var comparator: String
    package var fieldName: String?
    package var systemFieldName: String?
    package var fieldValue: FieldValue?
    /// With NEAR: metres.
    package var distance: Double?

    private enum Key: Int, WireKey {
      case comparator, fieldName, systemFieldName, fieldValue, distance
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      comparator = ""
      var comparator: String?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .comparator: comparator = try json.optional()
        case .fieldName: fieldName = try json.optional()
        case .systemFieldName: systemFieldName = try json.optional()
        case .fieldValue: fieldValue = try json.skipNull() ? nil : try WireField.read(&json, from: .client)
        case .distance: distance = try WireField.number(&json)
        }
      }
      guard let comparator else { throw json.missing("comparator") }
      self.comparator = comparator
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("comparator", comparator)
      json.member("fieldName", fieldName)
      if let fieldValue {
        json.key("fieldValue")
        WireField.write(fieldValue, to: &json, .wire)
      }
      json.member("systemFieldName", systemFieldName)
      json.endObject()
    }
  }

  /// An order.
  package struct Sort: WireMessage {
    package var fieldName: String?
    package var systemFieldName: String?
    package var ascending: Bool?
    /// The place from which records are ordered by their distance.
    package var relativeLocation: Location?

    package init(systemFieldName: String, ascending: Bool) {
      self.systemFieldName = systemFieldName
      self.ascending = ascending
    }

    private enum Key: Int, WireKey {
      case fieldName, systemFieldName, ascending, relativeLocation
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .fieldName: fieldName = try json.optional()
        case .systemFieldName: systemFieldName = try json.optional()
        case .ascending: ascending = try json.optional()
        case .relativeLocation: relativeLocation = try WireField.place(&json)
        }
      }
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      json.member("ascending", ascending)
      json.member("fieldName", fieldName)
      json.member("systemFieldName", systemFieldName)
      json.endObject()
    }
  }

  /// What is asked for.
  package struct Query: WireMessage {
    package var recordType: String
    package var filterBy: [Filter]
    package var sortBy: [Sort]

    package init(recordType: String, sortBy: [Sort]) {
      self.recordType = recordType
      filterBy = []
      self.sortBy = sortBy
    }

    private enum Key: Int, WireKey {
      case recordType, filterBy, sortBy
      static let names = JSONKeys(Key.self)
    }

    package init(_ json: inout JSONReader) throws(JSONError) {
      self.init(recordType: "", sortBy: [])
      var recordType: String?
      try json.object(Key.self) { key, json throws(JSONError) in
        switch key {
        case .recordType: recordType = try json.optional()
        // Apple's reference shows lists, and calls each of them a dictionary: one object is a list of one.
        case .filterBy: filterBy = try Self.list(&json)
        case .sortBy: sortBy = try Self.list(&json)
        }
      }
      guard let recordType else { throw json.missing("recordType") }
      self.recordType = recordType
    }

    private static func list<Item: WireMessage>(_ json: inout JSONReader) throws(JSONError) -> [Item] {
      if try json.skipNull() { return [] }
      return try json.kind() == .object ? [try Item(&json)] : try [Item](&json)
    }

    package func write(into json: inout JSONWriter) {
      json.beginObject()
      if !filterBy.isEmpty { json.member("filterBy", filterBy) }
      json.member("recordType", recordType)
      if !sortBy.isEmpty { json.member("sortBy", sortBy) }
      json.endObject()
    }
  }

  package var zoneID: WireZoneID?
  package var query: Query
  package var desiredKeys: [String]?
  package var resultsLimit: Int?
  package var continuationMarker: String?
  package var numbersAsStrings: Bool?
  package var zoneWide: Bool?

  package init(zoneID: WireZoneID?, query: Query, resultsLimit: Int?, continuationMarker: String?) {
    self.zoneID = zoneID
    self.query = query
    self.resultsLimit = resultsLimit
    self.continuationMarker = continuationMarker
  }

  private enum Key: Int, WireKey {
    case zoneID, query, desiredKeys, resultsLimit, continuationMarker, numbersAsStrings, zoneWide
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(
      zoneID: nil, query: Query(recordType: "", sortBy: []), resultsLimit: nil, continuationMarker: nil)
    var query: Query?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneID: zoneID = try json.optional()
      case .query: query = try json.optional()
      case .desiredKeys: desiredKeys = try json.optional()
      case .resultsLimit: resultsLimit = try json.optional()
      case .continuationMarker: continuationMarker = try json.optional()
      case .numbersAsStrings: numbersAsStrings = try json.optional()
      case .zoneWide: zoneWide = try json.optional()
      }
    }
    guard let query else { throw json.missing("query") }
    self.query = query
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("continuationMarker", continuationMarker)
    json.member("desiredKeys", desiredKeys)
    json.member("numbersAsStrings", numbersAsStrings)
    json.member("query", query)
    json.member("resultsLimit", resultsLimit)
    json.member("zoneID", zoneID)
    json.member("zoneWide", zoneWide)
    json.endObject()
  }
}

/// What records/query answers.
package struct QueryReply: WireMessage {
  package var records: [WireRecord]
  /// There is more.
  package var continuationMarker: String?

  private enum Key: Int, WireKey {
    case records, continuationMarker
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.records = []
    var records: [WireRecord]?
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .records: records = try [WireRecord](&json)
      case .continuationMarker: continuationMarker = try json.optional()
      }
    }
    guard let records else { throw json.missing("records") }
    self.records = records
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("continuationMarker", continuationMarker)
    json.member("records", records)
    json.endObject()
  }
}
