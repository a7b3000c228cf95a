#!/usr/bin/env python3
"""Reads a log directory and prints every frame and event as JSON, one object a line.

Written from Formats/log.md, events.md, stamp.md and journal.md alone, with the standard library alone: if this prints
what the package's own code understands, the pages say enough. Numbers of doubles are printed as their 64 bits.

Usage: decoder.py DIRECTORY
       decoder.py --verdicts FOLDER    what a reader concludes of each log directory in a folder
"""

import json
import os
import re
import struct
import sys

# --- the checksum -------------------------------------------------------------------------------------------------

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


assert crc(b"123456789") == 0xE3069283


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


# --- the log ------------------------------------------------------------------------------------------------------

MAGIC = bytes([0x89, 0x53, 0x54, 0x52, 0x0D, 0x0A, 0x1A, 0x0A])
TYPES = {1: "event", 2: "marker", 3: "opening", 4: "index", 5: "seal"}


class Segment:
    def __init__(self, path, identity):
        with open(path, "rb") as file:
            self.data = file.read()
        head = self.data[:128]
        if len(head) < 128 or head[:8] != MAGIC or crc(head[:124]) != struct.unpack("<I", head[124:])[0]:
            raise Bad("the header of %s" % path)
        (major, self.minor, length, bits) = struct.unpack("<HHIQ", head[8:24])
        if major != 0 or length != 128 or bits or any(head[88:124]):
            raise Bad("%s is of a later version" % path)
        self.uuid = head[40:56]
        (self.id, self.tenure, self.salt) = struct.unpack("<QQI", head[56:76])
        self.role = head[76:80].decode()
        (self.created,) = struct.unpack("<Q", head[80:88])
        if self.id != identity or self.salt == 0 or self.role not in ("stor", "srvr"):
            raise Bad("the header of %s" % path)
        self.seed = crc(self.uuid + struct.pack("<QI", self.id, self.salt))
        self.name = os.path.basename(path)
        frame = self.frame(4096, len(self.data))
        if not frame or frame["type"] != 3 or frame["bytes"] != 80:
            raise Bad("the opening frame of %s" % path)
        self.opening = frame["body"]

    def header(self):
        return {
            "segment": self.id,
            "header": "0.%d" % self.minor,
            "storeUUID": self.uuid.hex(),
            "tenure": self.tenure,
            "salt": self.salt,
            "role": self.role,
            "createdNanoseconds": self.created,
        }

    def frame(self, at, limit):
        """The frame at an offset; None if none verifies there."""
        if at + 32 > limit:
            return None
        head = self.data[at : at + 32]
        (head_crc, length, lsn, kind, flags, schema, index, tag, body_crc) = struct.unpack("<IIQBBHIII", head)
        if tag != self.salt or head_crc != crc(struct.pack("<II", self.seed, at) + head[4:]):
            return None
        padded = (length + 7) // 8 * 8
        if length > 1 << 26 or kind == 0 or at + 32 + padded > limit:
            return None
        if crc(self.data[at + 32 : at + 32 + padded]) != body_crc:
            return None
        body = self.data[at + 32 : at + 32 + length]
        result = {
            "at": at,
            "bytes": 32 + padded,
            "type": kind,
            "flags": flags,
            "lsn": lsn,
            "schema": schema,
            "index": index,
            "raw": body,
            "bodyCRC": body_crc,
        }
        if kind == 2:
            names = ["durableLSN", "durableEnd", "framesSincePrevious", "chain", "strength", "fullFlushLSN"]
            result["body"] = dict(zip(names, struct.unpack("<QIIIIQ", body)))
        if kind == 3:
            names = ["firstLSN", "predecessorID", "predecessorLastLSN", "predecessorEnd", "chain", "durableEnd"]
            values = struct.unpack("<QQQIIIIQ", body)
            if values[6] != 0:
                raise Bad("an opening of a later version")
            result["body"] = dict(zip(names, values[:6]), opens=values[7])
        if kind == 1:
            result["body"] = event(body, lsn, schema)
        return result

    def shown(self, frame):
        line = {"segment": self.id, "offset": frame["at"], "lsn": frame["lsn"], "bytes": frame["bytes"]}
        line["frame"] = TYPES.get(frame["type"], "type-%d" % frame["type"])
        if frame["type"] == 1:
            line.update(flags=frame["flags"], schema=frame["schema"], index=frame["index"])
        if "body" in frame:
            line["body"] = frame["body"]
        return line


class Damage(Exception):
    def __init__(self, segment, start, first, last):
        self.line = {"verdict": "damaged", "file": segment.name, "from": start, "fromLSN": first, "toLSN": last}


