// The requests and replies of the endpoints for assets, and what the content host answers to an upload.

package import Strandline
package import StrandlineJSON

/// A field of a record for which a content is to be uploaded, or that has one.
package struct WireAssetField: WireMessage {
  package var recordName: String?
  package var recordType: String?
  package var fieldName: String
  /// Of a reply: where the content goes.
  package var url: String?

  package init(recordName: String?, recordType: String? = nil, fieldName: String, url: String? = nil) {
    self.recordName = recordName
    self.recordType = recordType
    self.fieldName = fieldName
    self.url = url
  }

  private enum Key: Int, WireKey {
    case recordName, recordType, fieldName, url
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var fieldName: String?
    self.init(recordName: nil, fieldName: "")
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .recordName: recordName = try json.optional()
      case .recordType: recordType = try json.optional()
      case .fieldName: fieldName = try json.optional()
      case .url: url = try json.optional()
      }
    }
    guard let fieldName else { throw json.missing("fieldName") }
    self.fieldName = fieldName
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("fieldName", fieldName)
    json.member("recordName", recordName)
    json.member("recordType", recordType)
    json.member("url", url)
    json.endObject()
  }
}

/// POST assets/upload and its reply.
package struct AssetTokens: WireMessage {
  package var zoneID: WireZoneID?
  package var tokens: [WireAssetField]

  package init(zoneID: WireZoneID? = nil, tokens: [WireAssetField]) {
    self.zoneID = zoneID
    self.tokens = tokens
  }

  private enum Key: Int, WireKey {
    case zoneID, tokens
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(tokens: [])
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneID: zoneID = try json.optional()
      case .tokens: tokens = try json.optional() ?? []
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("tokens", tokens)
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// POST assets/rereference.
package struct RereferenceRequest: WireMessage {
  package var zoneID: WireZoneID?
  package var assets: [WireAssetField]

  package init(zoneID: WireZoneID? = nil, assets: [WireAssetField]) {
    self.zoneID = zoneID
    self.assets = assets
  }

  private enum Key: Int, WireKey {
    case zoneID, assets
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    self.init(assets: [])
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .zoneID: zoneID = try json.optional()
      case .assets: assets = try json.optional() ?? []
      }
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("assets", assets)
    json.member("zoneID", zoneID)
    json.endObject()
  }
}

/// A file as the content host and assets/rereference name it: the value that a field gets.
package struct WireFile: WireMessage {
  package var asset: Asset

  package init(_ asset: Asset) { self.asset = asset }

  package init(_ json: inout JSONReader) throws(JSONError) { asset = try WireField.asset(&json) }

  package func write(into json: inout JSONWriter) { WireField.write(asset, to: &json) }
}

/// The content host's answer to an upload.
package struct UploadedFile: WireMessage {
  package var singleFile: WireFile

  package init(_ asset: Asset) { singleFile = WireFile(asset) }

  private enum Key: Int, WireKey {
    case singleFile
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var file: WireFile?
    try json.object(Key.self) { _, json throws(JSONError) in file = try json.optional() }
    guard let file else { throw json.missing("singleFile") }
    singleFile = file
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("singleFile", singleFile)
    json.endObject()
  }
}

/// The reply of assets/rereference.
package struct RereferenceReply: WireMessage {
  package var assets: [WireFile]

  package init(assets: [WireFile]) { self.assets = assets }

  private enum Key: Int, WireKey {
    case assets
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    assets = []
    try json.object(Key.self) { _, json throws(JSONError) in assets = try json.optional() ?? [] }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    json.member("assets", assets)
    json.endObject()
  }
}
