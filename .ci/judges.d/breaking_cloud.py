"""A cloud that breaks the transport, between `strandline sync` over http: and a real server.

Each case breaks one answer and says how the command must end, in which words, and which requests arrive. Afterwards a
sync over the healthy cloud must succeed, the store and the server must hold the same records, and no operation may have
been applied twice. What cannot be waited for in a moment (a time-out has 20 s) runs beside the other cases.
"""

import gzip
import re
import sys
import time

sys.dont_write_bytecode = True
from cloud_codes import Codes  # noqa: E402
from judge import *  # noqa: E402,F403

RECORDS = 2
ZONE = "Notes"
SECRET = "judge-secret-token"


class Upload:
    """A store with records to send; in `make` the template of each case's store."""

    def __init__(self, judge, server):
        self.judge, self.server = judge, server
        self.template = os.path.join(judge.work, "template")
        lines = b"".join(
            b'{"recordType":"Note","recordName":"n%d","fields":{"title":"words %d"}}\n' % (number, number)
            for number in range(RECORDS))
        run = judge.command("import", "--zone", ZONE, self.template, "-", stdin=lines)
        expect(run.code == 0, "import: %s" % run)
        self.count = 0

    def container(self):
        with self.judge.lock:
            self.count += 1
            return "%s.%d" % (CONTAINER, self.count)

    def sync(self, cloud, store, container, variables=None):
        return self.judge.command("sync", "--url", cloud.url, "--container", container, store, variables=variables)

    def case(self, folder, breaks, code, words="", asked=None, seconds=None, variables=None, download=False):
        """One case. `asked`: how often endpoints are asked in the broken cycle."""
        store = os.path.join(folder, "store")
        container = self.container()
        if download:
            self.fill(container)
        else:
            shutil.copytree(self.template, store)
        with Cloud(self.server.port) as cloud:
            cloud.breaks = breaks
            run = self.sync(cloud, store, container, variables)
            expect(run.code == code, "exit code %d was expected: %s" % (code, run))
            expect(re.search(words, run.err), "'%s' was expected: %s" % (words, run))
            expect(seconds is None or run.seconds < seconds, "it took too long: %s" % run)
            cloud.check_posts()
            for endpoint, count in (asked or {}).items():
                arrived = len(cloud.arrived(endpoint))
                expect(arrived == count, "%s was asked %d times, not %d: %s" % (endpoint, arrived, count, run))
            self.heal(cloud, store, container)
            expect(all(count == 1 for count in cloud.applied.values()), "applied twice: %s" % cloud.applied)
            with self.judge.lock:
                self.judge.applied += sum(cloud.applied.values())
        return run

    def fill(self, container):
        self.server.ask(
            "zones/modify", {"operations": [{"operationType": "create", "zone": {"zoneID": {"zoneName": ZONE}}}]}, container)
        status, _, body = self.server.ask("records/modify", {
            "zoneID": {"zoneName": ZONE},
            "operations": [
                {"operationType": "create", "record": {
                    "recordName": "n%d" % number, "recordType": "Note",
                    "fields": {"title": {"value": "words %d" % number, "type": "STRING"}}}} for number in range(RECORDS)]},
            container)
        expect(status == 200 and b"serverErrorCode" not in body, "the server cannot be filled: %r" % body[:300])
        with self.judge.lock:
            self.judge.applied += RECORDS

    def heal(self, cloud, store, container, records=RECORDS):
        """A sync over the healthy cloud, and both sides hold the same records."""
        cloud.breaks = {}
        cloud.forget()
        run = self.sync(cloud, store, container)
        expect(run.code == 0 and " 0 unsent" in run.out, "the sync after it: %s" % run)
        cloud.check_posts()
        exported = self.judge.command("export", store)
        lines = [json.loads(line) for line in exported.out.splitlines()]
        here = {line["recordName"]: line["fields"] for line in lines}
        there = self.server.records(container, ZONE)
        expect(here == there, "the store has %s, the server %s" % (here, there))
        expect(len(here) == records, "%d records instead of %d" % (len(here), records))


