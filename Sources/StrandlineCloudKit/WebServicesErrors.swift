// Makes a CloudError of an answer that is a refusal or cannot be read: with the server's code if the body has one, else
// with a code that follows from the HTTP status, else `unexpectedServerResponse` with the body's first bytes.
//
// No error holds a token: a token that the server repeats in its answer is replaced by "<token>".

package import Strandline

/// Makes errors of answers.
package struct WebServicesErrors: Sendable {
  /// The tokens that must not appear in an error.
  package var secrets: [String]
  /// The wall clock, for a `Retry-After` that is a date in an answer without one.
  package var wallMilliseconds: Int64

  package init(secrets: [String], wallMilliseconds: Int64) {
    self.secrets = secrets.filter { !$0.isEmpty }
    self.wallMilliseconds = wallMilliseconds
  }

  /// The longest wait that is kept, in seconds: two days.
  package static let retryAfterMax: Double = 48 * 3600

  /// The most Unicode scalars of the server's words, of a code or an identifier, and the most bytes of an address, that an
  /// error keeps: it is stored with a record that is held, and shown on a terminal.
  private static let (reasonMax, codeMax, addressMax) = (1_000, 100, 4_096)

  /// A wait limited to 0 and two days; nil for NaN.
  package static func bounded(_ seconds: Double?) -> Double? {
    guard let seconds, !seconds.isNaN else { return nil }
    return min(max(seconds, 0), retryAfterMax)
  }

  /// The error for an answer whose status is outside 200…299.
  package func whole(_ response: HTTPResponse) -> CloudError {
    do {
      return item(try WireJSON.decode(WireError.self, response.body), response, status: response.status)
    } catch {
      return unreadable(response)
    }
  }

  /// The error for a refusal in JSON; `status` is nil for one of a single item.
  package func item(_ error: WireError, _ response: HTTPResponse, status: Int? = nil) -> CloudError {
    // The header comes first because its unit is specified: seconds, or a date. JSON's is read as seconds.
    let header = status == nil ? nil : retryAfter(response)
    return CloudError(
      CloudError.Code(rawValue: error.serverErrorCode.cut(to: Self.codeMax)),
      reason: redacted(error.reason ?? "").cut(to: Self.reasonMax),
      retryAfter: header ?? WebServicesErrors.bounded(error.retryAfter),
      requestUUID: (error.uuid ?? response.headers["x-apple-request-uuid"])?.cut(to: Self.codeMax), httpStatus: status,
      // Half an address leads nowhere.
      redirectURL: error.redirectURL.flatMap { $0.utf8.count > Self.addressMax ? nil : redacted($0) })
  }

  /// The error for a status without a readable body. A proxy or captive portal may answer 401, 403 or 404, so these
  /// get no code of CloudKit's.
  private func unreadable(_ response: HTTPResponse) -> CloudError {
    let code: CloudError.Code =
      switch response.status {
      case 503: .serviceUnavailable
      case 429: .throttled
      case 421: .authenticationRequired
      case 413: .limitExceeded
      case 500, 502, 504: .internalError
      default: .unexpectedServerResponse
      }
    return CloudError(
      code, reason: "the server answered HTTP \(response.status) with \(described(response.body))",
      retryAfter: retryAfter(response), requestUUID: response.headers["x-apple-request-uuid"],
      httpStatus: response.status)
  }

  /// The error for an answer with a status of success that does not answer the request.
  package func unexpected(_ response: HTTPResponse, _ what: String) -> CloudError {
    CloudError(
      .unexpectedServerResponse, reason: redacted("\(what); the server answered \(described(response.body))"),
      retryAfter: retryAfter(response), requestUUID: response.headers["x-apple-request-uuid"],
      httpStatus: response.status)
  }

  /// The error for one item of an answer that cannot be used.
  package func unexpectedItem(_ what: String, _ response: HTTPResponse) -> CloudError {
    CloudError(
      .unexpectedServerResponse, reason: redacted(what), requestUUID: response.headers["x-apple-request-uuid"])
  }

  /// A body's size and its first bytes, printable.
  private func described(_ body: [UInt8]) -> String {
    if body.isEmpty { return "an empty body" }
    let first = String(decoding: body.prefix(400), as: UTF8.self)
    // Tokens are replaced before the text is cut to 80 characters, because half a token would not be recognized. The cut
    // at 400 bytes may leave half a token, but behind those 80 characters.
    let printable = redacted(first).unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7F ? " " : $0 }
    var text = String.UnicodeScalarView()
    text.append(contentsOf: printable.prefix(80))
    return "\(body.count) bytes that begin with '\(String(text))'"
  }

  private func redacted(_ text: String) -> String {
    var result = text
    for secret in secrets {
      result = result.replacing(secret, with: "<token>")
      result = result.replacing(PercentEncoding.encode(secret), with: "<token>")
    }
    return result
  }

  private func retryAfter(_ response: HTTPResponse) -> Double? {
    guard let text = response.headers["retry-after"]?.trimmingSpaces() else { return nil }
    if !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
      // A number beyond a Double is more than two days.
      return WebServicesErrors.bounded(Double(text) ?? WebServicesErrors.retryAfterMax)
    }
    guard let date = HTTPDate.milliseconds(text) else { return nil }
    // By the clock that the date was made with: that of this device may differ by hours.
    let now = response.headers["date"].flatMap(HTTPDate.milliseconds) ?? wallMilliseconds
    return WebServicesErrors.bounded(Double(date - now) / 1000)
  }
}

