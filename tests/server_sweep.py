#!/usr/bin/env python3
"""Kills servers, stops them, and lets people meddle with the queue, and shows that each due run is run once or named as missed.

usage: tests/server_sweep.py [--rounds N] [--seed S] [--keep]

Three policies are due every few seconds, one of them with a disk in front of its tape; others copy and migrate what they have backed
up, by a schedule or as soon as there is something, and one reads samples of volumes and empties those of which little is needed. In
each round a server runs for a moment, while runs are entered, held, released and cancelled, sources are backed up by hand, and things
are stored by name; then it is killed with kill -9, told to stop, or kept out of sight for a while, with a
second server that must be refused. Afterwards no schedule is left, and a last server empties the queue. What the queue says it did
must then add up: between the first and the last run of each schedule every instant is there once, as a run or among those that were
missed; every run that says it is done is so in the history, each by an entry of its own; nothing waits; what the policies
back up can be read back, and all volumes verify; each backup of the two has one whole copy more; what was migrated is in
its first pool no more; what was staged or stored is where it belongs alone, and as it was; chains are bounded by full backups that are made of incrementals, and give back what these do; and
volumes were emptied, so that no full one is left of which little is needed.
"""

import argparse
import os
import random
import re
import signal
import sys
import time

from program import FULL, ON_POSTGRES, Capstan, Checks, Failed, Scratch, Service, said

ROUNDS = 25
ROUNDS_ON_POSTGRES = 12
ROUNDS_FULL = 200
# Every how many seconds each policy is due.
PERIODS = {"one": 2, "two": 3, "three": 5}
# The policies that copy what some of them have backed up, each to a pool of its name: when they are due, and which.
COPIES = {"vault": 7, "safe": 11}
COPIED = {"vault": ("one", "two"), "safe": ("two",)}
# The one of them that migrates.
MIGRATES = "safe"
# The policy that stores by name, and the one that brings that from its disk to tape as soon as there is something.
STORES, BRINGS = "logs", "down"
# The policy whose runs go to a disk first, and the one that brings them to where they belong.
STAGED, LANDS = "one", "land"
STAGE_POOL = "one-stage"
# The disk holds so many volumes of 1 MB: what it has must go on to tape.
STAGE_VOLUMES = 8
# The policy that looks after volumes; full ones of which less than so many percent are needed are emptied.
CARE = {"care": 4}
BELOW = 75
DRIVES = 2
# The policy whose older backups expire.
EXPIRES = "three"
# How many incrementals are made on a full backup before a full one is made of them.
CONSOLIDATE_AFTER = 3
SECONDS_MAX = 90
ALREADY = "a server runs on this state directory already"


