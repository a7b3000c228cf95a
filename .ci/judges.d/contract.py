"""The property-based tester schemathesis against a real server, with a description of part of CloudKit Web Services.

The description was written by a third party for a client (MistKit), and says what requests and answers look like: it is no
evidence of behaviour. It lies beside this repository, in ../shared; CI_OPENAPI names another place. Requests are made from
it, right ones and wrong ones, and every answer must have a status, a content type and a shape that it lists, and no status
from 500 on.

What it does not know of the operations that the server has is described here, more strictly: there a right request must be
answered, too, and a wrong one refused.
"""

import re
import sys

sys.dont_write_bytecode = True
from judge import *  # noqa: E402,F403

# The operations that the server has, and the description knows.
OPERATIONS = (
    "modifyRecords", "lookupRecords", "queryRecords", "fetchRecordChanges", "listZones", "lookupZones", "modifyZones", "fetchZoneChanges",
    "getCurrentUser", "discoverUserIdentities", "lookupContacts")
EXAMPLES = 25
SEED = 1

SETTINGS = """
seed = {seed}
continue-on-failure = true
color = false

[phases.stateful]
# The description has no links between operations.
enabled = false

[checks]
# The server asks for no token unless it is told to.
ignored_auth.enabled = false
# The description marks no key as required, so it allows requests without records or operations, which the service refuses.
positive_data_acceptance.enabled = false
# The description forbids null, which clients of the service send for a key without a value. What is wrong is refused: the
# cases of pyicloud_client.py and corner_cases.py say which.
negative_data_rejection.enabled = false

[[operations]]
include-operation-id = "listZones"
# The live service was seen to accept POST as well.
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false

[[operations]]
include-operation-id = ["lookupZones", "modifyZones", "fetchZoneChanges", "lookupContacts"]
# The description lists no 404 here, and a database that does not exist has no path.
checks.status_code_conformance.enabled = false

[[operations]]
include-operation-id = "discoverUserIdentities"
checks.status_code_conformance.enabled = false
# GET is another operation of Apple's reference: all users.
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
"""


OWN_SETTINGS = """
seed = {seed}
continue-on-failure = true
color = false

[phases.stateful]
enabled = false

[checks]
ignored_auth.enabled = false
# A request without a body may be one: every key may be missing. What is in a body and wrong is refused; the cases below say so.
missing_required_header.enabled = false
"""


def maybe(schema):
    """A key may be null, which is as if it were not there."""
    return {**schema, "type": [schema["type"], "null"]}


def object_of(properties, required=()):
    return {"type": "object", "properties": properties, "required": list(required)}


def list_of(items, most=200):
    return {"type": "array", "items": items, "maxItems": most}


TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
LIMIT = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
NAMES = {"type": "array", "items": TEXT}
ZONE_ID = object_of({"zoneName": maybe(TEXT), "ownerRecordName": maybe(TEXT)})
PAGE = {
    "syncToken": maybe(TEXT), "resultsLimit": maybe(LIMIT), "desiredKeys": maybe(NAMES),
    "desiredRecordTypes": maybe(NAMES), "reverse": maybe(FLAG), "numbersAsStrings": maybe(FLAG)}
ERROR = object_of({"serverErrorCode": TEXT, "reason": TEXT, "uuid": TEXT}, ["serverErrorCode", "reason", "uuid"])
ITEM_ERROR = object_of({"serverErrorCode": TEXT, "reason": TEXT}, ["serverErrorCode", "reason"])
SHOWN_ID = object_of({"zoneName": TEXT, "ownerRecordName": TEXT, "zoneType": TEXT}, ["zoneName"])
TOKEN = {"type": "string", "minLength": 1}
RECORD = object_of({"recordName": TEXT, "deleted": FLAG, "zoneID": SHOWN_ID}, ["recordName", "deleted", "zoneID"])
SHOWN_PAGE = object_of(
    {"zoneID": SHOWN_ID, "syncToken": TOKEN, "moreComing": FLAG, "records": list_of(RECORD)},
    ["zoneID", "syncToken", "moreComing", "records"])
SHOWN_ZONE = object_of({"zoneID": SHOWN_ID, "deleted": FLAG}, ["zoneID", "deleted"])
USER = object_of({"userRecordName": TEXT, "lookupInfo": object_of({})}, ["userRecordName"])
USERS = object_of({"users": list_of(USER)}, ["users"])
ASKED_USERS = maybe(list_of(object_of({"emailAddress": maybe(TEXT), "userRecordName": maybe(TEXT), "phoneNumber": maybe(TEXT)})))


