"""Runs the program under test, for the sweeps: a state directory of its own, JSON in, counted checks out."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Whether sweeps do all of it, and where the catalog's tables are: the server of `./x test`, or SQLite.
FULL = "CAPSTAN_FULL" in os.environ
ON_POSTGRES = "CAPSTAN_DATABASE" in os.environ
HERE = Path(__file__).resolve().parent
# Longer than any command of a sweep takes; one that hangs is a failure.
SECONDS_MAX = 120


class Capstan:
    """The program with one state directory."""

    def __init__(self, state, key_file):
        self.state = Path(state)
        self.binary = os.environ.get("CAPSTAN_BIN") or sys.exit("CAPSTAN_BIN names the capstan program to test")
        self.environment = {key: value for key, value in os.environ.items()
                            if key == "CAPSTAN_DATABASE" or not key.startswith("CAPSTAN_")}
        self.environment |= {"CAPSTAN_STATE": str(state), "CAPSTAN_KEY_FILE": str(key_file), "RUST_BACKTRACE": "0"}

    def start(self, *arguments):
        """Starts a command that writes events; they come out of its stdout."""
        return subprocess.Popen([self.binary, "--json", *map(str, arguments)], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments):
        """Runs a command to its end, whatever that is."""
        return subprocess.run([self.binary, *map(str, arguments)], env=self.environment, capture_output=True,
                              timeout=SECONDS_MAX, check=False)

    def must(self, *arguments):
        """Runs a command that has to succeed, and returns what it printed."""
        done = self.run(*arguments)
        if done.returncode != 0:
            raise Failed(f"capstan {' '.join(map(str, arguments))} gave {done.returncode}: {said(done)}")
        return done.stdout

    def json(self, *arguments):
        """What a command that gives one answer printed."""
        return json.loads(self.must("--json", *arguments))

    def rows(self, *arguments):
        """What a command that lists printed, a row a line."""
        return [json.loads(line) for line in self.must("--json", *arguments).splitlines()]

    def configure(self, **settings):
        """Changes settings that stand in capstan.toml."""
        path = self.state / "capstan.toml"
        text = path.read_text()
        for name, value in settings.items():
            text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
            if count != 1:
                raise Failed(f"capstan.toml has no setting {name}")
        path.write_text(text)


class Service:
    """A command that runs until it is stopped, and the events that it prints."""

    def __init__(self, capstan, *arguments):
        self.name = " ".join(map(str, arguments))
        self.process = capstan.start(*arguments)
        self.events, self.said = [], ""
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.hear)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                pass  # the line that the kill cut

    def hear(self):
        self.said = self.process.stderr.read()

    def of_kind(self, event):
        """The events of a kind that it has printed."""
        return [printed for printed in list(self.events) if printed["event"] == event]

    def until(self, event):
        """Waits for an event, and returns the first of its kind."""
        deadline = time.monotonic() + SECONDS_MAX
        while not self.of_kind(event):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise Failed(f"{self.name}: no event {event}: {self.process.poll()} {self.events} {self.said}")
            time.sleep(0.01)
        return self.of_kind(event)[0]

    def wait(self):
        """Waits for its end, and returns its exit code."""
        try:
            code = self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"{self.name} does not end") from None
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        if "panicked" in self.said:
            raise Failed(self.said)
        return code

    def end(self, how):
        """Ends it by a signal."""
        self.process.send_signal(how)
        code = self.wait()
        if code != (0 if how == signal.SIGTERM else -how):
            raise Failed(f"{self.name} ended with {code}: {self.said}")


class Failed(Exception):
    """Something that must hold does not."""


class Checks:
    """Counts checks, and prints one line each."""

    def __init__(self):
        self.number = 0
        self.failed = 0

    def check(self, name, condition, detail=""):
        self.number += 1
        print(f"{'ok' if condition else 'not ok'} {self.number} - {name}", flush=True)
        if not condition:
            self.failed += 1
            for line in str(detail).splitlines()[:40]:
                print(f"# {line[:600]}", flush=True)
        return condition

    def finish(self):
        print(f"1..{self.number}")
        sys.exit(1 if self.failed else 0)


class Scratch:
    """A directory that is gone afterwards, or stays to be looked at when something failed."""

    def __init__(self, keep):
        self.keep = keep

    def __enter__(self):
        # Not /tmp, which may be a tmpfs without room for volumes.
        self.path = Path(tempfile.mkdtemp(prefix="capstan-sweep.", dir=os.environ.get("TMPDIR", "/var/tmp")))
        return self.path

    def __exit__(self, kind, *_):
        if self.keep or kind is not None:
            print(f"# everything is in {self.path}")
        else:
            shutil.rmtree(self.path)


def said(done):
    """What a finished command complained of."""
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode(errors="replace")
    return text.strip()


def crashed(code):
    """Whether an exit code is that of a panic, or of a signal that nobody sent."""
    return code == 101 or code < 0 or code >= 128


def compare(source, copy):
    """Nothing when two trees are the same; otherwise the differences."""
    done = subprocess.run([sys.executable, HERE / "compare.py", source, copy], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
