"""The CloudKit client of the Python package pyicloud, which knows Apple's service and not this server, against it.

Its models of answers are run strictly: a key that they do not know is an error. Two keys are documented by Apple, sent by
this server, and missing in the models, so they are taken out of the answer first, by name:

- `atomic` in an entry of zones/list
- `syncToken` in an entry of changes/database
"""

import sys

sys.dont_write_bytecode = True
from datetime import datetime, timezone  # noqa: E402

import requests  # noqa: E402
from judge import *  # noqa: E402,F403
from pyicloud.common.cloudkit.client import CloudKitApiError, CloudKitContainerClient  # noqa: E402
from pyicloud.common.cloudkit.models import (  # noqa: E402
    CKDatabaseChangesResponse, CKModifyOperation, CKWriteRecord, CKZoneChangesZoneReq, CKZoneID, CKZoneIDReq, CKZoneListResponse,
)

DOCS = CKZoneIDReq(zoneName="Docs")

# Each type of a field: what is written, and what the models read.
MOMENT = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=timezone.utc)
PLACE = {"latitude": 47.5, "longitude": -122.25}
FIELDS = {
    "STRING": ("words \U0001f30a \" \\ \u0000", "words \U0001f30a \" \\ \u0000"),
    "INT64": (-(2**63), -(2**63)),
    "DOUBLE": (0.1, 0.1),
    "TIMESTAMP": (1767225600250, MOMENT),
    "BYTES": ("AAEC/w==", b"\x00\x01\x02\xff"),
    "ENCRYPTED_BYTES": ("AAEC/w==", b"\x00\x01\x02\xff"),
    "REFERENCE": ({"recordName": "target", "action": "NONE"}, "target"),
    "LOCATION": (PLACE, PLACE),
    # Without a receipt: the server takes none that it has not given.
    "ASSETID": ({"fileChecksum": "AQ==", "size": 3}, "AQ=="),
    "STRING_LIST": (["b", "a"], ["b", "a"]),
    "INT64_LIST": ([2**63 - 1, 0], [2**63 - 1, 0]),
    "DOUBLE_LIST": ([1.5, -0.25], [1.5, -0.25]),
    "TIMESTAMP_LIST": ([1767225600250], [1767225600250]),
    "BYTES_LIST": (["AAEC"], ["AAEC"]),
    "REFERENCE_LIST": ([{"recordName": "target", "action": "NONE"}], ["target"]),
    "LOCATION_LIST": ([PLACE], [PLACE]),
}


class Client(CloudKitContainerClient):
    """pyicloud's client of one database of the server."""

    def __init__(self, server, scope="private", container=CONTAINER, **parameters):
        super().__init__(
            "%s/database/1/%s/development/%s" % (server.url, container, scope), requests.Session(), parameters, validation_extra="forbid")

    def zones(self):
        answer = self.raw_post("/zones/list", {})
        for zone in answer["zones"]:
            zone.pop("atomic")
        return CKZoneListResponse.model_validate(answer, extra="forbid").zones

    def changed(self, token=None):
        answer = self.raw_post("/changes/database", {"syncToken": token} if token else {})
        for zone in answer["zones"]:
            zone.pop("syncToken", None)
        return CKDatabaseChangesResponse.model_validate(answer, extra="forbid")

    def make_zone(self, name, operation="create"):
        zone = {"zoneID": {"zoneName": name}}
        return self.raw_post("/zones/modify", {"operations": [{"operationType": operation, "zone": zone}]})["zones"][0]

    def write(self, kind, name, fields=None, type="Note", tag=None, zone=DOCS, atomic=None):
        return self.write_all([(kind, name, fields, type, tag)], zone, atomic)[0]

    def write_all(self, operations, zone=DOCS, atomic=None):
        return self.modify(
            operations=[
                CKModifyOperation(operationType=kind, record=CKWriteRecord(
                    recordName=name, recordType=type, fields=fields or {}, recordChangeTag=tag))
                for kind, name, fields, type, tag in operations],
            zone_id=zone, atomic=atomic).records

    def page(self, token=None, limit=None, zone="Docs", **more):
        request = CKZoneChangesZoneReq(zoneID=CKZoneID(zoneName=zone), syncToken=token, **more)
        return self.changes(zone_req=request, results_limit=limit).zones[0]