def own_description():
    """The operations that the other description does not know."""
    paths = {}

    def add(path, method, answer, asked=None, needs_body=False):
        responses = {"200": {"description": "the answer", "content": {"application/json": {"schema": answer}}}}
        for status in ("400", "404", "405"):
            responses[status] = {"description": "a refusal", "content": {"application/json": {"schema": ERROR}}}
        operation = {"operationId": method + " " + path, "responses": responses}
        if asked is not None:
            operation["requestBody"] = {"required": needs_body, "content": {"application/json": {"schema": asked}}}
        paths.setdefault("/database/1/iCloud.contract/development/" + path, {})[method] = operation

    asked = object_of({**PAGE, "zones": list_of(object_of({**PAGE, "zoneID": ZONE_ID}, ["zoneID"]))}, ["zones"])
    del asked["properties"]["syncToken"]
    # A zone that is not there, and a token that is none, are refused in the zone's place.
    page = object_of({"zones": list_of({"anyOf": [SHOWN_PAGE, ITEM_ERROR]})}, ["zones"])
    # One of this server, which no request that is made here has, is another case's.
    changed = object_of({"syncToken": {"type": ["string", "null"], "enum": ["", None]}, "resultsLimit": maybe(LIMIT)})
    for scope in ("private", "shared"):
        add(scope + "/changes/zone", "post", page, asked, needs_body=True)
        add(scope + "/changes/database", "post", object_of(
            {"zones": list_of(SHOWN_ZONE), "syncToken": TOKEN, "moreComing": FLAG}, ["zones", "syncToken", "moreComing"]), changed)
    add("public/users/caller", "get", {"allOf": [USERS, USER]})
    add("public/users/discover", "get", USERS)
    add("public/users/discover", "post", USERS, object_of({"lookupInfos": ASKED_USERS}))
    for name in ("id", "email"):
        add("public/users/lookup/" + name, "post", USERS, object_of({"users": ASKED_USERS}))
    return {"openapi": "3.1.0", "info": {"title": "The rest", "version": "1"}, "paths": paths}


def main():
    judge = Judge("contract", sys.argv)
    judge.run_all(
        [("the description", lambda folder: described(judge, folder)), ("the rest of the operations", lambda folder: rest(judge, folder))],
        workers=2)
    judge.finish()


def described(judge, folder):
    here = os.path.dirname(os.path.abspath(__file__))
    description = os.environ.get("CI_OPENAPI") or os.path.join(here, "../../../shared/reference/cloudkit/openapi.yaml")
    expect(os.path.isfile(description), "there is no description of the service at %s; set CI_OPENAPI" % os.path.normpath(description))
    words = [word for operation in OPERATIONS for word in ("--include-operation-id", operation)]
    check(judge, folder, SETTINGS, [description, *words], len(OPERATIONS))


def rest(judge, folder):
    file = os.path.join(folder, "rest.json")
    description = own_description()
    with open(file, "w", encoding="utf-8") as text:
        json.dump(description, text)
    check(judge, folder, OWN_SETTINGS, [file], sum(len(methods) for methods in description["paths"].values()))


def check(judge, folder, settings, words, operations):
    """Runs the tester over so many operations of a description, against a server of its own."""
    file = os.path.join(folder, "schemathesis.toml")
    with open(file, "w", encoding="utf-8") as text:
        text.write(settings.format(seed=SEED))
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    expect(os.path.isfile(tool), "schemathesis is not installed beside %s" % sys.executable)
    server = Server(judge)
    try:
        done = subprocess.run(
            [tool, "--config-file", file, "run", *words, "--url", server.url, "--max-examples", str(EXAMPLES)], cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, text=True)
        expect(server.is_alive(), "the server ended: %s" % server.said())
    finally:
        code = server.stop()
    generated = re.search(r"(\d+) generated", done.stdout)
    expect(done.returncode == 0 and generated, "exit code %d\n%s" % (done.returncode, done.stdout[-6000:]))
    selected = re.search(r"(\d+) selected", done.stdout)
    expect(selected and int(selected.group(1)) == operations, "an operation is not in the description\n%s" % done.stdout[:1500])
    expect(int(generated.group(1)) >= 25 * operations, "only %s requests" % generated.group(1))
    expect(code == 0, "the server ended with %s" % code)
    judge.note("%s requests of schemathesis to %d operations" % (generated.group(1), operations))


if __name__ == "__main__":
    main()
