#!/usr/bin/env python3
"""Types the commands of docs/CELL.md, in the page's order, and looks for the words that it shows below each.

A block marked `console` has a command behind each `$`, and below it lines whose words the command prints, wherever they stand.
`&` at the end keeps a command running, as %?server; `# ends with 0, or with 1` says how a command may end, which is otherwise 0. A command that
does not print what it shall yet is typed again, as a person would: the server takes a moment. The page's file of policies is the one
that stands in it; /srv stands for a folder of the test.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CELL.md"
SECONDS_MAX = 60


def commands(page):
    """Each command with the codes it may end with, and the words that it prints."""
    for block in re.findall(r"```console\n(.*?)```", page, re.S):
        for part in re.split(r"(?m)^\$ ", block)[1:]:
            line, *shown = part.splitlines()
            command, _, remark = line.partition(" # ends with ")
            codes = {int(code) for code in re.findall(r"\d+", remark)} or {0}
            yield command.strip(), codes, [line for line in shown if line.strip()]


class Typist:
    """A folder, a state directory, and the server that runs in it."""

    def __init__(self, folder, page):
        self.folder = Path(folder)
        self.server, self.log_len = None, 0
        binary = Path(os.environ.get("CAPSTAN_BIN") or sys.exit("CAPSTAN_BIN names the capstan program to test"))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("CAPSTAN_")}
        self.environment |= {"PATH": f"{binary.parent}:{os.environ['PATH']}", "CAPSTAN_STATE": str(self.folder / "state"),
                             "CAPSTAN_PASSPHRASE": "type the page", "TZ": "UTC"}
        for name in ("home", "mail"):
            (self.folder / name).mkdir()
            (self.folder / name / "letter").write_text("dear Ada\n")
        policies = next(block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if "[policies." in block)
        (self.folder / "cell.toml").write_text(policies.replace("/srv/", f"{self.folder}/"))

    def type(self, command):
        """Types a command; gives its exit code and what it printed."""
        if command.endswith("&"):
            log = (self.folder / "server.log").open("a")
            self.server = subprocess.Popen(command[:-1].split(), env=self.environment, cwd=self.folder, stdout=log, stderr=log)
            # Its first line says that it serves, its last one why it does not.
            deadline = time.monotonic() + SECONDS_MAX
            before = self.log_len
            while self.server.poll() is None and "serving" not in (self.folder / "server.log").read_text()[before:] and time.monotonic() < deadline:
                time.sleep(0.05)
            self.log_len = len((self.folder / "server.log").read_text())
            return (0, "") if self.server.poll() is None else (self.server.returncode, (self.folder / "server.log").read_text())
        if command.startswith("kill"):
            self.server.send_signal(signal.SIGKILL if "-9" in command else signal.SIGTERM)
            return 0, ""
        done = subprocess.run(command, shell=True, env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              timeout=SECONDS_MAX, check=False)
        return done.returncode, done.stdout + done.stderr


def main():
    page = PAGE.read_text()
    failed = number = 0
    with tempfile.TemporaryDirectory(prefix="capstan-cell.") as folder:
        typist = Typist(folder, page)
        try:
            for number, (command, codes, shown) in enumerate(commands(page), 1):
                good, deadline = False, time.monotonic() + SECONDS_MAX
                while not good and time.monotonic() < deadline:
                    code, printed = typist.type(command)
                    missing = [line for line in shown if not all(word in printed.split() for word in line.split())]
                    good = code in codes and not missing
                    if not good:
                        time.sleep(0.5)
                failed += not good
                print(f"{'ok' if good else 'not ok'} {number} - {command}", flush=True)
                if not good:
                    print("".join(f"# {line}\n" for line in [f"ended with {code}, not shown: {missing}", *printed.splitlines()]), flush=True)
        finally:
            if typist.server and typist.server.poll() is None:
                typist.server.kill()
        if typist.server.wait() != 0:
            print(f"not ok {number + 1} - the server stops when it is told to\n# {(Path(folder) / 'server.log').read_text()}")
            failed += 1
    print(f"1..{number}")
    sys.exit(1 if failed or number < 18 else 0)


if __name__ == "__main__":
    main()
