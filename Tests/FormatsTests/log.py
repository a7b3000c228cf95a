"""Reads a log directory and judges it. Written from Formats/log.md alone, with the standard library alone: if its verdicts
are those of the package's own code, the page says enough."""

import os
import re
import functools
import struct

# --- conventions --------------------------------------------------------------------------------------------------

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


# A test asks about thousands of stores that differ in a byte: most checksums have been computed before.
@functools.lru_cache(maxsize=10_000)
def crc(data, value=0):
    value ^= 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


assert crc(b"123456789") == 0xE3069283

NUMBERS = 1 << 62  # LSNs, segment IDs and sequences stay below
LARGEST_BODY = 1 << 26
HEADER, PAGE, OPENING_END, SLOT = 128, 4096, 4160, 64
FIRST, LAST, SYNCED = 1, 2, 4
LIVE, REWRITTEN = 0, 1
TYPES = {1: "event", 2: "opening", 3: "index", 4: "seal"}
ROLES = ("stor", "srvr", "inbx")


class Refused(Exception):
    """A verdict other than sound and torn. LSNs are 0 where none is known to be lost."""

    def __init__(self, verdict, file, offset=0, first=0, last=0):
        if first > last:
            first = last = 0
        self.line = {"verdict": verdict, "file": file, "from": offset, "fromLSN": first, "toLSN": last}
        super().__init__(verdict, file)


def magic(letter):
    return b"\x89ST" + letter + b"\x0d\x0a\x1a\x0a"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def number(data, at, size):
    return int.from_bytes(data[at : at + size], "little")


# --- the three kinds of files -------------------------------------------------------------------------------------


def common(data, letter, file, writing):
    """The checks of "Header" that MANIFEST and segments share."""
    if len(data) < HEADER or data[:8] != magic(letter) or crc(data[:124]) != number(data, 124, 4):
        raise Refused("damaged", file)
    if number(data, 8, 2) != 1 or number(data, 10, 2) or number(data, 12, 4) != HEADER or number(data, 16, 8):
        raise Refused("future", file)
    if writing and number(data, 24, 8):
        raise Refused("future", file)
    return data[32:48].hex()


def slot(data, place):
    """One slot of CONTROL; None if it does not verify."""
    data = data[place * PAGE :][:SLOT]
    if len(data) < SLOT or data[:8] != magic(b"C") or crc(data[:60]) != number(data, 60, 4):
        return None
    if number(data, 8, 2) != 1 or number(data, 10, 2) or number(data, 12, 4):
        raise Refused("future", "CONTROL")
    sequence, tail, durable_lsn, durable_end = struct.unpack("<QQQI", data[32:60])
    if sequence >= NUMBERS or durable_lsn >= NUMBERS or sequence % 2 != place:
        return None
    return {
        "storeUUID": data[16:32].hex(),
        "sequence": sequence,
        "tailSegmentID": tail,
        "durableLSN": durable_lsn,
        "durableEnd": durable_end,
    }


def control(path):
    data = content(path)
    slots = [slot(data, 0), slot(data, 1)]
    if slots == [None, None]:
        raise Refused("damaged", "CONTROL")
    return slots


def manifest(path, writing):
    data = content(path)
    uuid = common(data, b"M", "MANIFEST", writing)
    role, (count, next_id, owner_bytes) = data[48:52].decode("latin-1"), struct.unpack("<IQI", data[52:68])
    if any(data[68:124]) or role not in ROLES:
        raise Refused("future", "MANIFEST")
    if owner_bytes > 256 or len(data) != HEADER + 40 * count + owner_bytes + 4 or crc(data[:-4]) != number(data, len(data) - 4, 4):
        raise Refused("damaged", "MANIFEST")
    names = ["segment", "firstLSN", "lastLSN", "end", "chain", "salt"]
    entries = []
    for at in range(HEADER, HEADER + 40 * count, 40):
        entries.append(dict(zip(names, struct.unpack("<QQQIII", data[at : at + 36]))))
        if any(data[at + 36 : at + 40]):
            raise Refused("future", "MANIFEST")
    ids = [entry["segment"] for entry in entries]
    if (
        not 1 <= next_id < NUMBERS
        or not entries
        or len(set(ids)) != len(ids)
        or any(not 1 <= one < next_id for one in ids)
        or any(not possible(entry) for entry in entries)
    ):
        raise Refused("damaged", "MANIFEST")
    return {
        "storeUUID": uuid,
        "role": role,
        "nextSegmentID": next_id,
        "entries": entries,
        "owner": data[HEADER + 40 * count : -4].hex(),
    }