def head(body, fields=b"", status=b"200 OK"):
    return b"HTTP/1.1 " + status + b"\r\n" + fields + b"\r\n" + body


def length(count):
    return b"Content-Length: %d\r\n" % count


def sized(body, fields=b"", status=b"200 OK"):
    return head(body, fields + length(len(body)), status)


def chunk(body):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


CHUNKED = b"Transfer-Encoding: chunked\r\n"

# What an answer becomes. "whole": the client accepts it. "lost": the answer is lost for it, so it asks again, or looks
# whether its operations arrived. Else the words of the refusal that ends the cycle with exit code 69.
ANSWERS = {
    "without a length": (lambda b: head(b), "whole"),
    "with two equal lengths": (lambda b: head(b, length(len(b)) * 2), "whole"),
    "with two lengths": (lambda b: head(b, length(len(b)) + length(len(b) + 1)), "lost"),
    "with a length too long": (lambda b: head(b, length(len(b) + 5)), "lost"),
    "with a length too short": (lambda b: head(b, length(len(b) - 5)), "cannot be read"),
    "with a negative length": (lambda b: head(b, b"Content-Length: -1\r\n"), "lost"),
    "in a chunk": (lambda b: head(chunk(b), CHUNKED), "whole"),
    "in chunks of no number": (lambda b: head(b"zz\r\n" + b, CHUNKED), "lost"),
    "in a chunk of 2^60 bytes": (lambda b: head(b"fffffffffffffff\r\n" + b, CHUNKED), "lost"),
    "in a chunk, with a length": (lambda b: head(chunk(b), length(5) + CHUNKED), "lost"),
    "with a header of 10 MB": (lambda b: sized(b, b"A: " + b"x" * 10_000_000 + b"\r\n"), "lost"),
    "with 100,000 header lines": (lambda b: sized(b, b"A: b\r\n" * 100_000), "lost"),
    "of 70 MB": (lambda b: sized(b" " * 70_000_000 + b), "lost"),
    "of another protocol": (lambda b: b"SSH-2.0-x\r\n" + b, "lost"),
    "of HTTP/3": (lambda b: b"HTTP/3 200 OK\r\n\r\n" + b, "lost"),
    "after an interim one": (lambda b: b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b), "whole"),
    "that switches protocols": (lambda b: head(b"", status=b"101 Switching Protocols"), "lost"),
    "that is compressed": (lambda b: sized(gzip.compress(b), b"Content-Encoding: gzip\r\n"), "lost"),
    "of no content": (lambda b: head(b"", status=b"204 No Content"), "an empty body"),
    "that is empty": (lambda b: sized(b""), "an empty body"),
    "of HTML": (lambda b: sized(b"<html>portal</html>"), "expected an object, found '<'"),
    "of HTML with 502": (lambda b: sized(b"<html>bad</html>", status=b"502 Bad Gateway"), "lost"),
    "in UTF-16": (lambda b: sized(b.decode().encode("utf-16")), "expected an object, found the byte FF"),
    "with a byte order mark": (lambda b: sized(b"\xef\xbb\xbf" + b), "found a byte order mark"),
    "with an overlong character": (lambda b: sized(b.replace(b"{", b'{"x":"\xc0\xaf",', 1)), "not UTF-8"),
    "with half a surrogate": (lambda b: sized(b.replace(b"{", b'{"x":"\\ud800",', 1)), "half a surrogate pair"),
    "of depth 100,000": (
        lambda b: sized(b.replace(b"{", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1)), "lists and objects in each other"),
    "with a number of 400 digits": (lambda b: sized(b.replace(b"{", b'{"x":' + b"9" * 400 + b",", 1)), "whole"),
    "with a key twice": (lambda b: sized(b.replace(b"{", b'{"x":1,"x":2,', 1)), "occurs twice"),
}