class Walk:
    """The history of one segment, from its opening frame to the first stop."""

    def __init__(self, segment, limit):
        opening = segment.opening
        self.segment = segment
        self.lsn, self.chain, self.end = opening["predecessorLastLSN"], opening["chain"], 4176
        # The end of the last unit or marker, and the last promised LSN and place.
        self.settled = 4176
        self.promised_lsn, self.promise = self.lsn, opening["durableEnd"]
        at, since, inside, chain, index = 4176, 1, False, self.chain, 0
        while True:
            frame = segment.frame(at, limit)
            if not frame:
                break
            end = at + frame["bytes"]
            if frame["type"] >= 128:
                if not inside:
                    self.settled = end
            elif frame["type"] == 1:
                first, last = frame["flags"] & 1, frame["flags"] & 2
                expected = self.lsn + index + 1
                if frame["lsn"] != expected or frame["index"] != index or bool(first) != (index == 0):
                    break
                packed = struct.pack("<IQBHII", chain, frame["lsn"], 1, frame["schema"], len(frame["raw"]), frame["bodyCRC"])
                chain = crc(packed)
                inside, index = True, index + 1
                if last:
                    self.lsn, self.chain, self.end, self.settled = frame["lsn"], chain, end, end
                    inside, index = False, 0
                    if end == opening["durableEnd"]:
                        self.promised_lsn = self.lsn
            elif frame["type"] in (2, 4, 5):
                if inside or frame["lsn"] != self.lsn + 1:
                    break
                if frame["type"] == 2:
                    said = frame["body"]
                    if (said["durableEnd"], said["durableLSN"], said["chain"], said["framesSincePrevious"]) != (
                        self.end,
                        self.lsn,
                        self.chain,
                        since,
                    ):
                        raise Damage(segment, at, 0, 0)
                    self.promise, self.promised_lsn = max(self.promise, self.end), self.lsn
                    since = -1
                else:
                    self.end = end
                self.settled = end
            else:
                break
            since += 1
            at = end
        self.stop = at


def verdict(segments):
    for index, segment in enumerate(segments):
        if index + 1 < len(segments):
            after = segments[index + 1].opening
            walk = Walk(segment, min(len(segment.data), after["predecessorEnd"]))
            if (walk.end, walk.lsn, walk.chain) != (
                after["predecessorEnd"],
                after["predecessorLastLSN"],
                after["chain"],
            ):
                raise Damage(segment, walk.end, walk.lsn + 1, max(walk.lsn + 1, after["predecessorLastLSN"]))
            continue
        walk = Walk(segment, len(segment.data))
        promise, promised_lsn = walk.promise, walk.promised_lsn
        for at in range(walk.stop, len(segment.data) - 63, 8):
            frame = segment.frame(at, len(segment.data))
            if frame and frame["type"] == 2 and frame["body"]["durableEnd"] > promise:
                promise, promised_lsn = frame["body"]["durableEnd"], frame["body"]["durableLSN"]
        if promise > walk.end:
            raise Damage(segment, walk.end, walk.lsn + 1, max(walk.lsn + 1, promised_lsn))
        rest = segment.data[walk.stop :].rstrip(b"\0")
        aside = walk.stop + len(rest) - walk.settled
        return {
            "verdict": "torn" if aside else "sound",
            "lastLSN": walk.lsn,
            "events": walk.lsn,
            "segments": len(segments),
            "unpromisedEvents": walk.lsn - promised_lsn,
            "bytesSetAside": aside,
        }


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def opened(path):
    """The segments of a log, held against each other."""
    names = sorted(name for name in os.listdir(path) if re.fullmatch("[0-9a-f]{16}\\.seg", name))
    segments = [Segment(os.path.join(path, name), int(name[:16], 16)) for name in names]
    before = 0
    for segment in segments:
        if segment.opening["predecessorID"] != before or segment.uuid != segments[0].uuid:
            raise Bad("%s does not continue segment %d" % (segment.name, before))
        before = segment.id
    return segments


def judged(segments):
    try:
        return verdict(segments)
    except Damage as damage:
        return damage.line


def main(path):
    segments = opened(path)
    for index, segment in enumerate(segments):
        show(segment.header())
        last = index + 1 == len(segments)
        limit = len(segment.data) if last else segments[index + 1].opening["predecessorEnd"]
        at = 4096
        while True:
            frame = segment.frame(at, limit)
            if not frame:
                break
            show(segment.shown(frame))
            at += frame["bytes"]
    show(judged(segments))


def verdicts(folder):
    """What a reader concludes of each log in a folder, by name."""
    for name in sorted(os.listdir(folder)):
        try:
            line = judged(opened(os.path.join(folder, name)))
        except Bad:
            line = {"verdict": "refused"}
        show(dict(line, log=name))


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    if sys.argv[1] == "--verdicts":
        verdicts(sys.argv[2])
    else:
        main(sys.argv[1])
