"""One case for each code of CKError, in the form that the web gives it, for a whole request and for one item.

The codes come from a list that was not made for this project (CI_CKERROR, else ../shared beside the repository). Each of
them is tried, or named in NOT_ON_THE_WEB with the reason; one that is neither is a finding. The fault comes once or lasts
for a cycle; afterwards the cloud is healthy, a person decides where the table says so, and both sides must agree.
"""

import json
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
from judge import Cloud, answer, expect  # noqa: E402

ZONE = "Notes"
SAYS = "the judge refuses it"

# The code, the status of a whole request, and what must follow from each: for an upload, one item of it, and a page.
WEB = {
    "THROTTLED": (429, "retry", "retry"),
    "TRY_AGAIN_LATER": (503, "retry", "retry"),
    "ZONE_BUSY": (503, "retry", "retry"),
    "INTERNAL_ERROR": (500, "retry", "retry"),
    "SERVICE_UNAVAILABLE": (503, "retry", "retry"),
    "CONFLICT": (409, "later", "look up"),
    "EXISTS": (409, "later", "look up"),
    "NOT_FOUND": (404, "halt", "retry"),
    "ZONE_NOT_FOUND": (404, "confirm", "retry"),
    "AUTHENTICATION_REQUIRED": (421, "sign in", "sign in"),
    "AUTHENTICATION_FAILED": (401, "sign in", "sign in"),
    "ACCESS_DENIED": (403, "halt", "hold"),
    "ATOMIC_ERROR": (400, "halt", "retry"),
    "BAD_REQUEST": (400, "split", "hold"),
    "QUOTA_EXCEEDED": (413, "full", "hold"),
    "VALIDATING_REFERENCE_ERROR": (412, "halt", "retry"),
    "UNIQUE_FIELD_ERROR": (409, "halt", "hold"),
    "LIMIT_EXCEEDED": (413, "split", "hold"),
    "A_CODE_OF_TOMORROW": (400, "halt", "hold"),
}

# Codes of the framework and what the web says in their place.
ON_THE_WEB = {
    "internalError": "INTERNAL_ERROR",
    "serviceUnavailable": "SERVICE_UNAVAILABLE",
    "requestRateLimited": "THROTTLED",
    "notAuthenticated": "AUTHENTICATION_REQUIRED",
    "permissionFailure": "ACCESS_DENIED",
    "unknownItem": "NOT_FOUND",
    "invalidArguments": "BAD_REQUEST",
    "resultsTruncated": "TRY_AGAIN_LATER",
    "serverRecordChanged": "CONFLICT",
    "serverRejectedRequest": "BAD_REQUEST",
    "constraintViolation": "UNIQUE_FIELD_ERROR",
    "changeTokenExpired": "BAD_REQUEST",
    "batchRequestFailed": "ATOMIC_ERROR",
    "zoneBusy": "ZONE_BUSY",
    "quotaExceeded": "QUOTA_EXCEEDED",
    "zoneNotFound": "ZONE_NOT_FOUND",
    "limitExceeded": "LIMIT_EXCEEDED",
    "userDeletedZone": "ZONE_NOT_FOUND",
    "referenceViolation": "VALIDATING_REFERENCE_ERROR",
    "managedAccountRestricted": "AUTHENTICATION_FAILED",
    "accountTemporarilyUnavailable": "AUTHENTICATION_REQUIRED",
}
NO_ANSWER = "no answer comes; the cases that close and reset the connection are these"
NO_ASSETS = "there are no assets yet"
NO_SHARES = "there are no shares yet"
NOT_ON_THE_WEB = {
    "partialFailure": "an answer says it by what its items say",
    "networkUnavailable": NO_ANSWER,
    "networkFailure": NO_ANSWER,
    "operationCancelled": NO_ANSWER,
    "serverResponseLost": NO_ANSWER,
    "badContainer": "the container is in the path of a request, so the web has no such code; it is as a code of tomorrow",
    "badDatabase": "as badContainer: the database is in the path",
    "missingEntitlement": "a program of the web has no entitlements",
    "incompatibleVersion": "the web does not ask for the version of an app",
    "assetFileNotFound": NO_ASSETS,
    "assetFileModified": NO_ASSETS,
    "assetNotAvailable": NO_ASSETS,
    "tooManyParticipants": NO_SHARES,
    "alreadyShared": NO_SHARES,
    "participantMayNeedVerification": NO_SHARES,
    "participantAlreadyInvited": NO_SHARES,
}