def possible(entry):
    first, last, end, chain = (entry[name] for name in ("firstLSN", "lastLSN", "end", "chain"))
    if first == 0 or first >= NUMBERS or last >= NUMBERS:
        return False
    if end == 0:
        return last == chain == 0
    return end >= OPENING_END and last >= first - 1


class Segment:
    """A segment's file: its header, and its frames by offset."""

    def __init__(self, path, identity, writing):
        self.data, self.name = content(path), os.path.basename(path)
        head = self.data[:HEADER]
        self.uuid = common(head, b"R", self.name, writing)
        self.id, self.salt, self.kind = number(head, 48, 8), number(head, 56, 4), head[64]
        self.role = head[60:64].decode("latin-1")
        self.compacted = number(head, 116, 8)
        if self.kind > REWRITTEN or any(head[65:116]) or self.role not in ROLES:
            raise Refused("future", self.name)
        if self.compacted and self.kind != REWRITTEN:
            raise Refused("future", self.name)
        if self.salt == 0 or self.compacted >= NUMBERS:
            raise Refused("damaged", self.name)
        if self.id != identity:
            raise Refused("foreign", self.name)
        self.seed = crc(head[32:48] + struct.pack("<QI", self.id, self.salt))
        self.opening = None

    def header(self, at):
        """The header of a frame, as numbers by name; None if none verifies at that offset."""
        head = self.data[at : at + 32]
        if len(head) < 32 or number(head, 24, 4) != self.salt:
            return None
        names = ["headCRC", "length", "lsn", "type", "flags", "schema", "index", "tag", "bodyCRC"]
        frame = dict(zip(names, struct.unpack("<IIQBBHIII", head)))
        if frame["headCRC"] != crc(struct.pack("<II", self.seed, at) + head[4:]):
            return None
        if frame["length"] > LARGEST_BODY or frame["type"] == 0:
            return None
        frame["at"], frame["end"] = at, at + 32 + (frame["length"] + 7) // 8 * 8
        return frame

    def frame(self, at, limit):
        frame = self.header(at)
        if not frame or frame["end"] > limit or crc(self.data[at + 32 : frame["end"]]) != frame["bodyCRC"]:
            return None
        frame["body"] = self.data[at + 32 : at + 32 + frame["length"]]
        return frame

    def headers(self, start):
        """Every header that verifies at a multiple of 8 from `start` on."""
        tag = struct.pack("<I", self.salt)
        at = self.data.find(tag, start + 24)
        while at >= 0:
            if at % 8 == 0:
                frame = self.header(at - 24)
                if frame:
                    yield frame
            at = self.data.find(tag, at + 1)

    def promised(self, start):
        """The furthest promise of a frame from `start` on: its offset, and the LSN that follows; zeros if there is none."""
        return max(
            ((frame["at"], frame["lsn"]) for frame in self.headers(start) if frame["flags"] & SYNCED and 0 < frame["lsn"] < NUMBERS),
            default=(0, 0),
        )

    def open(self, entry):
        """Reads the opening frame."""
        frame = self.frame(PAGE, len(self.data))
        if not frame:
            raise Refused("damaged", self.name, PAGE)
        if (frame["type"], frame["flags"], frame["schema"], frame["index"], frame["length"]) != (2, 0, 0, 0, 32):
            raise Refused("future", self.name, PAGE)
        names = ["predecessorID", "rangeLastLSN", "predecessorEnd", "chain", "durableEnd", "rangeChain"]
        opening = dict(zip(names, struct.unpack("<QQIIII", frame["body"])), firstLSN=frame["lsn"])
        if self.contradicts(opening) or (entry and entry["firstLSN"] != frame["lsn"]):
            raise Refused("damaged", self.name, PAGE)
        self.opening = opening

    def contradicts(self, opening):
        first, before, range_last = opening["firstLSN"], opening["predecessorID"], opening["rangeLastLSN"]
        if first == 0 or max(first, before, range_last) >= NUMBERS:
            return True
        if before == 0 and (first != 1 or opening["predecessorEnd"] or opening["chain"]):
            return True
        if before != 0 and opening["predecessorEnd"] < OPENING_END:
            return True
        if opening["durableEnd"] < OPENING_END:
            return True
        if self.kind == REWRITTEN:
            return range_last < first - 1
        return range_last != 0 or opening["rangeChain"] != 0

    def continues(self, before):
        if before is None:
            return self.opening["predecessorID"] == 0
        if before.kind == REWRITTEN:
            end = (before.opening["rangeLastLSN"] + 1, before.opening["rangeChain"])
            return (self.opening["firstLSN"], self.opening["chain"]) == end
        return self.opening["predecessorID"] == before.id

    def misplaced(self, before):
        """Why it does not continue the segment before it."""
        if before and before.kind == REWRITTEN:
            gap = self.opening["firstLSN"] > before.opening["rangeLastLSN"] + 1
        else:
            gap = self.opening["predecessorID"] > (before.id if before else 0)
        if not gap and before and self.continues(before):
            return Refused("damaged", self.name, PAGE)
        return Refused("missing" if gap else "foreign", self.name, PAGE)


