#!/usr/bin/env python3
"""Reads a log directory and prints every frame and event as JSON, one object a line.

Written from Formats/log.md, events.md, stamp.md, journal.md and table.md alone, with the standard library alone: if this prints
what the package's own code understands, the pages say enough. Numbers of doubles are printed as their 64 bits.

Usage: decoder.py DIRECTORY
       decoder.py --verdicts FOLDER    what a reader concludes of each log directory in a folder
       decoder.py --table FILE         the header and the entries of a table
"""

import functools
import json
import os
import re
import struct
import sys

from events import Bad, event

# --- the checksum -------------------------------------------------------------------------------------------------

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


# A test asks about thousands of stores that differ in a byte: most checksums have been computed before.
@functools.lru_cache(maxsize=10_000)
def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


assert crc(b"123456789") == 0xE3069283


# --- the log ------------------------------------------------------------------------------------------------------

MARK = bytes([0x0D, 0x0A, 0x1A, 0x0A])
MAGIC = b"\x89STR" + MARK
TYPES = {1: "event", 2: "marker", 3: "opening", 4: "index", 5: "seal"}
BODY = 4192  # where the first group of a segment begins
NUMBERS = 1 << 62  # no LSN and no ID gets there


def content(path):
    with open(path, "rb") as file:
        return file.read()


def control(path):
    """The slot that counts, and the other; None for a slot that does not verify."""
    data = content(path)
    slots = []
    for start in (0, 4096):
        slot = data[start : start + 4096]
        slots.append(None)
        if len(slot) < 4096 or slot[:8] != b"\x89STC" + MARK or crc(slot[:4092]) != struct.unpack("<I", slot[4092:])[0]:
            continue
        (major, minor, zero) = struct.unpack("<HHI", slot[8:16])
        names = ["sequence", "opens", "tailSegmentID", "durableLSN", "fullFlushLSN", "durableEnd", "isClean"]
        values = dict(zip(names, struct.unpack("<QQQQQIB", slot[32:77])))
        if values["sequence"] >= NUMBERS:
            continue
        if major != 1 or zero or values["isClean"] > 1 or any(slot[77:4092]):
            raise Bad("CONTROL is of a later version")
        values["storeUUID"] = slot[16:32].hex()
        slots[-1] = values
    if slots == [None, None]:
        raise Bad("neither slot of CONTROL verifies")
    return slots