# Exit code, words, and how often the endpoint is asked in the cycle with the fault.
UPLOADS = {
    "retry": (0, [], 2),
    "split": (0, [], 3),
    "confirm": (0, [], 2),
    "sign in": (77, ["requires a sign-in: " + SAYS, "left: 2 records to send"], 1),
    "halt": (69, ["%s: " + SAYS, "left: 2 records to send"], 1),
    # A halt that holds each record, so that every verb finds it.
    "full": (69, ["%s: " + SAYS, "left: 2 records, %s; tried again in .* strandline held "], 1),
    "later": (75, ["%s: " + SAYS, "left: 2 records to send", "try: the same command in"], 1),
}
ITEMS = {
    "retry": (0, [], 2),
    "look up": (0, [], 2),
    "sign in": (77, ["requires a sign-in: " + SAYS, "left: 1 record to send"], 1),
    "hold": (1, ["1 uploaded, 1 held", "held: .*n0.*%s.*" + SAYS, "left: 1 record, %s.* strandline held "], 1),
}
PAGES = {
    "retry": (0, [], 2),
    "confirm": (0, [], 2),
    "split": (69, ["%s: " + SAYS], 1),
    "less": (0, [], 2),
    "sign in": (77, ["requires a sign-in: " + SAYS], 1),
    "halt": (69, ["%s: " + SAYS], 1),
    "full": (69, ["%s: " + SAYS], 1),
    "later": (75, ["%s: " + SAYS, "try: the same command in"], 1),
}


def error(code):
    return {"serverErrorCode": code, "reason": SAYS, "uuid": "00000000-0000-0000-0000-000000000000"}


def whole(code, status=None, applies=False):
    """Answers a request with an error in its place; with `applies` the server has done what it says it has not."""

    def action(connection, request, forward):
        if applies:
            forward()
        connection.sendall(answer(status or WEB[code][0], json.dumps(error(code)).encode()))
        return True

    return action


def item(code, name="n0"):
    """Answers one operation of an upload with an error; the others reach the server."""

    def action(connection, request, forward):
        body = json.loads(request.body)
        names = [operation["record"]["recordName"] for operation in body["operations"]]
        expect(name in names, "the upload does not hold %s: %s" % (name, names))
        body["operations"] = [operation for operation in body["operations"] if operation["record"]["recordName"] != name]
        given, request.body = request.body, json.dumps(body).encode()
        status, fields, reply = forward() if body["operations"] else (200, {}, b'{"records":[]}')
        request.body = given
        expect(status == 200, "the rest was refused: %r" % reply[:300])
        found = {record["recordName"]: record for record in json.loads(reply)["records"]}
        found[name] = {"recordName": name, **error(code)}
        fields = {key: value for key, value in fields.items() if key.lower() != "content-length"}
        connection.sendall(answer(200, json.dumps({"records": [found[name] for name in names]}).encode(), fields))
        return True

    return action


def zone_entry(code):
    """Answers a zone of a page with an error in its place, in an answer with status 200."""

    def action(connection, request, forward):
        zones = [{"zoneID": zone["zoneID"], **error(code)} for zone in json.loads(request.body)["zones"]]
        connection.sendall(answer(200, json.dumps({"zones": zones}).encode()))
        return True

    return action


def without_zones(connection, request, forward):
    """The list of zones without the store's own."""
    status, fields, body = forward()
    zones = [zone for zone in json.loads(body)["zones"] if zone["zoneID"]["zoneName"] != ZONE]
    connection.sendall(answer(status, json.dumps({"zones": zones}).encode(), fields))
    return True


