// The other side of `https:`: certificates that the command `openssl` makes, and a server that is no work of this package, Python's
// over OpenSSL. Both have to be installed; a test that misses one fails and says so.

internal import StrandlineHost
internal import StrandlineSystem
internal import Synchronization

/// What a tool that a test needs said.
package struct ToolFailure: Error, CustomStringConvertible {
  package let description: String
}

/// An authority, and the certificates that it signs, in a folder of their own.
package final class Certificates: Sendable {
  private let folder: TemporaryFolder
  private let count = Mutex(0)
  /// The path of the authority's certificate.
  package var authority: String { folder("authority.pem") }

  package init() throws {
    folder = try TemporaryFolder()
    try openssl(
      ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=An authority of a test"]
        + ["-addext", "basicConstraints=critical,CA:TRUE"]
        + ["-keyout", folder("authority.key"), "-out", authority])
  }

  /// A certificate and its key.
  package struct Pair: Sendable {
    package let certificate: String
    package let key: String
  }

  /// A certificate of the authority.
  ///
  /// - Parameters:
  ///   - names: as OpenSSL writes them, "DNS:localhost,IP:127.0.0.1"; nil for a certificate that has its name only as its subject's.
  ///   - days: how long it is valid; below 0 it is over.
  package func make(_ names: String?, days: Int = 2, subject: String = "a test's server") throws -> Pair {
    let (name, pair) = next()
    try openssl(
      ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=\(subject)", "-keyout", pair.key]
        + ["-out", folder(name + ".csr")])
    let extensions = try POSIXFileSystem().open(folder(name + ".extensions"), .create)
    defer { extensions.close() }
    try extensions.write(Array((names.map { "subjectAltName=\($0)\n" } ?? "basicConstraints=CA:FALSE\n").utf8), at: 0)
    try openssl(
      ["x509", "-req", "-in", folder(name + ".csr"), "-CA", authority, "-CAkey", folder("authority.key")]
        + ["-CAcreateserial", "-days", "\(days)", "-extfile", folder(name + ".extensions"), "-out", pair.certificate])
    return pair
  }

  /// A certificate that nobody else signed.
  package func makeSelfSigned(_ names: String) throws -> Pair {
    let pair = next().pair
    try openssl(
      ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=nobody"]
        + ["-addext", "subjectAltName=\(names)", "-keyout", pair.key, "-out", pair.certificate])
    return pair
  }

  /// A folder with the authority's certificate under the name by which OpenSSL looks for it.
  package func makeFolder() throws -> String {
    let hash = try openssl(["x509", "-noout", "-subject_hash", "-in", authority]).filter { $0.isHexDigit }
    let disk = POSIXFileSystem()
    try disk.makeDirectory(folder("trusted"))
    let (from, to) = (try disk.open(authority, .read), try disk.open(folder("trusted/\(hash).0"), .create))
    defer {
      from.close()
      to.close()
    }
    try to.write(from.read(at: 0, count: Int(from.size())), at: 0)
    return folder("trusted")
  }

  private func next() -> (name: String, pair: Pair) {
    let number = count.withLock {
      $0 += 1
      return $0
    }
    return ("\(number)", Pair(certificate: folder("\(number).pem"), key: folder("\(number).key")))
  }

  @discardableResult
  private func openssl(_ words: [String]) throws -> String {
    // What it says of its work goes to the same place as what it was asked for: a test shows it if it fails.
    let child = try ChildProcess(
      "/bin/sh", ["-c", "exec openssl \"$@\" 2>&1", "openssl"] + words, output: .pipe, errorOutput: .null)
    let said = String(decoding: try child.output?.readAll() ?? [], as: UTF8.self)
    let status = try child.wait()
    guard status == .exited(0) else {
      throw ToolFailure(description: "this test needs the command openssl, which ended with \(status): \(said)")
    }
    return said
  }
}

