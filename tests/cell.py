"""A cell on loopback, for tests: a server, and clients and movers that have joined it, each behind proxies.

Client N reaches the server at 127.0.0.(N + 1), where a proxy listens that is the client's alone. (Data goes to the host
that orders come from.) The ports stay the same when the server starts anew, and lie below those that the system gives
to connections that go out.
"""

import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import time

from machine import Machine, build_clock
from program import Capstan, Failed, Service
from proxy import Proxy

# How long something may take that has to come: a busy machine is no failure.
SECONDS_MAX = 180
# How often a test looks: each look is a process.
EVERY_S = 0.2


def free_ports(hosts, movers):
    """Ports in a row that are free at each of the hosts: listen, enrolment, data, and the data of each mover."""
    for _ in range(200):
        first = random.SystemRandom().randrange(20_000, 32_000)
        try:
            for port in range(first, first + 3 + movers):
                for host in hosts:
                    socket.create_server((host, port)).close()
        except OSError:
            continue
        return first
    raise Failed("no free ports")


class Member:
    """A machine of the cell: its state directory, its proxies to the server, and what it runs."""

    kind = None

    def __init__(self, name, scratch, host, cell):
        self.name, self.host = name, host
        self.capstan = Capstan(scratch / f"state-{name}", scratch / "key")
        self.capstan.environment.pop("CAPSTAN_KEY_FILE")
        self.orders = Proxy((host, cell.port), ("127.0.0.1", cell.port))
        self.links = Proxy((host, cell.port + 2), ("127.0.0.1", cell.port + 2))
        self.service = self.machine = None

    def proxies(self):
        return [self.orders, self.links]

    def start(self):
        self.service = Service(self.capstan, self.kind, "run")

    def started(self):
        self.start()
        self.service.until("connected")

    def end(self, how):
        self.service.end(how)
        self.service = None


class Client(Member):
    """A machine that is backed up."""

    kind = "client"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        # What carries its data: its links of jobs do, unless a mover has the drives.
        self.data = self.links

    def settings(self, paths=(), scripts=None, restore_to=()):
        lines = [f"{key} = {value(of)}" for key, of in (("paths", paths), ("restore_to", restore_to))] + ["[scripts]"]
        lines += [f"{name} = [{', '.join(quoted(word) for word in words)}]" for name, words in (scripts or {}).items()]
        (self.capstan.state / "client.toml").write_text("\n".join(lines) + "\n")


class Mover(Member):
    """A machine that has drives. One more proxy is in front of the port where clients bring their data."""

    kind = "mover"

    def __init__(self, name, scratch, host, cell, number):
        super().__init__(name, scratch, host, cell)
        self.port = cell.port + 3 + number
        self.of_clients = Proxy((host, self.port), ("127.0.0.1", self.port))

    def proxies(self):
        return [*super().proxies(), self.of_clients]

    def settings(self, drives, client=None, library=()):
        """Says how many drives it has, which client runs in its process, if one does, and more of its library."""
        place = f'listen = "127.0.0.1:{self.port}"\nannounce = "{self.host}:{self.port}"\n'
        beside = f"client = {quoted(client.capstan.state)}\n" if client else ""
        of_library = "".join(f"{line}\n" for line in (f"drives = {drives}", *library))
        (self.capstan.state / "mover.toml").write_text(f"{place}{beside}[library]\n{of_library}")


