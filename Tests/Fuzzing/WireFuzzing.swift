// Fuzzes what travels: the answers that a client reads, the requests that a server reads, and HTTP's own form of an answer.
//
// A message that was read is written, and what was written must be read as the same message; a reader that is held to the
// letter takes nothing that the wider one refuses, or takes for another value. An answer in pieces is the same answer.

import Strandline
import StrandlineCloudKit
import StrandlineJSON
import StrandlineSystem

enum WireFuzzing {
  private static let bytesMax = 1 << 20

  /// Input: the body of an answer.
  static func runAnswers(_ input: inout FuzzInput) {
    let bytes = input.rest()
    check(RecordsReply.self, bytes)
    check(ZoneChangesReply.self, bytes)
    check(DatabaseChangesReply.self, bytes)
    check(ZonesReply.self, bytes)
    check(UserReply.self, bytes)
    check(WireError.self, bytes)
    checkField(bytes)
  }

  /// Input: the body of a request.
  static func runRequests(_ input: inout FuzzInput) {
    let bytes = input.rest()
    check(ModifyRequest.self, bytes)
    check(RecordsLookupRequest.self, bytes)
    check(QueryRequest.self, bytes)
    check(QueryReply.self, bytes)
    check(ZoneChangesRequest.self, bytes)
    check(DatabaseChangesRequest.self, bytes)
    check(ZonesModifyRequest.self, bytes)
    check(ZonesLookupRequest.self, bytes)
  }

  private static func check<Message: WireMessage>(_ type: Message.Type, _ bytes: [UInt8]) {
    let message: Message
    do { message = try WireJSON.decode(type, bytes, bytesMax: bytesMax) } catch {
      require(error.offset <= bytes.count && error.line > 0 && error.column > 0, "\(error)")
      return
    }
    let written = WireJSON.encode(message)
    do {
      let again = WireJSON.encode(try WireJSON.decode(type, written))
      require(again == written, "\(text(written)) is read as \(text(again))")
    } catch { require(false, "\(text(written)) cannot be read: \(error)") }
  }

  /// A field, read to the letter and as the live service sends it.
  private static func checkField(_ bytes: [UInt8]) {
    let strict: FieldValue?
    do { strict = try field(bytes, from: .command) } catch { return }
    for sender in [WireField.Sender.client, .cloud] {
      do {
        let wide = try field(bytes, from: sender)
        require(wide == strict, "\(strict as Any) to the letter, \(wide as Any) from a \(sender)")
      } catch { require(false, "read to the letter, and not from a \(sender): \(error)") }
    }
  }

  private static func field(_ bytes: [UInt8], from sender: WireField.Sender) throws(JSONError) -> FieldValue? {
    var json = try JSONReader(bytes, limits: JSONLimits(bytesMax: bytesMax, depthMax: WireJSON.depthMax))
    let value = try WireField.read(&json, from: sender)
    try json.finish()
    return value
  }

  private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

  // MARK: HTTP

  /// Input: flags (1: the answer to HEAD; 2: the connection ends behind it; the others: how long its pieces are), and the
  /// bytes of an answer.
  static func runHTTP(_ input: inout FuzzInput) {
    let flags = input.byte()
    let bytes = input.rest()
    let whole = outcome(bytes, flags, pieces: max(1, bytes.count))
    for length in [1, 2 + Int(flags >> 2)] {
      let split = outcome(bytes, flags, pieces: length)
      require(split == whole, "in pieces of \(length): \(split), at once: \(whole)")
    }
  }

  /// What a reader makes of an answer.
  private enum Outcome: Equatable {
    case answer(status: Int, HTTPHeaders, [UInt8], keepsAlive: Bool)
    case incomplete
    case refused
  }

  private static func outcome(_ bytes: [UInt8], _ flags: UInt8, pieces length: Int) -> Outcome {
    var reader = HTTPAnswerReader(method: flags & 1 == 0 ? "POST" : "HEAD", headerBytesMax: 2_000, bodyBytesMax: 10_000)
    do throws(HTTPDefect) {
      for start in stride(from: 0, to: bytes.count, by: length) {
        try reader.receive(Array(bytes[start..<min(start + length, bytes.count)]))
      }
      if flags & 2 != 0 { try reader.end() }
    } catch { return .refused }
    guard let answer = reader.answer else { return .incomplete }
    require(answer.body.count <= 10_000, "a body of \(answer.body.count) bytes")
    return .answer(status: answer.status, answer.headers, answer.body, keepsAlive: reader.keepsAlive)
  }
}
