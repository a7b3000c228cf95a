"""What the judges share: cases and their count, the command and its server as processes, and a cloud that breaks.

The cloud is a server of HTTP between the client and a real `strandline serve`. It reads each request whole, remembers
it, and hands it on. A case can tell it to break one answer: at any byte, with any bytes. It counts the operations that
the real server applied, so a case can say that nothing was applied twice.
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

CONTAINER = "iCloud.judge"
SERVER_SECONDS = 20
RUN_SECONDS = 200


class Failure(Exception):
    """A case that did not hold, in words."""


def expect(holds, words):
    if not holds:
        raise Failure(words)


class Judge:
    """Runs the cases of one script. `wanted` is the case to replay, or None for all."""

    def __init__(self, name, arguments):
        if len(arguments) not in (2, 3):
            sys.exit("usage: %s STRANDLINE [CASE]" % arguments[0])
        self.name = name
        self.binary = os.path.abspath(arguments[1])
        self.wanted = arguments[2] if len(arguments) == 3 else None
        self.cases = 0
        self.failures = []
        self.notes = []
        self.lock = threading.Lock()
        self.work = tempfile.mkdtemp(prefix="strandline-judge-")
        self.begin = time.monotonic()
        self.children = set()
        # Told to stop, a judge first ends the processes that it has started.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("%s: stopped" % name))

    def run(self, case, body):
        """Runs one case, which has this name; `body` gets a directory of its own."""
        if self.wanted is not None and case != self.wanted:
            return
        folder = os.path.join(self.work, "".join(c if c.isalnum() else "-" for c in case))
        os.makedirs(folder)
        try:
            body(folder)
            problem = None
        except Failure as failure:
            problem = str(failure)
        except Exception as error:  # A defect of the judge, or an answer that it did not foresee.
            problem = "%s: %s" % (type(error).__name__, error)
        with self.lock:
            self.cases += 1
            if problem is not None:
                self.failures.append(case)
                print("%s: FAILED: %s: %s" % (self.name, case, problem))
                print("    again: .ci/judges --only %s STRANDLINE %s" % (self.name, quoted(case)), flush=True)
        shutil.rmtree(folder, ignore_errors=True)

    def run_all(self, cases, workers):
        """Runs cases (name and body) on several threads: each waits for processes most of the time."""
        cases = list(cases)
        place = [0]

        def work():
            while True:
                with self.lock:
                    index = place[0]
                    place[0] += 1
                if index >= len(cases):
                    return
                self.run(*cases[index])

        threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except SystemExit:
            for child in list(self.children):
                child.kill()
            raise

    def note(self, words):
        with self.lock:
            self.notes.append(words)

    def finish(self):
        shutil.rmtree(self.work, ignore_errors=True)
        for words in self.notes:
            print("%s: %s" % (self.name, words))
        seconds = time.monotonic() - self.begin
        if self.failures:
            print("%s: %d of %d cases failed (%.0f s)" % (self.name, len(self.failures), self.cases, seconds))
            sys.exit(1)
        if self.cases == 0:
            sys.exit("%s: no case was tried" % self.name)
        print("%s: %d cases, nothing found (%.0f s)" % (self.name, self.cases, seconds), flush=True)

    # The command.

    def command(self, *words, stdin=None, variables=None, seconds=RUN_SECONDS):
        """Runs `strandline` and returns its exit code, output, errors, seconds, and what the system counted."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STRANDLINE_") and "proxy" not in k.lower()}
        environment.update(variables or {})
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                [self.binary, *words], stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, stdout=out,
                stderr=err, env=environment)
            self.children.add(child)
            if stdin is not None:
                child.stdin.write(stdin)
                child.stdin.close()
            timer = threading.Timer(seconds, child.kill)
            timer.start()
            _, status, usage = os.wait4(child.pid, 0)
            self.children.discard(child)
            timer.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            return Run(child.returncode, out.read(), err.read(), time.monotonic() - begin, usage)


class Run:
    def __init__(self, code, out, err, seconds, usage):
        self.code = code
        self.out = out.decode("utf-8", "replace")
        self.err = err.decode("utf-8", "replace")
        self.seconds = seconds
        self.switches = usage.ru_nvcsw + usage.ru_nivcsw
        self.cpu = usage.ru_utime + usage.ru_stime
        self.kilobytes = usage.ru_maxrss

    def __str__(self):
        return "exit code %d after %.1f s, output %r, errors %r" % (self.code, self.seconds, self.out[:300], self.err[:600])


def quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"


class Server:
    """A real `strandline serve`; stopped by its process ID."""

    def __init__(self, judge, *options, directory=None):
        self.folder = tempfile.mkdtemp(prefix="server-", dir=judge.work)
        self.directory = directory or os.path.join(self.folder, "journal")
        self.errors = open(os.path.join(self.folder, "errors"), "wb+")
        self.process = subprocess.Popen(
            [judge.binary, "serve", *options, self.directory], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=self.errors)
        timer = threading.Timer(SERVER_SECONDS, self.process.kill)
        timer.start()
        url = self.process.stdout.readline().decode().strip()
        timer.cancel()
        if not url.startswith("http://"):
            self.process.kill()
            self.process.wait()
            raise Failure("the server did not print its URL: %r" % self.said())
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def is_alive(self):
        return self.process.poll() is None

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(SERVER_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        return self.process.returncode

    def ask(self, endpoint, body=None, container=CONTAINER, scope="private", method=None, headers=None, query=""):
        """One request on a connection of its own: status, header fields, body."""
        path = "/database/1/%s/development/%s/%s%s" % (container, scope, endpoint, query)
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method or ("GET" if data is None else "POST"), path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def records(self, container, zone):
        """The undeleted records of a zone by name, each as its fields' values, read page by page."""
        records, token = {}, None
        while True:
            entry = {"zoneID": {"zoneName": zone}}
            if token:
                entry["syncToken"] = token
            status, _, body = self.ask("changes/zone", {"zones": [entry]}, container)
            expect(status == 200, "changes/zone answered %d: %r" % (status, body[:200]))
            page = json.loads(body)["zones"][0]
            if page.get("serverErrorCode") == "ZONE_NOT_FOUND":
                return {}
            for record in page["records"]:
                if record.get("deleted"):
                    records.pop(record["recordName"], None)
                else:
                    records[record["recordName"]] = {
                        name: field["value"] for name, field in record["fields"].items() if name != "strandlineStamp"}
            token = page["syncToken"]
            if not page["moreComing"]:
                return records


# The cloud that breaks.


class Request:
    """A request as it arrived. `is_whole` says whether its body had all the bytes that its header announced."""

    def __init__(self, method, target, fields, body, is_whole, connection):
        self.method, self.target, self.fields, self.body = method, target, fields, body
        self.is_whole, self.connection = is_whole, connection
        path = target.split("?")[0].split("/")
        self.endpoint = "/".join(path[-2:])
        self.hash = hashlib.sha256(body).hexdigest()

    def __str__(self):
        return "%s %s, %d bytes, on connection %d" % (self.method, self.endpoint, len(self.body), self.connection)


def hard_close(connection):
    """Closes with a reset instead of an end."""
    raw = connection
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        raw.close()


class Cloud:
    """Stands between a client and a real server, and breaks what `breaks` names.

    `breaks` maps an endpoint to a list of actions; each arrival at that endpoint takes the first one. An action gets
    the connection, the request and a function that hands the request on and returns the answer's status and body. If it
    returns true the connection stays open. Without an action the request is answered as the real server does.
    """

    def __init__(self, port, context=None, host="127.0.0.1"):
        self.upstream, self.context = port, context
        self.breaks = {}
        self.requests = []
        self.applied = {}
        self.connections = 0
        self.refused = 0
        self.lock = threading.Lock()
        self.is_closed = False
        self.open = set()
        self.listener = socket.create_server((host, 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.url = "%s://%s:%d" % ("https" if context else "http", host, self.port)
        self.threads = []
        self.start(self.accept)

    def start(self, body, *words):
        thread = threading.Thread(target=body, args=words, daemon=True)
        thread.start()
        self.threads.append(thread)

    def accept(self):
        while not self.is_closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections += 1
                number = self.connections
                self.open.add(connection)
            self.start(self.serve, connection, number)

    def serve(self, raw, number):
        connection = raw
        try:
            if self.context is not None:
                raw.settimeout(30)
                connection = self.context.wrap_socket(raw, server_side=True)
                raw = connection
                with self.lock:
                    self.open.add(connection)
            connection.settimeout(180)
            buffer = bytearray()
            while True:
                request = self.read(connection, buffer, number)
                if request is None:
                    return
                with self.lock:
                    self.requests.append(request)
                    actions = self.breaks.get(request.endpoint) or self.breaks.get("*")
                    action = actions.pop(0) if actions else None
                if not request.is_whole:
                    return
                if action is not None:
                    if not action(connection, request, lambda: self.forward(request)):
                        return
                else:
                    status, fields, body = self.forward(request)
                    connection.sendall(answer(status, body, fields))
        except ssl.SSLError:
            with self.lock:
                self.refused += 1
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                connection.close()
            with contextlib.suppress(OSError):
                raw.close()

    def read(self, connection, buffer, number):
        """The next request, read as strictly as the standard demands; None if the client sends none."""
        while b"\r\n\r\n" not in buffer:
            part = connection.recv(65536)
            if not part:
                # Nothing, or a part of a header: no request has come.
                return None
            buffer += part
        end = buffer.index(b"\r\n\r\n")
        lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
        del buffer[: end + 4]
        method, target, _ = lines[0].split(" ")
        fields = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            fields[name.lower()] = value.strip()
        if fields.get("expect", "").lower() == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(fields.get("content-length", "0"))
        is_whole = True
        while len(buffer) < length:
            part = connection.recv(65536)
            if not part:
                is_whole = False
                break
            buffer += part
        body = bytes(buffer[:length])
        del buffer[:length]
        return Request(method, target, fields, body, is_whole, number)

    def forward(self, request):
        """Hands the request to the real server, and counts the operations that it applied."""
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=120)
        try:
            upstream.request(
                request.method, request.target, request.body or None, {"Content-Type": "application/json"})
            reply = upstream.getresponse()
            body = reply.read()
            fields = {
                name: value for name, value in reply.getheaders() if name.lower() in ("content-type", "retry-after", "x-apple-cloudkit-web-auth-token")}
            if request.endpoint == "records/modify" and reply.status == 200:
                with self.lock:
                    for record in json.loads(body)["records"]:
                        if "serverErrorCode" not in record:
                            key = (record["recordName"], bool(record.get("deleted")))
                            self.applied[key] = self.applied.get(key, 0) + 1
            return reply.status, fields, body
        finally:
            upstream.close()

    def arrived(self, endpoint):
        with self.lock:
            return [request for request in self.requests if request.endpoint == endpoint]

    def forget(self):
        with self.lock:
            self.requests = []

    def check_posts(self):
        """No POST came without its body, and the transport sent none twice.

        The engine may send operations a second time, but only after it has looked whether they arrived. So the same
        request right after itself comes from the transport.
        """
        with self.lock:
            requests = list(self.requests)
        last = None
        for request in requests:
            if request.method == "POST":
                expect(request.is_whole and request.body, "a POST came without its body: %s" % request)
                try:
                    json.loads(request.body)
                except ValueError:
                    raise Failure("a POST came with a body that is no JSON: %s" % request) from None
                if request.endpoint == "records/modify":
                    expect(last != request.hash, "the same operations were sent twice: %s" % request)
            last = request.hash

    def close(self):
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            connections = list(self.open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(10)
        for connection in connections:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def answer(status, body, fields=None, length=None):
    """The bytes of an answer."""
    head = "HTTP/1.1 %d Words\r\n" % status
    for name, value in (fields or {"Content-Type": "application/json; charset=UTF-8"}).items():
        head += "%s: %s\r\n" % (name, value)
    return (head + "Content-Length: %d\r\n\r\n" % (len(body) if length is None else length)).encode() + body


# Actions.


def cut(count):
    """Applies the request and sends the first bytes of a short form of the answer, then closes."""

    def action(connection, request, forward):
        status, _, body = forward()
        connection.sendall(answer(status, body, {"A": "b"})[:count])

    return action


def reset(count):
    """As `cut`, and closes with a reset."""

    def action(connection, request, forward):
        status, _, body = forward()
        connection.sendall(answer(status, body, {"A": "b"})[:count])
        hard_close(connection)

    return action


def lost(connection, request, forward):
    """Closes without a byte; the request is not applied."""


def raw(make, applies=True):
    """Sends what `make` returns for the real answer's body, then closes."""

    def action(connection, request, forward):
        body = forward()[2] if applies else b""
        connection.sendall(make(body))

    return action
