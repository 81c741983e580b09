"""Compares two trees in everything that a backup promises, and prints each difference.

usage: python3 tests/compare.py SOURCE COPY

Kind, mode, owner, group, size, content, modification time to the nanosecond, extended attributes (access control lists and
capabilities are such), targets, device numbers, which names are one file, and that holes stayed holes. Sockets, which no
archive holds, and owners, where the user is not root, are left out. It walks by descriptors, so that no path is too long.
"""

import os
import stat
import sys

CHUNK = 1 << 20
DIFFERENCES_MAX = 50


class Tree:
    """One side: its entries by path, and which of them are one file."""

    def __init__(self, top):
        self.top = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        self.entries = {b".": os.stat(self.top)}
        self.linked = {}
        self.walk(self.top, b".")

    def walk(self, here, path):
        for name in sorted(os.listdir(f"/proc/self/fd/{here}".encode())):
            entry = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISSOCK(entry.st_mode):
                continue
            below = path + b"/" + name
            self.entries[below] = entry
            if stat.S_ISDIR(entry.st_mode):
                directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                self.walk(directory, below)
                os.close(directory)
            elif entry.st_nlink > 1:
                self.linked.setdefault((entry.st_dev, entry.st_ino), set()).add(below)

    def links(self, path):
        """All names in this tree of the file at a path."""
        entry = self.entries[path]
        return self.linked.get((entry.st_dev, entry.st_ino), {path})

    def parent(self, path):
        """A descriptor of the directory that holds a path, and the path's last part."""
        *parts, name = path.split(b"/")
        here = os.dup(self.top)
        for part in parts[1:]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return here, name

    def attributes(self, path):
        here, name = self.parent(path)
        full = f"/proc/self/fd/{here}/".encode() + name
        try:
            names = os.listxattr(full, follow_symlinks=False)
            return {key: os.getxattr(full, key, follow_symlinks=False) for key in names}
        finally:
            os.close(here)

    def target(self, path):
        here, name = self.parent(path)
        try:
            return os.readlink(name, dir_fd=here)
        finally:
            os.close(here)

    def data(self, path):
        """Offset and content of each chunk that is not all zero; holes are passed over without reading them."""
        here, name = self.parent(path)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        try:
            end, at = os.fstat(file).st_size, 0
            while at < end:
                try:
                    # From the beginning of a chunk, so that both sides cut alike wherever their holes are.
                    at = max(at, os.lseek(file, at, os.SEEK_DATA) // CHUNK * CHUNK)
                except OSError:
                    return
                content = os.pread(file, CHUNK, at)
                if content.strip(b"\0"):
                    yield at, content
                at += CHUNK
        finally:
            os.close(file)


def same_content(one, two, path):
    mine, theirs = one.data(path), two.data(path)
    return all(a == b for a, b in zip(mine, theirs, strict=False)) and next(mine, None) is None and next(theirs, None) is None


def differences(one, two):
    """Each difference as (path, what)."""
    for path in sorted(one.entries.keys() - two.entries.keys()):
        yield path, "missing"
    for path in sorted(two.entries.keys() - one.entries.keys()):
        yield path, "not in the source"
    root = os.geteuid() == 0
    for path in sorted(one.entries.keys() & two.entries.keys()):
        a, b = one.entries[path], two.entries[path]
        if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
            yield path, "is of another kind"
            continue
        fields = ["st_mode", "st_mtime_ns"] + (["st_uid", "st_gid"] if root else [])
        fields += ["st_size"] if stat.S_ISREG(a.st_mode) else []
        fields += ["st_rdev"] if stat.S_ISCHR(a.st_mode) or stat.S_ISBLK(a.st_mode) else []
        for field in fields:
            if getattr(a, field) != getattr(b, field):
                yield path, f"{field} is {getattr(b, field):#o}, was {getattr(a, field):#o}" if field == "st_mode" else (
                    f"{field} is {getattr(b, field)}, was {getattr(a, field)}")
        mine, theirs = one.attributes(path), two.attributes(path)
        if mine != theirs:
            names = [name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)]
            yield path, f"attributes differ: {', '.join(sorted(names))}"
        if not stat.S_ISDIR(a.st_mode) and one.links(path) != two.links(path):
            yield path, f"is one file with {sorted(two.links(path))}, was with {sorted(one.links(path))}"
        if stat.S_ISLNK(a.st_mode) and one.target(path) != two.target(path):
            yield path, f"points to {two.target(path)!r}, did to {one.target(path)!r}"
        if stat.S_ISREG(a.st_mode) and a.st_size == b.st_size:
            if not same_content(one, two, path):
                yield path, "content differs"
            # A file system may round a hole's ends to its blocks; a hole that was filled costs far more.
            if b.st_blocks > 2 * a.st_blocks + 2048:
                yield path, f"holes were filled: {b.st_blocks * 512} bytes on disk, were {a.st_blocks * 512}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    one, two = Tree(sys.argv[1]), Tree(sys.argv[2])
    count = 0
    for path, what in differences(one, two):
        count += 1
        if count <= DIFFERENCES_MAX:
            # The ends of a path tell it apart from others, and the longest fills a screen.
            shown = path if len(path) <= 200 else path[:100] + b"..." + path[-97:]
            print(f"{os.fsdecode(shown)!r}: {what}")
    if count > DIFFERENCES_MAX:
        print(f"and {count - DIFFERENCES_MAX} more")
    print(f"# {len(one.entries)} entries, {count} differences")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
