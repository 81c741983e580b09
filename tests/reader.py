#!/usr/bin/env python3
"""Reads Capstan's virtual cartridges without Capstan. Written from docs/FORMAT.md alone.

usage: reader.py [--key [TAG=]KEY]... CARTRIDGE.tape... --list
       reader.py [--key [TAG=]KEY]... CARTRIDGE.tape... --extract OBJECT|all DIR
       reader.py [--key [TAG=]KEY]... CARTRIDGE.tape... --cat OBJECT

  --list     volumes, their checkpoints, and for each object its members, each read and compared with its checksum
  --extract  writes OBJECT below DIR as its source was then, bases of an incremental object included;
             `all` writes each object below DIR/ID
  --cat      writes the object's pax archive to standard output

KEY and TAG are hex digits; the key of a volume is found by its tag. OBJECT is an id, or its beginning or end, with /COPY
behind it for another copy than the first. Access control lists are not set on what is extracted, all else is as far as
the system lets. What is damaged is named on standard error and left out; the rest is read.

Exit code: 0 all is right, 1 nothing to do it with, 2 the command line is wrong, 3 something was damaged or missing.
Needs Python 3.11 and its package cryptography; zstd where blocks are compressed.
"""
import argparse, os, shutil, stat, sys, tarfile

from reader_cartridge import key_tag
from reader_catalog import BLOCK, CHARACTER, DELETED, DIRECTORY, FIFO, FILE, HARD_LINK, SYMLINK, Window, read_catalog
from reader_checks import Damage, crc32c, crc32c_zeros, damages, expect, note, report, shown, when
from reader_volume import Volume

KINDS = ["?", "file", "directory", "symlink", "hard link", "fifo", "character device", "block device", "deleted"]
FARTHEST = (1 << 63) - 1  # the latest time that an entry can tell; its member tells the seconds
UNREADABLE = 32
FLAGS = {1: "grew", 2: "shrank", 4: "vanished", 8: "changed", 16: "sparse", UNREADABLE: "unreadable"}
CIPHERS = ["", "AES-256-GCM", "AES-256-CCM"]
TAR_TYPES = {
    FILE: tarfile.REGTYPE,
    DIRECTORY: tarfile.DIRTYPE,
    SYMLINK: tarfile.SYMTYPE,
    HARD_LINK: tarfile.LNKTYPE,
    FIFO: tarfile.FIFOTYPE,
    CHARACTER: tarfile.CHRTYPE,
    BLOCK: tarfile.BLKTYPE,
}


# --- the members: section 7 ---


def pax_nanoseconds(text):
    """Seconds with a fraction, exactly."""
    seconds, _, fraction = text.partition(".")
    value = abs(int(seconds)) * 10**9 + int(fraction[:9].ljust(9, "0"))
    return -value if text.startswith("-") else value


class Member:
    """One pax member, its header read and compared with its entry."""

    def __init__(self, image, entry):
        start = image.start(entry)
        window = Window(image, start, start + entry.length)
        try:
            self.tar = tarfile.open(fileobj=window, mode="r:", encoding="utf-8", errors="surrogateescape")
        except tarfile.TarError as error:
            raise Damage(f"no pax header: {error}") from error
        self.entry, self.info = entry, self.tar.firstmember
        expect(self.info, "no pax header stands where the catalog says")
        time = self.info.pax_headers.get("mtime")
        self.mtime = self.info.mtime * 10**9 if time is None else pax_nanoseconds(time)
        self.path, self.target = self.raw(self.info.name), self.raw(self.info.linkname)
        for what, header, catalog in (
            ("path", self.path.rstrip(b"/"), entry.path),
            ("type", self.info.type, TAR_TYPES[entry.kind]),
            ("mode", self.info.mode & 0o7777, entry.mode),
            ("owner", (self.info.uid, self.info.gid), (entry.uid, entry.gid)),
            ("mtime", self.mtime if entry.mtime < FARTHEST else entry.mtime, entry.mtime),
            ("size", self.info.size if entry.kind == FILE else entry.size, entry.size),
            ("target", self.target if entry.kind == HARD_LINK else entry.target, entry.target),
        ):
            expect(header == catalog, f"{what}: the pax header says {header}, the catalog {catalog}")

    @staticmethod
    def raw(text):
        return text.encode("utf-8", "surrogateescape")

    def content(self):
        """Pieces of the content and where they begin; holes are left out. Compares the checksum at the end."""
        if self.entry.kind != FILE:
            return
        crc = at = 0
        file = self.tar.extractfile(self.info)
        for offset, length in self.info.sparse or [(0, self.info.size)]:
            expect(offset >= at, "the pieces of a sparse file overlap")
            crc, at = crc32c_zeros(crc, offset - at), offset
            file.seek(offset)
            while length:
                data = file.read(min(length, 1 << 20))
                expect(data, "the member ends too early")
                yield at, data
                crc, at, length = crc32c(data, crc), at + len(data), length - len(data)
        crc = crc32c_zeros(crc, self.info.size - at)
        expect(crc == self.entry.crc, f"the content's checksum is {crc:08x}, not {self.entry.crc:08x}")

    def attributes(self):
        for name, value in self.info.pax_headers.items():
            if name.startswith("SCHILY.xattr."):
                name = name.removeprefix("SCHILY.xattr.").replace("%3D", "=").replace("%25", "%")
                yield self.raw(name), self.raw(value)


