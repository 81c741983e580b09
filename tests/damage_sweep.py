#!/usr/bin/env python3
"""Damages a small volume in every way, one at a time, and shows that each is seen.

usage: tests/damage_sweep.py [--every N] [--blocks-every N] [--seed S] [--keep]

Every byte of the volume flipped (one bit of it), every length it can be cut to, every two blocks swapped, every block
replaced by each other one and by one of another volume: with checksums of the cartridge that hold, so that only the block
itself tells. After each, restore gives exactly the source, or fails with an error that names the volume and never writes a
wrong byte; with a twin it always gives exactly the source. Nothing panics. --every 7 takes each seventh byte and length,
--blocks-every 6 each sixth of the damages to whole blocks. Which are taken follows from the seed: continuous integration takes few,
and others each time.
"""

import argparse
import itertools
import os
import random
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cartridge import Cartridge
from program import FULL, Capstan, Checks, Failed, Scratch, crashed, said

# How many bytes and lengths are passed by, and how many damages to whole blocks: in continuous integration, and in a night
# (`./x test --full`). Each byte takes hours.
EVERY, EVERY_FULL = 397, 13
BLOCKS_EVERY, BLOCKS_EVERY_FULL = 6, 1


@dataclass
class Case:
    """One damaged volume."""

    name: str
    content: bytes


def make_source(top):
    """Small: each byte of the volume is a run of the program. Blocks of more than one file, and of more than one block."""
    top.mkdir()
    (top / "empty").write_bytes(b"")
    (top / "line").write_bytes(b"a line of text\n" * 3)
    (top / "noise").write_bytes(random.Random(1).randbytes(9000))
    (top / "link").symlink_to("line")


def prepare(scratch, name, *backup):
    """A state directory with one backup of the source in blocks of 4 KiB."""
    capstan = Capstan(scratch / name, scratch / f"{name}.key")
    capstan.must("--quiet", "init", "--volume-size", "1M")
    capstan.configure(block_kib=4)
    if "--pool" in backup:
        capstan.must("--quiet", "pools", "add", "plain", "--plain")
    capstan.must("--quiet", "backup", scratch / "source", "--connections", 1, *backup)
    return capstan


def volumes(state):
    found = sorted((state / "library").glob("**/*.tape"))
    if not found:
        raise Failed(f"no cartridge below {state / 'library'}")
    return found


