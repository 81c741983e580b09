#!/usr/bin/env python3
"""Walks docs/KEYS.md as its readers do: every command of the page, in its order, on machines and at desks of a scratch folder.

A block marked `console` has a command a line, behind who types it and where:

    kma1# keyd run --state /var/lib/keyd &      on the machine kma1
    sam$ keyd pending list                      sam, at a desk
    each$ keyd enrol --name $USER ...           each of the people, one after the other; `members#` each machine of the first etcd

Questions are answered on a terminal, as a person would. REQUEST, TAG and MEMBER are what was said last, OLDER all backups but the last, EXPORT
all exports. Addresses stand for ports on loopback, /var/lib and /etc for folders. `# ends with 1` says how a command has to end. What fire and
thieves do to a cluster stands below, a function for each title.
"""

import contextlib
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "KEYS.md"
ALL = {"each": ["sam", "kim", "lou", "max"], "members": ["kma1", "kma2", "witness"]}
MACHINES = ["kma1", "kma2", "kma3", "witness", "mover1", "mover2"]
PORTS = (7443, 7444, 2379, 2380)
SECONDS_MAX = 60
# What has to reach other machines first, and is typed again when it did not yet.
WAITS = {"keyd enrol", "keyd unlock", "keyd backup", "keyd prove", "keyd certify", "keyd join", "keyd status", "capstan backup", "capstan restore",
         "etcdctl endpoint", "etcdctl member"}
SECONDS_OF_WAITING = 30
# Said while the members of etcd choose their leader anew, of which one may have been lost a moment ago: nothing was done, and the words say "try again".
NOT_YET = "majority cannot be reached"
ONE_TIME = r"(?:[0-9A-Z]{4}-){4}[0-9A-Z]{4}"
REQUEST = re.compile(r"request ([0-9a-f]{32}) waits")
LISTED = re.compile(r"^([0-9a-f]{32})\b", re.M)


class Failed(Exception):
    """A command of the page did not do what the page says."""


def free_ports(count):
    """Ports on loopback that nobody has, from below those of connections that go out: a server keeps its own while it is down."""
    ports = set()
    while len(ports) < count:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", random.randrange(12_768, 32_768)))
            ports.add(one.getsockname()[1])
    return list(ports)


