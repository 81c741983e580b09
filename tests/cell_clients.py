#!/usr/bin/env python3
"""Backs up three clients through a server, kills, stops and cuts off all of them, and shows that nothing is lost.

usage: tests/cell_clients.py [--rounds N] [--seed S] [--keep]

First, what a cell does when nobody is killed: scripts, patterns and streams of a client, what a client's own settings
do not allow, a client that is stopped, revoked, slow, there twice, or has lost its identity. Then rounds: each client's
tree changes, runs of all clients are entered, and while they are at work something happens to a client, the server, or
the connections of data between them. Whatever was killed is started again. When the queue is empty, each run that was
entered has one end, which is good; each policy has one complete object of each client; and each complete object
restores to what the client's tree was in that round, at the server and, for the last round, at the client.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cell import Cell, Tree, differences, picture
from program import FULL, HERE, ON_POSTGRES, Capstan, Checks, Failed, Scratch, Service, compare, said

ROUNDS = 6
ROUNDS_ON_POSTGRES = 4
ROUNDS_FULL = 100
NAMES = ("web1", "web2", "web3")
# Fewer than clients: runs share them.
DRIVES = 2
FILE_BYTES_MAX = 1_500_000
# One of two copies met a full disk, or a mover that was cut off.
COPY_FAILED = re.compile(r"copy \d failed: .*(No space left on device|the mover (cannot be reached|has ended the connection))")
# Restores at the server at the same time, which share drives and passes over volumes.
RESTORES_AT_ONCE = 4
# Volumes that one command verifies.
VERIFIED_AT_ONCE = 8
# What the proxies let through in rounds, so that runs take a moment.
BYTES_PER_SECOND = 4_000_000
EVENTS = (
    "kill client", "kill server", "kill all", "stop client", "stop server", "freeze client", "freeze server", "twin",
    "cut", "stall", "one way", "corrupt", "cancel",
)


class Sweep:
    """A cell whose clients have trees that change."""

    events = EVENTS
    names = NAMES
    # What a run may lack that is backed up all the same.
    passed_over = COPY_FAILED
    # A client of these that has no process of its own.
    beside = None

    def __init__(self, scratch, seed, checks, movers=(), has_machines=False):
        self.random = random.Random(seed)
        self.scratch, self.checks = scratch, checks
        self.cell = Cell(scratch, self.names, movers, has_machines)
        self.all_clients = list(self.cell.clients.values())
        self.clients = [client for client in self.all_clients if client.name != self.beside]
        trees = (*self.names, "common")
        self.trees = {name: Tree(scratch / "trees" / name, self.random, FILE_BYTES_MAX) for name in trees}
        # Runs that were entered in rounds, and for each round what came of it, what the trees were, and what happened.
        self.entered, self.rounds, self.bag = [], [], []
        # Policy and client of each run that was cancelled in a round.
        self.cancelled = []

    def prepare(self):
        self.cell.capstan.must("--quiet", "init", "--volume-size", "64M", "--drives", DRIVES, "--volumes-max", 400)
        self.cell.capstan.configure(checkpoint_mib=1, block_kib=64, buffer_mib=8)
        for tree in self.trees.values():
            for _ in range(6):
                tree.add()
        self.cell.start_server()
        for client in self.clients:
            self.cell.join(client)
        self.cell.join_operator()

    def policies(self):
        """Each client's own tree, and one that all of them have."""
        again = {"full_every": "4w", "retry_after": "1s", "retries": 10}
        own = {f"own-{name}": {"clients": [name], "sources": [self.trees[name].top], **again} for name in self.names}
        own["own-web3"]["copies"] = 2
        return own | {"common": {"clients": list(self.names), "sources": [self.trees["common"].top], **again}}

    # Rounds.

    def happen(self):
        """Something happens, and what was killed by it is started again; gives what."""
        self.bag = self.bag or self.random.sample(self.events, len(self.events))
        what = self.bag.pop()
        client = self.random.choice(self.clients)
        pause = self.random.uniform(0, 1)
        # With --full now and then for so long that each side takes the other for gone.
        length = 70 if FULL and self.random.random() < 0.1 else 2 * pause
        if what in ("kill client", "stop client"):
            client.end(signal.SIGKILL if what == "kill client" else signal.SIGTERM)
            time.sleep(pause)
            client.start()
        elif what in ("kill server", "stop server"):
            self.cell.end_server(signal.SIGKILL if what == "kill server" else signal.SIGTERM)
            time.sleep(pause)
            self.cell.start_server()
        elif what == "kill all":
            for each in self.random.sample(self.clients, len(self.clients)):
                each.end(signal.SIGKILL)
            self.cell.end_server(signal.SIGKILL)
            self.cell.start_server()
            for each in self.clients:
                each.start()
        elif what == "twin":
            # Two processes of one identity, of which the copy goes on alone for a while where the first one is killed.
            twin = self.copy_of(client)
            twin.until("connected")
            time.sleep(pause)
            client.end(signal.SIGKILL)
            time.sleep(pause)
            twin.end(signal.SIGKILL)
            client.start()
        elif what in ("freeze client", "freeze server"):
            frozen = client.service if what == "freeze client" else self.cell.server
            frozen.process.send_signal(signal.SIGSTOP)
            time.sleep(length)
            frozen.process.send_signal(signal.SIGCONT)
        elif what == "cut":
            for each in self.random.sample(self.clients, self.random.randrange(1, len(self.clients) + 1)):
                each.data.cut()
        elif what == "stall":
            client.data.stall()
            time.sleep(length)
            client.data.go_on()
        elif what == "one way":
            self.one_way(client, length)
        elif what == "corrupt":
            client.data.corrupts = "up"
        elif what == "cancel":
            self.cancel()
        else:
            self.happen_elsewhere(what, pause, length)
        return what

    def copy_of(self, client):
        """What a copied virtual machine runs: a client from a copy of the folder, beside the first one."""
        folder = self.scratch / f"copy-{client.name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(client.capstan.state, folder)
        copied = Capstan(folder, self.scratch / "key")
        copied.environment = client.capstan.environment | {"CAPSTAN_STATE": str(folder)}
        return Service(copied, "client", "run")

    def one_way(self, member, length):
        """All that a machine sends is held back for a while, or all that is sent to it. What clients send to a mover
        is held back at that."""
        is_mute = self.random.random() < 0.5
        for proxy in (member.orders, member.links):
            proxy.stall("up" if is_mute else "down")
        # There others dial, and not the machine.
        for proxy in member.proxies()[2:]:
            proxy.stall("down" if is_mute else "up")
        time.sleep(length)
        for proxy in member.proxies():
            proxy.go_on()

    def happen_elsewhere(self, what, *_):
        raise Failed(f"nobody knows how {what} happens")

    def cancel(self):
        """A run is cancelled, and run again if that came in time. It may have been written to its end all the same:
        who cancels it and asks for another then has both."""
        running = [row for row in self.cell.capstan.rows("queue") if row["state"] == "running"]
        # Whoever asked for one asks anew; what the server entered, it enters again.
        at_work = [row for row in running if row["run"] in self.entered]
        if not at_work:
            return
        row = self.random.choice(at_work)
        run = row["run"]
        cancelled = self.cell.capstan.run("--quiet", "queue", "cancel", run)
        if cancelled.returncode not in (0, 1):
            raise Failed(f"queue cancel {run} gave {cancelled.returncode}: {said(cancelled)}")
        if self.cell.outcome(run)["state"] == "cancelled":
            self.entered.remove(run)
            self.cancelled.append((row["policy"], row["client"]))
            self.entered += [row["run"] for row in self.cell.capstan.rows("queue", "rerun", run)]

    def round(self, number):
        for tree in self.trees.values():
            tree.change()
        pictures = {name: picture(tree.top) for name, tree in self.trees.items()}
        before = self.complete()
        runs = self.cell.add_over_the_network(*self.policies())
        self.entered += runs
        queue = lambda: self.cell.capstan.rows("queue")
        self.cell.until("a run is at work", lambda: any(row["state"] == "running" for row in queue()))
        time.sleep(self.random.uniform(0, 1.2))
        self.cancelled = []
        what = self.happen()
        began = time.monotonic()
        self.cell.until_empty()
        print(f"# round {number}: {what}; then {time.monotonic() - began:.1f} s", flush=True)
        for client in self.clients:
            client.data.corrupts = None
        self.rounds.append((self.complete() - before, pictures, what, self.cancelled))

    def complete(self):
        """The complete objects."""
        return {row["object"] for row in self.cell.capstan.rows("objects") if row["status"] == "complete"}

    def account(self):
        rows = [row for row in self.cell.done() if row["run"] in self.entered]
        ended = [row["run"] for row in rows]
        self.checks.check(f"each of {len(self.entered)} runs has one end", sorted(ended) == sorted(self.entered), ended)
        bad = [row for row in rows if row["state"] != "done"]
        said = {row["run"]: self.cell.capstan.run("history", row["history"]).stdout.decode() for row in bad}
        # What lacks one of two copies is whole, and gets the other one later.
        short = [row["run"] for row in bad if row["state"] == "problems" and self.passed_over.search(said[row["run"]])]
        if short:
            print(f"# {len(short)} runs made one copy of two, or left something else to a later one", flush=True)
            self.cell.capstan.must("--quiet", "repair")
        bad = [row for row in bad if row["run"] not in short]
        self.checks.check("and each of them is done", not bad, "\n".join([*map(str, bad), *said.values()]))
        attempts = sum(row["attempt"] - 1 for row in rows)
        corrupted = sum(client.data.corrupted for client in self.clients)
        print(f"# {attempts} attempts failed, {corrupted} bytes were changed under way", flush=True)
        history = {row["run"]: row for row in self.cell.capstan.rows("history", "--last", 100_000)}
        lost = [row for row in rows if row["run"] not in short
                and (row["history"] not in history or history[row["history"]]["outcome"] != "done")]
        self.checks.check("each is done in the history, too", not lost, lost)
        again = [row["history"] for row in rows]
        self.checks.check("by an entry of its own", len(again) == len(set(again)), again)
        audited = self.cell.capstan.json("audit", "verify")
        is_whole = audited["finding"] is None and audited["first"] == 1 and audited["anchored_to"] == audited["last"]
        self.checks.check(f"the audit log of {audited['last']} records is whole", is_whole, audited)
        running = [row for row in history.values() if row["outcome"] == "running"]
        self.checks.check("nothing counts as running", not running, running)

    def restore(self):
        """Restores all complete objects of the rounds, and compares each with what its client had then."""
        objects = [row for row in self.cell.capstan.rows("objects") if row["status"] == "complete"]
        policies = self.policies().items()
        wanted = sorted((policy, client) for policy, settings in policies for client in settings["clients"])
        twice, together = [], []
        for number, (came, _, what, cancelled) in enumerate(self.rounds):
            own = [row for row in objects if row["object"] in came]
            named = sorted((row["policy"], row["client"]) for row in own)
            if named not in (wanted, sorted([*wanted, *cancelled])):
                twice.append(f"round {number}, {what}: {named}")
            together += [(number, of_pass) for of_pass in passes(own)]
        with ThreadPoolExecutor(RESTORES_AT_ONCE) as pool:
            wrong = sum(pool.map(lambda each: self.wrong_in(*each), together), [])
        name = f"each policy has one object of each client in each of {len(self.rounds)} rounds"
        self.checks.check(name, not twice, "\n".join(twice))
        count = sum(len(of_pass) for _, of_pass in together)
        self.checks.check(f"{count} complete objects restore to what the trees were", not wrong, "\n".join(wrong))
        volumes = [row["volume"] for row in self.cell.capstan.rows("volumes") if row["state"] in ("filling", "full")]
        # Some at a time: however many rounds there were, none takes longer than a command may.
        several = [volumes[first:first + VERIFIED_AT_ONCE] for first in range(0, len(volumes), VERIFIED_AT_ONCE)]
        verified = [self.cell.capstan.run("--quiet", "verify", *some) for some in several]
        bad = "".join(said(done) for done in verified if done.returncode != 0)
        self.checks.check(f"all {len(volumes)} volumes verify", all(done.returncode == 0 for done in verified), bad)

    def wrong_in(self, number, objects):
        """Restores objects of a round; gives how they differ from what the trees were then."""
        wrong, pictures = [], self.rounds[number][1]
        with tempfile.TemporaryDirectory(dir=self.scratch) as target:
            self.cell.capstan.must("--quiet", "restore", *(row["object"] for row in objects), "--to", target)
            for row in objects:
                tree = "common" if row["policy"] == "common" else row["client"]
                holds = picture(Path(target) / str(self.trees[tree].top).lstrip("/"))
                of = f"round {number}, {row['policy']} of {row['client']}"
                wrong += [f"{of}: {line}" for line in differences(pictures[tree], holds)]
        return wrong

    def restore_at_clients(self):
        """Each client gets its own back, over connections that are cut and changed, and nothing of another's."""
        objects = [row for row in self.cell.capstan.rows("objects") if row["status"] == "complete"]
        of_last = [row for row in objects if row["object"] in self.rounds[-1][0]]
        pictures = self.rounds[-1][1]
        wrong, own, other, broken = [], [], [], 0
        for client in self.all_clients:
            named = {row["object"] for row in client.capstan.rows("client", "objects")}
            missing = {row["object"] for row in objects if row["client"] == client.name} - named
            other += [row["object"] for row in objects if row["client"] != client.name and row["object"] in named]
            own += [f"{client.name} does not list {object}" for object in missing]
            for row in of_last:
                target = self.scratch / "restored"
                restore = ("--quiet", "client", "restore", row["object"], "--to", target)
                if row["client"] != client.name:
                    done = client.capstan.run(*restore)
                    if done.returncode == 0 or target.exists():
                        other.append(f"{client.name} restored {row['object']} of {row['client']}")
                    continue
                # Once with a byte that is changed on its way, and then on with what came until then.
                client.data.corrupts = "down"
                first = client.capstan.run(*restore)
                was_changed, client.data.corrupts = client.data.corrupts is None, None
                broken += was_changed
                tree = "common" if row["policy"] == "common" else client.name
                top = target / str(self.trees[tree].top).lstrip("/")
                # What failed is tried once more over another connection. One that ends with 0 has everything.
                if was_changed and first.returncode == 0:
                    of = f"{client.name}, whose connection broke, ended with 0"
                    wrong += [f"{of}: {line}" for line in differences(pictures[tree], picture(top))]
                elif was_changed and "--overwrite changed" not in said(first):
                    wrong.append(f"{client.name}: it is not said how to go on: {said(first)}")
                client.capstan.must(*restore, "--overwrite", "changed")
                wrong += [f"{row['policy']} of {client.name}: {line}" for line in differences(pictures[tree], picture(top))]
                shutil.rmtree(target)
        self.checks.check("each client lists what was backed up of it", not own, "\n".join(own))
        self.checks.check(f"and gets it back as it was, after {broken} broken connections", not wrong, "\n".join(wrong))
        self.checks.check("but nothing of another client", not other, "\n".join(other))

    # What a cell does when nobody is killed.

    def settings_of_clients(self):
        notes, tree = self.scratch / "notes", self.trees["web1"].top
        note = ["/bin/sh", "-c", f'echo "$CAPSTAN_JOB $CAPSTAN_OUTCOME" >> {notes}']
        dump = ["/bin/sh", "-c", "seq 1 200000"]
        web1, web2, _ = self.clients
        began, silent = self.scratch / "began", ["/bin/sh", "-c", f"touch {self.scratch}/began; exec sleep 3600"]
        breaks = ["/bin/sh", "-c", "seq 1 1000; exit 3"]
        web1.settings(scripts={"note": note, "dump": dump, "breaks": breaks, "silent": silent})
        web2.settings(paths=[self.trees["web2"].top, self.trees["common"].top])
        patterns = self.scratch / "patterns"
        patterns.write_text("*.tmp\n")
        (tree / "left out.tmp").write_text("not wanted")
        once = {"clients": ["web1"], "retries": 0}
        self.cell.apply(self.policies() | {
            "hooks": {"sources": [tree], "before": ["note"], "after": ["note"], "exclude_from": [patterns], **once},
            "no-script": {"sources": [self.trees["common"].top], "before": ["absent"], **once},
            "stream": {"stdin": "numbers", "stdin_command": ["dump"], **once},
            "broken-stream": {"stdin": "broken", "stdin_command": ["breaks"], **once},
            "silent": {"stdin": "nothing", "stdin_command": ["silent"], **once},
            "nowhere": {"sources": [self.scratch / "nowhere"], **once},
            "outside": {"clients": ["web2"], "sources": [tree], "retries": 0},
        })
        for client in self.clients:
            client.started()
        names = ["hooks", "no-script", "stream", "broken-stream", "nowhere", "outside"]
        ended = dict(zip(names, map(self.cell.outcome, self.cell.add(*names))))
        def ended_so(what, name, state, *words, also=True):
            row = ended[name]
            is_so = row["state"] == state and all(word in row["message"] for word in words)
            self.checks.check(what, is_so and also, row)

        noted = notes.read_text() if notes.exists() else ""
        ended_so("a client runs scripts before and after", "hooks", "done", also=noted == "hooks \nhooks done\n")
        target = self.scratch / "restored"
        self.cell.capstan.must("--quiet", "restore", self.object_of("hooks"), "--to", target)
        was = picture(tree)
        del was["left out.tmp"]
        came = differences(was, picture(target / str(tree).lstrip("/")))
        self.checks.check("and reads a file of patterns of its own", not came, "\n".join(came))
        shutil.rmtree(target)
        ended_so("a script that a client does not have is named", "no-script", "failed", "absent", "client.toml")
        ended_so("a stream of a client is backed up", "stream", "done")
        came = self.cell.capstan.must("cat", f"{self.object_of('stream')}:numbers")
        whole = b"".join(b"%d\n" % number for number in range(1, 200_001))
        self.checks.check("and comes back whole", came == whole, len(came))
        nothing = not self.objects_of("broken-stream")
        ended_so("a stream whose program fails is not complete", "broken-stream", "failed", also=nothing)
        [run] = self.cell.add("silent")
        self.cell.until("the program runs", began.exists)
        self.cell.capstan.must("--quiet", "queue", "cancel", run)
        row = self.cell.outcome(run)
        self.checks.check("one that prints nothing is stopped with its run", row["state"] == "cancelled", row)
        ended_so("a source that is not there fails, and is named", "nowhere", "failed", "nowhere")
        nothing = not self.objects_of("outside")
        ended_so("what a client's settings do not allow is not read", "outside", "failed", "settings", also=nothing)
        (tree / "left out.tmp").unlink()

    def objects_of(self, policy):
        objects = self.cell.capstan.rows("objects", "--policy", policy)
        return [row["object"] for row in objects if row["status"] == "complete"]

    def object_of(self, policy):
        found = self.objects_of(policy)
        if len(found) != 1:
            raise Failed(f"{policy} has the objects {found}")
        return found[0]

    def waits(self, run, *words):
        """Waits until the queue says that a run waits for its client, in these words."""
        def says():
            row = self.cell.queue(run)
            return row and row["waits_for"] == "client" and all(word in row["message"] for word in words)
        return self.cell.until(f"run {run} waits: {words}", says)

    def away(self):
        web1, web2, web3 = self.clients
        web3.end(signal.SIGTERM)
        [run] = self.cell.add("own-web3")
        name = "a run of a client that is stopped waits, and says for what"
        self.checks.check(name, self.waits(run, "web3", "client run"))
        web3.start()
        row = self.cell.outcome(run)
        self.checks.check("and is done once the client is back", row["state"] == "done", row)
        self.cell.capstan.must("--quiet", "client", "revoke", "web2")
        code = web2.service.wait()
        heard = web2.service.said
        is_told = code == 1 and "revoked" in heard
        self.checks.check("a client that is revoked ends, and says why", is_told, f"{code}: {heard}")
        web2.service = None
        [run] = self.cell.add("own-web2")
        self.checks.check("its run waits, and says so", self.waits(run, "web2", "revoked"))
        self.cell.join(web2, "--replace")
        web2.started()
        row = self.cell.outcome(run)
        self.checks.check("and is done once it has joined again", row["state"] == "done", row)
        web1.end(signal.SIGTERM)
        shutil.rmtree(web1.capstan.state / "cell")
        done = web1.capstan.run("client", "run")
        is_told = done.returncode == 1 and "client enrol" in said(done)
        self.checks.check("a client that has lost its identity says what to do", is_told, said(done))
        self.cell.capstan.must("--quiet", "client", "revoke", "web1")
        self.cell.join(web1)
        web1.started()

    def twins(self):
        """Two processes of one identity: each order goes to one or both of them, and the mover takes whoever comes."""
        web1 = self.clients[0]
        second = web1.capstan.run("client", "run")
        names = f"process {web1.service.process.pid} runs as this client already" in said(second)
        self.checks.check("a second process on one folder is refused", second.returncode == 1 and names, said(second))
        twin = self.copy_of(web1)
        try:
            twin.until("connected")
            runs = self.cell.add("own-web1")
            row = self.cell.outcome(runs[0])
            is_first = row["state"] == "done" and row["attempt"] == 1
            self.checks.check("a client that was copied is backed up once", is_first, row)
            # Whoever gets an order asks anew at once, and not after half a minute.
            self.cell.outcome(self.cell.add("own-web1")[0])
            named = "client web1 runs in two places under one identity"
            shown = lambda: named in self.cell.capstan.run("status").stdout.decode()
            self.checks.check("and status names it", self.cell.until("status names the copied client", shown))
            heard = lambda: [row for row in self.cell.server.of_kind("trouble") if named in row["reason"]]
            self.checks.check("and the server says it", self.cell.until("the server names the copied client", heard))
        finally:
            twin.end(signal.SIGTERM)

    def torture(self):
        """A tree of everything that a file system can hold crosses the network, there and back."""
        tree, target = self.scratch / "torture", self.scratch / "restored"
        subprocess.run([sys.executable, HERE / "torture.py", tree], check=True, capture_output=True)
        self.cell.apply(self.policies() | {"torture": {"clients": ["web1"], "sources": [tree], "retries": 0}})
        [run] = self.cell.add("torture")
        row = self.cell.outcome(run)
        self.checks.check("a tree of everything that there is is backed up", row["state"] == "done", row)
        ways = {"server": (self.cell.capstan, ["restore"]), "client": (self.clients[0].capstan, ["client", "restore"])}
        for name, (capstan, command) in ways.items():
            done = capstan.run("--quiet", *command, self.object_of("torture"), "--to", target, "--devices")
            came = compare(tree, target / str(tree).lstrip("/"))
            is_same = done.returncode == 0 and not came
            self.checks.check(f"and restored at the {name} as it was", is_same, said(done) + came)
            shutil.rmtree(target)

    def half(self):
        """A client dies when one of its two sources is stored: the next attempt reads the other one alone."""
        sources = [self.scratch / f"half {number}" for number in (1, 2)]
        for source, length in zip(sources, (100_000, 5_000_000)):
            source.mkdir()
            (source / "file").write_bytes(self.random.randbytes(length))
        settings = {"sources": sources, "connections": 1, "bandwidth": ["1M"], "retries": 3, "retry_after": "1s"}
        self.cell.apply(self.policies() | {"half": {"clients": ["web1"], **settings}})
        [run] = self.cell.add("half")
        stored = lambda: [row for row in self.cell.capstan.rows("objects", "--policy", "half") if row["status"] == "complete"]
        self.cell.until("the first source is stored", stored)
        self.clients[0].end(signal.SIGKILL)
        self.clients[0].started()
        row = self.cell.outcome(run)
        is_all = row["state"] == "done" and row["attempt"] > 1 and len(stored()) == 2
        self.checks.check("a client that dies in its second source is backed up whole", is_all, f"{row} {stored()}")

    def slow(self):
        web2 = self.clients[1]
        web2.data.rate = 1_000_000
        self.trees["web2"].add(4_000_000)
        [run] = self.cell.add("own-web2")
        row = self.cell.outcome(run)
        took = (row["ended_ns"] - row["started_ns"]) / 1e9
        is_first = row["state"] == "done" and row["attempt"] == 1
        self.checks.check("a slow client takes its time, and does not fail", is_first and took > 3, row)
        self.together()

    def together(self):
        """Two clients hold both drives and send nothing; a third one is backed up beside one of them."""
        web1, *stalled = self.clients
        self.trees["web2"].add(4_000_000)
        self.trees["common"].add(4_000_000)
        runs = []
        for client, entered in zip(stalled, (["own-web2"], ["common", "--client", "web3"])):
            client.data.rate, sent = 1_000_000, client.data.passed_bytes
            runs += self.cell.add(*entered)
            self.cell.until(f"{client.name} sends", lambda: client.data.passed_bytes > sent + 500_000)
            client.data.stall()
        held = {self.cell.queue(other)["session"] for other in runs}
        [run] = self.cell.add("own-web1")
        row = self.cell.outcome(run)
        is_beside = row["state"] == "done" and len(held) == DRIVES and all(self.cell.queue(other) for other in runs)
        self.checks.check("a client is backed up while others hold all drives", is_beside, f"{row} {held}")
        for client in stalled:
            client.data.go_on()
        rows = [self.cell.outcome(each) for each in (run, *runs)]
        is_first = all(row["state"] == "done" and row["attempt"] == 1 for row in rows)
        self.checks.check("and all of them are done", is_first, rows)


