"""Makes a tree of everything that a file system can hold and a backup can get wrong.

usage: python3 tests/torture.py DIRECTORY

What this user or this file system may not make (device nodes and capabilities need root, access control lists a file
system that has them) is left out, and named. The tree is the same each time, but for names of users.
"""

import errno
import os
import random
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

SECOND = 1_000_000_000
GIB = 1 << 30
# What a user or a file system may refuse.
REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EINVAL, errno.ENOSPC, errno.EFBIG, errno.EOVERFLOW}

skipped = []


def attempt(what, make):
    """Makes one thing, or notes that it can't be made here."""
    try:
        make()
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        skipped.append(f"{what}: {error.strerror}")
    except FileNotFoundError:
        skipped.append(f"{what}: no such program")


def write(path, content=b"", mode=None):
    path = Path(path)
    path.write_bytes(content)
    if mode is not None:
        path.chmod(mode)
    return path


def noise(seed, length):
    return random.Random(seed).randbytes(length)


def sizes(top):
    """Lengths around every boundary that a pax stream, a block or a read has."""
    for length in [0, 1, 511, 512, 513, 4095, 4096, 4097, 10239, 10240, 65535, 65536, 65537, 524287, 524288, 524289, 3_000_001]:
        write(top / f"{length}", noise(length, length))
    write(top / "compressible", b"the same line again\n" * 100_000)
    write(top / "zeros", bytes(1_000_000))


def modes(top):
    for mode in [0o000, 0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o6711]:
        write(top / f"file-{mode:04o}", b"x").chmod(mode)
        directory = top / f"directory-{mode:04o}"
        directory.mkdir()
        directory.chmod(mode | stat.S_IRWXU)


def owners(top):
    for user, group in [(0, 0), (1, 1), (1000, 1000), (65534, 65534), (2097151, 2097152), (4294967294, 4294967294)]:
        path = write(top / f"{user}-{group}")
        attempt(f"owner {user}", lambda: os.chown(path, user, group))
        link = top / f"link-{user}-{group}"
        link.symlink_to("nowhere")
        attempt(f"owner {user} of a symbolic link", lambda: os.lchown(link, user, group))


def times(top):
    """Nanoseconds, before 1970, and beyond what 33 bits of octal digits in a ustar header hold."""
    cases = {
        "epoch": 0,
        "nanosecond": 1,
        "odd": 1_234_567_890_123_456_789,
        "last-nanosecond": 999_999_999,
        "half-before-epoch": -SECOND // 2,
        "before-epoch": -1_000 * SECOND + 7,
        "1902": -2_147_483_648 * SECOND,
        "2038": 2_147_483_648 * SECOND + 1,
        "2242": 8_589_934_592 * SECOND + 3,
        "2446": 15_032_385_535 * SECOND,
        "2446 with nanoseconds": 15_032_385_534 * SECOND + 123_456_789,
    }
    for name, time in cases.items():
        path = write(top / name)
        attempt(f"time {name}", lambda: os.utime(path, ns=(time, time)))
        link = top / f"link-{name}"
        link.symlink_to("nowhere")
        attempt(f"time {name} of a symbolic link", lambda: os.utime(link, ns=(time, time), follow_symlinks=False))
        directory = top / f"directory-{name}"
        directory.mkdir()
        write(directory / "inside")
        attempt(f"time {name} of a directory", lambda: os.utime(directory, ns=(time, time)))


def attributes(top):
    path = write(top / "user", b"x")
    directory = top / "directory"
    directory.mkdir()
    link = top / "link"
    link.symlink_to("user")
    values = {
        "user.text": b"value",
        "user.empty": b"",
        "user.binary": bytes(range(256)),
        "user.newline": b"one\ntwo=three\n",
        "user.with=equals": b"=",
        "user.with space": b" ",
        "user.caf\u00e9": "\u00e9".encode(),
        "user.long": b"v" * 2000,
        "trusted.capstan": b"only root sees it",
        "user." + "n" * 240: b"long name",
    }
    for name, value in values.items():
        attempt(f"attribute {name[:30]!r}", lambda: os.setxattr(path, name, value))
        attempt(f"attribute {name[:30]!r} of a directory", lambda: os.setxattr(directory, name, value))
    attempt("attribute of a symbolic link", lambda: os.setxattr(link, "trusted.link", b"y", follow_symlinks=False))
    # VFS_CAP_REVISION_2 with CAP_NET_RAW permitted and effective: what ping carries.
    capability = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    capable = write(top / "capable", b"#!/bin/sh\n", 0o755)
    attempt("capability", lambda: os.setxattr(capable, "security.capability", capability))


