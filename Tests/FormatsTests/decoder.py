#!/usr/bin/env python3
"""Reads a store and prints its bounds, its list, every frame and event, and its verdict as JSON, one object a line.

Written from Formats/log.md (log.py), events.md, stamp.md and journal.md alone, with the standard library alone: if this
prints what the package's own code understands, the pages say enough. Doubles are printed as their 64 bits.

Usage: decoder.py STORE
       decoder.py --verdicts FOLDER     the verdict on each log directory in a folder
       decoder.py --conformance FILE    the cases of a conformance text on which this decoder disagrees
"""

import json
import os
import struct
import sys
import tempfile

import log

class Bad(Exception):
    """Bytes that the pages do not allow."""


# --- parts of bytes -----------------------------------------------------------------------------------------------


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def raw(self, count):
        if self.at + count > len(self.data):
            raise Bad("the bytes end")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self):
        return self.raw(1)[0]

    def u16(self):
        return struct.unpack("<H", self.raw(2))[0]

    def u32(self):
        return struct.unpack("<I", self.raw(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.raw(8))[0]

    def f64(self):
        return "%016x" % self.u64()

    def varint(self):
        result = shift = 0
        while True:
            byte = self.u8()
            result |= (byte & 0x7F) << shift
            if not byte & 0x80:
                if byte == 0 and shift > 0:
                    raise Bad("a padded varint")
                if result >> 64:
                    raise Bad("a varint above 64 bits")
                return result
            shift += 7
            if shift > 63:
                raise Bad("a varint above 64 bits")

    def zigzag(self):
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def flag(self):
        value = self.u8()
        if value > 1:
            raise Bad("a flag of %d" % value)
        return value == 1

    def bytes(self):
        return self.raw(self.varint())

    def hex(self):
        return self.bytes().hex()

    def text(self):
        return self.bytes().decode("utf-8")

    def optional(self, read):
        return read() if self.flag() else None

    def many(self, read):
        return [read() for _ in range(self.varint())]

    def end(self):
        if self.at != len(self.data):
            raise Bad("bytes after the end")


# --- parts of events ----------------------------------------------------------------------------------------------


class Events(Reader):
    def zone(self):
        scope = self.u8()
        if scope not in (1, 2, 3):
            raise Bad("a scope of %d" % scope)
        return {"scope": scope, "owner": self.text(), "name": self.text()}

    def id(self):
        return {"zone": self.zone(), "name": self.text()}

    def touch(self):
        return {"milliseconds": self.zigzag(), "user": self.text(), "device": self.text()}

    def birth(self):
        return {"time": self.u64(), "writer": self.u64()}

    fieldStamp = birth

    def seen(self):
        return {"writer": self.u64(), "lsn": self.varint(), "tenure": self.u64(), "time": self.u64()}

    def births(self):
        return self.many(self.birth)

    def untagged(self, tag):
        if tag == 0:
            return None
        if tag == 1:
            return {"string": self.text()}
        if tag == 2:
            return {"int64": self.zigzag()}
        if tag == 3:
            return {"double": self.f64()}
        if tag == 4:
            return {"date": self.zigzag()}
        if tag == 5:
            return {"bytes": self.hex()}
        if tag == 6:
            action = self.u8()
            zone = self.zone() if action & 0x80 else None
            return {"reference": {"action": action & 0x7F, "zone": zone, "name": self.text()}}
        if tag == 7:
            bits = self.u8()
            if bits & 0xC0:
                raise Bad("a location with unknown parts")
            place = {"latitude": self.f64(), "longitude": self.f64()}
            parts = ["horizontalAccuracy", "verticalAccuracy", "altitude", "speed", "course"]
            for bit, name in enumerate(parts):
                place[name] = self.f64() if bits >> bit & 1 else None
            place["timestamp"] = self.zigzag() if bits & 0x20 else None
            return {"location": place}
        if tag == 8:
            bits = self.u8()
            if bits & 0xF0:
                raise Bad("an asset with unknown parts")
            asset = {"fileChecksum": self.text(), "size": self.zigzag()}
            for bit, name in enumerate(["referenceChecksum", "wrappingKey", "receipt", "downloadURL"]):
                asset[name] = self.text() if bits >> bit & 1 else None
            return {"asset": asset}
        if tag == 9:
            kind = self.u8()
            if not 1 <= kind <= 9:
                raise Bad("a list of kind %d" % kind)
            count = self.varint()
            if kind == 9 and count:
                raise Bad("items in a list of unknown kind")
            # The kinds of list are numbered as the values that they hold.
            return {"list": kind, "items": [self.untagged(kind) for _ in range(count)]}
        if tag == 10:
            inner = self.u8()
            if inner in (0, 10):
                raise Bad("an encrypted value of kind %d" % inner)
            return {"encrypted": self.untagged(inner)}
        raise Bad("a value of kind %d" % tag)

    def value(self):
        return self.untagged(self.u8())

    def content(self, lsn):
        stamps = self.many(self.fieldStamp)
        fields = []
        for _ in range(self.varint()):
            name = self.text()
            place = self.varint()
            fields.append({"name": name, "stamp": stamps[place - 1] if place else None, "value": self.value()})
        names = [field["name"].encode() for field in fields]
        if names != sorted(set(names)):
            raise Bad("fields out of order")
        seen = self.many(self.seen)
        unknown = self.hex()
        dirty = {}
        for _ in range(self.varint()):
            place = self.varint()
            dirty[fields[place]["name"]] = self.varint() or lsn
        return {"fields": fields, "seen": seen, "unknownStampParts": unknown, "dirty": dirty}

    def deltas(self):
        total = 0
        result = []
        for _ in range(self.varint()):
            total += self.varint()
            result.append(total)
        return result

    def deletedName(self):
        return {
            "hash": self.raw(16).hex(),
            "lsn": self.varint(),
            "isLocal": self.flag(),
            "births": self.births(),
            "created": self.optional(self.zigzag),
            "changeTag": self.optional(self.text),
        }

    def supersededRecord(self):
        return {"record": self.id(), "recordType": self.text()}

    def supersededMutations(self):
        lsn = time = 0
        result = []
        for _ in range(self.varint()):
            lsn += self.varint()
            place = self.varint()
            time = (time + self.zigzag()) % (1 << 64)
            result.append({"lsn": lsn, "recordPlace": place, "time": time})
        return result

    def listedItem(self):
        return {"name": self.text(), "changeTag": self.text(), "modified": self.zigzag()}

    def cause(self):
        return {"requestUUID": self.hex(), "operation": self.u16(), "isCascade": self.u8()}

    def serverField(self):
        return {"name": self.text(), "value": self.value()}


# Each kind: its name and its parts in order; a part is a name and how to read it.
STORE = {
    1: ("opened", [("writer", "u64"), ("storeUUID", "raw16"), ("tenure", "u64")]),
    2: ("bound", [("container", "text"), ("environment", "text"), ("scope", "u8"), ("userHash", "u64")]),
    3: (
        "saved",
        [("record", "id"), ("recordType", "text"), ("births", "births"), ("base", "varint"), ("time", "u64")]
        + [("editCount", "varint"), ("tenure", "u64"), ("isCreation", "flag"), ("content", "content")],
    ),
    4: (
        "deleted",
        [("record", "id"), ("births", "births"), ("base", "varint"), ("time", "u64"), ("tenure", "u64")],
    ),
    5: ("sent", [("batch", "u64"), ("zone", "zone"), ("lsns", "deltas")]),
    6: (
        "settled",
        [("record", "id"), ("lsn", "varint"), ("outcome", "u8"), ("changeTag", "text?"), ("created", "touch?")]
        + [("modified", "touch?"), ("code", "text"), ("words", "text")],
    ),
    7: (
        "merged",
        [("record", "id"), ("recordType", "text"), ("births", "births"), ("base", "varint"), ("local", "varint")]
        + [("time", "u64"), ("editCount", "varint"), ("tenure", "u64"), ("rule", "text"), ("content", "content")],
    ),
    8: (
        "fetchedSave",
        [("record", "id"), ("recordType", "text"), ("births", "births"), ("changeTag", "text")]
        + [("created", "touch?"), ("modified", "touch?"), ("source", "u8"), ("isStamped", "flag")]
        + [("latest", "u64"), ("unknownKeys", "hex"), ("content", "content")],
    ),
    9: ("fetchedDelete", [("record", "id"), ("births", "births"), ("reason", "u8")]),
    10: ("confirmed", [("zone", "zone"), ("names", "text*")]),
    11: ("listed", [("zone", "zone"), ("items", "listedItem*")]),
    12: (
        "blocked",
        [("record", "id"), ("subject", "u8"), ("lsn", "varint"), ("changeTag", "text"), ("births", "births")]
        + [("consequence", "u8"), ("words", "text")],
    ),
    13: (
        "held",
        [("record", "id"), ("direction", "u8"), ("lsn", "varint"), ("raw", "hex"), ("code", "text")]
        + [("words", "text"), ("requestUUID", "text"), ("attempts", "varint"), ("duration", "zigzag")]
        + [("wall", "zigzag")],
    ),
    14: ("released", [("record", "id"), ("lsn", "varint")]),
    15: ("discarded", [("record", "id"), ("lsn", "varint")]),
    16: ("tokenAdvanced", [("zone", "zone?"), ("asked", "text?"), ("token", "text"), ("sweepEpoch", "varint")]),
    17: ("zoneChanged", [("zone", "zone"), ("change", "u8"), ("reason", "text"), ("policy", "text")]),
    18: ("sweepBegan", [("zone", "zone"), ("epoch", "varint")]),
    19: ("sweepEnded", [("zone", "zone"), ("epoch", "varint"), ("seen", "varint"), ("removed", "varint")]),
    20: (
        "assetUploaded",
        [("record", "id"), ("lsn", "varint"), ("field", "text"), ("receipt", "text"), ("wall", "zigzag")],
    ),
    21: ("accountChanged", [("userHash", "u64"), ("isParked", "flag")]),
    22: (
        "pace",
        [("duration", "zigzag"), ("wall", "zigzag"), ("batchSize", "varint"), ("isServers", "flag")]
        + [("reason", "text")],
    ),
    23: ("deletions", [("latest", "u64"), ("key", "raw16"), ("names", "deletedName*")]),
    24: ("superseded", [("latest", "u64"), ("records", "supersededRecord*"), ("mutations", "supersededMutations")]),
}

JOURNAL = {
    1: ("opened", [("tenure", "u64")]),
    2: (
        "zoneCreated",
        [("life", "u64"), ("container", "text"), ("environment", "text"), ("scope", "u8"), ("user", "text")]
        + [("name", "text")],
    ),
    3: ("zoneDeleted", [("life", "u64")]),
    4: (
        "recordSaved",
        [("life", "u64"), ("name", "text"), ("recordType", "text"), ("parent", "text?"), ("changeTag", "text")]
        + [("created", "touch"), ("modified", "touch"), ("cause", "cause"), ("fields", "serverField*")],
    ),
    5: ("recordDeleted", [("life", "u64"), ("name", "text"), ("cause", "cause")]),
}


def event(body, lsn, schema):
    reader = Events(body)
    kinds = {1: STORE, 2: JOURNAL}[schema]
    kind, version, flags = reader.u16(), reader.u8(), reader.u8()
    if kind not in kinds or version != 1:
        if flags & 1:
            return {"kind": "unknown-%d" % kind, "bytes": body.hex()}
        raise Bad("an event of a later version")
    name, parts = kinds[kind]
    result = {"kind": name}

    def read(how):
        if how == "content":
            return reader.content(lsn)
        if how.startswith("raw"):
            return reader.raw(int(how[3:])).hex()
        return getattr(reader, how)()

    for part, how in parts:
        if how.endswith("?"):
            result[part] = reader.optional(lambda: read(how[:-1]))
        elif how.endswith("*"):
            result[part] = reader.many(lambda: read(how[:-1]))
        else:
            result[part] = read(how)
    reader.end()
    return result


# --- the command --------------------------------------------------------------------------------------------------


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def verdicts(folder):
    """What a reader concludes of each log in a folder, by name."""
    for name in sorted(os.listdir(folder)):
        show(dict(log.judged(os.path.join(folder, name)), log=name))


def conformance(path):
    """Each case of a conformance text of which this decoder says otherwise than the text demands; returns how many."""
    failures = 0
    with open(path, encoding="utf-8") as text, tempfile.TemporaryDirectory() as folder:
        for name, role, demand in log.expand(text.read(), folder):
            found = log.demanded(os.path.join(folder, name), role)
            if found != demand:
                failures += 1
                show({"case": name, "demanded": demand, "found": found})
    return failures


def main(arguments):
    sys.stdout.reconfigure(encoding="utf-8")
    if arguments[0] == "--verdicts":
        verdicts(arguments[1])
    elif arguments[0] == "--conformance":
        return 1 if conformance(arguments[1]) else 0
    else:
        for line in log.dump(arguments[0], event):
            show(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
