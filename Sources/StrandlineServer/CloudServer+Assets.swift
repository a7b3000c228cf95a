// Assets: addresses for uploads, the content host that takes and gives the bytes, and receipts.
//
// The content host is the same server under the path `/content/`. It speaks plain HTTP: its refusals are no JSON, it knows no session,
// and no fault of the other endpoints is its. A receipt names the record and the field of its upload, as CloudKit's does; one of
// assets/rereference names none. The answers of a modification and of each reading have fresh addresses.

internal import Strandline
internal import StrandlineCloudKit
internal import StrandlineSystem

extension CloudServer {
  /// What the paths of contents begin with.
  static let contentPath = "/content/"

  /// Where this server's contents are fetched: the address that it listens on, set by who makes it listen.
  package func setContentOrigin(_ origin: String) { front.withLock { $0.contentOrigin = origin } }

  /// The links for the answer to a request.
  func contentLinks() -> ContentLinks {
    let (origin, generation) = front.withLock { ($0.contentOrigin, $0.contentGeneration) }
    return ContentLinks(
      origin: origin, storeUUID: journal.storeUUID, contents: contents, end: contentEnd, generation: generation)
  }

  private var contentEnd: Int64 { environment.clock.wallMilliseconds() &+ ContentTicket.milliseconds }

  // MARK: assets/upload and assets/rereference

  func assetTokens(_ message: AssetTokens, in key: DatabaseKey) throws(ServerRefusal) -> AssetTokens {
    try checkAssets(message.tokens, message.zoneID, in: key)
    if faults.quotaExceeded { throw ServerRefusal(413, WireError(.quotaExceeded, "Quota exceeded")) }
    let links = contentLinks()
    var reply = AssetTokens(tokens: [])
    for token in message.tokens {
      let name =
        token.recordName ?? RecordName.random(high: environment.random.next(), low: environment.random.next())
      let ticket = ContentTicket(
        kind: .upload, end: links.end, record: name, field: token.fieldName, generation: links.generation)
      reply.tokens.append(
        WireAssetField(
          recordName: name, fieldName: token.fieldName,
          url: "\(links.origin)\(Self.contentPath)\(ticket.text(journal.storeUUID))"))
    }
    return reply
  }

  /// Receipts for contents that records have already, so that other records can name them.
  func rereference(_ message: RereferenceRequest, in key: DatabaseKey) throws(ServerRefusal) -> RereferenceReply {
    try checkAssets(message.assets, message.zoneID, in: key)
    let zone = try zoneName(message.zoneID, in: key)
    let lsns = try look { core throws(ServerRefusal) -> ([UInt64?], UInt64) in
      let known = core.state.zone(zone, in: key)
      let lsns = message.assets.map { asset -> UInt64? in
        guard let name = asset.recordName, let entry = known?.entries[name], !entry.isDeleted else { return nil }
        return entry.lsn
      }
      return (lsns, known?.lastLSN ?? 0)
    }
    var reply = RereferenceReply(assets: [])
    for (asset, lsn) in zip(message.assets, lsns) {
      guard let lsn, let content = try content(of: asset.fieldName, in: try read(lsn)) else {
        let name = asset.recordName ?? ""
        throw ServerRefusal(
          404, WireError(.notFound, "record '\(name)' has no content in the field '\(asset.fieldName)'"))
      }
      var file = contents.file(content)
      file.receipt = ContentTicket(kind: .receipt, end: contentEnd, content: content).text(journal.storeUUID)
      reply.assets.append(WireFile(Asset(server: file, size: content.size)))
    }
    return reply
  }

  private func content(of field: String, in record: RecordBytes) throws(ServerRefusal) -> ServerContent? {
    do throws(ByteReaderError) {
      guard let place = record.field(named: field), case .asset(let asset)? = try record.value(place),
        let checksum = asset.server?.fileChecksum
      else { return nil }
      return contents.find(checksum)
    } catch {
      throw ServerRefusal(500, WireError(.internalError, "a record of the journal: \(error)"))
    }
  }

  private func checkAssets(
    _ fields: [WireAssetField], _ zone: WireZoneID?, in key: DatabaseKey
  ) throws(ServerRefusal) {
    func bad(_ words: String) -> ServerRefusal { ServerRefusal(400, WireError(.badRequest, words)) }
    guard fields.count <= limits.operationsMax else {
      throw bad("\(fields.count) assets in one request; the limit is \(limits.operationsMax)")
    }
    for field in fields {
      if let name = field.recordName, name.isEmpty || name.unicodeScalars.count > limits.nameCharactersMax {
        throw bad("a record's name has 1 to \(limits.nameCharactersMax) characters")
      }
      if let defect = Names.defect(schemaName: field.fieldName) {
        throw bad("fieldName '\(field.fieldName.prefix(40))': \(defect)")
      }
    }
    let name = try zoneName(zone, in: key)
    let isThere = try look { core throws(ServerRefusal) -> (Bool, UInt64) in
      (core.state.zone(name, in: key) != nil, core.state.lastLSN(in: key))
    }
    if !isThere, name != Names.defaultZone { throw ServerRefusal(404, WireError(.zoneNotFound, "Zone does not exist")) }
  }

