#!/usr/bin/env python3
"""Reads a store and prints its bounds, its list, every frame and event, and its verdict as JSON, one object a line.

Written from the pages of Formats alone (log.py from log.md, events.py from events.md, stamp.md and journal.md), with the
standard library alone: if this prints what the package's own code understands, the pages say enough. Doubles are printed
as their 64 bits.

Usage: decoder.py STORE
       decoder.py --verdicts FOLDER     the verdict on each log directory in a folder
       decoder.py --conformance FILE    the cases of a conformance text on which this decoder disagrees
"""

import json
import os
import sys
import tempfile

import log
from events import event


def show(line):
    print(json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def verdicts(folder):
    """What a reader concludes of each log in a folder, by name."""
    for name in sorted(os.listdir(folder)):
        show(dict(log.judged(os.path.join(folder, name)), log=name))


def conformance(path):
    """Shows each case of a conformance text of which this decoder says otherwise than the text; returns how many."""
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