def tree(top):
    """What a small tree holds, to be compared as a whole."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_file():
            found[name] = ("file", path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        else:
            found[name] = ("directory",)
    return found


def cases(content, foreign, arguments):
    """Every damage to one volume that is asked for."""
    noise = random.Random(arguments.seed)
    yield from byte_cases(content, arguments.every, noise)
    of_blocks = list(block_cases(content, foreign))
    yield from noise.sample(of_blocks, len(of_blocks) // arguments.blocks_every)


def byte_cases(content, every, noise):
    for at in range(noise.randrange(every), len(content), every):
        bit = 1 << noise.randrange(8)
        yield Case(f"bit {bit:#04x} of byte {at} flipped", content[:at] + bytes([content[at] ^ bit]) + content[at + 1:])
    for length in range(noise.randrange(every), len(content), every):
        yield Case(f"cut to {length} bytes", content[:length])


def block_cases(content, foreign):
    cartridge = Cartridge(content)
    records = cartridge.records
    for one, two in itertools.combinations(cartridge.blocks(), 2):
        swapped = list(records)
        swapped[one], swapped[two] = records[two], records[one]
        yield Case(f"blocks {one} and {two} swapped", cartridge.content(swapped))
    for one, two in itertools.permutations(cartridge.blocks(), 2):
        replayed = list(records)
        replayed[one] = records[two]
        yield Case(f"block {one} replaced by block {two}", cartridge.content(replayed))
    for one, other in itertools.product(cartridge.blocks(), Cartridge(foreign).records):
        replaced = list(records)
        replaced[one] = other
        yield Case(f"block {one} replaced by one of another volume", cartridge.content(replaced))


class Sweep:
    """Tries cases against copies of one state directory."""

    def __init__(self, scratch, capstan, volume, twin):
        self.scratch = scratch
        self.capstan = capstan
        self.volume = volume
        self.twin = twin
        self.expected = tree(scratch / "source")
        self.exact = self.refused = 0

    def attempt(self, case):
        """What is wrong with how one case ended; nothing if nothing is. Runs in several threads, each in its own directory."""
        here = self.scratch / f"case-{id(case)}"
        shutil.copytree(self.capstan.state, here / "state")
        damaged = here / "state" / self.volume.relative_to(self.capstan.state)
        damaged.write_bytes(case.content)
        copy = Capstan(here / "state", self.capstan.environment["CAPSTAN_KEY_FILE"])
        try:
            return self.restored(case, copy, here / "to") or self.verified(case, copy)
        finally:
            shutil.rmtree(here)

    def restored(self, case, copy, target):
        done = copy.run("--quiet", "restore", self.scratch / "source", "--to", target)
        if crashed(done.returncode):
            return f"{case.name}: restore gave {done.returncode}: {said(done)}"
        restored = target / str(self.scratch / "source").lstrip("/")
        found = tree(restored) if restored.exists() else {}
        if done.returncode == 0:
            self.exact += 1
            return "" if found == self.expected else f"{case.name}: restore succeeded with wrong data: {found}"
        self.refused += 1
        if self.twin:
            return f"{case.name}: the twin is whole, and restore gave {done.returncode}: {said(done)}"
        if self.volume.stem not in said(done):
            return f"{case.name}: the error does not name the volume: {said(done)}"
        for name, entry in found.items():
            # What is there is either right or was not finished; a file with other bytes in it is a lie.
            if entry[0] == "file" and entry[1] and not self.expected.get(name, ("", b""))[1].startswith(entry[1]):
                return f"{case.name}: restore failed, and left wrong data in {name}"
        return ""

    def verified(self, case, copy):
        done = copy.run("--quiet", "verify", self.scratch / "source")
        if crashed(done.returncode):
            return f"{case.name}: verify gave {done.returncode}: {said(done)}"
        return ""


def sweep(checks, scratch, name, capstan, foreign, twin, arguments):
    volume = volumes(capstan.state)[0]
    content = volume.read_bytes()
    all_cases = list(cases(content, foreign, arguments))
    trial = Sweep(scratch, capstan, volume, twin)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        wrong = [text for text in threads.map(trial.attempt, all_cases) if text]
    detail = f"{len(wrong)} of {len(all_cases)} went wrong\n" + "\n".join(wrong[:30])
    checks.check(f"{name}: {len(content)} bytes, {len(all_cases)} damages: {trial.exact} gave the exact data, {trial.refused} an error",
                 not wrong, detail)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=EVERY_FULL if FULL else EVERY,
                        help="take each Nth byte and length; 1 takes all, for hours")
    parser.add_argument("--blocks-every", type=int, default=BLOCKS_EVERY_FULL if FULL else BLOCKS_EVERY,
                        help="take each Nth damage to whole blocks")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/damage_sweep.py --every {arguments.every} --blocks-every {arguments.blocks_every} --seed {arguments.seed}",
          flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        make_source(scratch / "source")
        plain = prepare(scratch, "plain", "--pool", "plain")
        alone = prepare(scratch, "alone")
        with_twin = prepare(scratch, "with-twin", "--copies", 2)
        others = {name: volumes(one.state)[0].read_bytes() for name, one in [("alone", alone), ("twin", with_twin)]}
        sweep(checks, scratch, "an encrypted volume", alone, others["twin"], False, arguments)
        sweep(checks, scratch, "an encrypted volume with a twin", with_twin, others["alone"], True, arguments)
        sweep(checks, scratch, "a plain volume", plain, others["alone"], False, arguments)
    checks.finish()


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"damage sweep: {failure}")
