"""Corner cases of HTTP against a real server: through curl, and through a socket where curl sends nothing wrong.

Each case says which status and which code the answer has. After each of them the server must answer a plain request.
"""

import gzip
import re
import sys

sys.dont_write_bytecode = True
from judge import *  # noqa: E402,F403

BASE = "/database/1/%s/development/private/" % CONTAINER
LIST = BASE + "zones/list"
LOOKUP = BASE + "records/lookup"
MODIFY = BASE + "records/modify"
CHANGES = BASE + "changes/zone"
CALLER = "/database/1/%s/development/public/users/caller" % CONTAINER


class Answer:
    def __init__(self, status, fields, body, version="1.1"):
        self.status, self.fields, self.body, self.version = status, fields, body, version

    def __str__(self):
        return "HTTP %s %r %r" % (self.status, self.fields, self.body[:300])

    def code(self):
        try:
            return json.loads(self.body).get("serverErrorCode")
        except ValueError:
            return None


def is_refusal(answer, status, code, words=""):
    expect(answer.status == status, "status %d was expected: %s" % (status, answer))
    expect(answer.code() == code, "%s was expected: %s" % (code, answer))
    expect(words in answer.body.decode(), "'%s' was expected: %s" % (words, answer))


class Corner:
    def __init__(self, judge, server):
        self.judge, self.server = judge, server
        server.ask("zones/modify", {"operations": [{"operationType": "create", "zone": {"zoneID": {"zoneName": "Notes"}}}]})
        fields = {"title": {"value": "words", "type": "STRING"}}
        server.ask("records/modify", {"zoneID": {"zoneName": "Notes"}, "operations": [
            {"operationType": "create", "record": {"recordName": "n1", "recordType": "Note", "fields": fields}}]})

    def curl(self, target, *words, stdin=None):
        """Runs curl, and returns each answer that it got, the last one last."""
        with tempfile.TemporaryDirectory(dir=self.judge.work) as folder:
            out = os.path.join(folder, "body")
            done = subprocess.run(
                ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "60", "--dump-header", "-", "--output", out,
                 *words, self.server.url + target],
                input=stdin, capture_output=True)
            body = b""
            if os.path.exists(out):
                with open(out, "rb") as file:
                    body = file.read()
        answers = []
        for head in done.stdout.split(b"\r\n\r\n"):
            match = re.match(rb"HTTP/(\S+) (\d+)", head)
            if match:
                fields = dict(
                    (line.split(b":", 1)[0].decode().lower(), line.split(b":", 1)[1].strip().decode())
                    for line in head.split(b"\r\n")[1:])
                answers.append(Answer(int(match.group(2)), fields, b"", match.group(1).decode()))
        expect(answers, "curl got no answer: %s" % done.stderr.decode())
        # With --head, curl writes the header where the body would be.
        answers[-1].body = b"" if "--head" in words else body
        return answers

    def post(self, target, body, *words):
        return self.curl(target, "--data-binary", "@-", *words, stdin=body)[-1]

    def socket(self, data, count=1, ends=True):
        """Sends bytes and reads `count` answers, or what comes before the server closes."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            sending = threading.Thread(target=self.send, args=(connection, data, ends))
            sending.start()
            answers, stream = [], connection.makefile("rb")
            with contextlib.suppress(ConnectionError):
                while len(answers) < count:
                    line = stream.readline()
                    if not line:
                        break
                    fields, body = {}, b""
                    while True:
                        field = stream.readline().strip()
                        if not field:
                            break
                        name, value = field.decode().split(":", 1)
                        fields[name.lower()] = value.strip()
                    status = int(line.split()[1])
                    if status >= 200:
                        body = stream.read(int(fields.get("content-length", "0")))
                        answers.append(Answer(status, fields, body))
            sending.join()
            return answers

    @staticmethod
    def send(connection, data, ends):
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)

    def one(self, data, ends=True):
        answers = self.socket(data, ends=ends)
        expect(answers, "no answer")
        return answers[0]

    # Cases. The first word of each name says the subject.

    def lists(self, answer):
        expect(answer.status == 200 and b'"zones"' in answer.body, "the zones were expected: %s" % answer)
        expect(answer.fields["content-type"].lower().startswith("application/json"), "%s" % answer)

    def looked_up(self, answer):
        expect(answer.status == 200 and b'"n1"' in answer.body and b'"words"' in answer.body, "the record was expected: %s" % answer)

    def asks_for_the_token(self, answer):
        expect(answer.status == 401 and answer.fields["content-type"].lower().startswith("text/html"), "%s" % answer)
        expect(b"token" in answer.body and b'"n1"' not in answer.body, "%s" % answer)

    LOOKUP_BODY = b'{"zoneID":{"zoneName":"Notes"},"records":[{"recordName":"n1"}]}'

    def cases(self):
        body = self.LOOKUP_BODY
        host = b"Host: 127.0.0.1\r\n"
        listing = LIST.encode()

        def request(method=b"GET", target=listing, fields=b"", content=b"", version=b"HTTP/1.1", own=host):
            return method + b" " + target + b" " + version + b"\r\n" + own + fields + b"\r\n" + content

        def length(content):
            return b"Content-Length: %d\r\n" % len(content)

        yield "GET", lambda: self.lists(self.curl(LIST)[-1])
        yield "POST where GET is usual", lambda: self.lists(self.post(LIST, b"{}"))
        yield "HEAD", lambda: self.head(self.curl(LIST, "--head")[-1])
        yield "OPTIONS", lambda: self.options(self.curl(LIST, "--request", "OPTIONS")[-1])
        for method in ("PUT", "DELETE", "PATCH", "TRACE", "QUERY"):
            yield "method " + method, lambda m=method: self.wrong_method(self.curl(LIST, "--request", m)[-1])
        yield "GET of what takes POST", lambda: self.wrong_method(self.curl(LOOKUP)[-1])
        yield "a path of no endpoint", lambda: is_refusal(self.curl(BASE + "records/nothing")[-1], 404, "NOT_FOUND")
        yield "the path /, without the page's token", lambda: self.asks_for_the_token(self.curl("/")[-1])
        yield "a path with ..", lambda: is_refusal(self.curl("/../../etc/passwd", "--path-as-is")[-1], 404, "NOT_FOUND")
        yield "Expect: 100-continue", lambda: self.continues(body)
        yield "another expectation", lambda: is_refusal(self.post(LOOKUP, body, "-H", "Expect: tea"), 417, "BAD_REQUEST")
        yield "a chunked body", lambda: self.looked_up(self.post(LOOKUP, body, "-H", "Transfer-Encoding: chunked"))
        yield "a body in chunks of one byte", lambda: self.looked_up(self.one(request(
            b"POST", LOOKUP.encode(), b"Transfer-Encoding: chunked\r\n", b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")))
        yield "a chunk of no number", lambda: is_refusal(self.one(request(
            b"POST", LOOKUP.encode(), b"Transfer-Encoding: chunked\r\n", b"zz\r\n")), 400, "BAD_REQUEST")
        yield "another transfer coding", lambda: is_refusal(self.one(request(
            b"POST", LOOKUP.encode(), b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n")), 501, "BAD_REQUEST")
        yield "length and chunks", lambda: is_refusal(self.one(request(
            b"POST", LOOKUP.encode(), b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n")), 400, "BAD_REQUEST")
        yield "two lengths", lambda: is_refusal(self.one(request(
            b"POST", LOOKUP.encode(), length(body) + length(body + b" "), body)), 400, "BAD_REQUEST")
        for text in (b"-1", b"+5", b"0x10", b"5 5", b"", b"9" * 30):
            yield "a length of %r" % text, lambda t=text: is_refusal(self.one(request(
                b"POST", LOOKUP.encode(), b"Content-Length: " + t + b"\r\n", body)), 400, "BAD_REQUEST")
        yield "a body that is cut", lambda: is_refusal(self.one(request(
            b"POST", LOOKUP.encode(), length(body + b" " * 9), body)), 400, "BAD_REQUEST", "within a body")
        for place in range(0, len(body), 7):
            yield "JSON cut after %d bytes" % place, lambda k=place: is_refusal(self.post(LOOKUP, body[:k]), 400, "BAD_REQUEST")
        yield "HTTP/1.0", lambda: self.old(self.one(request(version=b"HTTP/1.0", own=b"")))
        yield "HTTP/1.0 with keep-alive", lambda: self.many(self.socket(
            request(version=b"HTTP/1.0", fields=b"Connection: keep-alive\r\n") * 2, 2), 2)
        yield "HTTP/2.0", lambda: is_refusal(self.one(request(version=b"HTTP/2.0")), 505, "BAD_REQUEST")
        yield "no version", lambda: is_refusal(self.one(b"GET " + listing + b"\r\n\r\n"), 400, "BAD_REQUEST")
        yield "an upgrade to HTTP/2", lambda: self.stays(self.curl(LIST, "--http2"))
        yield "HTTP/2 at once", lambda: is_refusal(self.one(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ends=False), 505, "BAD_REQUEST")
        yield "TLS to the port", lambda: self.closes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50)
        yield "three requests at once", lambda: self.many(self.socket(request() * 3, 3), 3)
        yield "two hundred requests at once", lambda: self.many(self.socket(request() * 200, 200), 200)
        yield "Connection: close", lambda: self.last(self.socket(request(fields=b"Connection: close\r\n") * 2, 2))
        yield "empty lines before a request", lambda: self.lists(self.one(b"\r\n\r\n" + request()))
        yield "the absolute form", lambda: self.lists(self.one(request(target=b"http://127.0.0.1:1" + listing)))
        yield "the absolute form of another host", lambda: is_refusal(
            self.one(request(target=b"http://evil.example" + listing)), 403, "ACCESS_DENIED")
        yield "no Host", lambda: is_refusal(self.one(request(own=b"")), 400, "BAD_REQUEST")
        yield "two Hosts", lambda: is_refusal(self.one(request(own=host * 2)), 400, "BAD_REQUEST")
        for name in ("localhost", "LOCALHOST:99", "127.0.0.1:80", "127.1.2.3", "[::1]:80", "app.localhost"):
            yield "Host " + name, lambda n=name: self.lists(self.curl(LIST, "-H", "Host: " + n)[-1])
        # Names that a foreign page may be bound to, whatever they resolve to (DNS rebinding).
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0", "localhost."):
            yield "Host " + name, lambda n=name: is_refusal(self.curl(LIST, "-H", "Host: " + n)[-1], 403, "ACCESS_DENIED")
        for name in ("a b", "a/b", "user@localhost", "[::1"):
            yield "Host " + name, lambda n=name: self.is_refused(self.curl(LIST, "-H", "Host: " + n)[-1], (400, 403))
        for origin in ("http://evil.example", "null", "http://localhost.evil.example", "https://127.0.0.1", "file://"):
            yield "Origin " + origin, lambda o=origin: self.foreign(body, "-H", "Origin: " + o, "-H", "Content-Type: text/plain")
        yield "a page of another site", lambda: self.foreign(body, "-H", "Sec-Fetch-Site: cross-site")
        yield "a preflight of a foreign page", lambda: is_refusal(self.curl(
            LOOKUP, "--request", "OPTIONS", "-H", "Origin: http://evil.example", "-H", "Access-Control-Request-Method: POST")[-1],
            403, "ACCESS_DENIED")
        yield "an allowed origin", self.allowed
        yield "a body of 70 MB", lambda: is_refusal(self.one(request(
            b"POST", MODIFY.encode(), b"Content-Length: 70000000\r\n", b" " * 70_000_000)), 413, "LIMIT_EXCEEDED")
        yield "a body of 70 MB in chunks", lambda: is_refusal(self.one(request(
            b"POST", MODIFY.encode(), b"Transfer-Encoding: chunked\r\n", (b"10000\r\n" + b" " * 65536 + b"\r\n") * 1100)), 413, "LIMIT_EXCEEDED")
        yield "a header of 10 MB", lambda: is_refusal(self.one(request(fields=b"A: " + b"x" * 10_000_000 + b"\r\n")), 431, "BAD_REQUEST")
        yield "100,000 header lines", lambda: is_refusal(self.one(request(fields=b"A: b\r\n" * 100_000)), 431, "BAD_REQUEST")
        yield "a target of 1 MB", lambda: is_refusal(self.one(request(target=b"/" + b"a" * 1_000_000)), 431, "BAD_REQUEST")
        for name, field in (
            ("without a colon", b"nonsense\r\n"), ("that is folded", b"A: b\r\n c\r\n"), ("with a space in its name", b"A b: c\r\n"),
            ("with a NUL", b"A: \x00\r\n"), ("that ends without CR", b"A: b\n"), ("with a lone CR", b"A: b\rc\r\n"),
        ):
            yield "a header line " + name, lambda f=field: is_refusal(self.one(request(fields=f)), 400, "BAD_REQUEST")
        yield "a compressed body", lambda: self.compressed(gzip.compress(body))
        yield "a byte order mark", lambda: is_refusal(self.post(LOOKUP, b"\xef\xbb\xbf" + body), 400, "BAD_REQUEST")
        yield "UTF-16", lambda: is_refusal(self.post(LOOKUP, body.decode().encode("utf-16")), 400, "BAD_REQUEST")
        yield "depth 100,000", lambda: is_refusal(self.post(LOOKUP, b"[" * 100_000), 400, "BAD_REQUEST")
        yield "a key twice", lambda: is_refusal(self.post(LOOKUP, b'{"records":[],"records":[]}'), 400, "BAD_REQUEST")
        yield "a trailing comma", lambda: is_refusal(self.post(LOOKUP, b'{"records":[],}'), 400, "BAD_REQUEST")
        for name, field in (
            ("a number of 400 digits", b'{"value":' + b"9" * 400 + b',"type":"INT64"}'),
            ("a fraction as an integer", b'{"value":1.5,"type":"INT64"}'),
            ("half a surrogate", b'{"value":"\\ud800","type":"STRING"}'),
            ("an overlong character", b'{"value":"\xc0\xaf","type":"STRING"}'),
        ):
            yield "a field with " + name, lambda f=field: self.bad_field(f)
        yield "1,000 zones in one request", self.thousand_zones
        yield "a header that comes slowly", lambda: self.slow(request()[:40], b"A: b\r\n", 16)
        yield "300 silent connections", self.silent

    def is_refused(self, answer, statuses):
        expect(answer.status in statuses and answer.code(), "one of %s was expected: %s" % (statuses, answer))

    def head(self, answer):
        expect(answer.status == 200 and answer.body == b"" and int(answer.fields["content-length"]) > 0, "%s" % answer)

    def options(self, answer):
        expect(answer.status in (200, 204) and "GET" in answer.fields.get("allow", ""), "%s" % answer)

    def wrong_method(self, answer):
        is_refusal(answer, 405, "BAD_REQUEST")
        expect(answer.fields.get("allow"), "the answer names no method that is allowed: %s" % answer)

    def continues(self, body):
        answers = self.curl(LOOKUP, "-H", "Expect: 100-continue", "--data-binary", "@-", stdin=body)
        expect([answer.status for answer in answers] == [100, 200], "%s" % [answer.status for answer in answers])
        self.looked_up(answers[-1])

    def old(self, answer):
        self.lists(answer)
        expect(answer.fields["connection"] == "close", "%s" % answer)

    def stays(self, answers):
        expect(answers[-1].version == "1.1" and len(answers) == 1, "%s" % [answer.version for answer in answers])
        self.lists(answers[-1])

    def many(self, answers, count):
        expect(len(answers) == count, "%d answers, not %d" % (len(answers), count))
        for answer in answers:
            self.lists(answer)

    def last(self, answers):
        self.many(answers, 1)
        expect(answers[0].fields["connection"] == "close", "%s" % answers[0])

    def closes(self, data):
        answers = self.socket(data, ends=True)
        for answer in answers:
            expect(answer.status == 400, "%s" % answer)

    def foreign(self, body, *words):
        before = self.server.records(CONTAINER, "Notes")
        operation = b'{"zoneID":{"zoneName":"Notes"},"operations":[{"operationType":"forceDelete","record":{"recordName":"n1"}}]}'
        answer = self.post(MODIFY, operation, *words)
        is_refusal(answer, 403, "ACCESS_DENIED")
        expect("access-control-allow-origin" not in answer.fields, "%s" % answer)
        is_refusal(self.post(LOOKUP, body, *words), 403, "ACCESS_DENIED")
        expect(self.server.records(CONTAINER, "Notes") == before, "the data changed")

    def allowed(self):
        origin = "http://app.example:3000"
        server = Server(self.judge, "--allow-origin", origin)
        mine, self.server = self.server, server
        try:
            preflight = self.curl(
                LOOKUP, "--request", "OPTIONS", "-H", "Origin: " + origin, "-H", "Access-Control-Request-Method: POST")[-1]
            expect(preflight.status in (200, 204), "%s" % preflight)
            expect(preflight.fields.get("access-control-allow-origin") == origin, "%s" % preflight)
            expect("POST" in preflight.fields.get("access-control-allow-methods", ""), "%s" % preflight)
            answer = self.curl(LIST, "-H", "Origin: " + origin)[-1]
            self.lists(answer)
            expect(answer.fields.get("access-control-allow-origin") == origin, "%s" % answer)
            is_refusal(self.curl(LIST, "-H", "Origin: http://app.example:3001")[-1], 403, "ACCESS_DENIED")
        finally:
            self.server = mine
            server.stop()

    def compressed(self, data):
        """The server does not know the coding: it refuses it by its name, or as a body that is no JSON."""
        self.is_refused(self.post(LOOKUP, data, "-H", "Content-Encoding: gzip"), (400, 415))

    def bad_field(self, field):
        body = (
            b'{"zoneID":{"zoneName":"Notes"},"operations":[{"operationType":"forceUpdate","record":'
            b'{"recordName":"n1","recordType":"Note","fields":{"title":' + field + b"}}}]}")
        answer = self.post(MODIFY, body)
        before = self.server.records(CONTAINER, "Notes")
        if answer.status == 200:
            items = json.loads(answer.body)["records"]
            expect([item.get("serverErrorCode") for item in items] == ["BAD_REQUEST"], "%s" % answer)
        else:
            is_refusal(answer, 400, "BAD_REQUEST")
        expect(before["n1"] == {"title": "words"}, "the record changed: %s" % before)

    def thousand_zones(self):
        entry = b'{"zoneID":{"zoneName":"Notes"}}'
        answer = self.post(CHANGES, b'{"zones":[' + b",".join([entry] * 1000) + b"]}")
        expect(answer.status in (200, 400) and len(answer.body) < 20_000_000, "%s, %d bytes" % (answer, len(answer.body)))

    def slow(self, start, line, seconds):
        """A client that sends a line of its header each second is told to go within the server's 10 s."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            connection.sendall(start)
            connection.settimeout(1)
            begin, got = time.monotonic(), b""
            while time.monotonic() - begin < seconds:
                try:
                    part = connection.recv(4096)
                    if not part:
                        break
                    got += part
                except TimeoutError:
                    with contextlib.suppress(OSError):
                        connection.sendall(line)
            expect(b" 408 " in got.split(b"\r\n")[0], "a time-out was expected: %r" % got[:200])

    def silent(self):
        """Connections that say nothing do not keep the server from answering others."""
        connections = []
        try:
            for _ in range(300):
                connections.append(socket.create_connection(("127.0.0.1", self.server.port), timeout=10))
            for _ in range(20):
                self.lists(self.curl(LIST)[-1])
        finally:
            for connection in connections:
                connection.close()


def main():
    judge = Judge("corner-cases", sys.argv)
    expect(shutil.which("curl"), "there is no curl")
    server = Server(judge)

    def alive(body):
        def run(_):
            body()
            status, _, answer = server.ask("zones/list")
            expect(server.is_alive() and status == 200 and b"Notes" in answer, "the server answers no more: %s" % server.said())

        return run

    try:
        for name, body in Corner(judge, server).cases():
            judge.run(name, alive(body))
    finally:
        code = server.stop()
    if code != 0:
        judge.failures.append("the server ended with %s" % code)
    judge.finish()


if __name__ == "__main__":
    main()