/// A server that speaks TLS and answers by the path of a request.
package final class TLSPeer: Sendable {
  private let child: ChildProcess
  package let port: UInt16

  /// - Parameters:
  ///   - version: the newest version of TLS that it speaks: "1.1", "1.2" or "1.3".
  ///   - largeBytes: if not 0, the size of its answer to every path that says nothing else.
  package init(_ pair: Certificates.Pair, version: String = "1.3", largeBytes: Int = 0) throws {
    let words = ["python3", "-W", "ignore", "-c", Self.program, pair.certificate, pair.key, version, "\(largeBytes)"]
    child = try ChildProcess("/usr/bin/env", words, input: .pipe, output: .pipe)
    guard let line = try child.output?.readLine(), let port = UInt16(line) else {
      throw ToolFailure(
        description: "this test needs python3 with its module ssl, which ended with \(try child.wait())")
    }
    self.port = port
  }

  /// The server ends when its input does.
  deinit {
    child.closeInput()
    _ = try? child.wait()
  }

  /// Its paths: /who answers with the connection's number, the request's on it, and the name that the client asked for; /basic asks
  /// for a password; /large/N has N bytes; /header/N, and /rude/header/N, end after N bytes of an answer; /open has an answer
  /// that ends with the connection, and so has /rude/open; /short, and /rude/short, have fewer bytes than they say; /last is
  /// answered and closed. "Rude" is an end without close_notify.
  private static let program = #"""
    import os, socket, ssl, sys, threading
    pair, version, always = sys.argv[1:3], sys.argv[3], int(sys.argv[4])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if version == "1.1":
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.set_ciphers("ALL:@SECLEVEL=0")
    context.maximum_version = {"1.1": ssl.TLSVersion.TLSv1_1, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
    names = {}
    def asked(connection, name, context): names[connection] = name
    context.sni_callback = asked

    def answer(body, fields=b"", status=b"200 OK", length=None):
        length = len(body) if length is None else length
        return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, length, fields, body)

    def end(connection, rude):
        try:
            if rude: connection.shutdown(socket.SHUT_RDWR)
            else:
                # It says its end, and does not wait for the client's.
                connection.setblocking(False)
                connection.unwrap()
        except (OSError, ValueError): pass
        connection.close()

    def serve(raw, number):
        try:
            connection = context.wrap_socket(raw, server_side=True)
        except (OSError, ssl.SSLError):
            raw.close()
            return
        count, waiting = 0, b""
        try:
            while True:
                while b"\r\n\r\n" not in waiting:
                    piece = connection.recv(65536)
                    if not piece: return
                    waiting += piece
                head, waiting = waiting.split(b"\r\n\r\n", 1)
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                left = int(fields.get(b"content-length", b"0"))
                while len(waiting) < left: waiting += connection.recv(65536)
                waiting = waiting[left:]
                count += 1
                words = head.split(b" ")[1].split(b"?")[0].decode().strip("/").split("/")
                rude = words[0] == "rude"
                if rude: words = words[1:]
                if always: words = ["large", always]
                if words[0] == "basic":
                    connection.sendall(answer(b"who?", b'WWW-Authenticate: Basic realm="r"\r\n', b"401 Unauthorized"))
                elif words[0] == "large":
                    body = b"x" * (1 << 20)
                    left = int(words[1])
                    connection.sendall(answer(b"", length=left))
                    while left:
                        connection.sendall(body[:left])
                        left -= min(left, len(body))
                elif words[0] == "header":
                    connection.sendall(answer(b"{}")[:int(words[1])])
                    return end(connection, rude)
                elif words[0] == "open":
                    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwhole")
                    return end(connection, rude)
                elif words[0] == "short":
                    connection.sendall(answer(b"part", length=9))
                    return end(connection, rude)
                else:
                    connection.sendall(answer(("%d %d %s" % (number, count, names.get(connection))).encode()))
                    if words[0] == "last": return end(connection, False)
        except (OSError, ssl.SSLError, ValueError):
            pass
        finally:
            connection.close()

    def watch():
        sys.stdin.buffer.read()
        os._exit(0)

    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=watch, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    number = 0
    while True:
        raw, _ = listener.accept()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number += 1
        threading.Thread(target=serve, args=(raw, number), daemon=True).start()
    """#
}