def text(words):
    return {"title": {"value": words, "type": "STRING"}}


def plain(value):
    """A value of the models without the zone that answers name in references."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "fileChecksum"):
        return value.fileChecksum
    return getattr(value, "recordName", value)


def equal(found, wanted, what):
    expect(found == wanted, "%s: %r was expected, and %r came" % (what, wanted, found))


def refused(code, body, status=None):
    """The body must be refused with this code: of a whole request with its status, or of items inside HTTP 200."""
    try:
        answer = body()
    except CloudKitApiError as error:
        payload = error.payload if isinstance(error.payload, dict) else {}
        if status is not None:
            equal(str(error), "HTTP %d" % status, code)
            equal(payload.get("serverErrorCode"), code, "the code")
            expect(payload.get("uuid"), "the refusal has no uuid: %s" % payload)
            expect(payload.get("reason"), "the refusal has no reason: %s" % payload)
            return payload
        codes = [item.get("serverErrorCode") for item in payload.get("records", payload.get("zones", []))]
        expect(code in codes, "%s was expected: %s %s" % (code, error, payload))
        return payload
    raise Failure("%s was expected, and this came: %r" % (code, answer))


def names(page):
    return [record.recordName for record in page.records]


class Cases:
    def __init__(self, judge, server):
        self.judge, self.server, self.client = judge, server, Client(server)

    def zones(self, _):
        client = Client(self.server, container="iCloud.judge.zones")
        equal([zone.zoneID.zoneName for zone in client.zones()], ["_defaultZone"], "the zones of a new container")
        start = client.changed()
        equal(client.make_zone("Docs")["zoneID"]["zoneName"], "Docs", "the new zone")
        expect("serverErrorCode" not in client.make_zone("Docs"), "the zone cannot be made twice")
        equal([zone.zoneID.zoneName for zone in client.zones()], ["_defaultZone", "Docs"], "the zones")
        changed = client.changed(start.syncToken)
        equal([(zone.zoneID.zoneName, zone.deleted) for zone in changed.zones], [("Docs", False)], "the changed zones")
        equal(client.changed(changed.syncToken).zones, [], "the zones that changed since")
        client.write("create", "a", text("x"))
        token = client.page().syncToken
        equal(client.make_zone("Docs", "delete").get("deleted"), True, "the deletion")
        after = client.changed(changed.syncToken)
        equal([(zone.zoneID.zoneName, zone.deleted) for zone in after.zones], [("Docs", True)], "the deleted zone")
        refused("ZONE_NOT_FOUND", client.page)
        client.make_zone("Docs")
        refused("BAD_REQUEST", lambda: client.page(token))
        equal(client.make_zone("_x").get("serverErrorCode"), "BAD_REQUEST", "a reserved name")
        equal(client.make_zone("Nowhere", "delete").get("serverErrorCode"), "ZONE_NOT_FOUND", "no zone")

    def fields(self, kind):
        wire, read = FIELDS[kind]
        name, type = "field-" + kind, "Type_" + kind
        saved = self.client.write("create", name, {"f": {"value": wire, "type": kind}}, type)
        found = self.client.lookup([name], zone_id=DOCS).records[0]
        changed = next(record for record in self.client.iter_changes(
            zone_req=CKZoneChangesZoneReq(zoneID=CKZoneID(zoneName="Docs"), desiredRecordTypes=[type])) if name in names(record))
        listed = next(record for record in changed.records if record.recordName == name)
        for record in (saved, found, listed):
            field = record.fields["f"]
            equal(plain(field.value), read, kind)
            # Both forms of an encrypted field are seen in answers of the service.
            tags = {kind, "BYTES"} if kind == "ENCRYPTED_BYTES" else {kind}
            expect(field.type_tag in tags, "the type %s came back as %s" % (kind, field.type_tag))
            equal(record.recordType, type, "the type")
            expect(record.created.userRecordName and record.modified.timestamp and record.recordChangeTag, "%r" % record)
            equal(record.zoneID.zoneName, "Docs", "the zone")

    def edits(self, _):
        client = self.client
        first = client.write("create", "edit", {**text("one"), "n": {"value": 1, "type": "INT64"}})
        second = client.write("update", "edit", text("two"), tag=first.recordChangeTag)
        expect(second.recordChangeTag != first.recordChangeTag, "the tag did not change")
        refused("CONFLICT", lambda: client.write("update", "edit", text("late"), tag=first.recordChangeTag))
        refused("CONFLICT", lambda: client.write("delete", "edit", tag=first.recordChangeTag))
        refused("EXISTS", lambda: client.write("create", "edit", text("again")))
        found = client.lookup(["edit"], zone_id=DOCS).records[0]
        equal((found.fields["title"].value, found.fields["n"].value), ("two", 1), "update keeps the other fields")
        third = client.write("replace", "edit", text("three"), tag=second.recordChangeTag)
        equal(sorted(third.fields), ["title"], "replace drops the other fields")
        forced = client.write("forceUpdate", "edit", {"n": {"value": 3, "type": "INT64"}})
        equal(sorted(forced.fields), ["n", "title"], "forceUpdate")
        equal(sorted(client.write("forceReplace", "edit", text("five")).fields), ["title"], "forceReplace")
        tag = client.lookup(["edit"], zone_id=DOCS).records[0].recordChangeTag
        equal(client.write("delete", "edit", tag=tag).deleted, True, "the deletion")
        refused("NOT_FOUND", lambda: client.write("delete", "edit", tag=tag))
        refused("NOT_FOUND", lambda: client.write("update", "edit", text("x"), tag=tag))
        equal(client.write("forceDelete", "edit").deleted, True, "forceDelete of no record")
        refused("BAD_REQUEST", lambda: client.write("update", "edit", text("x")))
        equal(client.lookup(["edit"], zone_id=DOCS).records[0].serverErrorCode, "NOT_FOUND", "the lookup")
        expect(client.write("create", "edit", text("new")).recordChangeTag != tag, "the tag of the first life")

    def several(self, _):
        client = self.client
        many = ["several-%03d" % number for number in range(200)]
        client.write_all([("create", name, text(name), "Note", None) for name in many], atomic=True)
        found = client.lookup([*many[:150], "nobody"], zone_id=DOCS).records
        equal(len(found), 151, "the records looked up")
        by_name = {record.recordName: record for record in found}
        equal(by_name["nobody"].serverErrorCode, "NOT_FOUND", "the missing record")
        equal(by_name["several-007"].fields["title"].value, "several-007", "a record looked up")
        projected = client.lookup(["several-000"], zone_id=DOCS, desired_keys=["other"]).records[0]
        equal(dict(projected.fields), {}, "the fields that were not asked")
        refused("BAD_REQUEST", lambda: client.lookup(["n%d" % number for number in range(201)], zone_id=DOCS), 400)
        refused("BAD_REQUEST", lambda: client.write_all([("forceDelete", "n%d" % n, None, "Note", None) for n in range(201)]), 400)

    def pages(self, _):
        client = Client(self.server, container="iCloud.judge.pages")
        client.make_zone("Docs")
        for number in range(23):
            client.write("create", "p%02d" % number, text("x"), "Even" if number % 2 == 0 else "Odd")
        pages, token = [], None
        while True:
            page = client.page(token, limit=5)
            pages.append(page)
            token = page.syncToken
            if not page.moreComing:
                break
        equal([len(page.records) for page in pages], [5, 5, 5, 5, 3], "the sizes of the pages")
        equal([name for page in pages for name in names(page)], ["p%02d" % number for number in range(23)], "the order")
        last = client.page(token)
        equal((names(last), last.syncToken, last.moreComing), ([], token, False), "the page after the last")
        equal(names(client.page(pages[1].syncToken, limit=5)), names(pages[2]), "a token used again")
        client.write("forceUpdate", "p03", text("y"), "Odd")
        client.write("forceDelete", "p04", type="Even")
        after = client.page(token)
        equal([(record.recordName, record.deleted) for record in after.records], [("p03", False), ("p04", True)], "the changes")
        odd = [name for page in client.iter_changes(
            zone_req=CKZoneChangesZoneReq(zoneID=CKZoneID(zoneName="Docs"), desiredRecordTypes=["Odd"]), results_limit=5)
            for name in names(page)]
        equal(sorted(odd), sorted(["p%02d" % n for n in range(1, 23, 2)] + ["p04"]), "one type, and the tombstone")

    def queries(self, _):
        client = Client(self.server, container="iCloud.judge.queries")
        client.make_zone("Docs")
        for number in range(5):
            client.write("create", "q%d" % number, {
                **text("word%d and more" % (number % 2)), "n": {"value": number, "type": "INT64"},
                "at": {"value": {"latitude": number, "longitude": 0}, "type": "LOCATION"}})

        def found(limit=None, marker=None, **query):
            body = {"zoneID": {"zoneName": "Docs"}, "query": {"recordType": "Note", **query}}
            if limit:
                body.update(resultsLimit=limit, continuationMarker=marker)
            answer = client.raw_post("/records/query", body)
            return [record["recordName"] for record in answer["records"]], answer.get("continuationMarker")

        def where(comparator, value, type, **more):
            return found(filterBy=[{"comparator": comparator, "fieldValue": {"value": value, "type": type}, **more}])[0]

        equal(where("LESS_THAN", 2, "INT64", fieldName="n"), ["q0", "q1"], "a number")
        equal(where("IN", [4, 1, 9], "INT64_LIST", fieldName="n"), ["q1", "q4"], "one of some")
        equal(where("CONTAINS_ALL_TOKENS", "WORD1 more", "STRING"), ["q1", "q3"], "words")
        here = {"latitude": 4.1, "longitude": 0}
        equal(where("NEAR", here, "LOCATION", fieldName="at", distance=130_000), ["q3", "q4"], "a place")
        equal(found(sortBy=[{"fieldName": "at", "relativeLocation": here}])[0], ["q4", "q3", "q2", "q1", "q0"], "by distance")
        pages, marker = [], None
        while not pages or marker:
            page, marker = found(2, marker, sortBy=[{"systemFieldName": "recordName", "ascending": False}])
            pages.append(page)
        equal(pages, [["q4", "q3"], ["q2", "q1"], ["q0"]], "the pages")
        refused("BAD_REQUEST", lambda: found(sortBy=[{"fieldName": "n"}, {"fieldName": "n"}]), 400)

    def older_endpoints(self, _):
        client = Client(self.server, container="iCloud.judge.older")
        client.make_zone("Docs")
        for number in range(5):
            client.write("create", "o%d" % number, text("x"))
        page = client.page(limit=3, reverse=True)
        equal((names(page), page.moreComing), (["o4", "o3", "o2"], True), "the newest first")
        rest = client.page(page.syncToken, limit=3, reverse=True)
        equal((names(rest), rest.moreComing), (["o1", "o0"], False), "the rest of them")
        answer = client.raw_post("/records/changes", {"zoneID": {"zoneName": "Docs"}, "resultsLimit": 2})
        equal([record["recordName"] for record in answer["records"]], ["o0", "o1"], "records/changes")
        equal(names(client.page(answer["syncToken"])), ["o2", "o3", "o4"], "its token")
        zones = client.raw_post("/zones/changes", {})
        equal([zone["zoneID"]["zoneName"] for zone in zones["zones"]], ["Docs"], "zones/changes")
        equal(client.raw_post("/zones/changes", {"metaSyncToken": zones["metaSyncToken"]})["zones"], [], "the zones that changed since")

    def users(self, _):
        container = "iCloud.judge.users"
        private = Client(self.server, container=container)
        private.make_zone("Docs")
        user = private.write("create", "u", text("x")).created.userRecordName
        public = Client(self.server, scope="public", container=container)

        def got(path):
            answer = requests.get("%s/database/1/%s/development/public%s" % (self.server.url, container, path), timeout=60)
            equal(answer.status_code, 200, path)
            return answer.json()

        equal([person["userRecordName"] for person in got("/users/caller")["users"]], [user], "who asks")
        equal(got("/users/current")["userRecordName"], user, "who asks, in the older form")
        known = got("/users/discover")["users"]
        equal([person["userRecordName"] for person in known], [user], "all users")
        asked = {"lookupInfos": [{"userRecordName": user}, {"emailAddress": "a@example.com"}, {"phoneNumber": "1"}]}
        equal(public.raw_post("/users/discover", asked)["users"], known, "those who are known")
        equal(public.raw_post("/users/lookup/id", {"users": [{"userRecordName": user}, {"userRecordName": "_x"}]})["users"], known, "by name")
        equal(public.raw_post("/users/lookup/email", {"users": [{"emailAddress": "a@example.com"}]}), {"users": []}, "nobody")
        equal(public.raw_post("/users/lookup/contacts", {}), {"users": []}, "nobody's contacts")
        for path in ("/users/discover", "/users/lookup/id", "/users/lookup/email", "/users/lookup/contacts"):
            refused("BAD_REQUEST", lambda p=path: private.raw_post(p, {}), 400)

    def several_zones(self, _):
        client = Client(self.server, container="iCloud.judge.many")
        for name in ("A", "B", "C"):
            client.make_zone(name)
            for number in range(3):
                client.write("create", "%s%d" % (name, number), text("x"), zone=CKZoneIDReq(zoneName=name))
        asked = [{"zoneID": {"zoneName": name}} for name in ("A", "B", "Nowhere", "C")]
        answer = client.raw_post("/changes/zone", {"zones": asked, "resultsLimit": 2})["zones"]
        equal([zone.get("serverErrorCode") for zone in answer], [None, None, "ZONE_NOT_FOUND", None], "one refusal harms no other")
        equal([[record["recordName"] for record in answer[place]["records"]] for place in (0, 1, 3)],
              [["A0", "A1"], ["B0", "B1"], ["C0", "C1"]], "the first pages")
        equal([record["pluginFields"] for record in answer[0]["records"]], [{}, {}], "pluginFields")
        asked = [{"zoneID": zone["zoneID"], "syncToken": zone["syncToken"]} for zone in answer if "syncToken" in zone]
        rest = client.raw_post("/changes/zone", {"zones": asked})["zones"]
        equal([[record["recordName"] for record in zone["records"]] for zone in rest], [["A2"], ["B2"], ["C2"]], "the rest")
        query = {"zoneID": {"zoneName": "A"}, "query": {"recordType": "Note"}}
        found = Client(self.server, container="iCloud.judge.many", getCurrentSyncToken="true").raw_post("/records/query", query)
        equal(found.get("syncToken"), rest[0]["syncToken"], "the zone's token")
        expect("syncToken" not in client.raw_post("/records/query", query), "a token that nobody asked for")

    def whole_refusals(self, _):
        client = self.client
        refused("ZONE_NOT_FOUND", lambda: client.lookup(["a"], zone_id=CKZoneIDReq(zoneName="Nowhere")), 404)
        refused("ZONE_NOT_FOUND", lambda: client.write("create", "a", zone=CKZoneIDReq(zoneName="Nowhere")), 404)
        refused("ZONE_NOT_FOUND", lambda: client.page(zone="Nowhere"))
        refused("BAD_REQUEST", lambda: client.page("garbage"))
        refused("BAD_REQUEST", lambda: client.page(client.changed().syncToken))
        refused("BAD_REQUEST", lambda: client.page(zone="_defaultZone"))
        refused("BAD_REQUEST", lambda: client.raw_post("/users/current", {}), 405)
        refused("NOT_FOUND", lambda: client.raw_post("/no/endpoint", {}), 404)
        refused("BAD_REQUEST", lambda: Client(self.server, scope="public").page(), 400)
        refused("BAD_REQUEST", lambda: Client(self.server, scope="shared").page())
        refused("BAD_REQUEST", lambda: client.write_all([("create", "twice", None, "Note", None)] * 2), 400)

    def item_refusals(self, _):
        client = self.client
        payload = refused("ATOMIC_ERROR", lambda: client.write_all(
            [("create", "atom-1", text("x"), "Note", None), ("update", "atom-2", text("x"), "Note", "tag")], atomic=True))
        equal([item["serverErrorCode"] for item in payload["records"]], ["ATOMIC_ERROR", "NOT_FOUND"], "the items")
        equal(client.lookup(["atom-1"], zone_id=DOCS).records[0].serverErrorCode, "NOT_FOUND", "nothing was applied")
        client.write("create", "validated", text("x"))
        bound = {"to": {"value": {"recordName": "validated", "action": "VALIDATE"}, "type": "REFERENCE"}}
        client.write("create", "bound", bound, "Bound")
        refused("VALIDATING_REFERENCE_ERROR", lambda: client.write("forceDelete", "validated"))
        dangling = {"to": {"value": {"recordName": "nobody", "action": "VALIDATE"}, "type": "REFERENCE"}}
        refused("VALIDATING_REFERENCE_ERROR", lambda: client.write("create", "dangling", dangling, "Bound"))
        owned = {"to": {"value": {"recordName": "validated", "action": "DELETE_SELF"}, "type": "REFERENCE"}}
        client.write("forceDelete", "bound")
        client.write("create", "owned", owned, "Owned")
        client.write("forceDelete", "validated")
        equal(client.lookup(["owned"], zone_id=DOCS).records[0].serverErrorCode, "NOT_FOUND", "deleted with its target")
        for fields in (
            {"n": {"value": "words", "type": "INT64"}}, {"n": {"value": 2**63, "type": "INT64"}}, {"1n": {"value": 1, "type": "INT64"}},
            {"n": {"value": "*", "type": "BYTES"}},
        ):
            # As it stands: the client's own models refuse to send most of these.
            record = {"recordName": "bad", "recordType": "Bad", "fields": fields}
            answer = client.raw_post("/records/modify", {
                "zoneID": {"zoneName": "Docs"}, "operations": [{"operationType": "create", "record": record}]})
            equal([item.get("serverErrorCode") for item in answer["records"]], ["BAD_REQUEST"], "%s" % fields)
        refused("BAD_REQUEST", lambda: client.write("create", "x" * 256, text("x")))
        refused("BAD_REQUEST", lambda: client.write("create", "large", text("x" * 1_000_001)))

    # Servers with a fault.

    def served(self, body, *options, directory=None):
        server = Server(self.judge, *options, directory=directory)
        try:
            body(server)
        finally:
            expect(server.stop() == 0, "the server did not end well")
        return server

    def expired(self, folder):
        directory, token = os.path.join(folder, "journal"), []

        def first(server):
            client = Client(server)
            client.make_zone("Docs")
            client.write("create", "a", text("x"))
            token.append(client.page().syncToken)

        def second(server):
            client = Client(server)
            refused("BAD_REQUEST", lambda: client.page(token[0]))
            page = client.page()
            equal(names(page), ["a"], "the page without a token")
            equal(names(client.page(page.syncToken)), [], "the page with the new token")

        self.served(first, directory=directory)
        self.served(second, "--expired-tokens", directory=directory)

    def throttled(self, _):
        def body(server):
            payload = refused("TRY_AGAIN_LATER", lambda: Client(server).changed(), 503)
            equal(payload.get("retryAfter"), 2, "the wait")
            equal(len(Client(server).zones()), 1, "the zones afterwards")

        self.served(body, "--throttle", "1:2")

    def quota(self, _):
        def body(server):
            client = Client(server)
            client.make_zone("Docs")
            refused("QUOTA_EXCEEDED", lambda: client.write("create", "a", text("x")), 413)

        self.served(body, "--quota-exceeded")

    def session(self, folder):
        file = os.path.join(folder, "session")

        def body(server):
            payload = refused("AUTHENTICATION_REQUIRED", lambda: Client(server).changed(), 421)
            expect(payload.get("redirectURL"), "there is no page to sign in at: %s" % payload)
            with open(file, encoding="ascii") as text_file:
                token = text_file.read().strip()
            equal(len(Client(server, ckWebAuthToken=token).zones()), 1, "the zones with a token")
            public = Client(server, scope="public")
            equal(public.lookup(["nobody"], zone_id=CKZoneIDReq(zoneName="_defaultZone")).records[0].serverErrorCode, "NOT_FOUND", "a public read without a token")
            refused("AUTHENTICATION_REQUIRED", lambda: public.write("create", "a", text("x"), zone=CKZoneIDReq(zoneName="_defaultZone")), 421)

        self.served(body, "--require-session", "--session", file)


def main():
    judge = Judge("pyicloud", sys.argv)
    server = Server(judge)
    try:
        cases = Cases(judge, server)
        cases.client.make_zone("Docs")
        for kind in FIELDS:
            judge.run("a field of type " + kind, lambda _, k=kind: cases.fields(k))
        for name in (
            "zones", "edits", "several", "pages", "queries", "older_endpoints", "users", "several_zones", "whole_refusals", "item_refusals", "expired", "throttled", "quota", "session",
        ):
            judge.run(name.replace("_", " "), getattr(cases, name))
    finally:
        code = server.stop()
    if code != 0:
        judge.failures.append("the server ended with %s" % code)
    judge.finish()


if __name__ == "__main__":
    main()