# --- reading a segment --------------------------------------------------------------------------------------------


class Walk:
    """Section 5 of "Recovery". `shown` is called with each frame that counts."""

    def __init__(self, segment, limit, bound, shown=None):
        opening = segment.opening
        self.segment, self.limit, self.bound = segment, limit, bound
        self.rewritten = segment.kind == REWRITTEN
        self.lsn, self.chain = opening["firstLSN"] - 1, opening["chain"]
        self.x, self.sealed, self.events, self.flagged = OPENING_END, False, 0, 0
        self.durable_end_met = self.bound_met = False
        # What stands at X.
        self.end_lsn, self.end_chain = self.lsn, self.chain
        self.index, self.run, self.at = None, 0, OPENING_END
        self.meet()
        while True:
            frame = segment.frame(self.at, limit)
            if not frame or not self.step(frame):
                break
            if frame["flags"] & SYNCED and 0 < frame["lsn"] < NUMBERS:
                self.flagged = frame["at"]
            if shown:
                shown(frame)
            self.at = frame["end"]

    def meet(self):
        self.durable_end_met |= self.x == self.segment.opening["durableEnd"]
        if self.bound:
            self.bound_met |= (self.x, self.end_lsn) == (self.bound["durableEnd"], self.bound["durableLSN"])

    def unit(self, end):
        self.x, self.end_lsn, self.end_chain = end, self.lsn, self.chain
        if self.sealed and self.rewritten:
            self.end_lsn, self.end_chain = (self.segment.opening[name] for name in ("rangeLastLSN", "rangeChain"))
        self.meet()
        return True

    def step(self, frame):
        """Whether the frame continues what precedes it."""
        kind = frame["type"]
        if self.sealed or (frame["flags"] & SYNCED and (self.run or self.rewritten)):
            return False
        if kind >= 128:
            return self.run > 0 or self.unit(frame["end"])
        if kind > 4 or frame["flags"] > 7:
            raise Refused("future", self.segment.name, frame["at"])
        if kind == 2 or (self.index and kind != 4):
            return False
        if kind == 1:
            return self.event(frame)
        range_last = self.segment.opening["rangeLastLSN"]
        allowed = (0, SYNCED) if kind == 3 else (0,)
        if self.run or frame["schema"] or frame["index"] or frame["flags"] not in allowed:
            return False
        if frame["lsn"] != (range_last if self.rewritten else self.lsn) + 1:
            return False
        if kind == 3:
            return self.take_index(frame)
        return self.take_seal(frame)

    def event(self, frame):
        range_last = self.segment.opening["rangeLastLSN"]
        follows = self.lsn < frame["lsn"] <= range_last if self.rewritten else frame["lsn"] == self.lsn + 1
        if not follows or frame["index"] != self.run or bool(frame["flags"] & FIRST) != (self.run == 0):
            return False
        step = struct.pack("<IQBHII", self.chain, frame["lsn"], 1, frame["schema"], frame["length"], frame["bodyCRC"])
        self.lsn, self.chain, self.run = frame["lsn"], crc(step), self.run + 1
        if frame["flags"] & LAST:
            self.events += self.run
            self.run = 0
            self.unit(frame["end"])
        return True

    def take_index(self, frame):
        places = index(frame["body"])
        if places is None:
            raise Refused("future", self.segment.name, frame["at"])
        self.index = frame
        return self.unit(frame["end"])

    def take_seal(self, frame):
        if frame["length"] != 8:
            raise Refused("future", self.segment.name, frame["at"])
        content_chain, index_offset = struct.unpack("<II", frame["body"])
        if not self.index or self.index["end"] != frame["at"] or self.index["at"] != index_offset or content_chain != self.chain:
            raise Refused("damaged", self.segment.name, frame["at"])
        self.sealed = True
        return self.unit(frame["end"])

    def check_promises(self, end):
        """A promise at or below `end` was met, or no unit ended there."""
        opening = self.segment.opening["durableEnd"]
        unmet = 0 < opening <= end and not self.durable_end_met
        if self.bound:
            unmet = unmet or (self.bound["durableEnd"] <= end and not self.bound_met)
        if unmet:
            raise Refused("damaged", self.segment.name, PAGE)


