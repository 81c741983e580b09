#!/usr/bin/env python3
"""Kills backups at random moments and shows that nothing that was reported as protected is lost.

usage: tests/crash_sweep.py [--kills N] [--seed S] [--keep]

In a loop: begin or go on with a backup, kill -9 it after a random time, and look at what is left. What a run reported (an
event "checkpoint" names the objects that are flushed and in the catalog) and what the catalog listed after an earlier kill
must still be there: listed, readable on the volume, equal to the source. Now and then the process is stopped right behind
such an event, its catalog read as it stands at that moment, and then killed. Every so often the catalog is rebuilt from the
volumes alone, in a copy of the state directory, and must list the same. At the end a backup runs undisturbed, and its
restore equals the source. The moments follow from the seed as far as a machine's load lets them.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import threading
import time

from program import FULL, ON_POSTGRES, Capstan, Checks, Failed, Scratch, compare, crashed, said

# How many kills in continuous integration, with the tables in SQLite and in PostgreSQL, and in a night (`./x test --full`).
KILLS = 30
KILLS_ON_POSTGRES = 12
KILLS_FULL = 200
# How often the slower proofs run, in kills.
VERIFY_EVERY = 10
REBUILD_EVERY = 12
# Bytes of the source: a few seconds' work with checkpoints every MiB.
FILES = 400
LARGE_FILES = 6


def make_source(top, seed):
    """Many small files, and some that span blocks and checkpoints."""
    noise = random.Random(seed)
    for index in range(FILES):
        directory = top / f"d{index // 50}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{index}").write_bytes(noise.randbytes(noise.randrange(16_384)))
    for index in range(LARGE_FILES):
        (top / f"large{index}").write_bytes(noise.randbytes(2_000_000 + noise.randrange(1_000_000)))


class Run:
    """One backup in the background; its events are taken as they come."""

    def __init__(self, capstan, source, connections, on_checkpoint):
        self.reported = set()
        self.finished = False
        self.on_checkpoint = on_checkpoint
        self.process = capstan.start("backup", source, "--connections", connections, "--copies", 2)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the line that the kill cut
            if event.get("event") == "checkpoint":
                self.reported.update(event["objects"])
                self.on_checkpoint(self.process, event)
            self.finished |= event.get("event") == "finished"

    def kill_after(self, seconds):
        """Kills after a time, unless it ends before; whether it ended by itself."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(min(0.002, max(0, end - time.monotonic())))
        self.process.kill()
        return self.wait()

    def wait(self):
        code = self.process.wait()
        self.reader.join()
        self.complaint = self.process.stderr.read().strip()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