def blocks(page, title):
    """The commands under a title, each as (who, where, command, how it ends), in the page's order."""
    text = page.read_text()
    level = next((line.split()[0] for line in text.splitlines() if re.fullmatch(r"#+ " + re.escape(title), line)), None)
    if level is None:
        raise Failed(f"{page.name} has no part {title!r}")
    part = re.split(r"\n#{1,%d} " % len(level), text.split(f"{level} {title}\n", 1)[1])[0]
    # Smaller parts are walked by themselves.
    part = re.split(r"\n#{%d,} " % (len(level) + 1), part)[0]
    for block in re.findall(r"```console\n(.*?)```", part, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.fullmatch(r"(\w+)([#$]) +(.*?)(?: +# (.*))?", line)
            if not match:
                raise Failed(f"no command: {line!r}")
            who, _, command, remark = match.groups()
            ends = re.fullmatch(r"ends with (\d)", remark or "")
            yield who, re.sub(r" {2,}", " ", command), int(ends[1]) if ends else 0


class World:
    """Machines, desks, and what was said so far."""

    def __init__(self, scratch):
        self.scratch = Path(scratch)
        self.running = {}
        self.started = {}
        self.known = {}
        self.passphrases = {}
        self.environment = {}
        self.number = self.failed = 0
        names = [f"{host}:{port}" for host in MACHINES for port in PORTS]
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)))}
        self.bin = self.scratch / "bin"
        self.bin.mkdir()
        for name, variable in (("keyd", "KEYD_BIN"), ("capstan", "CAPSTAN_BIN")):
            program = os.environ.get(variable) or sys.exit(f"{variable} names the {name} program to test")
            (self.bin / name).symlink_to(Path(program).resolve())

    def home(self, who):
        """The folder that is a machine's or a desk's."""
        home = self.scratch / who
        home.mkdir(exist_ok=True, mode=0o700)
        return home

    def kill(self, *machines):
        """Ends what runs on machines, as a power cut does."""
        for program, machine in list(self.running):
            if machine in machines:
                process = self.running.pop((program, machine))
                process.kill()
                process.wait()

    def here(self, who, command):
        """The command as it is typed in this world."""
        home = self.home(who)
        command = command.replace("$USER", who).replace("$HOSTNAME", who)
        # What is anybody's own address.
        command = re.sub(r"(?:0\.0\.0\.0|127\.0\.0\.1):(\d{4})\b", lambda match: f"{who}:{match[1]}", command)
        for address, port in self.addresses.items():
            command = command.replace(address, port)
        for folder in ("/var/lib", "/etc"):
            command = re.sub(rf"(?<![\w./]){folder}\b", f"{home}{folder}", command)
        for carried in ("/safe", "/media/stick"):
            command = re.sub(rf"(?<![\w./]){carried}\b", f"{self.scratch}{carried}", command)
        for word, value in self.known.items():
            command = re.sub(rf"\b{word}\b", value, command)
        if re.match(r"keyd (found|join|restore)\b", command):
            command += f" --listen {self.addresses[f'{who}:7443']} --pool 40"
        return command

    def type(self, who, typed, ends):
        """Types a command, and looks whether it ended as the page says."""
        command = self.here(who, typed)
        environment = self.environment.setdefault(who, {})
        if match := re.fullmatch(r"export (.*)", command):
            environment.update(pair.split("=", 1) for pair in shlex.split(match[1]))
            return
        if command.endswith("&"):
            self.start(who, shlex.split(command[:-1]))
            return
        name = (re.search(r"--name (\w+)", command) or re.search(r"(?:add|enrol) (\w+)", command) or [None, who])[1]
        deadline = time.monotonic() + SECONDS_OF_WAITING
        waits = " ".join(command.split()[:2]) in WAITS and ends == 0
        while True:
            code, said = self.run(who, command, name)
            if code == ends or not (waits or NOT_YET in said) or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        if code != ends:
            raise Failed(f"{who}$ {typed}\nended with {code}, not {ends}:\n{said}")
        self.remember(command, name, said)

    def start(self, who, arguments):
        """Starts a service, and waits for a node until it takes shares."""
        self.started[arguments[0], who] = arguments
        with open(self.scratch / f"{who}.log", "ab") as log:
            self.running[arguments[0], who] = subprocess.Popen(arguments, cwd=self.home(who), env=self.variables(who),
                                                               stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if arguments[0] == "keyd":
            state = Path(arguments[arguments.index("--state") + 1])
            wait_for(f"the socket of {who}", lambda: (state / "keyd.sock").stat())

    def variables(self, who):
        """What a process of somebody's finds around it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KEYD_", "CAPSTAN_"))}
        return kept | {"PATH": f"{self.bin}:{kept['PATH']}", "HOME": str(self.home(who)), "USER": who,
                       "PYTHONDONTWRITEBYTECODE": "1", "ETCDCTL_API": "3",
                       "ETCDCTL_ENDPOINTS": self.addresses.get(f"{who}:2379", "")} | self.environment.get(who, {})

    def run(self, who, command, name):
        """Runs a command at a terminal and answers its questions; its exit code and all that was said."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.home(who))
            os.execvpe("sh", ["sh", "-c", command], self.variables(who))
        said, asked, deadline = b"", 0, time.monotonic() + SECONDS_MAX
        while True:
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                os.close(terminal)
                return "nothing within a minute", said.decode(errors="replace")
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                piece = b""
            if not piece:
                break
            said += piece
            if re.search(rb": ?$", said[asked:]):
                answer = self.answer(said[asked:].decode(errors="replace").splitlines()[-1], name)
                if answer is not None:
                    # Echo is off a moment after the question stands there.
                    time.sleep(0.05)
                    os.write(terminal, answer.encode() + b"\n")
                    asked = len(said)
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status), said.decode(errors="replace").replace("\r\n", "\n")

    def answer(self, question, name):
        """What a person answers."""
        question = question.lower()
        if "one-time" in question or "enrolment" in question:
            return self.passphrases.get(name, "AAAA-BBBB-CCCC-DDDD-EEEE")
        if match := re.search(r"type (\w+)\b.*: $", question):
            return match[1]
        if match := re.search(r"passphrase of (?:holder|new holder|custodian) (\w+)", question):
            self.last = f"the passphrase of {match[1]}"
            return self.last
        if "again" in question:
            return self.last
        if "passphrase" in question:
            self.last = "the passphrase of the keys"
            return self.last
        return None

    def remember(self, command, name, said):
        """Keeps what later commands need, as a person writes it down."""
        if found := REQUEST.search(said):
            self.known["REQUEST"] = found[1]
        listed = LISTED.findall(said)
        if command.startswith("keyd keys list"):
            self.known["TAG"] = listed[0]
        if member := re.search(r"^([0-9a-f]+), \w+, kma2,", said, re.M):
            self.known["MEMBER"] = member[1]
        if command == "keyd backups list":
            self.known["OLDER"] = " ".join(listed[:-1])
        if command == "keyd exports list":
            self.known["EXPORT"] = " ".join(listed)
        for line in said.splitlines():
            if match := re.fullmatch(rf"  (?:(\w+)\s.*)?({ONE_TIME})", line):
                self.passphrases[match[1] or name] = match[2]

    def part(self, title):
        """Walks a part of the page, and counts it as one check."""
        self.number += 1
        try:
            commands = list(blocks(PAGE, title))
            if not commands:
                raise Failed(f"the part {title!r} has no command")
            BEFORE.get(title, lambda world: None)(self)
            for who, command, ends in commands:
                for one in ALL.get(who, [who]):
                    self.type(one, command, ends)
            AFTER.get(title, lambda world: None)(self)
            print(f"ok {self.number} - {title}: {len(commands)} commands", flush=True)
        except (Failed, OSError, subprocess.SubprocessError) as failure:
            self.failed += 1
            print(f"not ok {self.number} - {title}")
            print("\n".join(f"# {line}" for line in str(failure).splitlines()), flush=True)
            raise SystemExit(self.end()) from None

    def end(self):
        """Ends what runs; the exit code."""
        self.kill(*MACHINES)
        print(f"1..{self.number}")
        return 1 if self.failed else 0


