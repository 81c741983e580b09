#!/usr/bin/env python3
"""Types the commands of docs/CELL.md, in the page's order, and looks for the words that it shows below each.

A block marked `console` has a command behind each `$`, and below it lines whose words the command prints, wherever they
stand; `tern$` is the prompt of another machine, which has a state directory of its own. `&` at the end keeps a command
running, as %?server or %?client; `# ends with 0, or with 1` says how a command may end, which is otherwise 0. A command
that does not print what it shall yet is typed again, as a person would: the server takes a moment. Files of policies
are those that stand on the page; /srv stands for a folder of the test, and the page's host and ports stand for some on
loopback. A passphrase, a date and a time are others each time.
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CELL.md"
SECONDS_MAX = 60


# What is another each time: a passphrase, a date, a time.
CHANGES = re.compile(r"([0-9A-Z]{4}-){4}[0-9A-Z]{4}|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d,?")


def commands(page):
    """Each command with its machine, the codes it may end with, and the words that it prints."""
    for block in re.findall(r"```console\n(.*?)```", page, re.S):
        parts = re.split(r"(?m)^(\w*)\$ ", block)[1:]
        for machine, part in zip(parts[::2], parts[1::2]):
            line, *shown = part.splitlines()
            command, _, remark = line.partition(" # ends with ")
            codes = {int(code) for code in re.findall(r"\d+", remark)} or {0}
            yield machine or "server", command.strip(), codes, [line for line in shown if line.strip()]


def on_loopback(page):
    """The page with an address and ports that the test may use."""
    for _ in range(200):
        first = random.randrange(20_000, 32_000)
        try:
            for port in range(first, first + 3):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        for number in range(3):
            page = page.replace(f"570{number + 1}", str(first + number))
        return page.replace("0.0.0.0", "127.0.0.1").replace("backup.example.org", "127.0.0.1")
    sys.exit("no free ports")


class Typist:
    """A folder, the state directories of its machines, and what runs there."""

    def __init__(self, folder, page):
        self.folder = Path(folder)
        self.services, self.passphrase = {}, ""
        binary = Path(os.environ.get("CAPSTAN_BIN") or sys.exit("CAPSTAN_BIN names the capstan program to test"))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("CAPSTAN_")}
        self.environment |= {"PATH": f"{binary.parent}:{os.environ['PATH']}", "CAPSTAN_STATE": str(self.folder / "state"),
                             "CAPSTAN_PASSPHRASE": "type the page", "TZ": "UTC"}
        for name in ("home", "mail", "web"):
            (self.folder / name).mkdir()
            (self.folder / name / "letter").write_text("dear Ada\n")
        for block in re.findall(r"```toml\n(.*?)```", page, re.S):
            name = re.match(r"# (\w+\.toml)", block)
            if "[policies." in block or name:
                path = self.folder / (name[1] if name else "cell.toml")
                path.write_text(block.replace("/srv/", f"{self.folder}/"))

    def type(self, machine, command):
        """Types a command at a machine; gives its exit code and what it printed."""
        environment = dict(self.environment)
        if machine != "server":
            environment["CAPSTAN_STATE"] = str(self.folder / machine)
            environment["CAPSTAN_ENROLMENT_PASSPHRASE"] = self.passphrase
        if command.endswith("&"):
            return self.start(machine, command[:-1].split(), environment)
        if command.startswith("kill"):
            self.services[machine].send_signal(signal.SIGKILL if "-9" in command else signal.SIGTERM)
            self.services[machine].wait(SECONDS_MAX)
            return 0, ""
        command = command.replace("/srv/", f"{self.folder}/")
        done = subprocess.run(command, shell=True, env=environment, cwd=self.folder, capture_output=True, text=True,
                              timeout=SECONDS_MAX, check=False)
        if found := re.search(r"(?m)^ *((?:[0-9A-Z]{4}-){4}[0-9A-Z]{4})$", done.stdout):
            self.passphrase = found[1]
        return done.returncode, done.stdout + done.stderr

    def start(self, machine, words, environment):
        """Starts what runs until it is stopped. Its first line says that it does, its last one why it does not."""
        path = self.folder / f"{machine}.log"
        path.touch()
        before = len(path.read_text())
        with path.open("a") as log:
            service = subprocess.Popen(words, env=environment, cwd=self.folder, stdout=log, stderr=log)
        self.services[machine] = service
        said = lambda: path.read_text()[before:]
        deadline = time.monotonic() + SECONDS_MAX
        while service.poll() is None and not re.search("serving|connected to", said()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return (0, "") if service.poll() is None else (service.returncode, said())


def missing_in(printed, shown):
    """The lines of a page that a command has not printed."""
    words = printed.split()
    return [line for line in shown if not all(word in words or CHANGES.fullmatch(word) for word in line.split())]


def main():
    page = on_loopback(PAGE.read_text())
    failed = number = 0
    with tempfile.TemporaryDirectory(prefix="capstan-cell.") as folder:
        typist = Typist(folder, page)
        try:
            for number, (machine, command, codes, shown) in enumerate(commands(page), 1):
                deadline = time.monotonic() + SECONDS_MAX
                while True:
                    code, printed = typist.type(machine, command)
                    missing = missing_in(printed, shown)
                    good = code in codes and not missing
                    if good or time.monotonic() > deadline:
                        break
                    time.sleep(0.5)
                failed += not good
                print(f"{'ok' if good else 'not ok'} {number} - {machine}: {command}", flush=True)
                if not good:
                    lines = [f"ended with {code}, not shown: {missing}", *printed.splitlines()]
                    print("".join(f"# {line}\n" for line in lines), flush=True)
        finally:
            for service in typist.services.values():
                if service.poll() is None:
                    service.kill()
        if typist.services["server"].wait() != 0:
            log = (Path(folder) / "server.log").read_text()
            print(f"not ok {number + 1} - the server stops when it is told to\n# {log}")
            failed += 1
    print(f"1..{number}")
    sys.exit(1 if failed or number < 44 else 0)


if __name__ == "__main__":
    main()