  // MARK: Receipts in a modification

  /// Checks the receipts in a record, and takes out of its assets what is no part of it.
  ///
  /// - Returns: why the record is refused; nil if it is not.
  func receive(_ record: inout WireRecord, _ name: String) -> WireError? {
    for (field, value) in record.fields ?? [:] where value.itemKind == .assets || value.isListOfAssets {
      switch received(value, field: field, record: name) {
      case .success(let kept): record.fields?[field] = kept
      case .failure(let reason): return WireError(.badRequest, reason.words)
      }
    }
    return nil
  }

  /// Checks the receipts in a field's value, and takes out of it what is no part of the record.
  ///
  /// A value without a receipt is taken as it is: what CloudKit does with one that the record does not have already is not known.
  ///
  /// - Returns: the value as the journal has it, or why it is refused.
  private func received(_ value: FieldValue, field: String, record: String) -> Result<FieldValue, WireReason> {
    switch value {
    case .asset(let asset): return received(asset, field, record).map { .asset($0) }
    case .list(.assets, let items):
      var kept: [FieldValue] = []
      for item in items {
        switch received(item, field: field, record: record) {
        case .success(let item): kept.append(item)
        case .failure(let reason): return .failure(reason)
        }
      }
      return .success(.list(.assets, kept))
    default: return .success(value)
    }
  }

  private func received(_ asset: Asset, _ field: String, _ record: String) -> Result<Asset, WireReason> {
    guard var file = asset.server else { return .success(asset) }
    // An address in a write is ignored.
    file.downloadURL = nil
    guard let receipt = file.receipt else { return .success(Asset(server: file, size: asset.size)) }
    // What this server did not write, such as a journal's older record, has no ticket's form, and no content here.
    guard let ticket = ContentTicket(receipt, journal.storeUUID), ticket.kind == .receipt, let content = ticket.content
    else {
      return .failure(WireReason("Invalid asset receipt in the field '\(field)'"))
    }
    guard ticket.end >= environment.clock.wallMilliseconds() else {
      return .failure(WireReason("The asset receipt in the field '\(field)' has expired"))
    }
    guard ticket.record.isEmpty || (ticket.record.equalsUTF8(record) && ticket.field.equalsUTF8(field)) else {
      return .failure(WireReason("The asset receipt in the field '\(field)' is of another record or field"))
    }
    guard file.fileChecksum.equalsUTF8(contents.checksum(of: content.hash)), asset.size == content.size else {
      return .failure(WireReason("The asset receipt in the field '\(field)' is of another content"))
    }
    return .success(Asset(server: contents.file(content), size: content.size))
  }

  // MARK: The content host

  private func plain(_ status: Int, _ words: String = "") -> HTTPResponse {
    HTTPResponse(
      status: status, headers: ["Content-Type": "text/plain; charset=UTF-8"], body: Array((words + "\n").utf8))
  }

  /// The ticket of a path; or the refusal.
  private func ticket(_ request: HTTPRequest, _ kind: ContentTicket.Kind) -> Result<ContentTicket, ContentRefusal> {
    if let status = faults.contentHostStatus { return .failure(ContentRefusal(plain(status))) }
    let text = request.path.dropFirst(Self.contentPath.count).prefix { $0 != "/" }
    guard let ticket = ContentTicket(text, journal.storeUUID), ticket.kind == kind else {
      return .failure(ContentRefusal(plain(404, "nothing is at this address")))
    }
    let generation = front.withLock { $0.contentGeneration }
    guard ticket.end >= environment.clock.wallMilliseconds(), ticket.generation == generation else {
      return .failure(ContentRefusal(plain(410, "this address has expired")))
    }
    return .success(ticket)
  }

  private struct ContentRefusal: Error {
    let response: HTTPResponse
    init(_ response: HTTPResponse) { self.response = response }
  }

