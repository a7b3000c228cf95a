"""The breaking cloud over TLS, which the client speaks by the system's OpenSSL.

The certificate is made here, and SSL_CERT_FILE names its authority to the client. The cases: connections that break at every
byte of an answer, with and without the end that TLS knows; connections that are dead when the next request comes;
certificates that do not verify; a server that works for a second on bodies below and above 64 kB, whose cost is measured and
printed.
"""

import sys

sys.dont_write_bytecode = True
from breaking_cloud import *  # noqa: E402,F403

# What one broken connection may cost the client: it was 20 s and 3.7 million context switches when a library sent a POST again
# without its body.
SECONDS = 15
SWITCHES = 20_000


class Certificates:
    """An authority, and certificates that it signed."""

    def __init__(self, judge):
        self.folder = os.path.join(judge.work, "certificates")
        os.makedirs(self.folder)
        self.authority = self.make("authority", "CN=Judge's authority", ["-addext", "basicConstraints=critical,CA:TRUE"])
        self.server = self.signed("server", "IP:127.0.0.1,DNS:localhost")
        self.other_host = self.signed("other", "DNS:elsewhere.invalid")
        self.unknown = self.make("unknown", "CN=127.0.0.1", ["-addext", "subjectAltName=IP:127.0.0.1"])

    def path(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *words):
        done = subprocess.run(["openssl", *words], capture_output=True)
        expect(done.returncode == 0, "openssl %s: %s" % (words[0], done.stderr.decode()))

    def make(self, name, subject, extra):
        self.openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.path(name + ".key"), "-out",
            self.path(name + ".pem"), "-days", "2", "-subj", "/" + subject, *extra)
        return self.path(name + ".pem"), self.path(name + ".key")

    def signed(self, name, names):
        self.openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", self.path(name + ".key"), "-out", self.path(name + ".csr"),
            "-subj", "/CN=judge")
        with open(self.path(name + ".ext"), "w", encoding="ascii") as file:
            file.write("subjectAltName=%s\n" % names)
        self.openssl(
            "x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.authority[0], "-CAkey", self.authority[1],
            "-CAcreateserial", "-out", self.path(name + ".pem"), "-days", "2", "-extfile", self.path(name + ".ext"))
        return self.path(name + ".pem"), self.path(name + ".key")

    def context(self, pair):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        return context


def politely(action):
    """The action, and then the end that TLS knows."""

    def polite(connection, request, forward):
        action(connection, request, forward)
        with contextlib.suppress(OSError, ValueError):
            connection.settimeout(2)
            connection.unwrap()

    return polite