class Sweep:
    """The state of the sweep: what must never get less."""

    def __init__(self, scratch, seed):
        self.random = random.Random(seed)
        self.scratch = scratch
        self.source = scratch / "source"
        self.capstan = Capstan(scratch / "state", scratch / "key")
        self.known = {}  # object: the paths that the catalog once listed in it
        self.duration = 5.0

    def prepare(self, seed):
        self.source.mkdir()
        make_source(self.source, seed)
        self.capstan.must("--quiet", "init", "--volume-size", "64M")
        self.capstan.configure(checkpoint_mib=1, block_kib=64, buffer_mib=8, extent_longest_mib=1)
        began = time.monotonic()
        self.capstan.must("--quiet", "backup", self.source, "--connections", 4, "--copies", 2)
        self.duration = time.monotonic() - began
        self.note()
        print(f"# an undisturbed backup takes {self.duration:.2f} s")

    def listing(self, capstan, identity):
        # The first checkpoint of an object may hold the beginning of one large file, and nothing that is whole.
        if capstan.json("show", identity)["entries"] == 0:
            return set()
        rows = capstan.rows("ls", "-R", f"{identity}:{self.source}")
        return {json.dumps(row, sort_keys=True) for row in rows}

    def note(self):
        """Takes what the catalog lists as known, and fails if it lists less than before."""
        objects = {row["object"]: row for row in self.capstan.rows("objects")}
        for identity in self.known.keys() - objects.keys():
            raise Failed(f"object {identity} was listed and is gone")
        for identity in objects:
            paths = self.listing(self.capstan, identity)
            lost = self.known.get(identity, set()) - paths
            if lost:
                raise Failed(f"{len(lost)} entries of object {identity} were listed and are gone, one of them {min(lost)}")
            self.known[identity] = paths
        return objects

    def stop_and_look(self, process, event):
        """Stops the process right behind an event and reads the catalog as it stands then."""
        if self.random.random() > 0.05:
            return
        process.send_signal(signal.SIGSTOP)
        for identity in event["objects"]:
            self.known[identity] = self.known.get(identity, set()) | self.listing(self.capstan, identity)
        process.kill()

    def kill_once(self):
        """One backup that is killed; what it reported must be there."""
        run = Run(self.capstan, self.source, self.random.choice([1, 2, 4]), self.stop_and_look)
        code = run.kill_after(self.random.uniform(0, 1.1 * self.duration))
        if code not in (0, -signal.SIGKILL):
            raise Failed(f"the backup gave {code}: {run.complaint}")
        if run.finished and code != 0 and not run.reported:
            raise Failed("the backup said it had finished and had not reported a checkpoint")
        objects = self.note()
        for identity in run.reported - objects.keys():
            raise Failed(f"object {identity} was reported as protected and is not listed")
        return code == -signal.SIGKILL

    def prove(self, identity):
        """Reads an object back: every block, and every file against the source."""
        self.capstan.must("--quiet", "verify", identity)
        target = self.scratch / "restored"
        shutil.rmtree(target, ignore_errors=True)
        done = self.capstan.run("--quiet", "restore", identity, "--to", target)
        # What a killed run left comes back as far as it goes, and that it is not all is said.
        is_open = any(row["object"] == identity and row["status"] != "complete" for row in self.capstan.rows("objects"))
        if done.returncode != (3 if is_open else 0):
            raise Failed(f"restore of {identity} gave {done.returncode}: {said(done)}")
        restored = target / str(self.source).lstrip("/")
        for path in (path for path in restored.rglob("*") if path.is_file()):
            if path.read_bytes() != (self.source / path.relative_to(restored)).read_bytes():
                raise Failed(f"{path} differs from the source")
        found = sum(1 for path in restored.rglob("*") if path.is_file())
        listed = sum(1 for row in map(json.loads, self.known[identity]) if row.get("kind") == "file")
        if found < listed:
            raise Failed(f"object {identity} lists {listed} files, and {found} came back")
        shutil.rmtree(target)

    def rebuild(self):
        """Makes the catalog anew in a copy of the state directory; it must list all that is known."""
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.capstan.state, copy)
        other = Capstan(copy, self.scratch / "key")
        other.must("--quiet", "rebuild")
        for identity, paths in self.known.items():
            lost = paths - self.listing(other, identity)
            if lost:
                raise Failed(f"rebuild lost {len(lost)} entries of object {identity}, one of them {min(lost)}")
        shutil.rmtree(copy)

    def forget(self):
        """Lets go of what was proved, so that the state directory stays small. The last complete object of a source is not given up."""
        rows = self.capstan.rows("objects")
        kept = {self.newest()} | {row["object"] for row in [row for row in rows if row["status"] == "complete"][:1]}
        for identity in [identity for identity in self.known if identity not in kept]:
            self.capstan.must("--quiet", "expire", identity)
            del self.known[identity]

    def newest(self):
        return max(self.capstan.rows("objects"), key=lambda row: row["started_ns"])["object"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=KILLS_FULL if FULL else KILLS_ON_POSTGRES if ON_POSTGRES else KILLS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/crash_sweep.py --kills {arguments.kills} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = Sweep(scratch, arguments.seed)
        sweep.prepare(arguments.seed)
        killed = runs = 0
        try:
            while killed < arguments.kills:
                runs += 1
                killed += sweep.kill_once()
                if runs % VERIFY_EVERY == 0:
                    for identity in sweep.known:
                        sweep.prove(identity)
                if runs % REBUILD_EVERY == 0:
                    sweep.rebuild()
                    sweep.forget()
                    print(f"# {killed} kills in {runs} runs", flush=True)
        except Failed as failure:
            checks.check(f"{killed} kills: {str(failure).splitlines()[0][:200]}", False, failure)
            raise
        checks.check(f"{killed} kills in {runs} runs, and nothing that was reported is missing", True)
        run = Run(sweep.capstan, sweep.source, 4, lambda *_: None)
        code = run.wait()
        checks.check("then a backup runs to its end", code == 0 and run.finished, run.complaint)
        done = sweep.capstan.run("--quiet", "restore", sweep.source, "--to", scratch / "restored")
        checks.check("it is restored", done.returncode == 0 and not crashed(done.returncode), said(done))
        differences = compare(sweep.source, scratch / "restored" / str(sweep.source).lstrip("/"))
        checks.check("and equals the source", not differences, differences)
        done = sweep.capstan.run("--quiet", "verify", *[row["volume"] for row in sweep.capstan.rows("volumes")])
        checks.check("every volume verifies", done.returncode == 0, said(done))
    checks.finish()


if __name__ == "__main__":
    os.umask(0o022)
    try:
        main()
    except Failed as failure:
        sys.exit(f"crash sweep: {failure}")
