"""A headless Chromium, driven over its DevTools protocol with the standard library alone."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse


class WebSocket:
    """The client's side of RFC 6455, for text messages of one peer on this machine."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self._fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"the browser refused the connection: {head[:200]!r}")

    def _fill(self):
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise ConnectionError("the browser closed the connection")
        self.buffer += piece

    def _take(self, count):
        while len(self.buffer) < count:
            self._fill()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        length = len(data)
        if length < 126:
            head = struct.pack("!BB", 0x81, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, length)
        pad = (mask * (length // 4 + 1))[:length]
        body = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(length, "big") if length else b""
        self.socket.sendall(head + mask + body)

    def receive(self, timeout):
        """The next message; None if none comes in time."""
        self.socket.settimeout(timeout)
        message = b""
        while True:
            try:
                first, second = self._take(2)
            except (socket.timeout, TimeoutError):
                return None
            self.socket.settimeout(60)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", self._take(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self._take(8))[0]
            data = self._take(length)
            if first & 0x0F == 8:
                raise ConnectionError("the browser ended the connection")
            if first & 0x0F in (0, 1):
                message += data
                if first & 0x80:
                    return message.decode()


class Browser:
    """One browser with one page. `errors` collects what its console and its network say is wrong."""

    def __init__(self, program=None, overlay=None):
        program = program or next((shutil.which(n) for n in ("chromium", "chromium-browser", "google-chrome", "chrome") if shutil.which(n)), None)
        if not program:
            raise RuntimeError("there is no Chromium; install Debian's package chromium")
        self.folder = tempfile.mkdtemp(prefix="page-browser-")
        self.overlay = overlay
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
             "--remote-debugging-port=0", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        file = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + 60
        while not (os.path.exists(file) and open(file).read().count("\n") >= 1):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("the browser did not start")
            time.sleep(0.05)
        port, path = open(file).read().split("\n")[:2]
        self.socket = WebSocket(int(port), path)
        self.number = 0
        self.awaited = set()
        # How many seconds a call may take.
        self.patience = 120
        self.answers = {}
        self.session = None
        self.errors = []
        self.expected = []
        self.requests = []
        # Every path on this machine that was ever asked for, with the last query.
        self.paths = {}
        # The requests without an answer yet, but those of events, which have no end.
        self.asked = {}
        # Changes the text of answers with data, for what no server of ours sends.
        self.doctor = None
        # Answers that are kept back; None if none is.
        self.kept = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.change(None)

    def zone(self, name):
        """The time zone of the machine, as the page sees it."""
        self.call("Emulation.setTimezoneOverride", timezoneId=name)

    def change(self, doctor):
        """From now on changes the text of answers with data; None changes none."""
        self.doctor = doctor
        patterns = [{"urlPattern": f"*/api/{name}*", "requestStage": "Response"} for name in ("run", "cloud", "databases", "requests", "faults")] if doctor else []
        if self.overlay:
            patterns += [{"urlPattern": "*/page/*"}, {"urlPattern": "http://127.0.0.1:*/", "resourceType": "Document"}]
        self.call("Fetch.disable")
        if patterns:
            self.call("Fetch.enable", patterns=patterns)

    def hold(self):
        """From now on no answer with data arrives."""
        self.change(lambda body: body)
        self.kept = []

    def release(self):
        """Lets all arrive that were kept back, and the next ones too."""
        kept, self.kept = self.kept, None
        for params in kept:
            self._doctor(params)
        self.change(None)

    def drop(self):
        """Forgets the answers that were kept back: the page that asked for them has been left."""
        self.kept = None
        self.change(None)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _send(self, method, params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        return self.number

    def call(self, method, **params):
        number = self._send(method, params)
        self.awaited.add(number)
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if number in self.answers:
                message = self.answers.pop(number)
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            text = self.socket.receive(max(0.01, end - time.monotonic()))
            if text is None:
                break
            self._event(json.loads(text))
        raise RuntimeError(f"{method}: no answer in time")

    def listen(self, seconds):
        """Takes in events for a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            text = self.socket.receive(left)
            if text:
                self._event(json.loads(text))

    def _event(self, message):
        # An event may ask something itself, while an answer to another question comes.
        if "id" in message:
            if message["id"] in self.awaited:
                self.answers[message["id"]] = message
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self._error("exception: " + details.get("exception", {}).get("description", details.get("text", "")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self._error("console: " + " ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self._error("log: " + params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
            address = urllib.parse.urlsplit(params["request"]["url"])
            if address.hostname == "127.0.0.1" and not address.query.startswith("t="):
                self.paths[address.path] = address.query
            if params.get("type") != "EventSource":
                self.asked[params["requestId"]] = params["request"]["url"]
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            self.asked.pop(params["requestId"], None)
        elif method == "Page.javascriptDialogOpening":
            self._error("a dialog of a script opened: " + params.get("message", ""))
            self._send("Page.handleJavaScriptDialog", {"accept": True})
        elif method == "Fetch.requestPaused" and "responseStatusCode" in params:
            self._doctor(params)
        elif method == "Fetch.requestPaused" and "responseErrorReason" in params:
            self._send("Fetch.continueRequest", {"requestId": params["requestId"]})
        elif method == "Fetch.requestPaused":
            self._overlay(params)

    def _doctor(self, params):
        if self.kept is not None:
            self.kept.append(params)
            return
        if not self.doctor:
            self._send("Fetch.continueRequest", {"requestId": params["requestId"]})
            return
        answer = self.call("Fetch.getResponseBody", requestId=params["requestId"])
        text = base64.b64decode(answer["body"]).decode() if answer["base64Encoded"] else answer["body"]
        self._send("Fetch.fulfillRequest", {
            "requestId": params["requestId"], "responseCode": params["responseStatusCode"],
            "responseHeaders": [{"name": "Content-Type", "value": "application/json; charset=utf-8"}],
            "body": base64.b64encode(self.doctor(text).encode()).decode()})

    def _overlay(self, params):
        url = params["request"]["url"].split("?")[0]
        name = url.rsplit("/", 1)[1] or "page.html"
        file = os.path.join(self.overlay, name)
        if not self.overlay or "?t=" in params["request"]["url"] or not os.path.exists(file):
            self._send("Fetch.continueRequest", {"requestId": params["requestId"]})
            return
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}[name.rsplit(".", 1)[1]]
        self._send("Fetch.fulfillRequest", {
            "requestId": params["requestId"], "responseCode": 200,
            "responseHeaders": [{"name": "Content-Type", "value": kind + "; charset=utf-8"}],
            "body": base64.b64encode(open(file, "rb").read()).decode()})

    def _error(self, text):
        if not any(one in text for one in self.expected):
            self.errors.append(text)

    def go(self, url):
        self.asked.clear()
        self.call("Page.navigate", url=url)
        self.listen(0.2)

    def settle(self, seconds=30):
        """Waits until nothing was asked for a moment."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.listen(0.12)
            if not self.asked:
                return
        raise AssertionError(f"{len(self.asked)} requests have no answer: {list(self.asked.values())}")

    def script(self, expression):
        """The value of an expression, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]) + "\nin " + expression[:300])
        return result["result"].get("value")

    def wait(self, expression, seconds=30, what=None):
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        last = None
        while time.monotonic() < end:
            try:
                last = self.script(f"Boolean({expression})")
            except RuntimeError as error:
                last = error
            if last and not isinstance(last, Exception):
                return
            self.listen(0.05)
        raise AssertionError(f"not within {seconds} s: {what or expression} (last: {last!r}; errors: {self.errors[:3]})\n" + str(self.script("document.body.innerText.slice(0, 900)")))

    def press(self, key):
        special = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "End": 35, "Home": 36}
        params = {"key": key, "windowsVirtualKeyCode": special.get(key, ord(key[0].upper()))}
        if len(key) == 1:
            params["text"] = key
        elif key == "Enter":
            params["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in params.items() if k != "text"})

    def tab_to(self, what, name, most=150):
        """Presses Tab until the focus is where an expression of `e` is true."""
        seen = []
        for _ in range(most):
            self.press("Tab")
            if self.script(f"(e => Boolean({what}))(document.activeElement)"):
                return
            seen.append(self.script("document.activeElement.outerHTML.slice(0, 60)"))
        raise AssertionError(f"the Tab key does not lead to {name}: {seen[:40]}")

    def look(self, width, height=900, theme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.listen(0.25)

    def screenshot(self):
        """A picture of the window, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