# What a field of one record of a page becomes. The record is held and the token moves; the rest of the page is read.
DEFECTS = {
    "a key twice": b'{"value":"a","value":"b","type":"STRING"}',
    "half a surrogate": b'{"value":"\\ud800","type":"STRING"}',
    "a character that is not UTF-8": b'{"value":"\xff","type":"STRING"}',
    "an overlong character": b'{"value":"\xc0\xaf","type":"STRING"}',
    "a number that JSON has not": b'{"value":NaN,"type":"DOUBLE"}',
    "a word that JSON has not": b'{"value":undefined,"type":"STRING"}',
}
# What is JSON and no value of its type is kept as it came, and its record is as good as any.
KEPT = {
    "a number of 400 digits": (b"9" * 400, b'"INT64"'),
    "a fraction as an integer": (b"1.5", b'"INT64"'),
    "a number as text": (b'"1.5"', b'"DOUBLE"'),
    "a reference with a new action": (b'{"recordName":"n0","action":"EXPLODE"}', b'"REFERENCE"'),
    "a null in a list": (b'["a",null]', b'"STRING_LIST"'),
}


def short_length(server):
    """The bytes of the short answer that `cut` cuts, for an upload of the template."""
    lengths = []

    def action(connection, request, forward):
        status, _, body = forward()
        text = answer(status, body, {"A": "b"})
        lengths.append(len(text))
        connection.sendall(text)
        return True

    return lengths, action


def lost_asks(endpoint):
    return {endpoint: 1 if endpoint == "records/modify" else 2}


def cases(judge, server, upload):
    lengths, measure = short_length(server)
    upload.case(os.path.join(judge.work, "measured"), {"records/modify": [measure]}, 0, asked={"records/modify": 1})
    count = lengths[0]
    # The slow ones first, because they only wait.
    yield from slow(judge, server, upload)
    yield from Codes(judge, server, upload).cases()
    for endpoint in ("users/caller", "changes/database", "zones/modify", "records/modify"):
        for name, action in (
            ("closed before it", cut(0)), ("reset before it", reset(0)), ("reset within it", reset(60)),
        ):
            yield "%s: %s" % (endpoint, name), lambda folder, e=endpoint, a=action: upload.case(
                folder, {e: [a]}, 0, asked=lost_asks(e), seconds=15)

        def closes_after(connection, request, forward):
            status, fields, body = forward()
            connection.sendall(answer(status, body, fields))

        yield "%s: the connection ends after the answer" % endpoint, lambda folder, e=endpoint: upload.case(
            folder, {e: [closes_after]}, 0, asked={e: 1}, seconds=15)
    yield "records/modify: lost before it was applied", lambda folder: upload.case(folder, {"records/modify": [lost]}, 0, seconds=15)
    for name, (make, outcome) in ANSWERS.items():
        for endpoint in ("users/caller", "records/modify", "changes/zone"):
            yield "%s: an answer %s" % (endpoint, name), lambda folder, e=endpoint, m=make, o=outcome: upload.case(
                folder, {e: [raw(m)]}, 0 if o in ("whole", "lost") else 69, "" if o in ("whole", "lost") else re.escape(o),
                asked=lost_asks(e) if o == "lost" else {e: 1}, seconds=20, download=e == "changes/zone")
    for name, field in DEFECTS.items():
        yield "changes/zone: a record with %s" % name, lambda folder, f=field: held(folder, judge, server, upload, f)
    for name, value in KEPT.items():
        yield "changes/zone: a field with %s" % name, lambda folder, v=value: kept(folder, judge, server, upload, *v)
    yield "changes/zone: entries that name no record", lambda folder: unnamed(folder, judge, server, upload)
    for status in (301, 302, 303, 307, 308):
        for endpoint in ("users/caller", "records/modify"):
            yield "%s: a redirect with %d to another host" % (endpoint, status), (
                lambda folder, s=status, e=endpoint: redirect(folder, judge, server, upload, e, s))
    yield "a name that resolves to loopback", lambda folder: by_name(folder, judge, server, upload)
    for place in range(count):
        yield "records/modify: cut after %d of %d bytes" % (place, count), lambda folder, k=place: upload.case(
            folder, {"records/modify": [cut(k)]}, 0, asked={"records/modify": 1}, seconds=15)