class Sweep:
    """A state directory whose policies are due all the time."""

    def __init__(self, scratch, seed, rounds):
        self.random, self.rounds = random.Random(seed), rounds
        self.scratch = scratch
        self.capstan = Capstan(scratch / "state", scratch / "key")
        self.server = None
        # What was stored by name, by version.
        self.stored, self.refused = {}, 0

    def policies(self, with_schedules):
        lines = []
        for name, period in PERIODS.items():
            lines += [f"[policies.{name}]", f'sources = ["{self.scratch / name}"]', 'level = "incremental"', 'retry_after = "1s"',
                      f"copies = {2 if name == 'three' else 1}", f"consolidate_after = {CONSOLIDATE_AFTER}"]
            if name == EXPIRES:
                lines.append("keep = { last = 2 }")
            if name == STAGED:
                lines += ['retention = "90d"', 'stage = "west"', f'stage_pool = "{STAGE_POOL}"', 'stage_when = "always"']
            if with_schedules:
                lines.append(f'schedule = "*:*:0/{period}"')
        for name, period in COPIES.items():
            lines += [f"[policies.{name}]", f"copies_of = {list(COPIED[name])}", f'pool = "{name}"', 'unit = "east"', 'retry_after = "1s"']
            if name == MIGRATES:
                lines.append('migrate_after = "0s"')
            if with_schedules:
                lines.append(f'schedule = "*:*:0/{period}"')
        lines += [f"[policies.{STORES}]", 'put_names = ["*.log"]', 'unit = "west"', f'pool = "{STORES}"']
        lines += [f"[policies.{BRINGS}]", f'copies_of = ["{STORES}"]', f'pool = "{BRINGS}"', 'unit = "main"']
        lines += ['migrate_after = "0s"', "when_owed = true", 'retry_after = "1s"']
        lines += [f"[policies.{LANDS}]", f'copies_of = ["{STAGED}"]', 'pool = "default"', 'unit = "main"']
        lines += ['migrate_after = "0s"', "when_owed = true", 'retry_after = "1s"']
        for name, period in CARE.items():
            lines += [f"[policies.{name}]", 'care_of = ["default", "default-copy2"]', "scrub_one_in = 20", f"reclaim_below = {BELOW}", 'retry_after = "1s"']
            if with_schedules:
                lines.append(f'schedule = "*:*:0/{period}"')
        path = self.scratch / "cell.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def prepare(self):
        for name in PERIODS:
            (self.scratch / name).mkdir()
            self.add_file(name)
        self.capstan.must("--quiet", "init", "--volume-size", "4M", "--drives", DRIVES, "--volumes-max", 400)
        self.capstan.configure(checkpoint_mib=1, block_kib=64, buffer_mib=4)
        with (self.capstan.state / "capstan.toml").open("a") as settings:
            settings.write('[libraries.east]\npath = "east"\nvolume_mib = 64\nvolumes_max = 400\ndrives = 1\n')
            settings.write(f'[libraries.west]\npath = "west"\nvolume_mib = 1\nvolumes_max = {STAGE_VOLUMES}\ndrives = 2\n')
        for name in ("default-copy2", *COPIES, STORES, BRINGS, STAGE_POOL):
            self.capstan.must("--quiet", "pools", "add", name)
        self.made = time.time()
        self.capstan.must("--quiet", "policies", "apply", self.policies(True))

    def add_file(self, name):
        (self.scratch / name / f"f{self.random.randrange(1 << 40):x}").write_bytes(self.random.randbytes(self.random.choice([100, 100_000, 900_000])))

    def meddle(self):
        """What people do meanwhile. Nothing of it may fail but for what the run has become since."""
        what = self.random.choice(["add", "cancel", "hold", "release", "rerun", "backup", "look", "file", "pause", "expire", "put"])
        if what == "file":
            self.add_file(self.random.choice(list(PERIODS)))
            return
        if what == "put":
            self.put()
            return
        if what == "pause":
            time.sleep(self.random.uniform(0, 0.5))
            return
        arguments = {"backup": ["backup", self.random.choice(list(PERIODS)), "--wait=writer"], "look": ["queue"], "expire": ["expire", "--yes"]}.get(what, ["queue", what])
        if what == "add":
            arguments.append(self.random.choice([*PERIODS, *COPIES, *CARE, BRINGS, LANDS]))
        elif what in ("cancel", "hold", "release", "rerun"):
            rows = self.capstan.rows("queue") if what != "rerun" else self.capstan.rows("queue", "done")
            if not rows:
                return
            arguments.append(self.random.choice(rows)["run"])
        done = self.capstan.run("--quiet", *arguments)
        became = any(word in said(done) for word in ("is not in the queue", "is at work", "is not held"))
        if done.returncode not in (0, 3) and not (done.returncode == 1 and became):
            raise Failed(f"{arguments} gave {done.returncode}: {said(done)}")

    def put(self):
        """Stores something by name, as scripts do."""
        name, content = self.random.choice(["app.log", "web.log"]), self.random.randbytes(self.random.choice([0, 100, 50_000]))
        path = self.scratch / "to-put"
        path.write_bytes(content)
        done = self.capstan.run("--quiet", "--json", "put", name, path)
        if done.returncode == 5:
            # The disk is full: nothing was stored.
            self.refused += 1
            return
        if done.returncode != 0:
            raise Failed(f"put gave {done.returncode}: {said(done)}")
        self.stored[re.findall(r'"object":"(\w+)"', done.stdout.decode())[-1]] = (name, content)

    def round(self):
        self.server = Service(self.capstan, "server", "run")
        self.server.until("serving")
        for _ in range(self.random.randrange(0, 5)):
            self.meddle()
        time.sleep(self.random.uniform(0, 1.5))
        if self.random.random() < 0.3:
            other = self.capstan.run("server", "run")
            if other.returncode != 1 or ALREADY not in said(other):
                raise Failed(f"a second server gave {other.returncode}: {said(other)}")
        if self.random.random() < 0.3:
            self.server.process.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 2))
            self.server.process.send_signal(signal.SIGCONT)
        self.server.end(self.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        self.server = None
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 4))

    def drain(self):
        """Ends all that is in the queue, with no schedule left."""
        self.capstan.must("--quiet", "policies", "apply", self.policies(False))
        for row in self.capstan.rows("queue"):
            self.capstan.run("--quiet", "queue", "release", row["run"])
        self.server = Service(self.capstan, "server", "run")
        self.server.until("serving")
        self.until_empty()
        # A full object that was begun when a server died is ended by the next run; and what was backed up last is copied.
        for name in (*PERIODS, LANDS, BRINGS, *COPIES):
            self.capstan.must("--quiet", "queue", "add", name)
            self.until_empty()
        # And what was in use when it was to be forgotten, or held something that was.
        self.capstan.must("--quiet", "expire", "--yes")
        # What was written to may be full behind a run, and hold little: the next one takes it.
        self.look_after(3)
        # What is left of few rounds may fill no volume: the last backups of a policy do, and all but two expire.
        deadline = time.monotonic() + SECONDS_MAX
        while not self.care_runs()[1] and time.monotonic() < deadline:
            for _ in range(6):
                (self.scratch / EXPIRES / f"f{self.random.randrange(1 << 40):x}").write_bytes(self.random.randbytes(900_000))
                self.capstan.must("--quiet", "queue", "add", EXPIRES)
                self.until_empty()
            self.capstan.must("--quiet", "expire", "--yes")
            self.look_after(1)
        self.server.end(signal.SIGTERM)
        self.server = None

    def look_after(self, times):
        for name in list(CARE) * times:
            self.capstan.must("--quiet", "queue", "add", name)
            self.until_empty()

    def care_runs(self):
        """What all runs of care said, and those of them by which volumes were emptied."""
        runs = [row["message"] for row in self.capstan.rows("history", "--last", 100_000, "--kind", "care")]
        return runs, [message for message in runs if re.search(r"[1-9][0-9]* volumes? emptied", message)]

    def until_empty(self):
        deadline = time.monotonic() + SECONDS_MAX
        while rows := self.capstan.rows("queue"):
            if time.monotonic() > deadline:
                raise Failed(f"the queue does not get empty: {rows}")
            for row in rows:
                # One that was at work in several servers that died waits for minutes, so that others have a turn.
                if row["waits_for"] == "time":
                    for what in ("hold", "release"):
                        self.capstan.run("--quiet", "queue", what, row["run"])
            time.sleep(0.2)

    def account(self, checks):
        """Whether what the queue says it did adds up."""
        rows = self.capstan.rows("queue", "done", "--last", 100_000)
        history = self.capstan.rows("history", "--last", 100_000)
        for name, period in (PERIODS | COPIES | CARE).items():
            own = [row for row in rows if row["policy"] == name]
            many = [re.match(r"(one|\d+) runs? w", row["message"]) for row in own if row["state"] == "missed" and row["due_ns"] is None]
            missed = sum(1 if found[1] == "one" else int(found[1]) for found in many)
            named = [row["due_ns"] for row in own if row["due_ns"] is not None]
            checks.check(f"no run of policy {name} came twice", len(named) == len(set(named)), sorted(named))
            # The schedule was made before its first run, and ended behind its last one.
            seconds = range(min(named) // 10**9, max(named) // 10**9 + 1)
            instants = sum(second % 60 % period == 0 for second in seconds)
            # One that comes while a run waits for another attempt has that made at once, and is no run of its own.
            failed = sum(row["outcome"] == "failed" and row["subject"].startswith(f"{name}:") for row in history)
            there = f"{len(named)} named, {missed} missed, {failed} failed"
            checks.check(f"and of its {instants} instants none is missing", len(named) + missed + failed >= instants, there)
            spare = len(named) + missed - instants
            checks.check("nor one too many", spare <= self.before_first(period, min(named)), f"{spare} too many")
        return rows

    def before_first(self, period, first_ns):
        """Instants between the making of the policies and the first run: those may have been missed."""
        seconds = range(int(self.made), first_ns // 10**9)
        return sum(second % 60 % period == 0 for second in seconds)

    def prove_copies(self, checks):
        """Whether what is copied has one copy more, and nothing else has one; and what is migrated none elsewhere."""
        complete = [row for row in self.capstan.rows("objects") if row["status"] == "complete"]
        for pool, copied in COPIED.items():
            of = {row["object"]: [copy["whole"] for copy in row["copies"] if copy["pool"] == pool] for row in complete}
            odd = [row for row in complete if of[row["object"]] != ([True] if row["policy"] in copied else [])]
            checks.check(f"of {len(complete)} objects those of {' and '.join(copied)} have a copy each in pool {pool}", not odd, odd)
        places = {row["volume"]: row["library"] for row in self.capstan.rows("volumes") if row["pool"] in COPIES}
        checks.check("which is in the library of the policy's unit", set(places.values()) == {"east"}, places)
        first = [row for row in complete if any(copy["pool"] not in COPIES for copy in row["copies"])]
        left = [row for row in first if row["policy"] in COPIED[MIGRATES]]
        checks.check("what was migrated is in its first pool no more", not left, left)
        kept = {row["object"] for row in first if row["policy"] not in COPIED[MIGRATES]}
        lost = [row for row in complete if row["policy"] not in COPIED[MIGRATES] and row["object"] not in kept]
        checks.check("and what was not is there", not lost, lost)

    def prove_consolidated(self, checks):
        """Whether chains are bounded, and whether a full object that was made of others gives back what these do."""
        rows = {row["object"]: row for row in self.capstan.rows("objects")}
        made = [row for row in rows.values() if row["consolidates"] and row["status"] == "complete"]
        checks.check(f"{len(made)} full objects were made of incrementals", made or self.rounds < 10)
        begun = [row for row in rows.values() if row["consolidates"] and row["status"] != "complete"]
        checks.check("and none is left that was begun", not begun, begun)
        for name in PERIODS:
            at, length = next(row for row in rows.values() if row["policy"] == name), 1
            while base := rows.get(at["base"]):
                at, length = base, length + 1
            checks.check(f"the last backup of {name} stands on a full one within {CONSOLIDATE_AFTER} incrementals", length <= CONSOLIDATE_AFTER + 1, length)
        made = [row for row in made if row["consolidates"] in rows]
        for row in self.random.sample(made, min(len(made), 6)):
            files = []
            for number, object_id in enumerate((row["object"], row["consolidates"])):
                target = self.scratch / f"made-{row['object']}-{number}"
                self.capstan.must("--quiet", "restore", object_id, "--to", target)
                files.append({path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()})
            checks.check(f"{row['object'][-8:]} of {row['policy']} gives back what {row['consolidates'][-8:]} does", files[0] == files[1], files[0].keys() ^ files[1].keys())

    def prove_care(self, checks):
        """Whether volumes were emptied, and none is left to be; and whether all samples were good."""
        runs, emptied = self.care_runs()
        checks.check(f"{len(emptied)} of {len(runs)} runs emptied volumes", emptied or self.rounds < 10, runs[:5])
        bad = [message for message in runs if re.search(r"read, [1-9][0-9,]* bad", message)]
        checks.check("no sample met a bad block", not bad, bad)
        left = self.capstan.rows("reclaim", "--dry-run", "--below", BELOW, "--pool", "default")
        checks.check(f"no full volume is left of which less than {BELOW} % are needed", not left, left)

    def prove_stored(self, checks):
        """Whether what was stored by name is there, each version as it was, and on tape alone; and what was staged too."""
        rows = {row["object"]: row for row in self.capstan.rows("objects") if row["policy"] == STORES and row["status"] == "complete"}
        checks.check(f"{len(rows)} versions that were stored are there, and no other", rows.keys() == self.stored.keys(), rows.keys() ^ self.stored.keys())
        path = self.scratch / "got"
        for version, (name, content) in self.stored.items():
            self.capstan.must("--quiet", "get", name, "--id", version, "--to", path, "--overwrite")
            if path.read_bytes() != content:
                checks.check(f"version {version} of {name} is what was stored", False)
        for policy, pool in ((STORES, BRINGS), (STAGED, "default")):
            own = [row for row in self.capstan.rows("objects") if row["policy"] == policy and row["status"] == "complete"]
            odd = [row for row in own if [copy["pool"] for copy in row["copies"] if copy["pool"] not in COPIES] not in ([pool], [])]
            checks.check(f"{len(own)} objects of {policy} are brought from the disk to pool {pool}", not odd, odd)
        odd = [row for row in self.capstan.rows("volumes") if row["pool"] and (row["library"] == "west") != (row["pool"] in (STORES, STAGE_POOL))]
        checks.check("whose volumes are on tape, and those of stages on the disk", not odd, odd)

    def prove(self, checks, rows):
        history = {row["run"]: row for row in self.capstan.rows("history", "--last", 100_000)}
        done = [row for row in rows if row["state"] in ("done", "problems")]
        lost = [row for row in done if row["history"] not in history or history[row["history"]]["outcome"] not in ("done", "problems")]
        checks.check(f"{len(done)} runs that are done are in the history as that", not lost, lost)
        again = [row["history"] for row in done]
        checks.check("each of them by an entry of its own", len(again) == len(set(again)), again)
        running = [row for row in history.values() if row["outcome"] == "running"]
        checks.check("nothing counts as running", not running, running)
        self.prove_copies(checks)
        self.prove_consolidated(checks)
        self.prove_care(checks)
        self.prove_stored(checks)
        for name in PERIODS:
            self.capstan.must("--quiet", "backup", name)
            target = self.scratch / "restored"
            self.capstan.must("--quiet", "restore", self.scratch / name, "--to", target)
            restored = target / str(self.scratch / name).lstrip("/")
            same = {path.name: path.read_bytes() for path in restored.iterdir()} == {path.name: path.read_bytes() for path in (self.scratch / name).iterdir()}
            checks.check(f"what {name} has is read back", same)
        volumes = [row["volume"] for row in self.capstan.rows("volumes") if row["state"] in ("filling", "full")]
        verified = self.capstan.run("--quiet", "verify", *volumes)
        checks.check("all volumes verify", verified.returncode == 0, said(verified))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS_FULL if FULL else ROUNDS_ON_POSTGRES if ON_POSTGRES else ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/server_sweep.py --rounds {arguments.rounds} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = Sweep(scratch, arguments.seed, arguments.rounds)
        sweep.prepare()
        try:
            for _ in range(arguments.rounds):
                sweep.round()
            sweep.drain()
        except Failed:
            if sweep.server:
                sweep.server.process.kill()
            raise
        checks.check(f"after {arguments.rounds} servers the queue gets empty", True)
        sweep.prove(checks, sweep.account(checks))
    checks.finish()


if __name__ == "__main__":
    os.umask(0o022)
    try:
        main()
    except Failed as failure:
        sys.exit(f"server sweep: {failure}")