def access_lists(top):
    """Written as the kernel keeps them: version 2, then (tag, permissions, id) in order."""
    owner, user, group, named, mask, other = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
    nobody = 0xFFFFFFFF

    def packed(*entries):
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)

    full = packed((owner, 7, nobody), (user, 5, 1000), (user, 0, 65534), (group, 5, nobody), (named, 4, 100), (mask, 5, nobody),
                  (other, 0, nobody))
    plain = packed((owner, 6, nobody), (user, 4, 1), (group, 4, nobody), (mask, 4, nobody), (other, 4, nobody))
    path = write(top / "file", b"x", 0o750)
    attempt("access control list", lambda: os.setxattr(path, "system.posix_acl_access", full))
    directory = top / "directory"
    directory.mkdir()
    attempt("default access control list", lambda: os.setxattr(directory, "system.posix_acl_default", full))
    attempt("access control list of a directory", lambda: os.setxattr(directory, "system.posix_acl_access", plain))
    write(directory / "inherits")
    (directory / "below").mkdir()


def hard_links(top):
    write(top / "one", b"shared by five names")
    for name in ["two", "three"]:
        os.link(top / "one", top / name)
    for name in ["a", "z"]:
        (top / name).mkdir()
        os.link(top / "one", top / name / "far")
    write(top / "empty")
    os.link(top / "empty", top / "empty-too")
    (top / "symbolic").symlink_to("one")
    attempt("hard link to a symbolic link",
            lambda: os.link(top / "symbolic", top / "symbolic-too", follow_symlinks=False))
    os.mkfifo(top / "fifo")
    attempt("hard link to a fifo", lambda: os.link(top / "fifo", top / "fifo-too"))
    # Its second name lies outside the tree: a backup sees one of two.
    write(top / "half", b"one name is elsewhere")
    os.link(top / "half", top.parent.parent / "outside-the-tree")


def sparse(top):
    def with_data(name, length, places):
        path = top / name

        def make():
            with open(path, "wb") as file:
                for place, content in places:
                    file.seek(place)
                    file.write(content)
                file.truncate(length)

        attempt(f"sparse file {name}", make)
        if path.exists() and path.stat().st_size != length:
            path.unlink()

    with_data("hole-only", 1 << 20, [])
    with_data("hole-first", (1 << 20) + 1, [(1 << 20, b"x")])
    with_data("hole-last", 1 << 20, [(0, noise(1, 5000))])
    with_data("hole-between", 3 << 20, [(0, b"begin"), (1 << 20, noise(2, 70_000)), ((3 << 20) - 3, b"end")])
    with_data("odd-end", (1 << 20) + 13, [(0, b"x")])
    with_data("many-holes", 400 * 65536, [(index * 65536, noise(index, 4096)) for index in range(0, 400, 2)])
    with_data("above-8-gib", 8 * GIB + 5, [(0, b"begin"), (4 * GIB, noise(3, 100_000)), (8 * GIB, b"end..")])
    with_data("above-64-gib", 64 * GIB + 1, [(64 * GIB, b"!")])


def symbolic_links(top):
    cases = {
        "relative": "../sizes/512",
        "absolute": "/etc/passwd",
        "dangling": "no/such/file",
        "self": "self",
        "directory": "..",
        "newline": "line\nbreak",
        "of-100": "t" * 100,
        "of-101": "t" * 101,
        "of-256": "/".join(["s" * 31] * 8),
        "longest": ("/" + "l" * 255) * 16,
    }
    for name, target in cases.items():
        (top / name).symlink_to(target[:4095])
    os.symlink(b"not-utf-8-\xff\xfe", os.fsencode(top) + b"/bytes")