def manifest(path):
    data = content(path)
    if len(data) < 132 or data[:8] != b"\x89STM" + MARK or crc(data[:124]) != struct.unpack("<I", data[124:128])[0]:
        raise Bad("the header of MANIFEST")
    (major, minor, length, bits, read_only, compatible) = struct.unpack("<HHIQQQ", data[8:40])
    role = data[56:60].decode("latin-1")
    if major != 1 or length != 128 or bits or any(data[88:124]) or role not in ("stor", "srvr"):
        raise Bad("MANIFEST is of a later version")
    (count, number, next_id, obsolete_count, blob_bytes) = struct.unpack("<IQQII", data[60:88])
    whole = 128 + 64 * count + 8 * obsolete_count + blob_bytes + 4
    if blob_bytes > 256 or len(data) != whole or crc(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise Bad("the list in MANIFEST")
    names = ["segment", "firstLSN", "lastLSN", "events", "end", "chain", "salt", "state"]
    entries = []
    for at in range(128, 128 + 64 * count, 64):
        entries.append(dict(zip(names, struct.unpack("<QQQQIIIB", data[at : at + 45]))))
        if entries[-1]["state"] > 1 or any(data[at + 45 : at + 64]):
            raise Bad("an entry of a later version")
    at = 128 + 64 * count
    obsolete = list(struct.unpack("<%dQ" % obsolete_count, data[at : at + 8 * obsolete_count]))
    ids = [entry["segment"] for entry in entries]
    lsns = [entry[name] for entry in entries for name in ("firstLSN", "lastLSN")]
    if (
        len(set(ids)) != len(ids)
        or any(not 1 <= one < next_id for one in ids + obsolete)
        or set(ids) & set(obsolete)
        or any(lsn >= NUMBERS for lsn in lsns)
        or not 1 <= next_id < NUMBERS
        or number >= NUMBERS
        or not any(entry["state"] == 0 for entry in entries)
    ):
        raise Bad("MANIFEST contradicts itself")
    return {
        "version": "%d.%d" % (major, minor),
        "storeUUID": data[40:56].hex(),
        "role": role,
        "number": number,
        "nextSegmentID": next_id,
        "entries": entries,
        "obsolete": obsolete,
        "ownerBlob": data[at + 8 * obsolete_count : -4].hex(),
    }


class Segment:
    def __init__(self, path, identity):
        self.data = content(path)
        head = self.data[:128]
        if len(head) < 128 or head[:8] != MAGIC or crc(head[:124]) != struct.unpack("<I", head[124:])[0]:
            raise Bad("the header of %s" % path)
        (major, self.minor, length, bits) = struct.unpack("<HHIQ", head[8:24])
        if major != 1 or length != 128 or bits or head[88] > 1 or any(head[89:124]):
            raise Bad("%s is of a later version" % path)
        self.prepared = head[88]
        self.uuid = head[40:56].hex()
        (self.id, self.tenure, self.salt) = struct.unpack("<QQI", head[56:76])
        self.role = head[76:80].decode("latin-1")
        (self.created,) = struct.unpack("<Q", head[80:88])
        if self.id != identity or self.salt == 0 or self.role not in ("stor", "srvr"):
            raise Bad("the header of %s" % path)
        self.seed = crc(head[40:56] + struct.pack("<QI", self.id, self.salt))
        self.name = os.path.basename(path)
        # None for a segment that was made ahead and is not in use.
        self.opening = None
        frame = self.frame(4096, len(self.data))
        if frame and (frame["type"] != 3 or frame["flags"] or frame["bytes"] != 96):
            raise Bad("%s begins as one of a later version" % path)
        if frame and self.agrees(frame):
            self.opening = frame["body"]
        elif not self.prepared or self.promise(4096):
            raise Bad("the opening frame of %s" % path)

    def agrees(self, frame):
        opening = frame["body"]
        before, last = opening["predecessorID"], opening["predecessorLastLSN"]
        if opening["firstLSN"] != frame["lsn"] or frame["lsn"] != last + 1 or max(before, last) >= NUMBERS:
            return False
        if before == 0 and (last or opening["predecessorEnd"] or opening["chain"]):
            return False
        if opening["kind"] == 1:
            return last <= opening["rangeLastLSN"] < NUMBERS and not self.prepared and opening["durableEnd"] >= BODY
        whole = opening["durableEnd"] == 0 if self.prepared else opening["durableEnd"] >= BODY
        return whole and opening["rangeLastLSN"] == 0 and opening["rangeChain"] == 0

    def promise(self, start):
        """The marker from `start` on that promises most."""
        best = None
        for at in range(start, len(self.data) - 63, 8):
            frame = self.frame(at, len(self.data))
            if frame and frame["type"] == 2 and frame["bytes"] == 64:
                if frame["body"]["durableEnd"] > (best["durableEnd"] if best else 0):
                    best = frame["body"]
        return best

    def continues(self, before):
        """Whether the log goes on here behind the segment `before`."""
        if before is None:
            return self.opening["predecessorID"] == 0
        if before.opening["kind"] == 1:
            end = (before.opening["rangeLastLSN"], before.opening["rangeChain"])
            return (self.opening["predecessorLastLSN"], self.opening["chain"]) == end
        return self.opening["predecessorID"] == before.id

    def sealed(self, after):
        """Where it ends, with which LSN and chain; None for the last segment of a log."""
        if self.opening["kind"] == 1:
            return tuple(self.opening[name] for name in ("durableEnd", "rangeLastLSN", "rangeChain"))
        if after:
            return tuple(after.opening[name] for name in ("predecessorEnd", "predecessorLastLSN", "chain"))
        return None

    def header(self):
        return {
            "segment": self.id,
            "header": "1.%d" % self.minor,
            "prepared": self.prepared,
            "storeUUID": self.uuid,
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
            names += ["kind", "opens", "rangeLastLSN", "rangeChain"]
            values = struct.unpack("<QQQIIIIQQII", body)
            if values[6] > 1 or values[10]:
                raise Bad("an opening of a later version")
            result["body"] = dict(zip(names, values))
        if kind == 4:
            places = [struct.unpack("<II", body[at : at + 8]) for at in range(0, length, 8)]
            if any(a[0] >= b[0] or a[1] >= b[1] for a, b in zip(places, places[1:])):
                raise Bad("an index that does not rise")
            result["body"] = [{"lsnDelta": delta, "offset": offset} for delta, offset in places]
        if kind == 5:
            names = ["firstLSN", "lastLSN", "events", "contentChain", "indexOffset", "end"]
            values = struct.unpack("<QQQIIII", body)
            if values[6]:
                raise Bad("a seal of a later version")
            result["body"] = dict(zip(names, values))
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
    """What a reader refuses after it has begun to read. LSNs are 0 where none is lost."""

    def __init__(self, segment, start, first=0, last=0, verdict="damaged"):
        if first > last:
            first = last = 0
        self.line = {"verdict": verdict, "file": segment.name, "from": start, "fromLSN": first, "toLSN": last}


class Walk:
    """The history of one segment, from its opening frame to the first stop."""

    def __init__(self, segment, limit, bound):
        opening = segment.opening
        self.segment, self.bound, self.rewritten = segment, bound, opening["kind"] == 1
        self.lsn, self.chain, self.end = opening["predecessorLastLSN"], opening["chain"], BODY
        # The end of the last unit or marker; the last place that was promised, and its LSN.
        self.settled, self.promise, self.promised_lsn = BODY, BODY, self.lsn
        self.events, self.seal, self.index = 0, None, None
        at, since, run, chain = BODY, 1, [], self.chain
        while True:
            frame = segment.frame(at, limit)
            if not frame:
                break
            end, body = at + frame["bytes"], frame.get("body")
            kind = frame["type"]
            if 5 < kind < 128 or (kind < 128 and frame["flags"] > 3):
                raise Damage(segment, at, verdict="fromTheFuture")
            if self.seal and kind < 128 and (kind != 2 or self.rewritten):
                break
            if kind >= 128:
                if not run:
                    self.settled = end
            elif kind == 1:
                before = run[-1] if run else self.lsn
                follows = before < frame["lsn"] <= opening["rangeLastLSN"] if self.rewritten else frame["lsn"] == before + 1
                if not follows or frame["index"] != len(run) or (frame["flags"] & 1 == 1) != (not run):
                    break
                run.append(frame["lsn"])
                packed = struct.pack("<IQBHII", chain, frame["lsn"], 1, frame["schema"], len(frame["raw"]), frame["bodyCRC"])
                chain = crc(packed)
                if frame["flags"] & 2:
                    self.lsn, self.chain, self.end = frame["lsn"], chain, end
                    self.events += len(run)
                    run = []
                    self.settle(end)
            elif kind == 3 or run or frame["lsn"] != (opening["rangeLastLSN"] if self.rewritten else self.lsn) + 1:
                break
            elif kind == 2:
                if self.rewritten:
                    break
                said = (body["durableEnd"], body["durableLSN"], body["chain"], body["framesSincePrevious"])
                if said != (self.end, self.lsn, self.chain, since):
                    raise Damage(segment, at)
                self.promise, self.promised_lsn = self.end, self.lsn
                since = -1
                self.settle(end)
            elif kind == 4:
                self.index, self.end = (at, end), end
                self.settle(end)
            else:
                last = opening["rangeLastLSN"] if self.rewritten else self.lsn
                here = (opening["firstLSN"], last, self.events, chain, self.index and self.index[0], end)
                names = ("firstLSN", "lastLSN", "events", "contentChain", "indexOffset", "end")
                if tuple(body[name] for name in names) != here or self.index[1] != at:
                    raise Damage(segment, at)
                self.seal, self.end = body, end
                if self.rewritten:
                    self.lsn, self.chain = last, opening["rangeChain"]
                self.settle(end)
            since += 1
            at = end
        self.stop = at

    def settle(self, end):
        self.settled = end
        if end == self.end and (
            end == self.segment.opening["durableEnd"]
            or (self.bound and (end, self.lsn) == (self.bound["durableEnd"], self.bound["durableLSN"]))
        ):
            self.promise, self.promised_lsn = self.end, self.lsn

    def required(self):
        return max(self.segment.opening["durableEnd"], self.bound["durableEnd"] if self.bound else 0)


class Store:
    """The files of a directory, held against each other."""

    def __init__(self, path):
        if not os.path.exists(os.path.join(path, "CONTROL")) or not os.path.exists(os.path.join(path, "MANIFEST")):
            raise Bad("CONTROL or MANIFEST is missing")
        self.slots = control(os.path.join(path, "CONTROL"))
        self.control = max((slot for slot in self.slots if slot), key=lambda slot: slot["sequence"])
        self.manifest = manifest(os.path.join(path, "MANIFEST"))
        if self.control["storeUUID"] != self.manifest["storeUUID"]:
            raise Bad("CONTROL is of another store")
        names = sorted(name for name in os.listdir(path) if name.endswith(".seg"))
        if any(not re.fullmatch("[0-9a-f]{16}\\.seg", name) or int(name[:16], 16) == 0 for name in names):
            raise Bad("a name that is no segment's")
        present = {int(name[:16], 16): os.path.join(path, name) for name in names}
        self.segments, self.strays = [], []
        prepared = []
        for entry in self.manifest["entries"]:
            if entry["segment"] not in present:
                raise Bad("segment %d is missing" % entry["segment"])
            segment = Segment(present[entry["segment"]], entry["segment"])
            if not segment.opening:
                if entry["lastLSN"]:
                    raise Bad("the opening frame of %s" % segment.name)
                continue
            self.check(segment)
            if segment.salt != entry["salt"] or (entry["state"] == 0 and segment.opening["firstLSN"] != entry["firstLSN"]):
                raise Bad("%s is not the segment that MANIFEST means" % segment.name)
            if entry["state"] == 1:
                prepared.append(segment)
            elif segment.continues(self.segments[-1] if self.segments else None):
                self.segments.append(segment)
            else:
                raise Bad("%s does not continue the log" % segment.name)
        if self.chain_on(prepared):
            raise Bad("a segment that was made ahead does not continue the log")
        unlisted = []
        listed = [entry["segment"] for entry in self.manifest["entries"]] + self.manifest["obsolete"]
        for number in sorted(set(present) - set(listed)):
            segment = Segment(present[number], number)
            if segment.opening:
                self.check(segment)
                unlisted.append(segment)
            else:
                self.strays.append(segment)
        self.strays += self.chain_on(unlisted)
        if not self.segments:
            raise Bad("MANIFEST lists no segment that is in use")

    def check(self, segment):
        if (segment.uuid, segment.role) != (self.manifest["storeUUID"], self.manifest["role"]):
            raise Bad("%s is of another store" % segment.name)

    def chain_on(self, candidates):
        """Takes what continues the log; returns the others."""
        rest = list(candidates)
        while self.segments:
            after = next((one for one in rest if one.continues(self.segments[-1])), None)
            if not after:
                break
            rest.remove(after)
            self.segments.append(after)
        return rest

    def ends(self):
        """Each segment, with where it ends; None for the tail."""
        for index, segment in enumerate(self.segments):
            yield segment, segment.sealed(self.segments[index + 1] if index + 1 < len(self.segments) else None)

    def verdict(self):
        events = 0
        for segment, sealed in self.ends():
            bound = self.control if self.control["tailSegmentID"] == segment.id else None
            walk = Walk(segment, min(len(segment.data), sealed[0]) if sealed else len(segment.data), bound)
            events += walk.events
            if not sealed:
                return self.judge(walk, events)
            if walk.end != sealed[0]:
                raise Damage(segment, walk.end, walk.lsn + 1, sealed[1])
            if walk.required() > walk.end:
                raise Damage(segment, 4096)
            if walk.rewritten and not walk.seal:
                raise Damage(segment, sealed[0])
            if (walk.lsn, walk.chain) != sealed[1:]:
                lsns = sorted((walk.lsn, sealed[1]))
                raise Damage(segment, sealed[0], lsns[0], lsns[1], "foreignSegment")
        return self.line(walk.lsn, events, 0, 0)

    def judge(self, walk, events):
        """The last segment: X is walk.end, W the furthest promise."""
        segment, found = walk.segment, walk.segment.promise(walk.stop)
        furthest = max(walk.required(), found["durableEnd"] if found else 0)
        if furthest > walk.end:
            first = walk.lsn + 1
            last = max(
                first if segment.opening["durableEnd"] > walk.end else 0,
                found["durableLSN"] if found else 0,
                walk.bound["durableLSN"] if walk.bound else 0,
            )
            raise Damage(segment, walk.end, first, last)
        promise, promised_lsn = walk.promise, walk.promised_lsn
        if found and found["durableEnd"] == walk.end:
            if (found["durableLSN"], found["chain"]) != (walk.lsn, walk.chain):
                raise Damage(segment, walk.end)
            promise, promised_lsn = walk.end, walk.lsn
        if promise < walk.required():
            raise Damage(segment, 4096)
        if self.control["durableLSN"] > walk.lsn:
            raise Damage(segment, 0, walk.lsn + 1, self.control["durableLSN"], "missingSegment")
        rest = segment.data[walk.stop :].rstrip(b"\0")
        return self.line(walk.lsn, events, walk.lsn - promised_lsn, walk.stop + len(rest) - walk.settled)

    def line(self, lsn, events, unpromised, aside):
        return {
            "verdict": "torn" if aside else "sound",
            "lastLSN": lsn,
            "events": events,
            "segments": len(self.segments),
            "unpromisedEvents": unpromised,
            "bytesSetAside": aside,
        }

    def judged(self):
        try:
            return self.verdict()
        except Damage as damage:
            return damage.line


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def main(path):
    store = Store(path)
    show({"control": store.slots})
    show({"manifest": store.manifest})
    for segment, sealed in store.ends():
        show(segment.header())
        at = 4096
        while True:
            frame = segment.frame(at, min(len(segment.data), sealed[0]) if sealed else len(segment.data))
            if not frame:
                break
            show(segment.shown(frame))
            at += frame["bytes"]
    show(store.judged())


def verdicts(folder):
    """What a reader concludes of each log in a folder, by name."""
    for name in sorted(os.listdir(folder)):
        try:
            line = Store(os.path.join(folder, name)).judged()
        except Bad:
            line = {"verdict": "refused"}
        show(dict(line, log=name))


def table(path):
    """The lines of a table: its header, its entries, and what verify says."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 4096 or data[:8] != b"\x89STT\r\n\x1a\n" or crc(data[:508]) != struct.unpack("<I", data[508:512])[0]:
        raise Bad("the header")
    major, minor, length, needed, _, _ = struct.unpack("<HHIQQQ", data[8:40])
    if (major, length, needed) != (1, 512, 0) or any(data[392:508]):
        raise Bad("a later version")
    uuid, file_id, salt, kind, width, block_bytes = struct.unpack("<16sQIIII", data[40:80])
    count, blocks, lsn, chain, payload_length = struct.unpack("<QQQII", data[80:112])
    hash_key, created, payload = struct.unpack("<16sQ256s", data[112:392])
    if salt == 0 or not 16 <= width <= 1024 or block_bytes != 16384 or lsn >= 1 << 62 or payload_length > 256:
        raise Bad("a header that nobody writes")
    room = (16384 - 16) // width
    if blocks != -(-count // room) or len(data) != 4096 + blocks * 16384 + 16:
        raise Bad("the size")
    if any(data[512:4096]) or any(payload[payload_length:]):
        raise Bad("bytes that are not zero")
    seed = crc(uuid + struct.pack("<QI", file_id, salt))
    lines = [
        {
            "table": "%d.%d" % (major, minor),
            "storeUUID": uuid.hex(),
            "fileID": file_id,
            "salt": salt,
            "kind": kind,
            "entryBytes": width,
            "entryCount": count,
            "blockCount": blocks,
            "boundLSN": lsn,
            "boundChain": chain,
            "hashKey": hash_key.hex(),
            "payload": payload[:payload_length].hex(),
            "createdNanoseconds": created,
        }
    ]
    before = b""
    for number in range(blocks):
        block = data[4096 + number * 16384 :][:16384]
        said, place, entries, reserved = struct.unpack("<IIII", block[:16])
        if said != crc(struct.pack("<II", seed, number) + block[4:]):
            raise Bad("block %d" % number)
        if (place, entries, reserved) != (number, min(room, count - number * room), 0) or any(block[16 + entries * width :]):
            raise Bad("the shape of block %d" % number)
        for index in range(entries):
            entry = block[16 + index * width :][:width]
            if entry[:16] <= before:
                raise Bad("the order of block %d" % number)
            before = entry[:16]
            lines.append({"key": before.hex(), "value": entry[16:].hex()})
    total, reserved, said = struct.unpack("<IQI", data[-16:])
    if said != crc(struct.pack("<II", seed, total) + data[-12:-4]) or reserved or total != crc(data[4096:-16] + data[:4096]):
        raise Bad("the footer")
    return lines + [{"verdict": "sound", "entries": count}]


def show_table(path):
    try:
        lines = table(path)
    except Bad:
        lines = [{"verdict": "damaged"}]
    for line in lines:
        show(line)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    if sys.argv[1] == "--verdicts":
        verdicts(sys.argv[2])
    elif sys.argv[1] == "--table":
        show_table(sys.argv[2])
    else:
        main(sys.argv[1])
