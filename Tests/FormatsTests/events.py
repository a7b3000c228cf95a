#!/usr/bin/env python3
"""Reads events, and computes from the events of a store what it holds.

Written from Formats/events.md, stamp.md and journal.md alone, with the standard library alone. decoder.py reads the
log around the events. Numbers of doubles are printed as their 64 bits.

Usage: events.py --decode FILE            each line of FILE is an LSN and a body in hexadecimal; prints each event, or
                                          the verdict
       events.py --decode-journal FILE    the same for events of the local server
       events.py --fold FILE              the same lines, with a line "-" behind each history; prints what follows from
                                          each history
"""

import json
import struct
import sys


class Bad(Exception):
    """Bytes that the pages do not allow."""


class Future(Bad):
    """An event of a kind or version that a later version of the format wrote."""


# --- types of fields ----------------------------------------------------------------------------------------------


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
        """A double as its 64 bits; minus zero is zero, and there is one NaN."""
        bits = self.u64()
        if bits == 1 << 63:
            bits = 0
        if bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
            bits = 0x7FF8000000000000
        return "%016x" % bits

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

    def choice(self, least, most):
        value = self.u8()
        if not least <= value <= most:
            raise Bad("a choice of %d" % value)
        return value

    def bytes(self):
        return self.raw(self.varint())

    def hex(self):
        return self.bytes().hex()

    def text(self):
        try:
            return self.bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise Bad("text that is not UTF-8")

    def optional(self, read):
        return read() if self.flag() else None

    def many(self, read):
        count = self.varint()
        if count > len(self.data) - self.at:
            raise Bad("a count that cannot fit")
        return [read() for _ in range(count)]

    def end(self):
        if self.at != len(self.data):
            raise Bad("bytes after the end")


# --- groups of fields ---------------------------------------------------------------------------------------------


class Events(Reader):
    def zone(self):
        return {"scope": self.choice(1, 3), "owner": self.text(), "name": self.text()}

    def id(self):
        return {"zone": self.zone(), "name": self.text()}

    def touch(self):
        return {"milliseconds": self.zigzag(), "user": self.text(), "device": self.text()}

    def birth(self):
        return {"time": self.u64(), "writer": self.u64()}

    fieldStamp = birth

    def births(self):
        """A set, whatever the order."""
        found = {(birth["time"], birth["writer"]) for birth in self.many(self.birth)}
        return [{"time": time, "writer": writer} for time, writer in sorted(found)]

    def seen(self):
        """Of two entries of one writer the later one counts."""
        entry = lambda: {"writer": self.u64(), "lsn": self.varint(), "tenure": self.u64(), "time": self.u64()}
        found = {one["writer"]: one for one in self.many(entry)}
        return [found[writer] for writer in sorted(found)]

    def untagged(self, tag, inner=False):
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
            if action & 0x7F > 2:
                raise Bad("an action of %d" % action)
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
            if bits & 0x80 or not bits & 3 or bits & 0x7C and not bits & 2:
                raise Bad("an asset with unknown parts, or without those that it must have")
            asset = {"size": self.zigzag(), "contentHash": self.raw(32).hex() if bits & 1 else None}
            asset["isAtServer"] = bits & 2 != 0
            names = ["fileChecksum", "referenceChecksum", "wrappingKey", "receipt", "downloadURL"]
            for bit, name in enumerate(names, 2):
                asset[name] = self.text() if bits >> bit & 1 else None
            return {"asset": asset}
        if tag == 9:
            kind = self.choice(1, 9)
            if kind == 9:
                if self.varint():
                    raise Bad("items in a list of unknown kind")
                return {"list": kind, "items": []}
            # The kinds of list are numbered as the values that they hold.
            return {"list": kind, "items": self.many(lambda: self.untagged(kind))}
        if tag == 10 and not inner:
            kind = self.choice(1, 11)
            return {"encrypted": self.untagged(kind, inner=True)}
        if tag == 11:
            return {"opaque": {"type": self.text(), "json": self.hex()}}
        raise Bad("a value of kind %d" % tag)

    def value(self):
        tag = self.u8()
        return self.untagged(tag) if tag else None

    def content(self, lsn):
        stamps = self.many(self.fieldStamp)
        fields = []

        def place(number, items):
            if number >= len(items):
                raise Bad("a place behind the last")
            return items[number]

        def field():
            name, number = self.text(), self.varint()
            return {"name": name, "stamp": place(number - 1, stamps) if number else None, "value": self.value()}

        fields = self.many(field)
        names = [field["name"].encode() for field in fields]
        if names != sorted(set(names)):
            raise Bad("fields out of order")
        seen = self.seen()
        unknown = self.hex()
        dirty = {}
        for number, wrote in self.many(lambda: (self.varint(), self.varint())):
            dirty[place(number, fields)["name"]] = wrote or lsn
        # Of a field with neither stamp nor value the version says nothing.
        fields = [field for field in fields if field["stamp"] or field["value"]]
        return {"fields": fields, "seen": seen, "unknownStampParts": unknown, "dirty": dirty}

    def lsns(self):
        total = 0
        result = []
        for step in self.many(self.varint):
            total += step
            if total >> 64:
                raise Bad("an LSN above 64 bits")
            result.append(total)
        return result

    def deletedNames(self):
        names = self.many(
            lambda: {
                "record": self.id(),
                "lsn": self.varint(),
                "isLocal": self.flag(),
                "births": self.births(),
                "created": self.optional(self.zigzag),
                "changeTag": self.optional(self.text),
            }
        )
        order = [tuple(str(part).encode() for part in id_key(name["record"])) for name in names]
        if order != sorted(set(order)):
            raise Bad("deleted names out of order")
        return names

    def conflictedField(self):
        return {"name": self.text(), "rule": self.text(), "loser": self.choice(1, 4)}

    def inboxField(self):
        name, known = self.text(), self.flag()
        return {"name": name, "isBeforeKnown": known, "before": self.value(), "after": self.value()}

    def listedItem(self):
        return {"name": self.text(), "changeTag": self.text(), "modified": self.zigzag()}

    def cause(self):
        return {"requestUUID": self.hex(), "operation": self.u16(), "isCascade": self.flag()}

    def serverFields(self):
        found = {}
        for name, value in self.many(lambda: (self.text(), self.value())):
            if value is None:
                raise Bad("a field of the value null")
            found[name] = value
        return [{"name": name, "value": found[name]} for name in sorted(found, key=str.encode)]