def index(body):
    """The entries of an index; None if it has another form."""
    if len(body) % 8:
        return None
    places = [struct.unpack("<II", body[at : at + 8]) for at in range(0, len(body), 8)]
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in zip(places, places[1:])):
        return None
    return places


# --- a directory --------------------------------------------------------------------------------------------------


class Store:
    """Sections 1 to 4 of "Recovery"; `verdict` is the rest."""

    def __init__(self, path, role=None, writing=False):
        self.path, self.writing = path, writing
        names = sorted(os.listdir(path))
        present = {}
        for name in names:
            if not name.endswith(".seg"):
                continue
            if not re.fullmatch("[0-9a-f]{16}\\.seg", name) or not 1 <= int(name[:16], 16) < NUMBERS:
                raise Refused("foreign", name)
            present[int(name[:16], 16)] = os.path.join(path, name)
        if not present and "MANIFEST" not in names:
            raise Refused("no store", ".")
        for name in ("CONTROL", "MANIFEST"):
            if name not in names:
                raise Refused("damaged", name)
        self.slots = control(os.path.join(path, "CONTROL"))
        self.control = max((one for one in self.slots if one), key=lambda one: one["sequence"])
        self.manifest = manifest(os.path.join(path, "MANIFEST"), writing)
        if self.control["storeUUID"] != self.manifest["storeUUID"]:
            raise Refused("foreign", "CONTROL")
        if role and role != self.manifest["role"]:
            raise Refused("wrongRole", "MANIFEST")
        self.segments, self.entries, self.leftovers, self.quarantine = [], {}, [], []
        self.read(present)

    def read(self, present):
        """Sections 2 and 3."""
        for entry in self.manifest["entries"]:
            identity = entry["segment"]
            self.entries[identity] = entry
            if identity not in present:
                raise Refused("missing", "%016x.seg" % identity)
            segment = self.segment(present.pop(identity), identity, entry)
            before = self.segments[-1] if self.segments else None
            if not segment.continues(before):
                raise segment.misplaced(before)
            self.segments.append(segment)
        self.quarantine = self.chain_on([self.segment(present[identity], identity, None) for identity in sorted(present)])

    def segment(self, path, identity, entry):
        segment = Segment(path, identity, self.writing)
        ours = (self.manifest["storeUUID"], self.manifest["role"])
        if (segment.uuid, segment.role) != ours or (entry and entry["salt"] != segment.salt):
            raise Refused("foreign", segment.name)
        if entry and segment.kind == REWRITTEN and not entry["end"]:
            raise Refused("damaged", "MANIFEST")
        segment.open(entry)
        return segment

    def chain_on(self, candidates):
        """Takes what continues the log; returns what is left over."""
        rest = list(candidates)
        while True:
            after = next((one for one in rest if one.continues(self.segments[-1])), None)
            if not after:
                return rest
            rest.remove(after)
            self.segments.append(after)

    def bound(self, segment):
        return self.control if self.control["tailSegmentID"] == segment.id else None

    def ends(self):
        """Section 4: each segment, with (offset, last LSN, chain); None for the tail."""
        for place, segment in enumerate(self.segments):
            after = self.segments[place + 1] if place + 1 < len(self.segments) else None
            entry = self.entries.get(segment.id)
            said = []
            if segment.kind == REWRITTEN:
                said.append(tuple(segment.opening[name] for name in ("durableEnd", "rangeLastLSN", "rangeChain")))
            if after and after.opening["predecessorID"] == segment.id:
                opening = after.opening
                said.append((opening["predecessorEnd"], opening["firstLSN"] - 1, opening["chain"]))
                if said[0] != said[-1]:
                    raise Refused("damaged", after.name, PAGE)
            if entry and entry["end"]:
                said.append((entry["end"], entry["lastLSN"], entry["chain"]))
                if said[0] != said[-1]:
                    raise Refused("damaged", "MANIFEST")
            if not said and self.bound(segment):
                said += self.closed(segment)
            yield segment, said[0] if said else None

    def closed(self, segment):
        """What CONTROL and a seal say together."""
        end, lsn = self.control["durableEnd"], self.control["durableLSN"]
        frame = segment.frame(end - 40, end) if end % 8 == 0 and end >= OPENING_END + 72 else None
        if frame and (frame["type"], frame["length"], frame["end"], frame["lsn"]) == (4, 8, end, lsn + 1):
            return [(end, lsn, number(frame["body"], 0, 4))]
        return []

    def verdict(self):
        events, parts = 0, list(self.ends())
        for segment, end in parts:
            limit = min(len(segment.data), end[0]) if end else len(segment.data)
            walk = Walk(segment, limit, self.bound(segment))
            events += walk.events
            if not end:
                return self.judge(walk, events)
            self.check_end(walk, end)
        return self.line(walk.end_lsn, events, 0, 0)

    def check_end(self, walk, end):
        """Section 6."""
        segment, bound = walk.segment, walk.bound
        if walk.x != end[0]:
            raise Refused("damaged", segment.name, walk.x, walk.end_lsn + 1, end[1])
        if max(segment.opening["durableEnd"], bound["durableEnd"] if bound else 0) > walk.x:
            raise Refused("damaged", segment.name, PAGE)
        walk.check_promises(walk.x)
        if walk.rewritten and not walk.sealed:
            raise Refused("damaged", segment.name, walk.x)
        if (walk.end_lsn, walk.end_chain) != end[1:]:
            raise Refused("foreign", segment.name, walk.x)

    def judge(self, walk, events):
        """Section 7: the tail."""
        segment, bound = walk.segment, walk.bound
        behind, following = segment.promised(walk.at)
        w = max(segment.opening["durableEnd"], bound["durableEnd"] if bound else 0, walk.flagged, behind)
        if walk.x < w:
            lost = max(walk.end_lsn + 1, bound["durableLSN"] if bound else 0)
            raise Refused("damaged", segment.name, walk.x, walk.end_lsn + 1, lost)
        if behind == walk.x and following != walk.end_lsn + 1:
            raise Refused("damaged", segment.name, walk.x)
        walk.check_promises(walk.x)
        promised = self.lsn_at(walk, w)
        aside = max(0, len(segment.data.rstrip(b"\0")) - walk.x)
        return self.line(walk.end_lsn, events, walk.end_lsn - promised, aside)

    def lsn_at(self, walk, w):
        """The last LSN that W promises."""
        if w == walk.x:
            return walk.end_lsn
        again = Walk(walk.segment, max(w, OPENING_END), None)
        return again.end_lsn

    def line(self, lsn, events, unpromised, aside):
        """Section 8, and what became of the segments that are on no list."""
        if self.control["durableLSN"] > lsn:
            raise Refused("missing", self.segments[-1].name, 0, lsn + 1, self.control["durableLSN"])
        for segment in list(self.quarantine):
            inside = [frame["lsn"] for frame in segment.headers(PAGE) if frame["type"] == 1]
            if max(inside + [segment.opening["rangeLastLSN"]]) <= lsn:
                self.quarantine.remove(segment)
                self.leftovers.append(segment)
        line = {
            "verdict": "torn" if aside else "sound",
            "lastLSN": lsn,
            "events": events,
            "segments": len(self.segments),
            "unpromisedEvents": unpromised,
            "bytesSetAside": aside,
        }
        for name in ("leftovers", "quarantine"):
            if getattr(self, name):
                line[name] = sorted(segment.name for segment in getattr(self, name))
        return line