class Codes:
    def __init__(self, judge, server, upload):
        self.judge, self.server, self.upload = judge, server, upload
        here = os.path.dirname(os.path.abspath(__file__))
        self.list = os.environ.get("CI_CKERROR") or os.path.join(
            here, "../../../shared/reference/cloudkit/ckerror_codes.json")

    def names(self):
        expect(os.path.isfile(self.list), "there is no list of codes at %s; set CI_CKERROR" % os.path.normpath(self.list))
        with open(self.list) as file:
            return [code["swift"] for code in json.load(file)["codes"]]

    def check_list(self, folder):
        names = self.names()
        expect(len(names) > 30 and len(set(names)) == len(names), "the list of codes has %d" % len(names))
        expect(not set(ON_THE_WEB) & set(NOT_ON_THE_WEB), "codes are tried and listed")
        tried = set(ON_THE_WEB) | set(NOT_ON_THE_WEB)
        expect(set(names) == tried, "neither tried nor listed, or not a code: %s" % sorted(set(names) ^ tried))
        expect(set(ON_THE_WEB.values()) <= set(WEB), "a code of the web is not tried")

    def cases(self):
        yield "codes: each is tried, or has none on the web", self.check_list
        counterparts = dict(ON_THE_WEB)
        # What the web says beside them, and what it may say one day.
        for code in sorted(set(WEB) - set(ON_THE_WEB.values())):
            counterparts[code] = code
        for name, code in counterparts.items():
            if name == "changeTokenExpired":
                yield from self.expired(name, code)
                continue
            if name == "userDeletedZone":
                yield from self.lost_zone(name, code)
                continue
            yield from self.refused(name, code)
        yield from self.findings()

    def refused(self, name, code):
        status, of_request, of_item = WEB[code]
        yield "%s: an upload" % name, lambda folder: self.run(
            folder, {"records/modify": [whole(code)]}, UPLOADS[of_request], "records/modify", code)
        yield "%s: an item of an upload" % name, lambda folder: self.run(
            folder, {"records/modify": [item(code)]}, ITEMS[of_item], "records/modify", code)
        # What is too much is asked for in smaller parts; BAD_REQUEST says that something else is wrong.
        of_page = "less" if code == "LIMIT_EXCEEDED" else of_request
        yield "%s: a page" % name, lambda folder: self.run(
            folder, {"changes/zone": [whole(code)]}, PAGES[of_page], "changes/zone", code, download=True)
        if of_request == "retry":
            # Any part of a refused request may have been applied: the feed is asked before anything is sent again.
            yield "%s: an upload that was applied all the same" % name, lambda folder: self.run(
                folder, {"records/modify": [whole(code, applies=True)]}, (0, ["2 found uploaded already"], 1),
                "records/modify", code)

    def run(self, folder, breaks, expected, endpoint, code, download=False, prepare=None, person=None, records=2):
        """A cycle with the fault, what a person does about it, a healthy cycle, and both sides agree."""
        exit_code, words, count = expected
        store, container = os.path.join(folder, "store"), self.upload.container()
        if download:
            self.upload.fill(container)
        else:
            shutil.copytree(self.upload.template, store)
        with Cloud(self.server.port) as cloud:
            if prepare:
                prepare(cloud, store, container)
                self.count(cloud)
            cloud.forget()
            cloud.breaks = breaks
            result = self.upload.sync(cloud, store, container)
            expect(result.code == exit_code, "exit code %d was expected: %s" % (exit_code, result))
            for pattern in words:
                pattern = pattern.replace("%s", code)
                expect(re.search(pattern, result.out + result.err), "'%s' was expected: %s" % (pattern, result))
            arrived = len(cloud.arrived(endpoint))
            expect(arrived == count, "%s was asked %d times, not %d: %s" % (endpoint, arrived, count, result))
            cloud.breaks = {}
            before = json.loads(self.judge.command("status", "--json", store).out)
            if person:
                person(store)
            elif before["held"]:
                # What only an edit or a person ends is released by name; the others may be tried again at once.
                verb = ("release", "--zone", ZONE, *[held["recordName"] for held in before["held"]]) if code in (
                    "BAD_REQUEST", "LIMIT_EXCEEDED") else ("retry",)
                self.must("held", store, *verb)
            self.upload.heal(cloud, store, container, records)
            after = json.loads(self.judge.command("status", "--json", store).out)
            expect(after["held"] == [] and after["unsettled"] == 0, "something is stuck: %s" % after)
            expect(not any(zone.get("isLost") for zone in after["zones"]), "a zone is frozen: %s" % after)
            expect(not after.get("waitMilliseconds"), "a wait that is over is shown: %s" % after)
            expect(all(count == 1 for count in cloud.applied.values()), "applied twice: %s" % cloud.applied)
            self.count(cloud)

    def count(self, cloud):
        """Counts what was applied for the comparison with the server's journal, and begins anew."""
        with self.judge.lock:
            self.judge.applied += sum(cloud.applied.values())
        cloud.applied = {}

    def must(self, *words):
        result = self.judge.command(*words)
        expect(result.code == 0, "%s: %s" % (" ".join(words), result))

    def synced(self, cloud, store, container):
        """Both records are at the server, their pages are read, and both are edited here."""
        for _ in range(2):
            result = self.upload.sync(cloud, store, container)
            expect(result.code == 0, "the first sync: %s" % result)
        for number in range(2):
            self.must("put", "--zone", ZONE, store, json.dumps(
                {"recordName": "n%d" % number, "fields": {"title": "edited %d" % number}}))

    def expired(self, name, code):
        """The web has no code for a token that has expired: a page that is refused is asked once without it."""
        for form, action in (("a page", whole(code)), ("a zone of a page", zone_entry(code))):
            yield "%s: %s" % (name, form), lambda folder, a=action: self.run(
                folder, {"changes/zone": [a]}, (0, [], 2), "changes/zone", code, prepare=self.synced_and_changed)

    def lost_zone(self, name, code):
        """The list of zones agrees that the zone is gone: frozen, said, and a person's verb ends it."""
        words = ["zone '%s'.*" % ZONE, "try: strandline zones .* resume " + ZONE]
        for form, endpoint, action in (
            ("an upload", "records/modify", whole(code)), ("an item of an upload", "records/modify", item(code)),
            ("a zone of a page", "changes/zone", zone_entry(code)),
        ):
            expected = (0, [], 2) if form == "an item of an upload" else (69, words, 1)
            prepare = self.synced_and_changed if endpoint == "changes/zone" else self.synced
            yield "%s: %s" % (name, form), lambda folder, e=endpoint, a=action, p=prepare, x=expected, f=form: self.run(
                folder, {e: [a], "zones/list": [without_zones] * 9}, x, e, code, prepare=p,
                person=None if f == "an item of an upload" else lambda store: self.must("zones", store, "resume", ZONE))

    def synced_and_changed(self, cloud, store, container):
        """The same, and another program writes, so that the feed names the zone."""
        self.synced(cloud, store, container)
        status, _, body = self.server.ask("records/modify", {"zoneID": {"zoneName": ZONE}, "operations": [
            {"operationType": "forceUpdate", "record": {
                "recordName": "n1", "recordType": "Note", "fields": {"body": {"value": "theirs", "type": "STRING"}}}}]},
            container)
        expect(status == 200 and b"serverErrorCode" not in body, "the other device: %r" % body[:300])
        with self.judge.lock:
            self.judge.applied += 1

    # What was found once, with an edit of a record that is there.

    def findings(self):
        page = b"<html>too large</html>"

        def proxy(connection, request, forward):
            connection.sendall(answer(413, page, {"Content-Type": "text/html"}))
            return True

        yield "codes: a proxy refuses every upload as too large", lambda folder: self.run(
            folder, {"records/modify": [proxy] * 9}, (1, ["left: 2 records, LIMIT_EXCEEDED"], 3), "records/modify", "LIMIT_EXCEEDED")
        yield "codes: every upload is a bad request", lambda folder: self.run(
            folder, {"records/modify": [whole("BAD_REQUEST")] * 9}, (1, ["left: 2 records, BAD_REQUEST"], 3),
            "records/modify", "BAD_REQUEST")
        for code in ("CONFLICT", "NOT_FOUND"):
            yield "codes: %s once for an edit of a record that is there" % code, lambda folder, c=code: self.run(
                folder, {"records/modify": [item(c)]}, (0, [], 2), "records/modify", c, prepare=self.synced)
        yield "codes: a wait of two seconds is over", lambda folder: self.run(
            folder, {"records/modify": [self.waiting]}, (0, [], 2), "records/modify", "THROTTLED")

        yield "codes: a record that cannot be read, until it can", lambda folder: self.run(
            folder, {"changes/zone": [self.unreadable], "records/lookup": [self.unreadable]},
            (1, ["1 fetched", "held: .*n1"], 1), "changes/zone", "", download=True)
        yield "codes: an edit of a record that was deleted at the server", lambda folder: self.run(
            folder, {}, (0, ["given up: an edit of 'Notes/n1': the record was deleted"], 1), "records/modify", "",
            prepare=self.synced_and_deleted, records=1)

    def synced_and_deleted(self, cloud, store, container):
        self.synced(cloud, store, container)
        self.server.ask("records/modify", {"zoneID": {"zoneName": ZONE}, "operations": [
            {"operationType": "forceDelete", "record": {"recordName": "n1"}}]}, container)

    @staticmethod
    def unreadable(connection, request, forward):
        status, fields, body = forward()
        spoilt = re.sub(rb'"title":\{[^}]*"words 1"[^}]*\}', b'"title":{"value":NaN,"type":"DOUBLE"}', body)
        expect(spoilt != body, "the judge did not find the field in %r" % body[:300])
        connection.sendall(answer(status, spoilt, {key: value for key, value in fields.items() if key.lower() != "content-length"}))
        return True

    @staticmethod
    def waiting(connection, request, forward):
        connection.sendall(answer(429, json.dumps(error("THROTTLED")).encode(), {"Retry-After": "2"}))
        return True