extension String {
  /// The first scalars, with a sign that there were more.
  fileprivate func cut(to scalarsMax: Int) -> String {
    guard utf8.count > scalarsMax, unicodeScalars.count > scalarsMax else { return self }
    return String(unicodeScalars.prefix(scalarsMax - 1)) + "…"
  }
}

/// Dates in HTTP headers (RFC 9110, 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT". The two obsolete forms are not read.
package enum HTTPDate {
  private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

  /// Milliseconds since 1970; nil if the text is not such a date.
  package static func milliseconds(_ text: String) -> Int64? {
    // By bytes, because each answer has a date. Each part has its place.
    let bytes = Array(text.utf8)
    func number(_ range: Range<Int>) -> Int64? { Int64(Substring(decoding: bytes[range], as: UTF8.self)) }
    func word(_ range: Range<Int>) -> String { String(decoding: bytes[range], as: UTF8.self) }
    guard bytes.count == 29, word(3..<5) == ", ", let day = number(5..<7), (1...31).contains(day), bytes[7] == 0x20,
      let month = months.firstIndex(of: word(8..<11)), bytes[11] == 0x20, let year = number(12..<16),
      (1970...9999).contains(year), bytes[16] == 0x20, let hour = number(17..<19), (0...23).contains(hour),
      bytes[19] == 0x3A, let minute = number(20..<22), (0...59).contains(minute), bytes[22] == 0x3A,
      let second = number(23..<25), (0...60).contains(second), word(25..<29) == " GMT"
    else { return nil }
    let days = daysSince1970(year: year, month: Int64(month + 1), day: day)
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000
  }

  /// The text of a time in milliseconds since 1970, without its fraction of a second. Of a time that no such text can name, that
  /// of the nearest one.
  package static func text(_ milliseconds: Int64) -> String {
    let seconds = min(max(milliseconds, 0) / 1000, 253_402_300_799)
    let (days, rest) = seconds.quotientAndRemainder(dividingBy: 86_400)
    // Howard Hinnant's civil_from_days.
    let shifted = days + 719_468
    let era = shifted / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let march = (5 * dayOfYear + 2) / 153
    let month = march < 10 ? march + 3 : march - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let time = "\(two(rest / 3600)):\(two(rest / 60 % 60)):\(two(rest % 60))"
    let day = two(dayOfYear - (153 * march + 2) / 5 + 1)
    return "\(weekdays[Int(days % 7)]), \(day) \(months[Int(month - 1)]) \(year) \(time) GMT"
  }

  /// From the weekday of the first day of 1970.
  private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]

  /// Howard Hinnant's days_from_civil.
  private static func daysSince1970(year: Int64, month: Int64, day: Int64) -> Int64 {
    let y = month <= 2 ? year - 1 : year
    let era = y / 400
    let yearOfEra = y - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
  }
}

extension String {
  /// The string without spaces, tabs and line ends at both ends.
  package func trimmingSpaces() -> String {
    let isSpace: (Character) -> Bool = { $0 == " " || $0 == "\t" || $0 == "\r" || $0 == "\n" || $0 == "\r\n" }
    var rest = self[...]
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return String(rest.drop(while: isSpace))
  }
}