class Cell:
    """The server and its clients; and the movers that have the drives, if they are named.

    With machines, the clock and the disk of each of them can go wrong.
    """

    def __init__(self, scratch, names, movers=(), has_machines=False):
        self.scratch = scratch
        self.capstan = Capstan(scratch / "server", scratch / "key")
        hosts = ["127.0.0.1", *(f"127.0.0.{number}" for number in range(2, len(names) + len(movers) + 2))]
        self.port = free_ports(hosts, len(movers))
        self.server = self.machine = None
        self.clients = {name: Client(name, scratch, host, self) for name, host in zip(names, hosts[1:])}
        of_movers = enumerate(zip(movers, hosts[1 + len(names):]))
        self.movers = [Mover(name, scratch, host, self, number) for number, (name, host) in of_movers]
        # A person who uses the cell from elsewhere.
        self.operator = Capstan(scratch / "state-ada", scratch / "key")
        self.operator.environment.pop("CAPSTAN_KEY_FILE")
        if has_machines:
            library = build_clock(scratch)
            for host in (self, *self.members()):
                host.machine = Machine(host.capstan, library)

    def start_server(self):
        self.server = Service(self.capstan, "server", "run", "--listen", f"127.0.0.1:{self.port}")
        self.server.until("listening")

    def end_server(self, how):
        self.server.end(how)
        self.server = None

    def join(self, member, *arguments):
        """Enrols a client or a mover and has it join."""
        passphrase = self.capstan.json(member.kind, "enrol", member.name)["passphrase"]
        member.capstan.environment["CAPSTAN_ENROLMENT_PASSPHRASE"] = passphrase
        address = f"127.0.0.1:{self.port + 1}"
        member.capstan.must("--quiet", member.kind, "join", address, "--name", member.name, *arguments)
        del member.capstan.environment["CAPSTAN_ENROLMENT_PASSPHRASE"]
        (member.capstan.state / "cell" / "server").write_text(f"{member.host}:{self.port}\n")

    def join_operator(self, *roles):
        """Enrols the operator, who joins; and has further roles."""
        enrol = ("user", "enrol", "ada", "--role", "operator", *roles)
        self.operator.environment["CAPSTAN_ENROLMENT_PASSPHRASE"] = self.capstan.json(*enrol)["passphrase"]
        self.operator.must("--quiet", "user", "join", f"127.0.0.1:{self.port + 1}", "--name", "ada")
        del self.operator.environment["CAPSTAN_ENROLMENT_PASSPHRASE"]

    def apply(self, policies):
        """Applies policies, which are given as settings by name."""
        lines = []
        for name, settings in policies.items():
            lines += [f"[policies.{name}]", *(f"{key} = {value(of)}" for key, of in settings.items())]
        path = self.scratch / "cell.toml"
        path.write_text("\n".join(lines) + "\n")
        self.capstan.must("--quiet", "policies", "apply", path)

    def add(self, *policies):
        """Enters runs of policies, and returns their numbers."""
        return [row["run"] for row in self.capstan.rows("queue", "add", *policies)]

    def add_over_the_network(self, *policies):
        """The same, as the operator."""
        return [row["run"] for row in self.operator.rows("queue", "add", *policies)]

    def queue(self, run):
        """The row of a run in the queue, if it is there."""
        return next((row for row in self.capstan.rows("queue") if row["run"] == run), None)

    def done(self):
        return self.capstan.rows("queue", "done", "--last", 100_000)

    def until(self, what, holds):
        """Waits until something holds, and returns it."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            found = holds()
            if found:
                return found
            if time.monotonic() > deadline:
                queue, done = self.capstan.rows("queue"), self.done()[:8]
                raise Failed(f"not so after {SECONDS_MAX} s: {what}; the queue: {queue}; ended: {done}")
            self.look_after()
            time.sleep(EVERY_S)

    def members(self):
        return [*self.clients.values(), *self.movers]

    def services(self):
        return filter(None, [self.server, *(member.service for member in self.members())])

    def look_after(self):
        """Nobody may have ended without being told to; but for members whose own clock was wrong: they are started
        again."""
        for member in self.members():
            was_wrong = member.machine and member.machine.was_wrong
            if was_wrong and member.service and member.service.process.poll() == 1:
                member.service.wait()
                if "compare the clock" in member.service.said:
                    member.start()
        for service in self.services():
            if service.process.poll() is not None:
                code = service.wait()
                raise Failed(f"{service.name} ended by itself with {code}: {service.events[-3:]} {service.said}")

    def until_empty(self):
        self.until("the queue is empty", lambda: not self.capstan.rows("queue"))

    def outcome(self, run):
        """How a run ended, once it has."""
        return self.until(f"run {run} has ended", lambda: next((row for row in self.done() if row["run"] == run), None))

    def close(self):
        """Ends all that is still there; what it says then does not matter."""
        for service in self.services():
            if service.process.poll() is None:
                # One that is stopped takes no other signal.
                service.process.send_signal(signal.SIGKILL)
                service.process.wait()
        for member in self.members():
            for proxy in member.proxies():
                proxy.close()
        for host in filter(lambda host: host.machine, (self, *self.members())):
            host.machine.close()


def quoted(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def value(of):
    if isinstance(of, (list, tuple)):
        return f"[{', '.join(value(each) for each in of)}]"
    return str(of).lower() if isinstance(of, (bool, int)) else quoted(of)


def picture(top):
    """What a tree is: kind, mode, time and content of everything in it, by path."""
    top = os.fspath(top)
    found = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode):
                with open(path, "rb") as file:
                    holds = hashlib.sha256(file.read()).hexdigest()
            elif stat.S_ISLNK(about.st_mode):
                holds = os.readlink(path)
            else:
                holds = ""
            found[os.path.relpath(path, top)] = (about.st_mode, about.st_mtime_ns, holds)
    return found


def differences(was, came):
    """Paths that two pictures do not have in common, each with both sides."""
    paths = [path for path in sorted(was.keys() | came.keys()) if was.get(path) != came.get(path)]
    return [f"{path}: {was.get(path)} became {came.get(path)}" for path in paths]


class Tree:
    """A tree that changes."""

    def __init__(self, top, chance, file_bytes_max):
        self.top, self.random, self.file_bytes_max = top, chance, file_bytes_max
        top.mkdir(parents=True)

    def files(self):
        return sorted(path for path in self.top.rglob("*") if path.is_file() and not path.is_symlink())

    def add(self, len_bytes=None):
        folder = self.top / f"folder {self.random.randrange(6)}"
        folder.mkdir(exist_ok=True)
        len_bytes = self.random.choice([0, 100, 50_000, self.file_bytes_max]) if len_bytes is None else len_bytes
        (folder / f"file-{self.random.randrange(1 << 40):x}").write_bytes(self.random.randbytes(len_bytes))

    def change(self):
        """Some files come, some go, some become others; a folder goes, and a link turns."""
        for _ in range(self.random.randrange(2, 7)):
            self.add()
        for path in self.random.sample(self.files(), min(3, len(self.files()))):
            what = self.random.choice(["remove", "append", "rewrite", "rename"])
            if what == "remove":
                path.unlink()
            elif what == "append":
                with path.open("ab") as file:
                    file.write(self.random.randbytes(3_000))
            elif what == "rewrite":
                path.write_bytes(self.random.randbytes(self.random.randrange(200_000)))
            else:
                path.rename(path.with_name(path.name + "~"))
        folders = sorted(path for path in self.top.iterdir() if path.is_dir())
        if len(folders) > 4:
            shutil.rmtree(self.random.choice(folders))
        link = self.top / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(f"to {self.random.randrange(100)}")