def check(image, entry):
    """Whether all of a member is right, as a word."""
    if entry.kind == DELETED or entry.length == 0:
        return "-"
    try:
        for _ in Member(image, entry).content():
            pass
        return "ok"
    except Damage as damage:
        report(f"object {image.name()}: {shown(entry.path)}: {damage}")
        return "BAD"


# --- commands ---


def list_volume(volume):
    encryption = CIPHERS[volume.algorithm] if volume.encryption == 2 else ["blank", "plain"][volume.encryption]
    print(f"volume {volume.name}: {encryption}, {len(volume.records)} blocks and filemarks")
    if volume.label is None:
        return
    print(f"  label {volume.label}, pool {volume.pool}, id {volume.id:016x}")
    print(f"  labelled {when(volume.labelled)}, {volume.times} times before")
    session = None
    for point in volume.checkpoints:
        if point.session != session:
            session = point.session
            begun, host, software = volume.headers.get(session, (0, "?", "?"))
            print(f"  session {session:016x}: begun {when(begun)} on {host} by {software}")
        closed = ", closed" if point.closed else ""
        print(f"    checkpoint {point.number} in block {point.lbn}: {when(point.time)}{closed}")
    if volume.unprotected:
        print(f"  {volume.unprotected} blocks behind the last checkpoint are not protected")


def list_object(image):
    about = image.about
    kind, state = ["?", "tree", "device", "stream"][about.kind], ["?", "open", "complete"][about.state]
    level = f"incremental to {about.base.hex()}" if about.base else "full"
    print(f"object {image.name()}: {shown(about.source)} of {about.client}, {kind}, {level}, {state}")
    print(f"  begun {when(about.started)} by policy {about.policy}, on {' '.join(image.volumes)}")
    for connection, valid in sorted(image.valid.items()):
        print(f"  connection {connection}: {valid} bytes in {len(image.extents.get(connection, []))} extents")
    for entry in image.members.values():
        flags = "".join(f" ({name})" for bit, name in FLAGS.items() if entry.flags & bit)
        target = " -> " + shown(entry.target) if entry.kind == HARD_LINK else ""
        about = f"{KINDS[entry.kind]:9} {entry.mode:04o} {entry.size:10} {when(entry.mtime)}"
        print(f"  {check(image, entry):3} {about} {shown(entry.path)}{target}{flags}")


