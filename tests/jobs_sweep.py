#!/usr/bin/env python3
"""Runs many jobs at once over one state directory, kills some of them, and shows that nothing is lost and nothing hangs.

usage: tests/jobs_sweep.py [--rounds N] [--seed S] [--keep]

Each round begins several commands at the same moment, in processes of their own: backups (of different sources and of the
same one, with one copy and with two), copies, verifications, repairs, expiry, labels. Some are killed with kill -9 at a
random moment, some are stopped for a while. Nobody may fail for any reason but that somebody else uses what it needs
(exit code 6), and nobody may wait for somebody who is gone. What a backup reported as protected must be listed afterwards,
no object may count as running, no volume as suspect; every so often all is read back, and the catalog is rebuilt from the
volumes in a copy. What commands are begun and when they are killed follows from the seed as far as a machine's load lets
them.
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

from program import FULL, ON_POSTGRES, Capstan, Checks, Failed, Scratch, crashed, said

# In continuous integration, with the tables in SQLite and in PostgreSQL, and in a night (`./x test --full`).
ROUNDS = 40
ROUNDS_ON_POSTGRES = 20
ROUNDS_FULL = 200
SOURCES = 4
DRIVES = 3
# How often the slower proofs run, in rounds.
PROVE_EVERY = 10
REBUILD_EVERY = 20
# A job that is not killed ends within this time, however many others there are: else it waits for nobody.
SECONDS_MAX = 90
BUSY = 6
# A verification, or `status`, that found what a killed backup left.
ATTENTION = 3


class Job:
    """A command in the background; a backup's events are taken as they come."""

    def __init__(self, capstan, *arguments):
        self.arguments = [str(argument) for argument in arguments]
        self.reported = set()
        self.finished = False
        self.process = capstan.start(*arguments)
        self.killed = False
        self.said = ""
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.hear)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the line that the kill cut
            if event.get("event") == "checkpoint":
                self.reported.update(event["objects"])
            self.finished |= event.get("event") == "finished"

    def hear(self):
        self.said = self.process.stderr.read()

    def wait(self, deadline):
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.process.send_signal(signal.SIGABRT)
                raise Failed(f"{self} does not end")
            time.sleep(0.01)
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def __str__(self):
        return f"capstan {' '.join(self.arguments)}"