# --- kinds --------------------------------------------------------------------------------------------------------

# Each kind: its name and its fields in order; "1-3" is one byte of a choice from 1 to 3.
STORE = {
    1: "opened writer:u64 storeUUID:raw16 tenure:u64",
    2: "bound container:text environment:text scope:1-3 userHash:u64",
    3: "saved record:id recordType:text births:births base:varint time:u64 editCount:varint tenure:u64 isCreation:flag"
    " content:content",
    4: "deleted record:id births:births base:varint time:u64 tenure:u64 cause:varint",
    5: "sent batch:u64 zone:zone lsns:lsns",
    6: "settled record:id lsn:varint outcome:1-9 changeTag:text? created:touch? modified:touch? archive:hex code:text"
    " words:text",
    7: "merged record:id recordType:text births:births base:varint local:varint ancestor:varint time:u64"
    " editCount:varint tenure:u64 rule:text words:text content:content",
    8: "fetchedSave record:id recordType:text births:births changeTag:text created:touch? modified:touch? source:1-3"
    " isStamped:flag latest:u64 unknownKeys:hex archive:hex content:content",
    9: "fetchedDelete record:id births:births reason:1-4",
    10: "confirmed zone:zone names:text* knownFrom:varint? knownSince:zigzag?",
    11: "listed zone:zone items:listedItem*",
    12: "blocked record:id subject:1-3 lsn:varint changeTag:text births:births consequence:1-3 words:text",
    13: "held record:id direction:1-2 lsn:varint raw:hex code:text words:text requestUUID:text attempts:varint"
    " duration:zigzag wall:zigzag isServers:flag appVersion:text",
    14: "released record:id lsn:varint",
    15: "discarded record:id lsn:varint",
    16: "tokenAdvanced zone:zone asked:text? token:text sweepEpoch:varint",
    17: "zoneChanged zone:zone change:1-6 reason:1-8? words:text policy:text ruled:zigzag",
    18: "sweepBegan zone:zone epoch:varint since:varint",
    19: "sweepEnded zone:zone epoch:varint seen:varint removed:varint",
    20: "assetUploaded record:id lsn:varint field:text receipt:text wall:zigzag",
    21: "accountChanged userHash:u64 isParked:flag",
    22: "pace scope:1-3 duration:zigzag wall:zigzag batchSize:varint isServers:flag"
    " serverOffset:zigzag reason:text",
    23: "deletions latest:u64 names:deletedNames",
    24: "superseded record:id recordType:text time:u64",
    25: "databaseTokenAdvanced scope:1-3 asked:text? token:text",
    26: "refused record:id lsn:varint",
    27: "joined record:id set:varint",
    28: "listedEnded zone:zone lsns:lsns",
    29: "conflicted record:id local:varint server:varint ancestor:varint wall:zigzag rule:text words:text"
    " fields:conflictedField*",
    30: "inboxChange storeUUID:raw16 record:id operation:1-4 recordType:text births:births time:u64 fields:inboxField*",
    31: "inboxRead inbox:raw16 position:varint",
    32: "inboxRefused code:text words:text wall:zigzag changes:hex*",
    33: "inboxRefusalEnded lsn:varint",
}

