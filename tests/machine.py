"""What goes wrong with a machine as a whole, for tests: its clock is set wrong, or its disk is full.

Each machine stands for its state directory. Its programs ask the C library for the time, and a library that is
preloaded answers (clock.c). Its disk is a file system in memory, in a mount namespace of the test: it is full once its
size is what it holds. Where namespaces are forbidden, no disk is full.
"""

import errno
import os
import shutil
import struct
import subprocess
import sys

from program import HERE, Failed

YEAR_S = 365 * 24 * 3600
# More than any machine of a test holds: memory that is not used costs nothing.
DISK = "16g"


def in_own_mounts():
    """Runs the test anew where it may mount; or says that it may not."""
    if "CAPSTAN_OWN_MOUNTS" in os.environ:
        return
    command = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    can = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    os.environ["CAPSTAN_OWN_MOUNTS"] = "yes" if can else ""
    if can:
        os.execvp(command[0], [*command, sys.executable, *sys.argv])
    print("# namespaces are forbidden here: no disk is full", flush=True)


def can_mount():
    return bool(os.environ.get("CAPSTAN_OWN_MOUNTS"))


def build_clock(scratch):
    """The library that answers for the clocks."""
    library = scratch / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "clock.c")]
    subprocess.run(command, check=True)
    return library


def year(environment):
    return int(subprocess.run(["date", "-u", "+%Y"], env=environment, capture_output=True, check=True).stdout)


def is_preloaded_into(program):
    """Whether a program loads libraries at all: one that is linked statically does not."""
    with open(program, "rb") as file:
        return b"/ld-linux" in file.read(4096)


class Machine:
    """The clock and the disk of a machine."""

    def __init__(self, capstan, library):
        self.state = capstan.state
        self.clock = self.state.with_suffix(".clock")
        self.clock.write_bytes(bytes(8))
        self.was_wrong = False
        self.filler = self.state / "filler of the test"
        capstan.environment |= {"LD_PRELOAD": str(library), "TEST_CLOCK": str(self.clock)}
        # A jump that nobody notices would test nothing.
        right = year(capstan.environment)
        self.set_clock(400 * YEAR_S)
        if year(capstan.environment) - right not in (399, 400) or not is_preloaded_into(capstan.binary):
            raise Failed("clocks cannot be set wrong here")
        self.set_clock(0)
        self.was_wrong = False
        if can_mount():
            self.state.mkdir(mode=0o700)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(self.state)], check=True)

    def set_clock(self, ahead_s):
        """Sets the clock wrong by so many seconds, or right by none; what runs sees it at once."""
        self.was_wrong |= ahead_s != 0
        with self.clock.open("r+b") as file:
            file.write(struct.pack("<q", round(ahead_s)))

    def fill(self):
        """Leaves no room on the disk."""
        for attempt in range(100):
            # It is refused if more was written since; and if a file was removed since, some room is left.
            if self.resize(shutil.disk_usage(self.state).used + 4096 + attempt * 8192) and self.is_full():
                return
        raise Failed(f"{shutil.disk_usage(self.state).free} bytes are left on the disk of {self.state}")

    def is_full(self):
        """Whether nothing more can be written, once the little is taken that is left."""
        if shutil.disk_usage(self.state).free > 1 << 20:
            return False
        try:
            with open(self.filler, "ab", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        return True

    def clear(self):
        """Gives the disk its room back."""
        self.filler.unlink(missing_ok=True)
        if not self.resize(DISK):
            raise Failed(f"the disk of {self.state} stays full")

    def resize(self, size):
        """Whether the disk has that size now."""
        command = ["mount", "-o", f"remount,size={size}", str(self.state)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def close(self):
        if can_mount():
            subprocess.run(["umount", "--lazy", str(self.state)], check=False)