class Sweep:
    """The state of the sweep: what must never get less."""

    def __init__(self, scratch, seed):
        self.random = random.Random(seed)
        self.noise = random.Random(seed + 1)
        self.scratch = scratch
        self.capstan = Capstan(scratch / "state", scratch / "key")
        self.sources = [scratch / f"source{number}" for number in range(SOURCES)]
        self.known = set()
        self.labels = 0
        self.codes = {}

    def prepare(self):
        for source in self.sources:
            source.mkdir()
            for _ in range(20):
                self.add_file(source)
        self.capstan.must("--quiet", "init", "--volume-size", "32M", "--drives", DRIVES, "--volumes-max", 400)
        self.capstan.configure(checkpoint_mib=1, block_kib=64, buffer_mib=4, extent_longest_mib=1)
        self.capstan.must("--quiet", "pools", "add", "vault", "--plain")
        for source in self.sources:
            self.capstan.must("--quiet", "backup", source)

    def add_file(self, source):
        """Files are only added, so that what any backup holds must equal what is there now."""
        name = f"f{self.noise.randrange(1 << 60):x}"
        (source / name).write_bytes(self.noise.randbytes(self.noise.choice([100, 10_000, 200_000, 900_000])))

    def command(self):
        """What somebody does."""
        source = self.random.choice(self.sources)
        kind = self.random.choices(["backup", "copy", "verify", "repair", "expire", "label", "undo"],
                                   [10, 2, 2, 1, 2, 1, 1])[0]
        if kind == "backup":
            level = self.random.choice(["--full", "--incremental"])
            wait = self.random.choice([[], ["--wait=writer"]])
            copies = self.random.choice([1, 1, 2])
            return ["backup", source, level, "--copies", copies, "--connections", self.random.choice([1, 2]), *wait]
        if kind == "copy":
            return ["copy", source, "--to-pool", "vault"]
        if kind == "verify":
            return ["verify", source]
        if kind == "label":
            self.labels += 1
            return ["label", f"L{self.labels:05}"]
        if kind == "expire":
            objects = [row for row in self.capstan.rows("objects") if row["status"] == "complete"]
            return ["expire", self.random.choice(objects)["object"]]
        if kind == "undo":
            return ["expire", "--undo"]
        return [kind]

    def allowed(self, job, code):
        """Whether a job may end so."""
        if code in (0, BUSY) or job.killed and code == -signal.SIGKILL:
            return True
        text = job.said
        if job.arguments[0] == "expire":
            # It was named, and is kept; or was given up meanwhile.
            return "is kept" in text or "cannot be taken back" in text or "has expired" in text or "no object matches" in text or "nothing was expired" in text
        if job.arguments[0] == "copy":
            return "has a copy in pool" in text or "has expired" in text
        if job.arguments[0] == "verify":
            # An object that a killed backup left open is told.
            return code == ATTENTION and "interrupted" in text
        if job.arguments[0] == "repair":
            return "another job uses" in text
        return False

    def round(self):
        for source in self.sources:
            if self.random.random() < 0.5:
                self.add_file(source)
        commands = [self.command() for _ in range(self.random.randrange(2, 6))]
        jobs = [Job(self.capstan, *command) for command in commands]
        self.now = jobs
        began = time.monotonic()
        for job in self.random.sample(jobs, min(len(jobs), self.random.choice([0, 1, 1, 2, 3]))):
            time.sleep(self.random.uniform(0, 0.3))
            if self.random.random() < 0.3:
                # Out of sight for a while, as a process that swaps: nobody may take what it has.
                job.process.send_signal(signal.SIGSTOP)
                time.sleep(self.random.uniform(0, 0.5))
                job.process.send_signal(signal.SIGCONT)
            else:
                job.killed = True
                job.process.kill()
        for job in jobs:
            code = job.wait(began + SECONDS_MAX)
            self.codes[code] = self.codes.get(code, 0) + 1
            if crashed(code) and not job.killed or not self.allowed(job, code):
                raise Failed(f"{job} gave {code}: {job.said}")
            if job.finished and code == 0 and job.arguments[0] == "backup" and not job.reported:
                raise Failed(f"{job} said it had finished and had not reported a checkpoint")
        self.look(jobs)

    def look(self, jobs):
        """What the catalog lists, while nothing runs."""
        objects = {row["object"]: row for row in self.capstan.rows("objects", "--all")}
        for job in jobs:
            for identity in job.reported - objects.keys():
                raise Failed(f"{job} reported object {identity}, which is not listed")
            self.known |= job.reported
        for identity in self.known - objects.keys():
            raise Failed(f"object {identity} was listed and is gone")
        for row in objects.values():
            if row["status"] == "running":
                raise Failed(f"object {row['object']} counts as running, and nothing runs")
        for row in self.capstan.rows("volumes"):
            if row["state"] in ("suspect", "retired"):
                raise Failed(f"volume {row['volume']} is {row['state']}")

    def prove(self):
        """Reads everything back that is listed."""
        volumes = [row["volume"] for row in self.capstan.rows("volumes") if row["state"] in ("filling", "full")]
        done = self.capstan.run("--quiet", "verify", *volumes)
        if done.returncode != 0:
            raise Failed(f"the volumes do not verify ({done.returncode}): {said(done)}")
        for source in self.sources:
            target = self.scratch / "restored"
            shutil.rmtree(target, ignore_errors=True)
            self.capstan.must("--quiet", "restore", source, "--to", target)
            restored = target / str(source).lstrip("/")
            for path in restored.iterdir():
                if path.read_bytes() != (source / path.name).read_bytes():
                    raise Failed(f"{path} differs from the source")
            shutil.rmtree(target)

    def rebuild(self):
        """Makes the catalog anew in a copy of the state directory; it must list all that is complete."""
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.capstan.state, copy)
        other = Capstan(copy, self.scratch / "key")
        other.must("--quiet", "rebuild")
        listed = {row["object"]: row for row in other.rows("objects")}
        for row in self.capstan.rows("objects"):
            if row["status"] == "complete" and listed.get(row["object"], {}).get("status") != "complete":
                raise Failed(f"rebuild lost object {row['object']}")
        shutil.rmtree(copy)

    def give_room(self):
        """Forgets what is old, so that the state directory stays small."""
        for source in self.sources:
            rows = [row for row in self.capstan.rows("objects") if row["source"] == str(source)]
            for row in rows[3:]:
                self.capstan.run("--quiet", "expire", row["object"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS_FULL if FULL else ROUNDS_ON_POSTGRES if ON_POSTGRES else ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/jobs_sweep.py --rounds {arguments.rounds} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = Sweep(scratch, arguments.seed)
        sweep.prepare()
        done = 0
        try:
            for done in range(1, arguments.rounds + 1):
                sweep.round()
                if done % PROVE_EVERY == 0:
                    sweep.prove()
                    print(f"# {done} rounds, exit codes {sweep.codes}", flush=True)
                if done % REBUILD_EVERY == 0:
                    sweep.rebuild()
                    sweep.give_room()
        except Failed as failure:
            for job in sweep.now:
                print(f"# {job}{', killed' if job.killed else ''}: {job.process.poll()}", flush=True)
                job.process.kill()
            checks.check(f"round {done}: {str(failure).splitlines()[0][:200]}", False, failure)
            raise
        checks.check(f"{arguments.rounds} rounds of several jobs, and nothing that was reported is missing", True)
        for source in sweep.sources:
            done = sweep.capstan.run("--quiet", "backup", source)
            checks.check(f"then a backup of {source.name} runs to its end", done.returncode == 0, said(done))
        done = sweep.capstan.run("--quiet", "repair")
        checks.check("what lacks a copy is repaired", done.returncode == 0, said(done))
        sweep.prove()
        checks.check("all is read back and equals the sources", True)
    checks.finish()


if __name__ == "__main__":
    os.umask(0o022)
    try:
        main()
    except Failed as failure:
        sys.exit(f"jobs sweep: {failure}")
