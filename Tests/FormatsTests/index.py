#!/usr/bin/env python3
"""Reads the index of a store and prints its bound, its declared indexes and every row as JSON, one object a line.

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
    "recordEntry": "type:text base:base? pending:pending? place:place?",
    "base": "version:varint content:varint changeTag:text created:zigzag? modified:zigzag?",
    "pending": "isDeletion:flag newest:varint first:varint attempts:attempt* since:varint",
    "attempt": "lsn:varint next:varint",
    "place": "segment:varint offset:varint bytes:varint",
    "deletionEntry": "births:births created:zigzag? changeTag:text? lsn:varint provisional:births? isLocal:flag",
    "state": "lsn:varint recordCount:varint living:zoneCount* deletionCount:varint newest:lsnSet"
    " since:lsnSet attempted:lsnSet bounds:[2]* zones:knownZone* databaseTokens:[25]*"
    " tenures:tenure* held:[13]* sets:[27]* unread:[13]* openBlocks:[12]* paces:[22]* listed:listing*"
    " inboxes:[31]* inboxRefusals:varint* latest:u64 isParked:flag considered:varint contents:content*",
    "content": "hash:raw32 size:varint versions:varint*",
    "zoneCount": "zone:zone count:varint types:typeCount*",
    "typeCount": "type:text count:varint",
    "knownZone": "zone:zone wasSeen:flag isDirty:flag listedLoss:1-8? lostReason:1-8? lostWords:text token:text? tokenLSN:varint"
    " isFullFetch:flag isNew:flag hasGhosts:flag sweepEpoch:varint unprovedSince:varint resetPolicy:text ruled:zigzag",
    "listing": "zone:zone lsn:varint names:varint",
    "tenure": "tenure:u64 writer:u64 first:varint",
    "declaredIndex": "number:u32 type:text fields:declaredField*",
    "declaredField": "field:text ascending:flag",
}

# The tags of encoded values, in the order of their numbers.
TAGS = "none text int64 double date bytes other item exact".split(" ")
INDEXES_HEADER, INDEXES_LARGEST, LONGEST_TEXT = 64, 1048576, 200


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
        if how[0].isdigit():
            return self.choice(int(how[0]), int(how[2]))
        if how[0] == "[":
            return self.fields(STORE[int(how[1:-1])].split(" ", 1)[1])
        if how in ROWS:
            return self.fields(ROWS[how])
        if how in ("raw16", "raw32"):
            return self.raw(int(how[3:])).hex()
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


def declared(folder, uuid):
    """The next number and the declared indexes."""
    path = os.path.join(folder, "INDEXES")
    if not os.path.exists(path):
        return {"nextNumber": 1, "indexes": []}
    data = runs.content(path)
    # The magic differs from those of runs and lists in one letter.
    runs.header(data, b"X", INDEXES_HEADER, uuid, "INDEXES")
    following, count, size = struct.unpack_from("<III", data, 48)
    end = INDEXES_HEADER + size
    runs.demand(len(data) == end + 4 <= INDEXES_LARGEST and runs.number(data, end, 4) == runs.crc(data[:end]), "INDEXES")
    reader = Rows(data[INDEXES_HEADER:end])
    indexes = [reader.one("declaredIndex") for _ in range(count)]
    reader.end()
    for index in indexes:
        if index["number"] >= following or len(index["fields"]) > 1:
            raise Bad("an index that this version does not know")
    return {"nextNumber": following, "indexes": indexes}


def escaped(data):
    """Escaped bytes, whether they are all of them, and how many bytes stand for them."""
    found = bytearray()
    at = 0
    while at + 1 < len(data):
        if data[at]:
            found.append(data[at])
            at += 1
            continue
        mark = data[at + 1]
        at += 2
        if mark == 0xFF:
            found.append(0)
        elif mark in (1, 2) and len(found) <= LONGEST_TEXT and (mark == 1 or len(found) == LONGEST_TEXT):
            return bytes(found), mark == 1, at
        else:
            raise Bad("a zero byte in a value that is not escaped, or a text of the wrong length")
    raise Bad("a value without an end")


def encoded(data):
    """An encoded value, and how many bytes it has."""
    if not data or data[0] >= len(TAGS):
        raise Bad("a value without a tag")
    tag = TAGS[data[0]]
    if tag in ("none", "other"):
        return {"tag": tag}, 1
    if tag == "item":
        item, count = encoded(data[1:])
        if item["tag"] not in ("text", "int64", "double", "date", "bytes", "exact"):
            raise Bad("an item that cannot be asked for")
        return {"tag": tag, "item": item}, 1 + count
    if tag in ("text", "bytes", "exact"):
        found, is_whole, count = escaped(data[1:])
        if not is_whole:
            return {"tag": tag, "beginning": found.hex()}, 1 + count
        if tag == "text":
            value = {"string": found.decode("utf-8")}
        elif tag == "bytes":
            value = {"bytes": found.hex()}
        else:
            reader = Rows(found)
            value = reader.value()
            reader.end()
            if not value or not {"reference", "location"} & set(value):
                raise Bad("exact bytes of something else")
        return {"tag": tag, "value": value}, 1 + count
    if len(data) < 9:
        raise Bad("a number that is cut")
    (bits,) = struct.unpack(">Q", data[1:9])
    top = 1 << 63
    if tag == "double":
        value = "%016x" % (bits ^ top if bits & top else bits ^ (1 << 64) - 1)
    else:
        value = bits - top
    return {"tag": tag, "value": {tag: value}}, 9


def index_line(key, value, indexes):
    if len(key) < 5 or value:
        raise Bad("a row of an index that is none")
    (number,) = struct.unpack(">I", key[1:5])
    shown = {"table": "indexes", "number": number, "row": None if value is None else {}}
    index = next((one for one in indexes if one["number"] == number and number), None)
    if index is None:
        return dict(shown, key=key[5:].hex())
    rest, found = key[5:], None
    if index["fields"]:
        mask = 0 if index["fields"][0]["ascending"] else 0xFF
        found, count = encoded(bytes(byte ^ mask for byte in rest))
        rest = rest[count:]
    return dict(shown, value=found, record=record(rest))


def record(key):
    """The record that a key of table 1 is of, without its first byte."""
    owner, rest = part(key[1:])
    zone, name = part(rest)
    return {"zone": {"scope": key[0], "owner": owner, "name": zone}, "name": name.decode("utf-8")}


def line(key, value, indexes):
    table = key[0]
    if table == 0 and len(key) == 1 and value is not None:
        return {"table": "state", "row": row("state", value)}
    if table == 1:
        return {"table": "records", "record": record(key[1:]), "row": row("recordEntry", value)}
    if table == 2:
        return {"table": "deletions", "record": record(key[1:]), "row": row("deletionEntry", value)}
    if table == 3:
        return index_line(key, value, indexes)
    raise Bad("a key of no table")


def binding(data):
    """The bound, and what follows it in a store that ever had a declared index."""
    lsn, chain = struct.unpack_from("<QI", data)
    following, numbers = 1, []
    if len(data) > 12:
        if len(data) < 16 or len(data) % 12 != 4:
            raise Bad("a binding of a length that none has")
        following = struct.unpack_from("<I", data, 12)[0]
        numbers = [struct.unpack_from("<IQ", data, place) for place in range(16, len(data), 12)]
    if lsn == 0:
        raise Bad("a binding that binds nothing")
    numbers = [{"number": number, "definition": definition} for number, definition in numbers]
    return {"lsn": lsn, "chain": chain, "nextIndexNumber": following, "numbers": numbers}


def is_complete(index, numbers):
    """Whether the runs have every row of a declared index."""
    text = lambda words: bytes([len(words.encode())]) + words.encode()
    definition = text(index["type"]) + bytes([len(index["fields"])])
    for field in index["fields"]:
        definition += text(field["field"]) + bytes([field["ascending"]])
    return {"number": index["number"], "definition": runs.xxh64(definition)} in numbers


def main(arguments):
    folder = os.path.join(arguments[0], "runs")
    listed = runs.content(os.path.join(folder, "RUNS"))
    uuid = listed[32:48]
    found = runs.runs_list(listed, uuid)
    bound = binding(bytes.fromhex(found["binding"]))
    runs.show({"bound": bound})
    definitions = declared(folder, uuid)
    for index in definitions["indexes"]:
        index["isComplete"] = is_complete(index, bound["numbers"])
    runs.show({"declared": definitions})
    has_state = False
    for one in found["runs"]:
        run = runs.Run(folder, one, uuid)
        properties = run.data[run.properties : run.end]
        runs.show({"run": run.file, "hasDeletions": properties[:1] != b"\0"})
        for key, value in run.walk():
            shown = line(key, value, definitions["indexes"])
            if not has_state and shown["table"] == "state":
                has_state = True
                if shown["row"]["lsn"] != bound["lsn"]:
                    raise Bad("the newest state is of another event than the bound")
            runs.show(shown)
    if not has_state:
        raise Bad("there is no state")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
