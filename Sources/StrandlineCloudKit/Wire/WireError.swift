// A refusal in JSON: of a request, of a zone or of a record, in whose place it stands.

package import Strandline
package import StrandlineJSON

/// A refusal in JSON, of a request or of one item.
package struct WireError: WireMessage, Hashable {
  package var serverErrorCode: String
  package var reason: String?
  package var retryAfter: Double?
  package var uuid: String?
  package var redirectURL: String?

  package init(
    _ code: CloudError.Code, _ reason: String? = nil, retryAfter: Double? = nil, uuid: String? = nil,
    redirectURL: String? = nil
  ) {
    serverErrorCode = code.rawValue
    self.reason = reason
    self.retryAfter = retryAfter
    self.uuid = uuid
    self.redirectURL = redirectURL
  }

  private enum Key: Int, WireKey {
    case serverErrorCode, extensionErrorCode, reason, retryAfter, uuid, redirectURL
    static let names = JSONKeys(Key.self)
  }

  package init(_ json: inout JSONReader) throws(JSONError) {
    var code: String?
    var extensionCode: String?
    self.init(.internalError)
    try json.object(Key.self) { key, json throws(JSONError) in
      switch key {
      case .serverErrorCode: code = try json.optional()
      case .extensionErrorCode: extensionCode = try json.optional()
      // Of another type they are as absent, so that the code is read all the same.
      case .reason: reason = try Self.text(&json)
      case .uuid: uuid = try Self.text(&json)
      case .redirectURL: redirectURL = try Self.text(&json)
      case .retryAfter: retryAfter = try Self.seconds(&json)
      }
    }
    // CloudKit JS treats either key as the mark of an error.
    guard let code = code ?? extensionCode else { throw json.missing("serverErrorCode") }
    serverErrorCode = code
  }

  /// Reads the object at `begin`, which the reader has read already, and goes back behind it.
  init(again begin: JSONReader.Mark, in json: inout JSONReader) throws(JSONError) {
    let end = json.mark
    json.move(to: begin)
    try self.init(&json)
    json.move(to: end)
  }

  private static func text(_ json: inout JSONReader) throws(JSONError) -> String? {
    let token = try json.skipValue()
    return token.kind == .string ? try json.string(of: token) : nil
  }

  /// A number of seconds, or a string of one; nil for anything else, and for a number beyond a Double.
  private static func seconds(_ json: inout JSONReader) throws(JSONError) -> Double? {
    let token = try json.skipValue()
    switch token.kind {
    case .string: return Double(try json.string(of: token))
    case .number:
      do throws(JSONError) {
        switch try json.number(of: token) {
        case .int64(let number): return Double(number)
        case .double(let number): return number
        }
      } catch { return nil }
    default: return nil
    }
  }

  package func write(into json: inout JSONWriter) {
    json.beginObject()
    writeMembers(to: &json)
    json.endObject()
  }

  /// Writes the members, and among them the name of the record that is refused.
  func writeMembers(to json: inout JSONWriter, recordName: String? = nil) {
    func member(_ key: String, _ text: String?) {
      guard let text else { return }
      json.key(key)
      json.string(text)
    }
    member("reason", reason)
    member("recordName", recordName)
    member("redirectURL", redirectURL)
    if let retryAfter {
      json.key("retryAfter")
      // JSON has no other numbers.
      do { try json.number(retryAfter) } catch { json.null() }
    }
    member("serverErrorCode", serverErrorCode)
    member("uuid", uuid)
  }
}