class Secure:
    def __init__(self, judge, server):
        self.judge, self.server = judge, server
        self.upload = Upload(judge, server)
        self.certificates = Certificates(judge)
        self.variables = {"SSL_CERT_FILE": self.certificates.authority[0]}
        self.context = self.certificates.context(self.certificates.server)

    def sync(self, cloud, store, container):
        return self.upload.sync(cloud, store, container, self.variables)

    def case(self, folder, breaks, asked, code=0):
        store = os.path.join(folder, "store")
        container = self.upload.container()
        shutil.copytree(self.upload.template, store)
        with Cloud(self.server.port, self.context) as cloud:
            cloud.breaks = breaks
            run = self.sync(cloud, store, container)
            expect(run.code == code, "exit code %d was expected: %s" % (code, run))
            expect(run.seconds < SECONDS, "it took too long: %s" % run)
            expect(run.switches < SWITCHES, "%d context switches: %s" % (run.switches, run))
            cloud.check_posts()
            for endpoint, count in asked.items():
                arrived = len(cloud.arrived(endpoint))
                expect(arrived == count, "%s was asked %d times, not %d: %s" % (endpoint, arrived, count, run))
            cloud.breaks = {}
            cloud.forget()
            run = self.sync(cloud, store, container)
            expect(run.code == 0 and " 0 unsent" in run.out, "the sync after it: %s" % run)
            cloud.check_posts()
            expect(len(cloud.applied) == RECORDS, "applied: %s" % cloud.applied)
            expect(all(count == 1 for count in cloud.applied.values()), "applied twice: %s" % cloud.applied)
            there = self.server.records(container, ZONE)
            expect(len(there) == RECORDS, "%d records on the server" % len(there))

    def refused(self, folder, pair, words):
        """A certificate that does not verify: nothing of a request is sent."""
        store = os.path.join(folder, "store")
        shutil.copytree(self.upload.template, store)
        with Cloud(self.server.port, self.certificates.context(pair)) as cloud:
            run = self.sync(cloud, store, self.upload.container())
            expect(run.code == 69, "exit code 69 was expected: %s" % run)
            expect("certificate is not accepted" in run.err and re.search(words, run.err), "'%s' was expected: %s" % (words, run))
            expect(not cloud.requests, "a request was sent: %s" % [str(request) for request in cloud.requests])
        status = json.loads(self.judge.command("status", "--json", store).out)
        expect(status["unsettled"] == RECORDS, "the records are no longer to be sent: %s" % status)

    def measured(self, folder, kilobytes):
        """An upload of about so many kilobytes in one request, on which the server works for a second."""
        store = os.path.join(folder, "store")
        line = '{"recordType":"Note","recordName":"n%d","fields":{"title":"' + "x" * 500 + '"}}\n'
        lines = "".join(line % number for number in range(kilobytes))
        self.judge.command("import", "--zone", ZONE, store, "-", stdin=lines.encode())

        def works(connection, request, forward):
            status, fields, body = forward()
            time.sleep(1)
            connection.sendall(answer(status, body, fields))
            return True

        with Cloud(self.server.port, self.context) as cloud:
            cloud.breaks = {"records/modify": [works]}
            run = self.sync(cloud, store, self.upload.container())
            expect(run.code == 0, "%s" % run)
            cloud.check_posts()
            size = len(cloud.arrived("records/modify")[0].body)
        self.judge.note(
            "a server that works for a second on a body of %d bytes costs the client %.2f s of CPU and %d context switches"
            % (size, run.cpu, run.switches))


def header_bytes():
    return len(answer(200, b"", {"A": "b"}, 1000)) - 4


def cases(judge, server):
    secure = Secure(judge, server)
    own = secure.certificates
    yield "a certificate of an unknown authority", lambda folder: secure.refused(folder, own.unknown, "self.signed certificate")
    yield "a certificate of another host", lambda folder: secure.refused(folder, own.other_host, "IP address mismatch")
    for kilobytes in (40, 180):
        yield "a body of %d records" % kilobytes, lambda folder, k=kilobytes: secure.measured(folder, k)
    for endpoint in ("users/caller", "changes/database", "zones/modify", "records/modify"):

        def closes_after(connection, request, forward):
            status, fields, body = forward()
            connection.sendall(answer(status, body, fields))

        breaks = (
            ("closed before the answer", cut(0)), ("ended before the answer", politely(cut(0))),
            ("reset before the answer", reset(0)), ("lost before it was applied", lost),
        )
        for name, action in breaks:
            asked = {} if name.startswith("lost") and endpoint == "records/modify" else lost_asks(endpoint)
            yield "%s: %s" % (endpoint, name), lambda folder, e=endpoint, a=action, n=asked: secure.case(folder, {e: [a]}, n)
        yield "%s: closed after the answer" % endpoint, lambda folder, e=endpoint: secure.case(
            folder, {e: [closes_after]}, {e: 1})
        yield "%s: ended after the answer" % endpoint, lambda folder, e=endpoint: secure.case(
            folder, {e: [politely(closes_after)]}, {e: 1})
    first = header_bytes() + 4
    for place in [*range(1, first), *range(first, first + 420, 5)]:
        for name, action in (("cut", cut(place)), ("ended", politely(cut(place)))):
            yield "records/modify: %s after %d bytes" % (name, place), lambda folder, a=action: secure.case(
                folder, {"records/modify": [a]}, {"records/modify": 1})


def main():
    judge = Judge("tls-cloud", sys.argv)
    server = Server(judge)
    try:
        judge.run_all(cases(judge, server), workers=6)
    finally:
        code = server.stop()
    if code != 0:
        judge.failures.append("the server ended with %s" % code)
    judge.finish()


if __name__ == "__main__":
    main()
