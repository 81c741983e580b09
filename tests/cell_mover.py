#!/usr/bin/env python3
"""Backs up four clients to two movers in processes of their own, kills and cuts off all of them, and shows that
nothing is lost.

usage: tests/cell_mover.py [--rounds N] [--seed S] [--keep]

The server has no drives; its library is that of mover `rook`. First, what is different then: clients bring their data
to the mover and none of it to the server, one that runs in the mover's process brings it over no network, commands beside the server reach the drives through it, and a mover that is
away or was revoked is waited for. Then mover `jay` comes with a second library, and a storage unit has both: runs go to
whichever is there, and what lies in both comes back together. Then the rounds of cell_clients.py, in which something
may also happen to a mover or to its connections, or to the clock or the disk of any machine.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time

from cell import differences, picture
from cell_clients import DRIVES, EVENTS, NAMES, ROUNDS_FULL, Sweep, all_rounds
from machine import YEAR_S, can_mount, in_own_mounts
from program import FULL, Checks, Failed, Scratch, said

# With the 10 rounds of cell_clients.py a hundred: each kind of event comes three times at least.
ROUNDS = 90
# Each of these, and of the events of cell_clients.py, once before any comes again.
OF_MOVER = ("kill mover", "stop mover", "freeze mover", "cut mover", "one way mover", "cut data", "corrupt mover")
OF_MACHINES = ("clock server", "clock mover", "clock client", "fill server", "fill mover", "fill client")
# Of mover rook: on the disk of its own folder, which stays the better one.
FOLDERS = ['folders = ["further"]', "free_mib = 1"]
# Whose data would cross the server.
SERVER_BYTES_MAX = 3_000_000


class MoverSweep(Sweep):
    """A cell whose drives are at a mover."""

    events = (*OF_MOVER, *OF_MACHINES, *EVENTS)
    names = (*NAMES, "tape1")
    # It is killed, stopped and frozen with mover rook.
    beside = "tape1"
    # Further libraries, as lines of the server's settings.
    more_settings = ""

    def __init__(self, scratch, seed, checks):
        super().__init__(scratch, seed, checks, movers=("rook", "jay"), has_machines=True)
        self.mover, self.second = self.cell.movers
        self.unit = {}

    def prepare(self):
        self.cell.capstan.must("--quiet", "init", "--volume-size", "64M", "--volumes-max", 400)
        self.cell.capstan.configure(checkpoint_mib=1, block_kib=64, buffer_mib=8, mover='"rook"')
        with (self.cell.capstan.state / "capstan.toml").open("a") as settings:
            settings.write('\n[libraries.west]\nmover = "jay"\n\n')
            settings.write('[units.both]\nlibraries = ["main"]\nmover_labels = ["far"]\n\n')
            settings.write(self.more_settings)
        for tree in self.trees.values():
            for _ in range(6):
                tree.add()
        self.cell.start_server()
        self.cell.join(self.mover)
        for client in self.all_clients:
            self.cell.join(client)
        self.tape1 = self.cell.clients["tape1"]
        self.tape1.settings(restore_to=[self.scratch])
        self.mover.settings(DRIVES, client=self.tape1, library=FOLDERS)
        self.cell.join_operator("--role", "restorer", "--client", "tape1")

    def policies(self):
        return {name: settings | self.unit for name, settings in super().policies().items()}

    def happen_elsewhere(self, what, pause, length):
        mover = self.random.choice(self.cell.movers)
        if what in ("kill mover", "stop mover"):
            mover.end(signal.SIGKILL if what == "kill mover" else signal.SIGTERM)
            time.sleep(pause)
            mover.start()
        elif what == "freeze mover":
            mover.service.process.send_signal(signal.SIGSTOP)
            time.sleep(length)
            mover.service.process.send_signal(signal.SIGCONT)
        elif what == "cut mover":
            mover.links.cut()
            mover.orders.cut()
        elif what == "one way mover":
            self.one_way(mover, length)
        elif what == "cut data":
            mover.of_clients.cut()
        elif what == "corrupt mover":
            mover.links.corrupts = "up"
        elif what in OF_MACHINES:
            how, whose = what.split()
            host = {"server": self.cell, "mover": mover, "client": self.random.choice(self.clients)}[whose]
            if how == "clock":
                self.wrong_clock(host, pause)
            elif can_mount():
                host.machine.fill()
                time.sleep(1 + length)
                host.machine.clear()
        else:
            super().happen_elsewhere(what)

    def wrong_clock(self, host, pause):
        """A machine has a wrong clock for a while, and now and then starts with it."""
        starts = self.random.random() < 0.5
        if starts:
            service = self.cell.server if host is self.cell else host.service
            service.end(signal.SIGKILL)
        host.machine.set_clock(self.random.choice((-12, -1, 1, 12)) * YEAR_S)
        if starts:
            self.cell.start_server() if host is self.cell else host.start()
        # Long enough for a server to look after its certificate, both times.
        time.sleep((4 if host is self.cell else 1) + pause)
        host.machine.set_clock(0)
        time.sleep(4 if host is self.cell else 1)
        self.cell.look_after()

    def round(self, number):
        super().round(number)
        for mover in self.cell.movers:
            mover.links.corrupts = None

    def mover_is_away(self):
        """Runs wait for the mover, and say so; commands beside the server say what to do."""
        self.cell.apply(self.policies())
        for client in self.clients:
            client.started()
        [run] = self.cell.add("own-web1")
        waits = lambda: (self.cell.queue(run) or {}).get("waits_for") == "library"
        self.checks.check("a run waits while the mover is away", self.cell.until("a run waits for the library", waits))
        done = self.cell.capstan.run("library", "inventory")
        self.checks.check("and a command says what to do", done.returncode != 0 and "mover run" in said(done), said(done))
        names = lambda: b"no drive of library main can be used: they are those of mover rook" in self.cell.capstan.run("status").stdout
        self.checks.check("and status names the mover", self.cell.until("status names the mover", names))
        self.mover.started()
        second = self.mover.capstan.run("mover", "run")
        is_named = f"process {self.mover.service.process.pid} runs as this mover already" in said(second)
        self.checks.check("a second process on its folder is refused", second.returncode == 1 and is_named, said(second))
        self.checks.check("until it is there", self.cell.until("status is content", lambda: not names()))
        row = self.cell.outcome(run)
        self.checks.check("it is done once the mover is there", row["state"] == "done", row)

    def folders_of_mover(self):
        """The mover's library has a further folder, which is used once somebody says that its disk is there."""
        inventory = self.cell.capstan.run("library", "inventory")
        further = f"folder {self.mover.capstan.state}/further"
        said_of_it = inventory.stdout.decode() + said(inventory)
        is_told = inventory.returncode == 3 and f"{further} cannot be used" in said_of_it
        self.checks.check("a folder of the mover that nobody marked is named", is_told, said_of_it)
        self.cell.capstan.must("--quiet", "library", "initialize")
        seen = self.cell.capstan.must("library", "inventory").decode()
        self.checks.check("and is used once it is marked", f"{further}: 0 volumes, " in seen, seen)

    def where_data_goes(self):
        """What a client sends goes to the mover, and not to the server."""
        self.trees["web1"].add(8_000_000)
        web1 = self.clients[0]
        before = [web1.data.passed_bytes, self.mover.of_clients.passed_bytes, self.mover.links.passed_bytes]
        [run] = self.cell.add("own-web1")
        row = self.cell.outcome(run)
        after = [web1.data.passed_bytes, self.mover.of_clients.passed_bytes, self.mover.links.passed_bytes]
        to_server, to_mover, of_mover = (now - then for now, then in zip(after, before))
        is_straight = row["state"] == "done" and to_mover > 8_000_000 and to_server + of_mover < SERVER_BYTES_MAX
        told = f"{row}: to the server {to_server}, to the mover {to_mover}, between them {of_mover}"
        self.checks.check("data goes straight to the mover", is_straight, told)
        tree, target = self.trees["common"].top, self.scratch / "restored"
        self.trees["common"].add(8_000_000)
        self.cell.capstan.must("--quiet", "backup", tree, "--copies", 2)
        names = [client.name for client in self.clients]
        [row] = [row for row in self.cell.capstan.rows("objects") if row["client"] not in names]
        self.cell.capstan.must("--quiet", "verify", row["object"])
        self.cell.capstan.must("--quiet", "restore", row["object"], "--to", target)
        came = differences(picture(tree), picture(target / str(tree).lstrip("/")))
        self.checks.check("commands beside the server use its drives", not came, "\n".join(came))
        shutil.rmtree(target)
        # Rounds slow down and cut what carries the data.
        for client in self.all_clients:
            client.data = self.mover.of_clients

    def lan_free(self):
        """What a client backs up to the drives of its process, or gets back from them, crosses no network."""
        tree, target = self.trees["tape1"].top, self.scratch / "restored"
        self.trees["tape1"].add(8_000_000)
        proxies = [*self.mover.proxies(), *self.tape1.proxies()]
        passed = lambda: sum(proxy.passed_bytes for proxy in proxies)
        before = passed()
        [run] = self.cell.add("own-tape1")
        row = self.cell.outcome(run)
        crossed, jobs = passed() - before, self.mover.service.of_kind("job-served")
        is_here = row["state"] == "done" and crossed < 2_000_000 and jobs and jobs[-1]["lan_free"]
        self.checks.check("a client beside its drives sends them nothing", is_here, f"{row} {crossed} {jobs}")
        before = passed()
        restore = ("restore", tree, "--of", "tape1", "--to", target)
        done = self.cell.operator.run("--quiet", *restore)
        came, crossed = differences(picture(tree), picture(target / str(tree).lstrip("/"))), passed() - before
        is_here = done.returncode == 0 and not came and crossed < 2_000_000
        self.checks.check("and gets it back so", is_here, f"{crossed} {said(done)}" + "\n".join(came))
        shutil.rmtree(target)
        self.tape1_is_elsewhere()

    def tape1_is_elsewhere(self):
        """The same client in a process of its own is one of the network, and its mover needs it not."""
        self.mover.end(signal.SIGTERM)
        self.mover.settings(DRIVES)
        self.mover.started()
        self.tape1.started()
        before = self.mover.of_clients.passed_bytes
        self.trees["tape1"].add(3_000_000)
        [run] = self.cell.add("own-tape1")
        row = self.cell.outcome(run)
        crossed = self.mover.of_clients.passed_bytes - before
        # The run may have ended at the server before its client says so.
        job = self.tape1.service.until("job-served")
        is_there = row["state"] == "done" and crossed > 3_000_000 and not job["lan_free"]
        self.checks.check("in another process it crosses the network", is_there, f"{row} {crossed} {job}")
        self.tape1.end(signal.SIGTERM)
        self.mover.end(signal.SIGTERM)
        self.mover.settings(DRIVES, client=self.tape1, library=FOLDERS)
        self.mover.started()

    def two_libraries(self):
        """A second mover comes: a unit of both libraries goes to the one that is there, and all comes back together."""
        self.cell.join(self.second)
        self.cell.capstan.must("--quiet", "mover", "label", "jay", "far")
        self.second.settings(DRIVES)
        self.second.started()
        self.unit = {"unit": "both"}
        self.cell.apply(self.policies())
        self.mover.end(signal.SIGTERM)
        self.cell.until("status misses rook", lambda: b"mover rook" in self.cell.capstan.run("status").stdout)
        self.trees["web1"].add(2_000_000)
        [run] = self.cell.add("own-web1")
        row = self.cell.outcome(run)
        volumes = self.cell.capstan.rows("volumes")
        west = [volume for volume in volumes if volume["library"] == "west" and volume["written_bytes"]]
        is_there = row["state"] == "done" and row["attempt"] == 1 and len(west) == 1
        self.checks.check("a unit of two libraries goes to the one that is there", is_there, f"{row} {volumes}")
        done = self.cell.capstan.run("--quiet", "backup", self.trees["common"].top)
        is_named = done.returncode != 0 and "mover run" in said(done)
        self.checks.check("and what names the other one is told what to do", is_named, said(done))
        done = self.cell.capstan.run("--json", "drives")
        is_in_part = done.returncode == 3 and b'"west"' in done.stdout and "rook" in said(done)
        self.checks.check("drives are listed as far as they can be", is_in_part, said(done))
        self.mover.started()
        self.cell.until("both answer", lambda: self.cell.capstan.run("--json", "drives").returncode == 0)
        objects = [row for row in self.cell.capstan.rows("objects") if row["policy"] == "own-web1"]
        latest = max(objects, key=lambda row: row["started_ns"])
        tree = self.trees["web1"].top
        restores = {
            "at the server": (self.cell.capstan, ["restore"]), "at the client": (self.clients[0].capstan, ["client", "restore"])
        }
        for where, (capstan, command) in restores.items():
            target = self.scratch / "restored"
            done = capstan.run("--quiet", *command, latest["object"], "--to", target)
            came = differences(picture(tree), picture(target / str(tree).lstrip("/")))
            name = f"what lies in two libraries comes back together {where}"
            self.checks.check(name, done.returncode == 0 and not came, said(done) + "\n".join(came))
            shutil.rmtree(target)

    def revoked(self):
        self.cell.capstan.must("--quiet", "mover", "revoke", "rook")
        code = self.mover.service.wait()
        heard = self.mover.service.said
        self.checks.check("a mover that is revoked ends, and says why", code == 1 and "revoked" in heard, f"{code}: {heard}")
        self.mover.service = None
        [run] = self.cell.add("own-web2")
        self.cell.join(self.mover, "--replace")
        self.mover.started()
        row = self.cell.outcome(run)
        self.checks.check("its runs are done once it has joined again", row["state"] == "done", row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3 * ROUNDS_FULL if FULL else ROUNDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", action="store_true", help="leave the scratch directory")
    arguments = parser.parse_args()
    print(f"# to replay: tests/cell_mover.py --rounds {arguments.rounds} --seed {arguments.seed}", flush=True)
    checks = Checks()
    with Scratch(arguments.keep) as scratch:
        sweep = MoverSweep(scratch, arguments.seed, checks)
        try:
            sweep.prepare()
            chapters = [
                sweep.mover_is_away, sweep.folders_of_mover, sweep.where_data_goes, sweep.lan_free, sweep.revoked, sweep.two_libraries
            ]
            all_rounds(sweep, arguments.rounds, chapters)
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
        sys.exit(f"cell with a mover: {failure}")