def judged(path, role=None, writing=False):
    """The verdict on a directory, as an object."""
    try:
        return Store(path, role, writing).verdict()
    except Refused as refused:
        return refused.line


# --- the whole log as lines ---------------------------------------------------------------------------------------


def dump(path, event):
    """The lines of a log: its bounds, its list, every header and frame, and the verdict.

    `event` takes an event's body apart, given its LSN and its schema."""
    try:
        store = Store(path)
        parts = list(store.ends())
    except Refused as refused:
        yield refused.line
        return
    yield {"control": store.slots}
    yield {"manifest": store.manifest}
    for segment, end in parts:
        yield {
            "segment": segment.id,
            "salt": segment.salt,
            "storeUUID": segment.uuid,
            "role": segment.role,
            "kind": segment.kind,
            "compactedLSN": segment.compacted,
        }
        yield opening_line(segment)
        frames = []
        try:
            Walk(segment, min(len(segment.data), end[0]) if end else len(segment.data), None, frames.append)
        except Refused:
            pass  # The verdict, which comes last, says why.
        for frame in frames:
            yield frame_line(segment, frame, event)
    yield judged(path)


def opening_line(segment):
    line = {"segment": segment.id, "offset": PAGE, "lsn": segment.opening["firstLSN"], "bytes": OPENING_END - PAGE}
    body = {name: value for name, value in segment.opening.items() if name != "firstLSN"}
    return dict(line, frame="opening", flags=0, body=body)