def held(folder, judge, server, upload, field):
    """A page with one record that cannot be read: it is held with its bytes, and the token moves."""
    container = upload.container()
    store = os.path.join(folder, "store")
    upload.fill(container)

    def spoil(body):
        spoilt = re.sub(rb'"title":\{[^}]*"words 1"[^}]*\}', lambda _: b'"title":' + field, body)
        expect(spoilt != body, "the judge did not find the field in %r" % body[:300])
        return sized(spoilt)

    with Cloud(server.port) as cloud:
        # The client looks such a record up, so the answer to that is spoilt too.
        cloud.breaks = {"changes/zone": [raw(spoil)], "records/lookup": [raw(spoil)]}
        run = upload.sync(cloud, store, container)
        expect(run.code == 1 and "1 fetched" in run.out and "held: " in run.err, "one record fetched, one held: %s" % run)
        exported = judge.command("export", store)
        expect([json.loads(line)["recordName"] for line in exported.out.splitlines()] == ["n0"], "%s" % exported)
        status = json.loads(judge.command("status", "--json", store).out)
        expect(status["zones"][0]["hasToken"] and len(status["held"]) == 1, "the token did not move: %s" % status)
        cloud.forget()
        run = upload.sync(cloud, store, container)
        expect(run.code == 1, "the next sync still names what is held: %s" % run)
        for request in cloud.arrived("changes/zone"):
            expect("syncToken" in json.loads(request.body)["zones"][0], "the page was asked again")
    expect(judge.command("verify", store).code == 0, "the store is damaged")


def kept(folder, judge, server, upload, value, type):
    """A page with one value that cannot be read: the record is there, and the value lies in the store as it came."""
    container = upload.container()
    store = os.path.join(folder, "store")
    upload.fill(container)

    def spoil(body):
        spoilt = re.sub(
            rb'"title":\{[^}]*"words 1"[^}]*\}', lambda _: b'"title":{"value":' + value + b',"type":' + type + b"}", body)
        expect(spoilt != body, "the judge did not find the field in %r" % body[:300])
        return sized(spoilt)

    with Cloud(server.port) as cloud:
        cloud.breaks = {"changes/zone": [raw(spoil)]}
        run = upload.sync(cloud, store, container)
        expect(run.code == 0 and "2 fetched" in run.out, "both are fetched: %s" % run)
    exported = judge.command("export", store)
    expect(b'"value":' + value in exported.out.encode(), "the value lies there as it came: %s" % exported)
    expect(judge.command("verify", store).code == 0, "the store is damaged")


def unnamed(folder, judge, server, upload):
    """A page with entries that are no records: they keep nothing back."""
    container = upload.container()
    store = os.path.join(folder, "store")
    upload.fill(container)

    def spoil(body):
        spoilt = body.replace(b'"records":[', b'"records":[null,NaN,{"recordName":5},', 1)
        expect(spoilt != body, "the judge did not find the records in %r" % body[:300])
        return sized(spoilt)

    with Cloud(server.port) as cloud:
        cloud.breaks = {"changes/zone": [raw(spoil)]}
        run = upload.sync(cloud, store, container)
        expect(run.code == 0 and "2 fetched" in run.out, "both are fetched: %s" % run)


def redirect(folder, judge, server, upload, endpoint, status):
    with Cloud(server.port, host="127.0.0.1") as elsewhere:
        location = b"Location: http://localhost:%d/?again\r\n" % elsewhere.port

        def send(connection, request, forward):
            expect(SECRET in request.target, "the request carried no token")
            connection.sendall(sized(b"", location, b"%d Moved" % status))

        run = upload.case(
            folder, {endpoint: [send]}, 69, "HTTP %d" % status, asked={endpoint: 1},
            variables={"STRANDLINE_SESSION": SECRET, "STRANDLINE_API_TOKEN": SECRET + "-api"})
        expect(elsewhere.connections == 0, "the client followed the redirect")
        expect(SECRET not in run.out + run.err, "a token was printed: %s" % run)


def by_name(folder, judge, server, upload):
    store = os.path.join(folder, "store")
    shutil.copytree(upload.template, store)
    container = upload.container()
    with Cloud(server.port) as cloud:
        cloud.url = cloud.url.replace("127.0.0.1", "localhost")
        upload.heal(cloud, store, container)
        with judge.lock:
            judge.applied += sum(cloud.applied.values())