  /// Gives out a content.
  func download(_ request: HTTPRequest) -> HTTPAnswer {
    front.withLock { $0.statistics.requests["content/download", default: 0] += 1 }
    guard request.method == "GET" || request.method == "HEAD" else { return .respond(plain(405)) }
    switch ticket(request, .download) {
    case .failure(let refusal): return .respond(refusal.response)
    case .success(let ticket):
      guard let content = ticket.content else { return .respond(plain(404)) }
      let headers: HTTPHeaders = ["Content-Type": "application/octet-stream"]
      if request.method == "HEAD" { return .respond(HTTPResponse(status: 200, headers: headers, body: [])) }
      return .stream(headers, length: Int(clamping: content.size)) { [contents] stream in
        // A file that cannot be read ends the connection before the length that was said.
        do { try contents.read(content) { stream.send($0) } } catch { return }
      }
    }
  }

  /// The answer of the content host to a client in this process.
  func wholeContent(_ request: HTTPRequest) -> HTTPResponse {
    guard request.method == "GET" else {
      let upload = upload(request)
      upload.write(request.body)
      return upload.answer()
    }
    switch download(request) {
    case .respond(let response): return response
    case .hang: return plain(503)
    case .stream(let headers, _, let body):
      var bytes: [UInt8] = []
      body(
        HTTPStream(
          send: { piece in
            bytes += piece
            return true
          }, pause: { _ in true }))
      return HTTPResponse(status: 200, headers: headers, body: bytes)
    }
  }

  /// Takes an upload, piece by piece.
  func upload(_ request: HTTPRequest) -> IncomingContent {
    front.withLock { $0.statistics.requests["content/upload", default: 0] += 1 }
    switch ticket(request, .upload) {
    case .failure(let refusal): return IncomingContent(refusing: refusal.response, bytesMax: limits.assetBytesMax)
    case .success(let ticket): return IncomingContent(ticket, to: self)
    }
  }

  /// The content of an upload is there: the answer with its receipt.
  fileprivate func answer(_ ticket: ContentTicket, _ content: ServerContent) -> HTTPResponse {
    var file = contents.file(content)
    file.receipt =
      ContentTicket(
        kind: .receipt, end: contentEnd, record: ticket.record, field: ticket.field, content: content
      ).text(journal.storeUUID)
    return HTTPResponse(
      status: 200, headers: ["Content-Type": "application/json; charset=UTF-8"],
      body: WireJSON.encode(UploadedFile(Asset(server: file, size: content.size))))
  }

  fileprivate func refusal(of upload: IncomingContent.Refusal) -> HTTPResponse {
    switch upload {
    case .tooLarge: plain(413)
    case .disk(let words): plain(507, words)
    }
  }
}

/// An upload to the content host: it takes the body of a request in pieces, so that it is never in memory as a whole. It is used by one
/// thread.
package final class IncomingContent: Sendable {
  enum Refusal: Sendable {
    case tooLarge
    case disk(String)
  }
  private let server: CloudServer?
  private let ticket: ContentTicket?
  private let refused: HTTPResponse?
  private let bytesMax: Int64
  private let state = OrderedMutex<(intake: ServerContents.Intake?, size: Int64, failure: Refusal?)>((nil, 0, nil))

  fileprivate init(refusing response: HTTPResponse, bytesMax: Int64) {
    (server, ticket, refused, self.bytesMax) = (nil, nil, response, bytesMax)
  }

  fileprivate init(_ ticket: ContentTicket, to server: CloudServer) {
    (self.server, self.ticket, refused, bytesMax) = (server, ticket, nil, server.limits.assetBytesMax)
  }

  /// Takes the next bytes. What is beyond the limit is read and dropped, so that the client can read the refusal.
  func write(_ piece: [UInt8]) {
    guard let server else { return }
    var (intake, size, failure) = state.withLock { $0 }
    defer { state.withLock { $0 = (intake, size, failure) } }
    size += Int64(piece.count)
    guard failure == nil else { return }
    guard size <= bytesMax else {
      failure = .tooLarge
      return
    }
    do {
      let place = try intake ?? server.contents.begin()
      intake = place
      try place.write(piece)
    } catch {
      failure = .disk("\(error)")
    }
  }

  /// The body is whole: the answer.
  func answer() -> HTTPResponse {
    if let refused { return refused }
    guard let server, let ticket else { preconditionFailure("an upload without a server is refused") }
    let (intake, _, failure) = state.withLock { $0 }
    do {
      if let failure {
        abandon()
        return server.refusal(of: failure)
      }
      let content = try server.contents.finish(try intake ?? server.contents.begin())
      return server.answer(ticket, content)
    } catch {
      abandon()
      return server.refusal(of: .disk("\(error)"))
    }
  }

  /// The body ended early.
  func abandon() {
    if let server, let intake = state.withLock({ $0.intake }) { server.contents.discard(intake) }
  }
}

extension FieldValue {
  fileprivate var isListOfAssets: Bool { if case .list(.assets, _) = self { true } else { false } }
}
