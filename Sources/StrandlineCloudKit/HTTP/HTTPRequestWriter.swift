// Writes requests in the form of HTTP/1.1 (RFC 9112), with the same strictness with which HTTPSyntax reads them. Pure.

/// Writes a request in the form of HTTP/1.1.
package enum HTTPRequestWriter {
  /// The fields that the transport writes, or that would change what it does.
  private static let ownFields: Set<String> = [
    "host", "content-length", "transfer-encoding", "connection", "expect", "te",
  ]

  /// The bytes of a request, with its body; the body of GET is left out. `more` bytes of the body follow them. Nil if a part of the
  /// request holds a byte that would end it early or have another meaning: such a request could be read as two.
  package static func bytes(of request: HTTPRequest, to origin: HTTPOrigin, more: Int64 = 0) -> [UInt8]? {
    var target = request.path.isEmpty ? "/" : request.path
    if !request.query.isEmpty { target += "?" + request.query }
    guard !request.method.isEmpty, request.method.utf8.allSatisfy(HTTPSyntax.isTokenByte), target.hasPrefix("/"),
      target.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x23 })
    else { return nil }
    var head = "\(request.method) \(target) HTTP/1.1\r\nHost: \(origin.hostField)\r\n"
    for field in request.headers.fields {
      guard !field.name.isEmpty, field.name.utf8.allSatisfy(HTTPSyntax.isTokenByte),
        !ownFields.contains(field.name.lowercased()),
        field.value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 })
      else { return nil }
      head += "\(field.name): \(field.value)\r\n"
    }
    let body = request.method == "GET" ? [] : request.body
    if request.method != "GET" { head += "Content-Length: \(Int64(body.count) + more)\r\n" }
    head += "\r\n"
    var bytes: [UInt8] = []
    bytes.reserveCapacity(head.utf8.count + body.count)
    bytes.append(contentsOf: head.utf8)
    bytes.append(contentsOf: body)
    return bytes
  }
}