def wait_for(what, ask):
    """Asks until nothing is raised."""
    deadline = time.monotonic() + SECONDS_OF_WAITING
    while True:
        try:
            return ask()
        except OSError as error:
            if time.monotonic() > deadline:
                raise Failed(f"{what}: {error}") from error
            time.sleep(0.1)


def member_down(world):
    """The member of etcd beside the node that everybody asks is down, and two of three live."""
    process = world.running.pop(("etcd", "kma1"))
    process.kill()
    process.wait()


def member_up(world):
    """It is started again."""
    world.start("kma1", world.started["etcd", "kma1"])


def lost(world, *machines):
    """Machines burn, with their disks."""
    world.kill(*machines)
    for machine in machines:
        shutil.rmtree(world.home(machine))
        (world.home(machine) / "var/lib").mkdir(parents=True)


def majority_lost(world):
    """What is left of all is the disk of one node."""
    lost(world, "kma1", "witness")
    world.kill("kma3")


def restored(world):
    """What came back from tape is what was there."""
    home = world.home("mover1")
    kept, back = home / "etc", home / "var/lib/restored" / str(home / "etc").lstrip("/")
    if (back / "words").read_text() != (kept / "words").read_text():
        raise Failed("what came back is not what was backed up")


BEFORE = {
    "Leaving with one's keys": member_down,
    "A node is lost": lambda world: lost(world, "kma2"),
    "A site is lost, and the majority with it": majority_lost,
    "Everything is lost": lambda world: lost(world, "kma3"),
}
AFTER = {"Leaving with one's keys": member_up, "Everything is lost": restored}
PARTS = [
    "The ledger", "The first node", "Its people", "Two backups, before anything is written to tape", "A second node", "The first mover", "Daily life",
    "Coming from a sealed store", "Leaving with one's keys",
    "A node is lost", "A mover is stolen", "A quorum member has lost their certificate", "A holder is lost",
    "A key must be gone",
    "A site is lost, and the majority with it", "Everything is lost",
]


def main():
    """Walks the parts of the page, one after the other."""
    with tempfile.TemporaryDirectory(prefix="capstan-days.", dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        world = World(scratch)
        for carried in ("safe", "media/stick"):
            (world.scratch / carried).mkdir(parents=True)
        for machine in MACHINES:
            (world.home(machine) / "var/lib").mkdir(parents=True)
        for mover in ("mover1", "mover2"):
            (world.home(mover) / "etc/capstan").mkdir(parents=True)
            (world.home(mover) / "etc/words").write_text("what nobody else may read\n")
        try:
            for title in PARTS:
                world.part(title)
        finally:
            world.kill(*MACHINES)
        return world.end()


if __name__ == "__main__":
    sys.exit(main())