# Time-outs: nothing shortens the command's 20 s without a byte, and 120 s for a whole answer.


def slow(judge, server, upload):
    def silence(connection, request, forward):
        forward()
        with contextlib.suppress(OSError):
            connection.recv(1)

    def drip(connection, request, forward):
        forward()
        with contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
            for _ in range(130):
                connection.sendall(b" ")
                time.sleep(1)

    yield "an answer that never begins", lambda folder: upload.case(
        folder, {"records/modify": [silence]}, 0, asked={"records/modify": 1}, seconds=45)
    yield "an answer that never ends", lambda folder: upload.case(
        folder, {"users/caller": [drip] * 9}, 69, "timed out: no whole answer within 120000 ms", seconds=160)
    yield "a server that reads nothing", lambda folder: reads_nothing(folder, judge)
    yield "no server", lambda folder: no_server(folder, judge)
    yield "no host of this name", lambda folder: gives_up(
        folder, judge, "http://host.invalid", "cannot find the host")
    for name, action, words in (
        ("closed before every answer", cut(0), "the connection was lost before the answer"),
        ("cut within every answer", cut(60), "the connection ended"),
        ("every answer with two lengths", raw(ANSWERS["with two lengths"][0]), "Content-Length is not one number"),
        ("every header of 10 MB", raw(ANSWERS["with a header of 10 MB"][0]), "header is larger than 65536 bytes"),
        ("every answer of 70 MB", raw(ANSWERS["of 70 MB"][0]), "the answer is larger than 67108864 bytes"),
        ("every answer in chunks of no number", raw(ANSWERS["in chunks of no number"][0]), "is not HTTP that this client accepts"),
    ):
        yield name, lambda folder, a=action, w=words: upload.case(folder, {"users/caller": [a] * 99}, 69, w, seconds=60)


def no_server(folder, judge):
    """The port stays bound, and no socket listens on it: else another judge's server could be given it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        gives_up(folder, judge, "http://127.0.0.1:%d" % holder.getsockname()[1], "cannot connect")


def gives_up(folder, judge, url, words):
    run = judge.command("sync", "--url", url, "--container", CONTAINER, os.path.join(folder, "store"))
    expect(run.code == 69 and words in run.err and run.seconds < 60, "exit code 69 and '%s': %s" % (words, run))


def reads_nothing(folder, judge):
    """A peer that accepts connections and reads no byte, for a request that no socket's buffer holds."""
    store = os.path.join(folder, "store")
    words = "x" * 900_000
    lines = "".join('{"recordType":"Note","recordName":"n%d","fields":{"title":"%s"}}\n' % (n, words) for n in range(2))
    judge.command("import", "--zone", ZONE, store, "-", stdin=lines.encode())
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        run = judge.command(
            "sync", "--url", "http://127.0.0.1:%d" % listener.getsockname()[1], "--container", CONTAINER, store)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for connection in held:
        connection.close()
    expect(run.code == 69 and "timed out: no answer within 20000 ms" in run.err and run.seconds < 100, "a time-out: %s" % run)
    status = json.loads(judge.command("status", "--json", store).out)
    expect(status["unsettled"] == 2, "the records are no longer to be sent: %s" % status)


def main():
    judge = Judge("breaking-cloud", sys.argv)
    judge.applied = 0
    server = Server(judge)
    try:
        upload = Upload(judge, server)
        judge.run_all(cases(judge, server, upload), workers=20)
    finally:
        code = server.stop()
    if code != 0:
        judge.failures.append("the server ended with %s" % code)
    if judge.wanted is None:
        applied_in_journal(judge, server)
    judge.finish()


def applied_in_journal(judge, server):
    """The journal of the server, which has ended, holds each applied operation once.

    A reader beside a running writer may lag by the 200 ms in which the writer publishes what is durable.
    """

    def body(folder):
        dump = judge.command("log-dump", "--json", "--kind", "recordSaved", server.directory)
        saved = len(dump.out.splitlines())
        expect(saved == judge.applied, "%d saves in the journal, %d applied" % (saved, judge.applied))

    judge.run("the journal", body)


if __name__ == "__main__":
    main()