JOURNAL = {
    1: "opened tenure:u64",
    2: "zoneCreated life:u64 container:text environment:text scope:1-3 user:text name:text",
    3: "zoneDeleted life:u64",
    4: "recordSaved life:u64 name:text recordType:text parent:text? changeTag:text created:touch modified:touch"
    " cause:cause fields:serverFields",
    5: "recordDeleted life:u64 name:text cause:cause",
}


def event(body, lsn, schema):
    reader = Events(body)
    kinds = {1: STORE, 2: JOURNAL}[schema]
    kind, version, flags = reader.u16(), reader.u8(), reader.u8()
    if kind not in kinds or version != 1:
        if flags & 1:
            return {"kind": "unknown-%d" % kind, "bytes": body.hex()}
        raise Future("an event of a later version")
    name, *fields = kinds[kind].split(" ")
    result = {"kind": name}

    def read(how):
        if how == "content":
            return reader.content(lsn)
        if how == "raw16":
            return reader.raw(16).hex()
        if how[0].isdigit():
            return reader.choice(int(how[0]), int(how[2]))
        return getattr(reader, how)()

    for field in fields:
        part, how = field.split(":")
        if how.endswith("?"):
            result[part] = reader.optional(lambda: read(how[:-1]))
        elif how.endswith("*"):
            result[part] = reader.many(lambda: read(how[:-1]))
        else:
            result[part] = read(how)
    if name == "zoneChanged" and result["change"] != 2 and (result["change"] == 4) != (result["reason"] is not None):
        raise Bad("a reason of a loss without a loss, or a loss without one")
    reader.end()
    return result


# --- from events to records ---------------------------------------------------------------------------------------


def zone_key(zone):
    return (zone["scope"], zone["owner"], zone["name"])


def id_key(record):
    return zone_key(record["zone"]) + (record["name"],)


def id_of(key):
    return {"zone": {"scope": key[0], "owner": key[1], "name": key[2]}, "name": key[3]}


def births_of(found):
    return {(birth["time"], birth["writer"]) for birth in found}


def milliseconds(touch):
    return touch["milliseconds"] if touch else None


