"""Objects, their streams and their members: section 5 of docs/FORMAT.md."""
import bisect
from collections import namedtuple

from reader_checks import Damage, expect, report
from reader_volume import DATA, Fields

FILE, DIRECTORY, SYMLINK, HARD_LINK, FIFO, CHARACTER, BLOCK, DELETED = range(1, 9)

Extent = namedtuple("Extent", "offset length volume first_lbn sequence blocks stored chunk")
Entry = namedtuple("Entry", "path kind flags mode uid gid size mtime fingerprint crc connection offset length target")


def wrapped(value):
    """Modulo 2^64, as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def unpack_entries(packed):
    fields = Fields(packed)
    path, mtime, end = b"", 0, 0
    while not fields.done():
        shared = fields.varint()
        expect(shared <= len(path), "an entry shares more than there is")
        path = path[:shared] + fields.bytes()
        kind, flags, mode, uid, gid, size = fields.u8(), *(fields.varint() for _ in range(5))
        expect(FILE <= kind <= DELETED, f"unknown kind {kind}")
        mtime = wrapped(mtime + fields.signed())
        fingerprint, crc, connection = fields.u32(), fields.u32(), fields.varint()
        offset = (end + fields.signed()) % (1 << 64)
        length = fields.varint()
        end = offset + length
        target = fields.bytes() if kind == HARD_LINK else b""
        yield Entry(path, kind, flags, mode, uid, gid, size, mtime, fingerprint, crc, connection, offset, length, target)


class Image:
    """One copy of an object, from all volumes."""

    def __init__(self, object_id, copy):
        self.id, self.copy = object_id, copy
        self.valid, self.extents, self.entries, self.volumes = {}, {}, [], []

    def name(self):
        return self.id.hex() + (f"/{self.copy}" if self.copy > 1 else "")

    def sort(self):
        self.starts, total = [], 0  # where each connection's stream begins in the archive
        for connection in range(max(self.valid, default=-1) + 1):
            if connection not in self.valid:
                report(f"object {self.name()}: nothing tells the length of connection {connection}")
            self.starts.append(total)
            total += self.valid.get(connection, 0)
        self.length = total
        for extents in self.extents.values():
            extents.sort()
        # Where one path comes twice, the later one counts.
        self.entries.sort(key=lambda entry: (entry.connection, entry.offset))
        by_path = {entry.path: entry for entry in self.entries}
        self.members = {path: by_path[path] for path in sorted(by_path)}

    def start(self, entry):
        expect(entry.connection < len(self.starts), f"connection {entry.connection} is not there")
        return self.starts[entry.connection] + entry.offset

    def piece(self, at, most):
        """Up to `most` bytes of the archive from `at`: what one block holds of them."""
        connection = bisect.bisect_right(self.starts, at) - 1
        at -= self.starts[connection]
        most = min(most, self.valid.get(connection, 0) - at)
        problem = Damage(f"no volume holds byte {at} of connection {connection}")
        for extent in reversed(self.extents.get(connection, [])):
            if extent.offset <= at < extent.offset + extent.length:
                try:
                    number = (at - extent.offset) // extent.chunk
                    block = extent.volume.read(extent.first_lbn + number)
                    self.check(block, connection, extent, number)
                    data = block.payload[at - block.offset :][:most]
                    expect(data, f"block {block.sequence} of connection {connection} does not hold byte {at}")
                    return data
                except Damage as damage:
                    problem = damage
        raise problem

    def check(self, block, connection, extent, number):
        lbn = extent.first_lbn + number
        offset = extent.offset + number * extent.chunk
        length = min(extent.chunk, extent.offset + extent.length - offset)
        right = (DATA, self.id, connection, extent.sequence + number, offset, length)
        is_there = (block.kind, block.object, block.connection, block.sequence, block.offset, len(block.payload))
        if number >= extent.blocks or right != is_there:
            message = f"{extent.volume.name} block {lbn}: it is not the block that its extent says"
            report(message)
            raise Damage(message)


class Window:
    """Bytes `begin` to `end` of an image's archive as a file, for tarfile."""

    def __init__(self, image, begin, end):
        self.image, self.begin, self.end, self.at = image, begin, end, begin

    def read(self, length=-1):
        stop = self.end if length < 0 else min(self.at + length, self.end)
        pieces = []
        while self.at < stop:
            pieces.append(self.image.piece(self.at, stop - self.at))
            self.at += len(pieces[-1])
        return b"".join(pieces)

    def seekable(self):
        return True

    def tell(self):
        return self.at - self.begin

    def seek(self, position, whence=0):
        self.at = position + (self.begin, self.at, self.end)[whence]
        return self.tell()


Object = namedtuple("Object", "id source client policy kind state base copy chunk started ended expires")


def read_object(fields):
    object_id = fields.take(16)
    source, client, policy = fields.bytes(), fields.bytes().decode(), fields.bytes().decode()
    kind, state = fields.u8(), fields.u8()
    base = fields.take(16) if fields.u8() else None
    copy, chunk, *times = fields.u8(), fields.varint(), *(fields.signed() for _ in range(3))
    return Object(object_id, source, client, policy, kind, state, base, copy, chunk, *times)


def read_catalog(volumes):
    """All images that the volumes' catalog parts name, each under its id and copy."""
    images = {}
    points = [(point.time, volume, point) for volume in volumes for point in volume.checkpoints]
    for _, volume, point in sorted(points, key=lambda known: known[0]):
        try:
            read_part(volume, volume.catalog(point), images)
        except (Damage, UnicodeDecodeError) as damage:
            report(f"{volume.name}: the catalog part of checkpoint {point.lbn} is lost: {damage}")
    for image in images.values():
        image.sort()
    return images


def read_part(volume, fields, images):
    for _ in range(fields.varint()):
        about = read_object(fields)
        volume.copies[about.id] = about.copy
        image = images.setdefault((about.id, about.copy), Image(about.id, about.copy))
        image.about = about
        if volume.name not in image.volumes:
            image.volumes.append(volume.name)

    def image_of(object_id):
        expect(object_id in volume.copies, f"object {object_id.hex()} is not described")
        return images[object_id, volume.copies[object_id]]

    for _ in range(fields.varint()):
        image = image_of(fields.take(16))
        connection, valid = fields.varint(), fields.varint()
        image.valid[connection] = max(valid, image.valid.get(connection, 0))
    for _ in range(fields.varint()):
        image = image_of(fields.take(16))
        connection, sequence, lbn, blocks, offset, length, stored = (fields.varint() for _ in range(7))
        extents = image.extents.setdefault(connection, [])
        extents.append(Extent(offset, length, volume, lbn, sequence, blocks, stored, image.about.chunk))
    for _ in range(fields.varint()):
        image = image_of(fields.take(16))
        image.entries += unpack_entries(fields.bytes())
    fields.bytes()
    expect(fields.done(), "more stands behind a catalog part")
