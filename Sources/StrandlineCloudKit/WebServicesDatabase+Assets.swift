// The contents of assets on the web: an address for each upload, the content host, and addresses for downloads that expire.
//
// The content host is another server. It speaks plain HTTP: no API token and no session go to it, its refusals are no JSON, and a 421
// says that the connection leads to another host, not that the user has to sign in. An address is a secret for as long as it counts,
// so no error holds one.

package import Strandline
internal import StrandlineJSON
internal import StrandlineSystem

extension WebServicesDatabase {
  /// True: contents go to the content host, and come from it.
  package var movesContents: Bool { true }

  /// Sends a content to the address that the server names for the field of the record. If the content host refuses that address, it asks
  /// for another one, once.
  package func upload(_ content: ContentSource, for place: ContentPlace) async throws -> Asset {
    let response = try await atFreshAddress { isLast in
      let address = try await self.uploadAddress(for: place)
      let response = try await self.contentTransport.send(address.request("POST"), body: content)
      return !isLast && Self.mayHaveExpired(response) ? nil : response
    }
    guard response.status == 200 else { throw refusal(of: response, "the upload of \(content.size) bytes") }
    let asset: Asset
    do { asset = try WireJSON.decode(UploadedFile.self, response.body).singleFile.asset } catch {
      throw errors.unexpected(response, "the content host's answer to an upload cannot be read: \(error)")
    }
    guard asset.size == content.size else {
      throw CloudError(
        .networkError, reason: "the content host has \(asset.size) bytes of a content of \(content.size)")
    }
    guard asset.server?.receipt != nil else {
      throw errors.unexpected(response, "the content host's answer to an upload has no receipt")
    }
    return asset
  }

  /// Fetches a content from the address that came with it. If there is none, or the content host refuses it, the record is looked up for
  /// another one, once.
  package func download(_ asset: Asset, of place: ContentPlace, into sink: ContentSink) async throws {
    var known = asset.server?.downloadURL
    let response = try await atFreshAddress { isLast in
      let address: ContentAddress
      if let text = known.take(), !isLast, let first = ContentAddress(text, self.isPlain) {
        address = first
      } else {
        address = try await self.downloadAddress(of: asset, place)
      }
      let response = try await self.contentTransport.send(address.request("GET"), into: sink)
      return !isLast && Self.mayHaveExpired(response) ? nil : response
    }
    guard response.status == 200 else { throw refusal(of: response, "the download of \(sink.size) bytes") }
  }

  /// Runs `body` twice, if its first answer is none.
  private func atFreshAddress(
    _ body: (_ isLast: Bool) async throws -> HTTPResponse?
  ) async throws -> HTTPResponse {
    do {
      if let response = try await body(false) { return response }
      guard let response = try await body(true) else { preconditionFailure("the last answer counts") }
      return response
    } catch let error as AnswerTooLarge {
      throw CloudError(.answerTooLarge, reason: error.description)
    }
  }

  // MARK: Addresses

  private func uploadAddress(for place: ContentPlace) async throws -> ContentAddress {
    let (name, field) = (place.record.name, WireName.wire(place.field))
    let request = AssetTokens(
      zoneID: WireZoneID(place.record.zone),
      tokens: [WireAssetField(recordName: name, recordType: WireName.wire(place.type), fieldName: field)])
    let answer = try await ask(AssetTokens.self, "POST", scoped("assets/upload"), request)
    let token = answer.value.tokens.first { $0.recordName.equalsUTF8(name) && $0.fieldName.equalsUTF8(field) }
    guard let text = token?.url else {
      throw answer.errors.unexpectedItem(
        "the answer to assets/upload has no address for field '\(place.field)' of '\(name)'", answer.response)
    }
    return try checked(text)
  }

  private func downloadAddress(of asset: Asset, _ place: ContentPlace) async throws -> ContentAddress {
    let name = place.record.name
    switch try await lookup([name], in: place.record.zone)[CloudName(name)] {
    case .record(let record)?:
      let there = record.fields.values.lazy.flatMap(\.assets).first { $0.isSameFile(as: asset) }
      guard let there else {
        throw CloudError(.notFound, reason: "record '\(name)' names another content by now")
      }
      guard let text = there.server?.downloadURL else {
        throw CloudError(.unexpectedServerResponse, reason: "the server names no address for a content of '\(name)'")
      }
      return try checked(text)
    case .failed(let error, _)?: throw error
    case .deleted?, nil: throw CloudError(.notFound, reason: "record '\(name)' was deleted at the server")
    }
  }

  private func checked(_ text: String) throws -> ContentAddress {
    guard let address = ContentAddress(text, isPlain) else {
      throw CloudError(
        .unexpectedServerResponse, reason: "the server names an address of a content that is none, or not https")
    }
    return address
  }

  /// Whether this speaks to a server in the open, so that a content may too.
  private var isPlain: Bool { HTTPOrigin(origin)?.scheme == "http" }

  // MARK: Refusals

  private var errors: WebServicesErrors {
    WebServicesErrors(secrets: [], wallMilliseconds: environment.clock.wallMilliseconds())
  }

  /// Whether the content host may have refused the address and not the content.
  private static func mayHaveExpired(_ response: HTTPResponse) -> Bool {
    switch response.status {
    case 413, 421, 429: false
    case 400...499: true
    default: false
    }
  }

  /// The error for an answer of the content host that is no success.
  private func refusal(of response: HTTPResponse, _ what: String) -> CloudError {
    let said = "the content host answered HTTP \(response.status) to \(what)"
    switch response.status {
    case 413: return CloudError(.limitExceeded, reason: said + ": the content is too large for it")
    // Of this connection, which is closed, and of no session.
    case 421: return CloudError(.serviceUnavailable, reason: said + ": the connection leads to another host")
    case 429, 500...599:
      var error = errors.whole(HTTPResponse(status: 503, headers: response.headers))
      error.reason = said
      error.httpStatus = nil
      return error
    case 400...499: return CloudError(.accessDenied, reason: said + ", also at a fresh address")
    default: return CloudError(.unexpectedServerResponse, reason: said)
    }
  }
}

/// An address of the content host.
private struct ContentAddress: Sendable {
  let origin: String
  let path: String
  let query: String

  /// Splits an address. nil if it is none, or if the content would travel in the open though the rest does not.
  ///
  /// - Parameter isPlain: whether `http:` is good enough.
  init?(_ text: String, _ isPlain: Bool) {
    // A place for a file's name, which a browser would give.
    let text = text.replacing("${f}", with: "content")
    guard let start = text.firstRange(of: "://"),
      let slash = text[start.upperBound...].utf8.firstIndex(of: UInt8(ascii: "/"))
    else { return nil }
    origin = String(text[..<slash])
    guard let server = HTTPOrigin(origin), server.scheme == "https" || isPlain else { return nil }
    let rest = text[slash...].split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    path = String(rest[0])
    query = rest.count > 1 ? String(rest[1]) : ""
  }

  func request(_ method: String) -> HTTPRequest {
    HTTPRequest(
      method: method, origin: origin, path: path, query: query,
      headers: method == "POST" ? ["Content-Type": "application/octet-stream"] : [:])
  }
}
