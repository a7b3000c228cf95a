// What the client's tests share: a transport that answers from a script, and a server of bytes.

import Strandline
import StrandlineCloudKit
import StrandlineSimulation
import StrandlineSystem
import Synchronization

/// Answers each request by a closure, and keeps what was asked.
final class ScriptedTransport: Transport {
  private let requests = Mutex<[HTTPRequest]>([])
  private let answer: @Sendable (HTTPRequest, Int) async throws -> HTTPResponse

  init(_ answer: @escaping @Sendable (HTTPRequest, Int) async throws -> HTTPResponse) { self.answer = answer }

  convenience init(status: Int = 200, headers: HTTPHeaders = [:], _ body: String) {
    self.init { _, _ in HTTPResponse(status: status, headers: headers, body: Array(body.utf8)) }
  }

  var sent: [HTTPRequest] { requests.withLock { $0 } }

  func send(_ request: HTTPRequest) async throws -> HTTPResponse {
    let number = requests.withLock {
      $0.append(request)
      return $0.count
    }
    return try await answer(request, number)
  }
}

let notes = ZoneID("Notes")
let now: Int64 = 1_780_000_000_000

extension WebServicesDatabase {
  static func over(
    _ transport: any Transport, scope: DatabaseScope = .private, apiToken: String = "", session: WebSession? = nil,
    baseURL: String = "http://cloud.test",
    clock: SimulatedClock = SimulatedClock(wallMilliseconds: now, autoAdvance: false)
  ) -> WebServicesDatabase {
    WebServicesDatabase(
      address: CloudAddress(container: "iCloud.test", environment: .development, scope: scope), apiToken: apiToken,
      session: session,
      baseURL: baseURL, transport: transport,
      environment: SystemEnvironment(
        fileSystem: SimulatedDisk(), clock: clock, random: SeededRandom(seed: 1)))
  }
}

extension CloudResult {
  var record: ServerRecord? { if case .record(let record) = self { record } else { nil } }
  var error: CloudError? { if case .failed(let error, _) = self { error } else { nil } }
  var isDeleted: Bool { if case .deleted = self { true } else { false } }
}

/// The CloudError that a call throws; anything else is handed on.
func refusal(_ body: () async throws -> Void) async throws -> CloudError? {
  do {
    try await body()
    return nil
  } catch let error as CloudError {
    return error
  }
}

extension CloudDatabase {
  private func page(_ query: ZoneQuery) async throws -> ZonePage {
    guard let answer = try await zoneChanges(of: [query])[query.zone] else {
      throw CloudError(.unexpectedServerResponse, reason: "the answer says nothing of zone '\(query.zone)'")
    }
    return try answer.get()
  }

  /// The page of one zone.
  func zoneChanges(in zone: ZoneID, since token: ChangeToken?, limit: Int) async throws -> ZonePage {
    try await page(ZoneQuery(zone, since: token, limit: limit))
  }
}
