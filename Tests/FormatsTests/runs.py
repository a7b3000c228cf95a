#!/usr/bin/env python3
"""Reads a folder of sorted runs and prints its list, every entry and its verdict as JSON, one object a line.

Written from Formats/runs.md alone, with the standard library alone: if its verdicts are those of the package's own code,
the page says enough.

Usage: runs.py UUID FOLDER                the list, the entries, and the verdict; UUID: the store's, 32 hex digits
       runs.py --verdicts UUID FOLDER     the verdict on each folder of runs in a folder
"""

import functools
import json
import os
import struct
import sys

# --- conventions --------------------------------------------------------------------------------------------------

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


# A test asks about thousands of folders that differ in a byte: most checksums have been computed before.
@functools.lru_cache(maxsize=10_000)
def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


assert crc(b"123456789") == 0xE3069283

MASK = (1 << 64) - 1
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotate(value, count):
    value &= MASK
    return ((value << count) | (value >> (64 - count))) & MASK


def lane(value, word):
    return rotate(value + word * PRIMES[1], 31) * PRIMES[0] & MASK


def xxh64(data):
    """XXH64 with seed 0."""
    at = 0
    if len(data) >= 32:
        lanes = [(PRIMES[0] + PRIMES[1]) & MASK, PRIMES[1], 0, -PRIMES[0] & MASK]
        while at + 32 <= len(data):
            lanes = [lane(value, word) for value, word in zip(lanes, struct.unpack_from("<QQQQ", data, at))]
            at += 32
        value = sum(rotate(one, count) for one, count in zip(lanes, (1, 7, 12, 18)))
        for one in lanes:
            value = (value ^ lane(0, one)) * PRIMES[0] + PRIMES[3] & MASK
    else:
        value = PRIMES[4]
    value = value + len(data) & MASK
    while at + 8 <= len(data):
        value = rotate(value ^ lane(0, number(data, at, 8)), 27) * PRIMES[0] + PRIMES[3] & MASK
        at += 8
    if at + 4 <= len(data):
        value = rotate(value ^ number(data, at, 4) * PRIMES[0] & MASK, 23) * PRIMES[1] + PRIMES[2] & MASK
        at += 4
    for byte in data[at:]:
        value = rotate(value ^ byte * PRIMES[4] & MASK, 11) * PRIMES[0] & MASK
    value = (value ^ value >> 33) * PRIMES[1] & MASK
    value = (value ^ value >> 29) * PRIMES[2] & MASK
    return value ^ value >> 32


HEADER, LIST_HEADER, FOOTER = 64, 68, 56
BLOCK, INTERVAL, LONGEST_KEY, LARGEST_VALUE = 10, 16, 65535, 1 << 26
LINE, INDEX_ENTRY, LIST_ENTRY = 64, 12, 20
OWNER, NUMBERS = 4096, 1 << 62


class Refused(Exception):
    """A verdict other than sound."""

    def __init__(self, verdict, file):
        self.line = {"verdict": verdict, "file": file}
        super().__init__(verdict, file)


def demand(holds, file, verdict="damaged"):
    if not holds:
        raise Refused(verdict, file)


def number(data, at, size):
    return int.from_bytes(data[at : at + size], "little")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def header(data, letter, length, uuid, file):
    """The 48 bytes that both headers begin with, and the checksum at the end."""
    demand(len(data) >= length and data[:8] == b"\x89ST" + letter + b"\x0d\x0a\x1a\x0a", file)
    demand(number(data, length - 4, 4) == crc(data[: length - 4]), file)
    known = struct.unpack_from("<HHIQ", data, 8) == (1, 0, length, 0)
    demand(known, file, "future")
    demand(data[32:48] == uuid, file, "foreign")


# --- the list -----------------------------------------------------------------------------------------------------