def passes(objects):
    """Objects that can be restored together: no two of one policy, which would be written to the same place."""
    found = []
    for row in objects:
        free = next((each for each in found if all(other["policy"] != row["policy"] for other in each)), None)
        if free is None:
            found.append([row])
        else:
            free.append(row)
    return found


def all_rounds(sweep, count, chapters):
    """Shows what a cell does, chapter by chapter; then rounds, and what is there after them."""
    for chapter in chapters:
        began = time.monotonic()
        chapter()
        print(f"# {chapter.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    for client in sweep.clients:
        client.data.rate = BYTES_PER_SECOND
    for number in range(count):
        sweep.round(number)
    sweep.checks.check(f"after {count} rounds the queue is empty", True)
    began = time.monotonic()
    sweep.account()
    sweep.restore()
    sweep.restore_at_clients()
    print(f"# proof: {time.monotonic() - began:.1f} s", flush=True)
    for client in sweep.clients:
        client.end(signal.SIGTERM)
    sweep.cell.end_server(signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rounds = ROUNDS_FULL if FULL else ROUNDS_ON_POSTGRES if ON_POSTGRES else ROUNDS
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/cell_clients.py --rounds {arguments.rounds} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = Sweep(scratch, arguments.seed, checks)
        try:
            sweep.prepare()
            chapters = [sweep.settings_of_clients, sweep.away, sweep.twins]
            if not ON_POSTGRES or FULL:
                # Of the data path, whatever the catalog stands on.
                chapters += [sweep.torture, sweep.half, sweep.slow]
            all_rounds(sweep, arguments.rounds, chapters)
        finally:
            sweep.cell.close()
    checks.finish()


if __name__ == "__main__":
    os.umask(0o022)
    try:
        main()
    except Failed as failure:
        sys.exit(f"cell of clients: {failure}")