class Target:
    """Writes members below a directory."""

    def __init__(self, directory):
        os.makedirs(directory, exist_ok=True)
        self.root, self.directories = os.fsencode(os.path.realpath(directory)), {}

    def place(self, path):
        expect(path and not {b"", b".", b".."} & set(path.split(b"/")), "its path leads elsewhere")
        place = os.path.join(self.root, path)
        expect(os.path.realpath(os.path.dirname(place)) == os.path.dirname(place), "its path leads through a symlink")
        return place

    def remove(self, place):
        if os.path.isdir(place) and not os.path.islink(place):
            shutil.rmtree(place)
        elif os.path.lexists(place):
            os.unlink(place)

    def delete(self, path):
        self.remove(self.place(path))
        self.directories.pop(path, None)

    def write(self, image, entry):
        member, place = Member(image, entry), self.place(entry.path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if entry.kind == DIRECTORY:
            if os.path.islink(place) or not os.path.isdir(place):
                self.remove(place)
                os.mkdir(place, 0o700)
            self.directories[entry.path] = member
            return
        self.delete(entry.path)
        try:
            self.make(member, place)
        except BaseException:
            self.remove(place)  # rather none than half of it
            raise
        if entry.kind != HARD_LINK:
            self.finish(member, place)

    def make(self, member, place):
        kind, info = member.entry.kind, member.info
        if kind == FILE:
            with open(place, "xb") as file:
                for offset, data in member.content():
                    file.seek(offset)
                    file.write(data)
                file.truncate(info.size)
        elif kind == SYMLINK:
            os.symlink(member.target, place)
        elif kind == HARD_LINK:
            target = self.place(member.target)
            expect(os.path.lexists(target), f"its other name {shown(member.target)} is not there")
            os.link(target, place, follow_symlinks=False)
        elif kind == FIFO:
            os.mkfifo(place)
        else:
            node = stat.S_IFCHR if kind == CHARACTER else stat.S_IFBLK
            os.mknod(place, node, os.makedev(info.devmajor, info.devminor))

    def finish(self, member, place):
        if os.geteuid() == 0:
            os.lchown(place, member.entry.uid, member.entry.gid)
        for name, value in member.attributes():
            os.setxattr(place, name, value, follow_symlinks=False)
        if member.entry.kind != SYMLINK:
            os.chmod(place, member.entry.mode)
        os.utime(place, ns=(member.mtime, member.mtime), follow_symlinks=False)

    def close(self):
        """Modes and times of directories, when nothing is written into them any more."""
        for path in sorted(self.directories, reverse=True):
            self.finish(self.directories[path], os.path.join(self.root, path))


def chain(image, images):
    """The object and its bases, the full one first."""
    found = [image]
    while found[-1].about.base:
        base = found[-1].about.base
        copies = sorted(copy for object_id, copy in images if object_id == base)
        if not copies:
            report(f"object {image.name()}: its base {base.hex()} is not on these volumes")
            break
        found.append(images[base, copies[0]])
    return found[::-1]


def extract(image, images, directory):
    target = Target(directory)
    for part in chain(image, images):
        deletions_first = lambda entry: (entry.kind != DELETED, entry.connection, entry.offset)
        for entry in sorted(part.members.values(), key=deletions_first):
            try:
                if entry.kind == DELETED:
                    target.delete(entry.path)
                elif entry.length:
                    target.write(part, entry)
                    if entry.flags & UNREADABLE:
                        what = "not all of it was listed" if entry.kind == DIRECTORY else "zeros stand for a part of it"
                        note(f"object {part.name()}: {shown(entry.path)}: could not be read to its end: {what}")
                else:
                    note(f"object {part.name()}: {shown(entry.path)}: not stored; what its base has of it is left")
            except (Damage, OSError) as problem:
                report(f"object {part.name()}: {shown(entry.path)}: {problem}")
    target.close()


def cat(image, out):
    """The pax archive, less the members that are damaged."""
    at = 0
    members = []
    for entry in image.entries:
        if entry.kind == DELETED or entry.length == 0:
            continue
        try:
            members.append((image.start(entry), entry))
        except Damage as damage:
            report(f"object {image.name()}: {shown(entry.path)}: {damage}")
    for start, entry in sorted(members):
        try:
            if start != at:
                report(f"object {image.name()}: no entry tells of bytes {at} to {start}")
            at = start + entry.length
            for write in (len, out.write):  # first to see that all of it can be read
                window = Window(image, start, at)
                while data := window.read(1 << 20):
                    write(data)
        except Damage as damage:
            report(f"object {image.name()}: {shown(entry.path)}: {damage}")
    if at != image.length:
        report(f"object {image.name()}: no entry tells of bytes {at} to {image.length}")
    out.write(bytes(1024))


def choose(images, name):
    wanted, _, copy = name.lower().partition("/")
    named = lambda digits: wanted and (digits.startswith(wanted) or digits.endswith(wanted))
    found = [image for _, image in sorted(images.items()) if named(image.id.hex()) and copy in ("", str(image.copy))]
    expect(found, f"no object {name} on these volumes")
    expect(len({image.id for image in found}) == 1, f"more than one object is called {name}")
    return found[0]


def read_keys(texts):
    keys = {}
    for text in texts:
        tag, _, key = text.rpartition("=")
        key = bytes.fromhex(key)
        if len(key) != 32 or tag and bytes.fromhex(tag) != key_tag(key):
            raise ValueError(f"this is no key, or not the one its tag says: {text}")
        keys[key_tag(key)] = key
    return keys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("cartridges", nargs="+")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true")
    action.add_argument("--extract", nargs=2, metavar=("OBJECT", "DIR"))
    action.add_argument("--cat", metavar="OBJECT")
    options = parser.parse_args()
    try:
        keys = read_keys(options.key)
    except ValueError as error:
        parser.error(str(error))
    volumes = []
    for path in options.cartridges:
        try:
            volumes.append(Volume(path, keys))
        except (Damage, OSError) as problem:
            report(f"{path}: {problem}")
    images = read_catalog(volumes)
    try:
        if options.list:
            for volume in volumes:
                list_volume(volume)
            for _, image in sorted(images.items()):
                list_object(image)
        elif options.cat:
            cat(choose(images, options.cat), sys.stdout.buffer)
        elif options.extract[0] == "all":
            for object_id in sorted({object_id for object_id, _ in images}):
                extract(choose(images, object_id.hex()), images, os.path.join(options.extract[1], object_id.hex()))
        else:
            extract(choose(images, options.extract[0]), images, options.extract[1])
    except Damage as problem:
        print(f"reader.py: {problem}", file=sys.stderr)
        return 1
    return 3 if damages else 0


if __name__ == "__main__":
    sys.exit(main())
