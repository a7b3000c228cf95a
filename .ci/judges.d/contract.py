"""The property-based tester schemathesis against a real server, with a description of part of CloudKit Web Services.

The description was written by a third party for a client (MistKit), and says what requests and answers look like: it is no
evidence of behaviour. It lies beside this repository, in ../shared; CI_OPENAPI names another place. Requests are made from
it, right ones and wrong ones, and every answer must have a status, a content type and a shape that it lists, and no status
from 500 on.
"""

import re
import sys

sys.dont_write_bytecode = True
from judge import *  # noqa: E402,F403

# The operations that the server has. The description does not know changes/zone and changes/database.
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


def main():
    judge = Judge("contract", sys.argv)
    judge.run("the description", lambda folder: check(judge, folder))
    judge.finish()


def check(judge, folder):
    here = os.path.dirname(os.path.abspath(__file__))
    description = os.environ.get("CI_OPENAPI") or os.path.join(here, "../../../shared/reference/cloudkit/openapi.yaml")
    expect(os.path.isfile(description), "there is no description of the service at %s; set CI_OPENAPI" % os.path.normpath(description))
    settings = os.path.join(folder, "schemathesis.toml")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(SETTINGS.format(seed=SEED))
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    expect(os.path.isfile(tool), "schemathesis is not installed beside %s" % sys.executable)
    server = Server(judge)
    try:
        words = [tool, "--config-file", settings, "run", description, "--url", server.url, "--max-examples", str(EXAMPLES)]
        for operation in OPERATIONS:
            words += ["--include-operation-id", operation]
        done = subprocess.run(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200, text=True)
        expect(server.is_alive(), "the server ended: %s" % server.said())
    finally:
        code = server.stop()
    generated = re.search(r"(\d+) generated", done.stdout)
    expect(done.returncode == 0 and generated, "exit code %d\n%s" % (done.returncode, done.stdout[-6000:]))
    selected = re.search(r"(\d+) selected", done.stdout)
    expect(selected and int(selected.group(1)) == len(OPERATIONS), "an operation is not in the description\n%s" % done.stdout[:1500])
    expect(int(generated.group(1)) >= 300, "only %s requests" % generated.group(1))
    expect(code == 0, "the server ended with %s" % code)
    judge.note("%s requests of schemathesis to %d operations" % (generated.group(1), len(OPERATIONS)))


if __name__ == "__main__":
    main()