def runs_list(data, uuid):
    file = "RUNS"
    header(data, b"L", LIST_HEADER, uuid, file)
    following, count, binding = struct.unpack_from("<QII", data, 48)
    end = LIST_HEADER + count * LIST_ENTRY + binding
    demand(len(data) == end + 4 and binding <= OWNER, file)
    demand(number(data, end, 4) == crc(data[:end]), file)
    demand(1 <= following < NUMBERS, file)
    names = ("runNumber", "fileBytes", "footerCRC")
    runs = []
    for place in range(count):
        runs.append(dict(zip(names, struct.unpack_from("<QQI", data, LIST_HEADER + place * LIST_ENTRY))))
    numbers = [run["runNumber"] for run in runs]
    demand(len(set(numbers)) == len(numbers) and all(1 <= one < following for one in numbers), file)
    binding = data[end - binding : end].hex()
    return {"storeUUID": uuid.hex(), "nextRunNumber": following, "runs": runs, "binding": binding}


# --- a run --------------------------------------------------------------------------------------------------------


def varint(data, at, end, limit, file):
    value, shift = 0, 0
    while True:
        demand(at < end, file)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            demand(value <= limit and (byte or not shift), file)
            return value, at
        shift += 7


def common(a, b):
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


class Run:
    def __init__(self, folder, listed, uuid):
        self.file = "%016x.run" % listed["runNumber"]
        try:
            self.data = content(os.path.join(folder, self.file))
        except FileNotFoundError:
            raise Refused("missing", self.file)
        data = self.data
        demand(len(data) == listed["fileBytes"] and len(data) >= HEADER + FOOTER, self.file)
        header(data, b"S", HEADER, uuid, self.file)
        demand(number(data, 48, 8) == listed["runNumber"], self.file, "foreign")
        self.seed = struct.pack("<I", crc(data[32:60]))
        self.read_footer(listed)
        self.read_index()

    def signed(self, start, end):
        """Whether the part verifies that begins with its checksum."""
        return number(self.data, start, 4) == crc(self.seed + struct.pack("<Q", start) + self.data[start + 4 : end])

    def read_footer(self, listed):
        self.end = len(self.data) - FOOTER
        demand(self.signed(self.end, len(self.data)), self.file)
        fields = struct.unpack_from("<IIIQQIQQQ", self.data, self.end)
        self.tail_crc, self.blocks_crc, self.entries, self.tombstones, self.blocks = fields[1:6]
        self.index, self.filter, self.properties = fields[6:]
        lines = (self.properties - self.filter) // LINE
        holds = HEADER <= self.index <= self.filter <= self.properties <= self.end
        holds = holds and self.blocks * INDEX_ENTRY <= self.filter - self.index
        holds = holds and (self.properties - self.filter) % LINE == 0 and 1 <= lines < 1 << 32
        holds = holds and self.end - self.properties <= OWNER
        holds = holds and self.tombstones <= self.entries and self.blocks <= self.entries <= self.index // 3
        demand(holds and (self.blocks == 0) == (self.entries == 0), self.file)
        demand(fields[0] == listed["footerCRC"], self.file, "foreign")
        demand(crc(self.data[self.index : self.end]) == self.tail_crc, self.file)

    def read_index(self):
        keys = self.index + self.blocks * INDEX_ENTRY
        entries = [struct.unpack_from("<QI", self.data, self.index + n * INDEX_ENTRY) for n in range(self.blocks)]
        offsets = [offset for offset, _ in entries]
        ends = [end for _, end in entries]
        demand(all(a < b for a, b in zip(offsets, offsets[1:] + [self.index])), self.file)
        demand(all(a < b for a, b in zip(ends, ends[1:])), self.file)
        demand(not entries or entries[0] == (HEADER, 0), self.file)
        demand(entries or self.index == HEADER, self.file)
        demand(keys + (ends[-1] if ends else 0) == self.filter, self.file)
        self.places = list(zip(offsets, offsets[1:] + [self.index]))
        self.separators = [self.data[keys + a : keys + b] for a, b in zip([0] + ends, ends)]

    def walk(self):
        """All entries, as a check of the whole run goes through them: (key, value or None)."""
        last, seen, tombstones, crcs = None, 0, 0, b""
        for (start, end), separator in zip(self.places, self.separators):
            demand(end - start >= BLOCK and number(self.data, start + 4, 4) == end - start, self.file)
            demand(self.signed(start, end), self.file)
            crcs += self.data[start : start + 4]
            for place, (key, value) in enumerate(self.block(start, end, last)):
                if place == 0:
                    expected = key[: common(last, key) + 1] if last is not None else b""
                    demand(separator == expected, self.file)
                demand(self.may_have(key), self.file)
                seen += 1
                tombstones += value is None
                last = key
                yield key, value
        demand((seen, tombstones) == (self.entries, self.tombstones), self.file)
        demand(crc(crcs) == self.blocks_crc, self.file)

    def block(self, start, end, last):
        count = number(self.data, start + 8, 2)
        restarts = (count + INTERVAL - 1) // INTERVAL
        first = start + BLOCK + 2 * restarts
        demand(count > 0 and end - first >= 3 * count, self.file)
        at = first
        for place in range(count):
            is_restart = place % INTERVAL == 0
            if is_restart:
                demand(first + number(self.data, start + BLOCK + place // INTERVAL * 2, 2) == at, self.file)
            shared, at = varint(self.data, at, end, LONGEST_KEY, self.file)
            unshared, at = varint(self.data, at, end, LONGEST_KEY, self.file)
            size, at = varint(self.data, at, end, LARGEST_VALUE + 1, self.file)
            whole = at + unshared + max(0, size - 1)
            demand(whole <= end and shared + unshared <= LONGEST_KEY, self.file)
            demand(shared == 0 if is_restart else shared <= len(last), self.file)
            key = (last[:shared] if shared else b"") + self.data[at : at + unshared]
            demand(last is None or last < key, self.file)
            demand(is_restart or shared == common(last, key), self.file)
            value = self.data[at + unshared : whole] if size else None
            at = whole
            last = key
            yield key, value
        demand(at == end, self.file)

    def may_have(self, key):
        value = xxh64(key)
        line = self.filter + ((value >> 32) * ((self.properties - self.filter) // LINE) >> 32) * LINE
        bits = value & 0xFFFFFFFF
        for _ in range(6):
            bit = bits >> 23
            if not self.data[line + bit // 8] >> bit % 8 & 1:
                return False
            bits = bits * 0x9E3779B9 & 0xFFFFFFFF
        return True


# --- a folder -----------------------------------------------------------------------------------------------------


def dump(folder, uuid):
    """The lines of a folder; what is refused ends them."""
    try:
        path = os.path.join(folder, "RUNS")
        if not os.path.exists(path):
            yield {"verdict": "absent", "file": "RUNS"}
            return
        listed = runs_list(content(path), uuid)
        yield {"list": listed}
        runs = [Run(folder, one, uuid) for one in listed["runs"]]
        for run in runs:
            properties = run.data[run.properties : run.end].hex()
            numbers = {"entries": run.entries, "tombstones": run.tombstones, "blocks": run.blocks}
            yield dict(numbers, run=run.file, properties=properties)
            for key, value in run.walk():
                yield {"key": key.hex(), "value": None if value is None else value.hex()}
        yield {"verdict": "sound", "file": "RUNS"}
    except Refused as refused:
        yield refused.line


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def main(arguments):
    if arguments[0] == "--verdicts":
        uuid = bytes.fromhex(arguments[1])
        for name in sorted(os.listdir(arguments[2])):
            *_, verdict = dump(os.path.join(arguments[2], name), uuid)
            show(dict(verdict, folder=name))
    else:
        for line in dump(arguments[1], bytes.fromhex(arguments[0])):
            show(line)
    return 0


if __name__ == "__main__":
    assert xxh64(b"") == 0xEF46DB3751D8E999 and xxh64(b"123456789") == 0x8CB841DB40E6AE83
    sys.exit(main(sys.argv[1:]))
