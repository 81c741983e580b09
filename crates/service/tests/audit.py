#!/usr/bin/env python3
"""Checks the audit log of a key node without Capstan, with what Python brings along.

usage: audit.py --kma NAME [--anchor JSON]... FILE...     the files in the order of their names

Each line names in "before" the SHA-256 of the line before it, its newline included. An anchor is a line as `keyd audit anchors`
prints it: {"kma":...,"sequence":...,"hash":...,"at_ns":...}. Says what is wrong first, or that nothing is; exit status 1 or 0.
"""
import argparse, hashlib, json, sys


def lines(files):
    for name in files:
        with open(name, "rb") as file:
            yield from file


def check(kma, anchors, files):
    sequence, digest, first, vouched = 0, "0" * 64, None, 0
    anchored = {(a["sequence"], a["hash"]) for a in anchors if a["kma"] == kma}
    known = list(lines(files))
    for at, line in enumerate(known):
        if at == len(known) - 1 and not line.endswith(b"\n"):
            print(f"{len(line)} bytes behind record {sequence} are torn: a crash leaves such an end")
            break
        try:
            record = json.loads(line)
            number, before = record["sequence"], record["before"]
        except (ValueError, KeyError, TypeError):
            return f"record {sequence + 1} was altered: it is no record"
        if first is None:
            first, sequence = number, number - 1
            digest = "0" * 64 if number == 1 else before
        if number > sequence + 1:
            return f"record {sequence + 1} is missing"
        if number <= sequence:
            return f"record {number} stands where record {sequence + 1} belongs"
        if record["kma"] != kma:
            return f"record {number} is of node {record['kma']}"
        own = hashlib.sha256(line).hexdigest()
        if before != digest:
            # Which of the two was altered the next one says.
            after = known[at + 1 : at + 2]
            mine = bool(after) and json.loads(after[0])["before"] != own
            return f"record {number if mine or at == 0 else sequence} was altered"
        sequence, digest = number, own
        for s, h in anchored:
            if s == sequence and h != digest:
                return f"record {s} is not the one that was anchored; anchors vouch up to record {vouched}"
            vouched = s if s == sequence else vouched
    last = max((s for s, _ in anchored), default=0)
    if last > sequence:
        return f"the log ends with record {sequence}, and record {last} was anchored"
    print(f"whole: records {first or 0} to {sequence}, anchored to {vouched}, {digest}")
    return None


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--kma", required=True)
parser.add_argument("--anchor", action="append", default=[], type=json.loads)
parser.add_argument("files", nargs="*")
arguments = parser.parse_args()
wrong = check(arguments.kma, arguments.anchor, arguments.files)
if wrong:
    print(wrong)
    sys.exit(1)