def frame_line(segment, frame, event):
    line = {name: frame[name] for name in ("lsn", "flags")}
    line.update(segment=segment.id, offset=frame["at"], bytes=frame["end"] - frame["at"])
    line["frame"] = TYPES.get(frame["type"], "type-%d" % frame["type"])
    if frame["type"] == 1:
        line.update(schema=frame["schema"], index=frame["index"])
        line["body"] = event(frame["body"], frame["lsn"], frame["schema"])
    if frame["type"] == 3:
        line["body"] = [{"lsnDelta": delta, "offset": offset} for delta, offset in index(frame["body"])]
    if frame["type"] == 4:
        line["body"] = dict(zip(("contentChain", "indexOffset"), struct.unpack("<II", frame["body"])))
    return line


# --- the conformance set ------------------------------------------------------------------------------------------


def expand(text, folder):
    """Makes the directories of a conformance text; yields each one's name, role, and lines that say what is demanded."""
    stores = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] in ("#", "why"):
            continue
        if words[0] == "base":
            store = stores[words[1]] = {"files": {}, "role": "stor", "demand": []}
        elif words[0] == "case":
            base = stores[words[3]]
            store = stores[words[1]] = {"files": dict(base["files"]), "role": base["role"], "demand": []}
        elif words[0] == "role":
            store["role"] = words[1]
        elif words[0] == "file":
            change(store["files"], words[1:])
        elif words[0] != "repair":
            store["demand"].append(line)
    for name, store in stores.items():
        place = os.path.join(folder, name)
        os.mkdir(place)
        for file, data in store["files"].items():
            with open(os.path.join(place, file), "wb") as out:
                out.write(data)
        yield name, store["role"], store["demand"]


def change(files, words):
    name, what = words[0], words[1]
    if what == "gone":
        del files[name]
    elif what == "length":
        length = int(words[2])
        files[name] = files.get(name, b"")[:length].ljust(length, b"\0")
    else:
        at, data = int(what), bytes.fromhex(words[2])
        old = files.get(name, b"").ljust(at, b"\0")
        files[name] = old[:at] + data + old[at + len(data) :]


def demanded(path, role):
    """What the page says of a store, in the words of the conformance text."""
    line = judged(path, role)
    served = line["verdict"] in ("sound", "torn")
    lines = ["verdict %s " % line["verdict"] + ("%d %d" % (line["lastLSN"], line["events"]) if served else line["file"])]
    if served and judged(path, role, writing=True)["verdict"] == "future":
        lines.append("writing future")
    if served and not thorough(path):
        lines.append("verify damaged")
    lines += ["leftover " + name for name in line.get("leftovers", [])]
    return lines + ["quarantine " + name for name in line.get("quarantine", [])]


def thorough(path):
    """What only `verify` looks at: bytes that no checksum covers, and where an index points."""
    for segment, end in Store(path).ends():
        if any(segment.data[HEADER:PAGE]):
            return False
        frames = []
        Walk(segment, min(len(segment.data), end[0]) if end else len(segment.data), None, frames.append)
        if any(any(segment.data[frame["at"] + 32 + frame["length"] : frame["end"]]) for frame in frames):
            return False
        first = segment.opening["firstLSN"]
        begins = [(frame["lsn"] - first, frame["at"]) for frame in frames if frame["type"] == 1]
        if any(place not in begins for frame in frames if frame["type"] == 3 for place in index(frame["body"])):
            return False
    return True