class State:
    """What follows from the events of a store: "From events to records" of the page."""

    def __init__(self):
        self.records, self.attempted = {}, set()
        self.deleted = {}
        self.zones, self.tenures, self.held, self.unread, self.blocks = {}, [], {}, {}, {}
        self.sets, self.listed = {}, {}
        self.inboxes, self.refusals = {}, set()
        self.bounds, self.database_tokens, self.paces = {}, {}, {}
        self.latest, self.parked = 0, False
        self.versions = {}

    def apply(self, lsn, event):
        if "content" in event:
            self.versions[lsn] = event
        step = getattr(self, "on_" + event["kind"], None)
        if step:
            step(lsn, event)
        for key in [key for key in self.sets if not self.pending(id_of(key))]:
            del self.sets[key]

    # Operations that several steps share

    def record(self, event):
        """The record of an event, made if it is not there."""
        entry = self.records.get(id_key(event["record"]))
        if not entry:
            entry = {"type": event.get("recordType", ""), "base": None, "pending": None}
            self.records[id_key(event["record"])] = entry
        return entry

    def owe(self, entry, lsn, is_deletion):
        """Adds a mutation to what is pending."""
        pending = entry["pending"]
        if not pending:
            pending = entry["pending"] = {"since": lsn, "first": lsn, "attempts": []}
        elif pending["newest"] in self.attempted:
            pending["attempts"].append({"lsn": pending["newest"], "next": lsn})
        pending.update(newest=lsn, isDeletion=is_deletion)

    def unattempt(self, pending):
        """Forgets every attempt."""
        self.attempted -= {pending["newest"]} | {one["lsn"] for one in pending["attempts"]}
        pending["attempts"] = []

    def settle(self, key, lsn):
        """Takes every mutation up to `lsn` off what is pending."""
        entry = self.records.get(key)
        if not entry:
            return
        pending = entry["pending"]
        if pending and pending["newest"] <= lsn:
            self.unattempt(pending)
            entry["pending"] = None
        elif pending:
            while pending["attempts"] and pending["attempts"][0]["lsn"] <= lsn:
                attempt = pending["attempts"].pop(0)
                self.attempted.remove(attempt["lsn"])
                pending["since"] = pending["first"] = attempt["next"]
        if not entry["pending"] and not entry["base"]:
            del self.records[key]

    def deletion(self, record):
        """What is known of a deleted name."""
        return self.deleted.get(id_key(record))

    def set_deletion(self, record, entry):
        self.deleted.pop(id_key(record), None)
        if entry:
            self.deleted[id_key(record)] = entry

    def confirm_deletion(self, record):
        """What was deleted here stays deleted."""
        entry = self.deletion(record)
        if entry and not self.pending(record):
            self.set_deletion(record, dict(entry, provisional=None))

    def refuse_deletion(self, record):
        """The births of the unconfirmed deletion are alive again."""
        entry = self.deletion(record)
        if entry and entry["provisional"] is not None:
            births = entry["births"] - entry["provisional"]
            self.set_deletion(record, dict(entry, births=births, provisional=None) if births else None)

    def pending(self, record):
        entry = self.records.get(id_key(record))
        return entry and entry["pending"]

    def is_deletion_pending(self, record):
        pending = self.pending(record)
        return bool(pending and pending["isDeletion"])

    def learn(self, time):
        self.latest = max(self.latest, time)

    def answered(self, record, ends_block):
        if ends_block:
            self.blocks.pop(id_key(record), None)
        self.unread.pop(id_key(record), None)

    def zone(self, zone):
        blank = {"wasSeen": False, "isDirty": False, "lostReason": None, "lostWords": "", "token": None, "tokenLSN": 0}
        blank.update(listedLoss=None, isFullFetch=False, isNew=False, hasGhosts=False, sweepEpoch=0, unprovedSince=0, resetPolicy="", ruled=0)
        return self.zones.setdefault(zone_key(zone), blank)

    # One step a kind

    def on_saved(self, lsn, event):
        entry = self.record(event)
        entry["type"] = event["recordType"]
        self.owe(entry, lsn, False)
        self.learn(event["time"])
        self.held.pop(id_key(event["record"]), None)

    def on_deleted(self, lsn, event):
        entry = self.record(event)
        self.owe(entry, lsn, True)
        births = births_of(event["births"])
        old = self.deletion(event["record"]) or {"births": set(), "provisional": None}
        base = entry["base"] or {"created": None, "changeTag": None}
        self.set_deletion(
            event["record"],
            {
                "births": old["births"] | births,
                "provisional": (old["provisional"] or set()) | (births - old["births"]),
                "created": base["created"],
                "changeTag": base["changeTag"],
                "lsn": lsn,
                "isLocal": True,
            },
        )
        self.learn(event["time"])
        self.held.pop(id_key(event["record"]), None)

    def on_sent(self, lsn, event):
        newest = {entry["pending"]["newest"] for entry in self.records.values() if entry["pending"]}
        self.attempted |= newest & set(event["lsns"])

    def on_refused(self, lsn, event):
        pending = self.pending(event["record"])
        if pending and event["lsn"] in self.attempted:
            if event["lsn"] == pending["newest"] or any(one["lsn"] == event["lsn"] for one in pending["attempts"]):
                pending["attempts"] = [one for one in pending["attempts"] if one["lsn"] != event["lsn"]]
                self.attempted.discard(event["lsn"])

    def on_settled(self, lsn, event):
        record, outcome = event["record"], event["outcome"]
        entry, pending = self.records.get(id_key(record)), self.pending(record)
        if outcome == 1:
            answered = pending and {pending["newest"]} | {one["lsn"] for one in pending["attempts"]}
            if event["changeTag"] is not None and pending and event["lsn"] in answered:
                entry["base"] = {
                    "version": lsn,
                    "content": event["lsn"],
                    "changeTag": event["changeTag"],
                    "created": milliseconds(event["created"]),
                    "modified": milliseconds(event["modified"]),
                }
        elif outcome in (2, 6):
            if entry:
                entry["base"] = None
        elif outcome in (7, 8) and self.is_deletion_pending(record):
            self.refuse_deletion(record)
        self.settle(id_key(record), event["lsn"])
        self.confirm_deletion(record)
        self.held.pop(id_key(record), None)

    def on_merged(self, lsn, event):
        base, pending = self.record(event)["base"], self.record(event)["pending"]
        since = pending["since"] if pending else lsn
        self.settle(id_key(event["record"]), event["local"])
        entry = self.record(event)
        entry["base"], entry["type"] = base, event["recordType"]
        if entry["pending"]:
            self.unattempt(entry["pending"])
        self.owe(entry, lsn, False)
        entry["pending"]["since"] = since
        self.learn(event["time"])
        self.held.pop(id_key(event["record"]), None)

    def on_fetchedSave(self, lsn, event):
        entry = self.record(event)
        if not entry["pending"] or entry["pending"]["isDeletion"]:
            entry["type"] = event["recordType"]
        entry["base"] = {
            "version": lsn,
            "content": lsn,
            "changeTag": event["changeTag"],
            "created": milliseconds(event["created"]),
            "modified": milliseconds(event["modified"]),
        }
        self.learn(event["latest"])
        self.answered(event["record"], ends_block=event["source"] == 2)

    def on_fetchedDelete(self, lsn, event):
        record = event["record"]
        entry = self.records.get(id_key(record))
        base = entry and entry["base"]
        old = self.deletion(record) or {"births": set(), "created": None, "changeTag": None, "isLocal": False}

        def known(name):
            return base[name] if base and base[name] is not None else old[name]

        self.set_deletion(
            record,
            {
                "births": old["births"] | births_of(event["births"]),
                "provisional": None,
                "created": known("created"),
                "changeTag": known("changeTag"),
                "lsn": lsn,
                "isLocal": old["isLocal"],
            },
        )
        if entry:
            entry["base"] = None
            if not entry["pending"]:
                del self.records[id_key(record)]
        self.answered(record, ends_block=False)

    def on_discarded(self, lsn, event):
        record = event["record"]
        if self.is_deletion_pending(record):
            self.refuse_deletion(record)
        self.settle(id_key(record), event["lsn"])
        self.confirm_deletion(record)
        self.held.pop(id_key(record), None)

    def on_blocked(self, lsn, event):
        key = id_key(event["record"])
        if event["consequence"] == 1:
            self.blocks.pop(key, None)
        elif not (key in self.blocks and self.blocks[key]["subject"] == 3 and event["subject"] == 1):
            self.blocks[key] = event

    def on_held(self, lsn, event):
        if event["direction"] == 2:
            self.unread[id_key(event["record"])] = event
        elif self.pending(event["record"]):
            self.held[id_key(event["record"])] = event

    def on_joined(self, lsn, event):
        if self.pending(event["record"]):
            self.sets[id_key(event["record"])] = event["set"]

    def on_released(self, lsn, event):
        (self.held if event["lsn"] else self.unread).pop(id_key(event["record"]), None)

    def on_deletions(self, lsn, event):
        for name in event["names"]:
            entry = {part: name[part] for part in ("lsn", "isLocal", "created", "changeTag")}
            entry.update(births=births_of(name["births"]), provisional=None)
            self.deleted[id_key(name["record"])] = entry
        self.learn(event["latest"])

    on_superseded = on_saved

    def on_opened(self, lsn, event):
        self.tenures.append({"tenure": event["tenure"], "writer": event["writer"], "first": lsn})

    def on_bound(self, lsn, event):
        self.bounds[event["scope"]] = event

    def on_databaseTokenAdvanced(self, lsn, event):
        self.database_tokens[event["scope"]] = event["token"]

    def on_tokenAdvanced(self, lsn, event):
        zone = self.zone(event["zone"])
        zone.update(wasSeen=True, token=event["token"], tokenLSN=lsn)
        if event["asked"] is None:
            zone["isFullFetch"] = True

    def on_zoneChanged(self, lsn, event):
        if event["change"] == 6:
            key = zone_key(event["zone"])
            self.zones.pop(key, None)
            self.listed.pop(key, None)
            self.blocks = {id: block for id, block in self.blocks.items() if id[:3] != key}
            return
        zone = self.zone(event["zone"])
        zone["listedLoss"] = event["reason"] if event["change"] == 2 else None
        if event["change"] == 1:
            zone.update(wasSeen=True, isNew=event["policy"] == "new", lostReason=None, lostWords="")
        elif event["change"] == 2:
            zone.update(wasSeen=True, isDirty=True)
        elif event["change"] == 3:
            zone.update(isDirty=False, isFullFetch=False, isNew=False)
        elif event["change"] == 4:
            zone.update(isDirty=False, isNew=False, lostReason=event["reason"], lostWords=event["words"])
            if event["reason"] in (7, 8):
                zone["ruled"] = event["ruled"]
                self.listed.pop(zone_key(event["zone"]), None)
            if event["reason"] == 8:
                zone.update(token=None, sweepEpoch=0)
        else:
            zone.update(isNew=False, hasGhosts=True, token=None, isDirty=True, lostReason=None, lostWords="")
            zone.update(sweepEpoch=0, resetPolicy=event["policy"])
            if event["policy"]:
                zone["ruled"] = event["ruled"]
            self.listed.pop(zone_key(event["zone"]), None)

    def on_listed(self, lsn, event):
        if event["items"]:
            self.listed.setdefault(zone_key(event["zone"]), {})[lsn] = len(event["items"])

    def on_listedEnded(self, lsn, event):
        listed = self.listed.get(zone_key(event["zone"]), {})
        for one in event["lsns"]:
            listed.pop(one, None)

    def on_sweepBegan(self, lsn, event):
        self.zone(event["zone"]).update(sweepEpoch=event["epoch"], unprovedSince=event["since"])

    def on_sweepEnded(self, lsn, event):
        self.zone(event["zone"]).update(sweepEpoch=0, unprovedSince=0, hasGhosts=False, resetPolicy="")

    def on_accountChanged(self, lsn, event):
        self.parked = event["isParked"]

    def on_inboxRead(self, lsn, event):
        self.inboxes[event["inbox"]] = event["position"]

    def on_inboxRefused(self, lsn, event):
        self.refusals.add(lsn)

    def on_inboxRefusalEnded(self, lsn, event):
        self.refusals.discard(event["lsn"])

    def on_pace(self, lsn, event):
        self.paces[event["scope"]] = event

    # What an app or a sync reads

    def view(self, entry):
        """The LSN of the event that holds what the app reads."""
        if entry["pending"]:
            return None if entry["pending"]["isDeletion"] else entry["pending"]["newest"]
        return entry["base"] and entry["base"]["content"]

    def values(self, entry):
        """The version that the app reads; None if its event is not there."""
        lsn = self.view(entry)
        event = self.versions.get(lsn)
        if not event:
            return None
        content = event["content"]
        fields, seen, dirty = content["fields"], {one["writer"]: one for one in content["seen"]}, content["dirty"]
        if not entry["pending"] and event["kind"] in ("saved", "merged"):
            # An acknowledged mutation as a version of the server.
            dirty = {}
            tenure = [one for one in self.tenures if one["first"] <= lsn]
            if tenure:
                own = {"writer": tenure[-1]["writer"], "lsn": lsn, "tenure": event["tenure"], "time": event["time"]}
                self.join_seen(seen, own)
            fields = [dict(field, stamp=self.clamped(field["stamp"], entry["base"]["modified"])) for field in fields]
        seen = [seen[writer] for writer in sorted(seen)]
        return {"fields": fields, "seen": seen, "dirty": dirty}

    def join_seen(self, seen, own):
        old = seen.get(own["writer"])
        if not old or (old["lsn"], old["time"]) < (own["lsn"], own["time"]):
            seen[own["writer"]] = own
        while len(seen) > 64:
            del seen[min(seen, key=lambda writer: (seen[writer]["time"], writer))]

    def clamped(self, stamp, modified):
        """A time from the future becomes the server's time of modification."""
        if not stamp or modified is None:
            return stamp

        def hybrid(time, count):
            return min(max(time, 0), (1 << 48) - 1) << 16 | count

        if stamp["time"] <= hybrid(modified + 60000, 0xFFFF):
            return stamp
        return {"time": hybrid(modified, 0), "writer": stamp["writer"]}

    def shown(self):
        def births(found):
            return None if found is None else [{"time": time, "writer": writer} for time, writer in sorted(found)]

        def deletion(entry):
            return dict(entry, births=births(entry["births"]), provisional=births(entry["provisional"]))

        def ordered(found):
            return sorted(found, key=lambda key: tuple(str(part).encode() for part in key))

        def some(event, *names):
            return event and {name: event[name] for name in names}

        records = []
        for key in ordered(self.records):
            entry = self.records[key]
            extra = {"id": id_of(key), "view": self.view(entry), "values": self.values(entry)}
            records.append(dict(entry, **extra))
        return {
            "records": records,
            "deleted": [dict(deletion(self.deleted[key]), id=id_of(key)) for key in ordered(self.deleted)],
            "zones": [dict(self.zones[key], zone=id_of(key + ("",))["zone"]) for key in ordered(self.zones)],
            "databaseTokens": {str(scope): self.database_tokens[scope] for scope in self.database_tokens},
            "tenures": self.tenures,
            "held": [dict(some(self.held[key], "lsn", "code"), id=id_of(key)) for key in ordered(self.held)],
            "sets": [{"id": id_of(key), "set": self.sets[key]} for key in ordered(self.sets)],
            "listed": [
                {"zone": id_of(key + ("",))["zone"], "lsn": lsn, "names": self.listed[key][lsn]}
                for key in ordered(self.listed)
                for lsn in sorted(self.listed[key])
            ],
            "unread": [dict(some(self.unread[key], "lsn", "code"), id=id_of(key)) for key in ordered(self.unread)],
            "blocks": [
                dict(some(self.blocks[key], "subject", "consequence", "lsn"), id=id_of(key)) for key in ordered(self.blocks)
            ],
            "bounds": {
                str(scope): some(self.bounds[scope], "container", "environment", "userHash") for scope in self.bounds
            },
            "paces": {
                str(scope): some(self.paces[scope], "duration", "wall", "batchSize", "isServers", "serverOffset", "reason")
                for scope in self.paces
            },
            "inboxes": self.inboxes,
            "refusals": sorted(self.refusals),
            "latest": self.latest,
            "isParked": self.parked,
            "attempted": sorted(self.attempted),
        }


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def lines(path):
    """The lines of a file: an LSN and a body each; None for the end of a history."""
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            yield (int(words[0]), bytes.fromhex(words[1]) if len(words) > 1 else b"") if words[0] != "-" else None


def judge(lsn, body, schema):
    try:
        return event(body, lsn, schema)
    except Future:
        return {"verdict": "fromTheFuture"}
    except Bad:
        return {"verdict": "damaged"}


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    if sys.argv[1] == "--fold":
        state = State()
        for line in lines(sys.argv[2]):
            if line:
                state.apply(line[0], event(line[1], line[0], 1))
            else:
                show(state.shown())
                state = State()
    else:
        schema = 2 if sys.argv[1] == "--decode-journal" else 1
        for lsn, body in lines(sys.argv[2]):
            show(judge(lsn, body, schema))