def special(top):
    os.mkfifo(top / "fifo", 0o620)
    attempt("character device", lambda: os.mknod(top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3)))
    attempt("block device", lambda: os.mknod(top / "loop", stat.S_IFBLK | 0o660, os.makedev(7, 0)))
    attempt("device of large numbers", lambda: os.mknod(top / "large", stat.S_IFCHR | 0o600, os.makedev(4095, 1048575)))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(top, os.O_RDONLY)
        # Through the descriptor: a socket's path holds 107 bytes only.
        attempt("socket", lambda: listener.bind(f"/proc/self/fd/{here}/socket"))
        os.close(here)


def empty_directories(top):
    (top / "empty").mkdir()
    (top / "nested" / "nested" / "nested").mkdir(parents=True)


def names(top):
    base = os.fsencode(top) + b"/"
    cases = [
        b"n" * 255, b"n" * 99, b"n" * 100, b"n" * 101, b"\xe2\x82\xac" * 85, "\u00fcml\u00e4ut".encode(), b"caf\xe9-latin-1", b"\xff", b"\x80\x81\xfe",
        b" leading", b"trailing ", b" ", b"-rf", b"--help", b"...", b"..leading", b".hidden", b"new\nline", b"tab\there", b"bell\x07",
        b"escape\x1b[31m", b"\x01", b"\x7f", b"back\\slash", b"quote'single", b'quote"double', b"star*", b"question?", b"[bracket]", b"{brace}",
        b"$HOME", b"`command`", b"semi;colon", b"pipe|", b"amp&", b"hash#", b"percent%41", b"colon:", b"equals=", b"17 path=evil", b"Case", b"case",
        b"CASE", "e\u0301 decomposed".encode(), "\u00e9 composed".encode(), "\u202eright-to-left".encode(), "\U0001f4fc".encode(),
    ]
    for name in cases:
        with open(base + name, "wb") as file:
            file.write(name)
    os.mkdir(base + b"directory-\xc3\x28\n")
    with open(base + b"directory-\xc3\x28\n/inside", "wb") as file:
        file.write(b"x")


def deep(top):
    """Paths above 4,096 bytes: made, and read, one directory at a time."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(24):
        name = f"{level:02}-" + "d" * 197
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
        with open(os.open("file", os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=here), "wb") as file:
            file.write(f"at level {level}".encode())
    os.symlink("file", "link", dir_fd=here)
    os.link("file", "hard", src_dir_fd=here, dst_dir_fd=here)
    os.close(here)


def many(top):
    """More entries than one getdents call returns, and than one block holds."""
    for index in range(3000):
        write(top / f"{index:05}", str(index).encode())


def interesting(top):
    """Contents that look like what the product writes: archives, headers, magic numbers."""
    write(top / "tar", subprocess.run(["tar", "-C", str(top.parent / "sizes"), "-cf", "-", "512", "513"],
                                      stdout=subprocess.PIPE, check=True).stdout)
    write(top / "pax-header", b"30 mtime=1350244992.023960108\n" + bytes(482))
    write(top / "zstd-magic", b"\x28\xb5\x2f\xfd" * 1000)


def make(top):
    top = Path(top)
    top.mkdir(parents=True)
    for part in [sizes, modes, owners, times, attributes, access_lists, hard_links, sparse, symbolic_links, special,
                 empty_directories, names, deep, many, interesting]:
        directory = top / part.__name__
        directory.mkdir()
        part(directory)
    # What is made above changes the times of its directory; these are the ones that have to come back.
    for index, directory in enumerate(sorted(path for path in top.iterdir() if path.is_dir())):
        os.utime(directory, ns=(0, 1_600_000_000 * SECOND + index * 111_111_111))
    os.utime(top, ns=(0, 1_500_000_000_987_654_321))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    os.umask(0o022)
    make(sys.argv[1])
    # Files without any permission are read by root alone.
    if os.geteuid() != 0:
        for path in Path(sys.argv[1], "modes").iterdir():
            path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR)
    for text in skipped:
        print(f"# left out: {text}")
    os.sync()


if __name__ == "__main__":
    main()
