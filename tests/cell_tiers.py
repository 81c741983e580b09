#!/usr/bin/env python3
"""Brings the backups of a cell from disk to tape, copies, migrates and consolidates them, while machines are killed, cut off or
full, and shows that each is where its policies say, whole, and nowhere else.

usage: tests/cell_tiers.py [--rounds N] [--seed S] [--keep]

The cell of cell_mover.py: two movers with a library each, and the server with two on its own disk. The backups of one client go to
a disk first, and on to the movers' tape; those of others get a further copy at the server; what all of them have migrates there. After
a few incrementals full backups are made of them. In each round the trees change, all is backed up, and something happens to a
client, a mover, the server, a connection, a clock or a disk. Then the queue is emptied, and what there is is compared with what
the policies say, and with what the trees were.
"""

import argparse
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from cell import differences, picture
from cell_clients import COPY_FAILED, DRIVES, all_rounds
from cell_mover import MoverSweep
from machine import in_own_mounts
from program import FULL, Checks, Failed, Scratch

ROUNDS = 14
ROUNDS_FULL = 200
CONSOLIDATE_AFTER = 3
STAGED, STAGE_POOL = "own-web1", "web1-stage"
# Where each policy's backups belong in the end.
BELONGS = {
    "own-web1": ["default"],
    "own-web2": ["default", "vault"],
    "own-web3": ["default", "default-copy2", "vault"],
    "own-tape1": ["default"],
    "common": ["away"],
}
# Policies of copies, each with what it copies and where to.
COPIES = {
    "land": {"copies_of": [STAGED], "pool": "default", "unit": "both", "migrate_after": "0s"},
    "vault": {"copies_of": ["own-web2", "own-web3"], "pool": "vault", "unit": "deep"},
    "away": {"copies_of": ["common"], "pool": "away", "unit": "deep", "migrate_after": "0s"},
}
# Times that all copies are asked for in the end: what was in use, or failed, is made by the next run.
TRIES = 12
COMPARED = 8


class TierSweep(MoverSweep):
    """A cell whose backups go through tiers."""

    more_settings = (
        '[libraries.disk]\npath = "disk"\nvolume_mib = 4\nvolumes_max = 400\ndrives = 2\n\n'
        '[libraries.deep]\npath = "deep"\nvolume_mib = 16\nvolumes_max = 400\ndrives = 2\n\n'
    )

    def policies(self):
        own = super().policies()
        for name, settings in own.items():
            if name.startswith("own-"):
                del settings["full_every"]
                settings |= {"level": "incremental", "consolidate_after": CONSOLIDATE_AFTER}
        own[STAGED] |= {"stage": "disk", "stage_pool": STAGE_POOL, "stage_when": "always", "retention": "90y"}
        return own

    def ready(self):
        """All machines are there, and all policies."""
        self.mover.started()
        self.cell.capstan.must("--quiet", "library", "initialize")
        self.cell.join(self.second)
        self.cell.capstan.must("--quiet", "mover", "label", "jay", "far")
        self.second.settings(DRIVES)
        self.second.started()
        self.unit = {"unit": "both"}
        for pool in ("default-copy2", "vault", "away", STAGE_POOL):
            self.cell.capstan.must("--quiet", "pools", "add", pool)
        again = {"when_owed": True, "retry_after": "1s", "retries": 10}
        self.cell.apply(self.policies() | {name: settings | again for name, settings in COPIES.items()})
        for client in self.clients:
            client.started()
            client.data = self.mover.of_clients

    # What is backed up is whole; a full object that could not be made of it, as a mover was away or a disk full, is made
    # behind the next run.
    passed_over = re.compile(rf"{COPY_FAILED.pattern}|no full backup was made of ")

    def complete(self):
        rows = self.cell.capstan.rows("objects")
        return {row["object"] for row in rows if row["status"] == "complete" and not row["consolidates"]}

    def account(self):
        super().account()
        began = time.monotonic()
        odd = self.odd()
        for _ in range(TRIES):
            if not odd:
                break
            self.cell.add(*COPIES)
            self.cell.until_empty()
            # A full object that was being made when somebody died is ended by the next run.
            begun = {row["policy"] for row in odd if row["status"] != "complete"}
            if begun:
                self.cell.add(*begun)
                self.cell.until_empty()
            odd = self.odd()
        count = len(self.cell.capstan.rows("objects"))
        places = lambda row: [(copy["pool"], copy["whole"], copy["volumes"]) for copy in row["copies"]]
        told = "\n".join(f"{row['policy']} {row['object']} {row['status']} {row['consolidates']}: {places(row)}" for row in odd)
        self.checks.check(f"each of {count} objects is where its policy says, whole, and nowhere else", not odd, told)
        print(f"# what was owed: {time.monotonic() - began:.1f} s", flush=True)
        self.consolidated()

    def odd(self):
        """Objects that are not where they belong."""
        belongs = lambda row: row["status"] == "complete" and sorted(copy["pool"] for copy in row["copies"]) == BELONGS[row["policy"]]
        is_there = lambda row: belongs(row) and all(copy["whole"] for copy in row["copies"])
        rows = [row for row in self.cell.capstan.rows("objects") if row["policy"] in BELONGS]
        # What a run had begun whose place a later one took is no backup.
        return [row for row in rows if not is_there(row) and (row["status"] == "complete" or row["consolidates"])]

    def consolidated(self):
        """Full objects that were made of others give back what these do."""
        rows = {row["object"]: row for row in self.cell.capstan.rows("objects")}
        made = [row for row in rows.values() if row["consolidates"] in rows]
        wrong = []
        for row in self.random.sample(made, min(len(made), COMPARED)):
            pictures = []
            for number, name in enumerate((row["object"], row["consolidates"])):
                target = self.scratch / f"made-{row['object']}-{number}"
                self.cell.capstan.must("--quiet", "restore", name, "--to", target)
                # What is above a tree is not restored, and has the time of the restore.
                tree = self.trees["common" if row["policy"] == "common" else row["client"]].top
                pictures.append(picture(Path(target) / str(tree).lstrip("/")))
            wrong += differences(*pictures)
        name = f"{len(made)} full objects that were made of incrementals give back what these do"
        self.checks.check(name, not wrong and (made or len(self.rounds) < 8), "\n".join(wrong))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS_FULL if FULL else ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/cell_tiers.py --rounds {arguments.rounds} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = TierSweep(scratch, arguments.seed, checks)
        try:
            sweep.prepare()
            all_rounds(sweep, arguments.rounds, [sweep.ready])
            for mover in sweep.cell.movers:
                mover.end(signal.SIGTERM)
        finally:
            sweep.cell.close()
    checks.finish()


if __name__ == "__main__":
    os.umask(0o022)
    in_own_mounts()
    try:
        main()
    except Failed as failure:
        sys.exit(f"cell with tiers: {failure}")
