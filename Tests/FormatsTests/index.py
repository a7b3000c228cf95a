#!/usr/bin/env python3
"""Reads the index of a store and prints its bound and every row as JSON, one object a line.

Written from Formats/index.md, with runs.py (from runs.md) and events.py (from events.md), with the standard library alone:
if this prints what the package's own code understands, the pages say enough.

Usage: index.py STORE
"""

import os
import struct
import sys

import runs
from events import STORE, Bad, Events

# The rows: their fields in order, as events.py spells them; a name in brackets is a kind of event.
ROWS = {
    "recordEntry": "type:text base:base? pending:pending?",
    "base": "version:varint content:varint changeTag:text created:zigzag? modified:zigzag?",
    "pending": "isDeletion:flag newest:varint",
    "deletionEntry": "births:births created:zigzag? changeTag:text? lsn:varint provisional:births? isLocal:flag",
    "state": "lsn:varint recordCount:varint living:zoneCount* deletionCount:varint deletionKeys:raw16* unsettled:lsnSet"
    " attempted:lsnSet earlier:earlierMutations* times:mutationTime* bounds:[2]* zones:knownZone* databaseTokens:[25]*"
    " tenures:tenure* held:[13]* unread:[13]* openBlocks:[12]* paces:[22]* latest:u64 isParked:flag considered:varint",
    "zoneCount": "zone:zone count:varint",
    "earlierMutations": "record:id lsns:varint*",
    "mutationTime": "lsn:varint time:u64",
    "knownZone": "zone:zone wasSeen:flag isDirty:flag lostReason:1-5? lostWords:text token:text? tokenLSN:varint"
    " isFullFetch:flag hasGhosts:flag sweepEpoch:varint",
    "tenure": "tenure:u64 writer:u64 first:varint",
}


class Rows(Events):
    def lsnSet(self):
        found, chunk = [], 0
        for place in range(self.varint()):
            step = self.varint()
            chunk += step
            mask = self.u64()
            if mask == 0 or chunk >> 52 or place and step == 0:
                raise Bad("a chunk that no set has")
            for word in range(64):
                if mask >> word & 1:
                    bits = self.u64()
                    if bits == 0:
                        raise Bad("a word without an LSN")
                    found += [chunk * 4096 + word * 64 + bit for bit in range(64) if bits >> bit & 1]
        return found

    def one(self, how):
        if how.endswith("?"):
            return self.optional(lambda: self.one(how[:-1]))
        if how.endswith("*"):
            return self.many(lambda: self.one(how[:-1]))
        if how == "raw16":
            return self.raw(16).hex()
        if how[0].isdigit():
            return self.choice(int(how[0]), int(how[2]))
        if how[0] == "[":
            return self.fields(STORE[int(how[1:-1])].split(" ", 1)[1])
        if how in ROWS:
            return self.fields(ROWS[how])
        return getattr(self, how)()

    def fields(self, spec):
        return {name: self.one(how) for name, how in (field.split(":") for field in spec.split(" "))}


def row(name, value):
    if value is None:
        return None
    reader = Rows(value)
    result = reader.one(name)
    reader.end()
    return result


def part(key):
    """A text inside a key, and what follows it."""
    text = bytearray()
    at = 0
    while key[at : at + 2] != b"\0\1":
        if key[at] == 0 and key[at + 1] != 0xFF:
            raise Bad("a zero byte in a key that is not escaped")
        text.append(key[at])
        at += 2 if key[at] == 0 else 1
    return text.decode("utf-8"), key[at + 2 :]


def line(key, value):
    table = key[0]
    if table == 0 and len(key) == 1 and value is not None:
        return {"table": "state", "row": row("state", value)}
    if table == 1:
        owner, rest = part(key[2:])
        zone, name = part(rest)
        record = {"zone": {"scope": key[1], "owner": owner, "name": zone}, "name": name.decode("utf-8")}
        return {"table": "records", "record": record, "row": row("recordEntry", value)}
    if table == 2 and len(key) == 33:
        names = {"table": "deletions", "key": key[1:17].hex(), "hash": key[17:].hex()}
        return dict(names, row=row("deletionEntry", value))
    raise Bad("a key of no table")


def main(arguments):
    folder = os.path.join(arguments[0], "runs")
    listed = runs.content(os.path.join(folder, "RUNS"))
    uuid = listed[32:48]
    found = runs.runs_list(listed, uuid)
    lsn, chain = struct.unpack("<QI", bytes.fromhex(found["binding"]))
    runs.show({"bound": {"lsn": lsn, "chain": chain}})
    for place, one in enumerate(found["runs"]):
        run = runs.Run(folder, one, uuid)
        properties = run.data[run.properties : run.end]
        runs.show({"run": run.file, "hasDeletions": properties[:1] != b"\0"})
        for key, value in run.walk():
            shown = line(key, value)
            if place == 0 and shown["table"] == "state" and shown["row"]["lsn"] != lsn:
                raise Bad("the newest run is of another event than the bound")
            runs.show(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
