"""Objects, their streams and their members: section 5 of docs/FORMAT.md."""
import bisect
from collections import namedtuple

from reader_checks import Damage, expect, report
from reader_volume import DATA, Fields

FILE, DIRECTORY, SYMLINK, HARD_LINK, FIFO, CHARACTER, BLOCK, DELETED = range(1, 9)
FRAGMENT = 64

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
        target = fields.bytes() if kind == HARD_LINK or flags & FRAGMENT else b""
        yield Entry(path, kind, flags, mode, uid, gid, size, mtime, fingerprint, crc, connection, offset, length, target)


def read_fragment(entry):
    """Where the content of a fragment goes on; the stream that its stream continues, and where that ends, if it does."""
    fields = Fields(entry.target)
    content, _, _ = fields.varint(), fields.varint(), fields.u32()
    return content, (fields.varint(), fields.varint()) if fields.u8() else None


class Image:
    """One copy of an object, from all volumes."""

    def __init__(self, object_id, copy):
        self.id, self.copy = object_id, copy
        self.valid, self.extents, self.entries, self.fragments, self.volumes = {}, {}, [], [], []

    def name(self):
        return self.id.hex() + (f"/{self.copy}" if self.copy > 1 else "")

    def chains(self):
        """Of each stream that another continues: that one, and where the member begins that goes on in it. Ends such
        streams there, and others in front of what came to nothing."""
        said = [(entry, *read_fragment(entry)) for entry in self.fragments]
        following = {}
        for entry, _, before in said:
            if before:
                following.setdefault(before[0], {})[entry.connection] = before[1]
        for connection in sorted(self.valid, reverse=True):
            for entry, content, before in said:
                is_last = entry.connection == connection and entry.offset + entry.length == self.valid[connection]
                if is_last and content < entry.size and not following.get(connection):
                    self.valid[connection] = entry.offset
                    if before:
                        following[before[0]].pop(connection, None)
                    break
        found = {}
        for before, streams in following.items():
            if streams:
                by = max(streams)
                self.valid[before] = end = streams[by]
                holds = lambda entry: entry.connection == before and entry.offset < end <= entry.offset + entry.length
                found[before] = by, min((entry.offset for entry in self.fragments if holds(entry)), default=end)
        return found

    def pieces(self, connection, following):
        """The pieces of streams that come in the place of a stream, each as stream, begin and end."""
        found = []
        for before, (by, begins) in following.items():
            if by == connection:
                found = self.pieces(before, following)[:-1] if begins == 0 else []
                found.append((before, begins, self.valid[before]))
        end = following[connection][1] if connection in following else self.valid[connection]
        return found + [(connection, 0, end)]

    def sort(self):
        following = self.chains()
        # What was written behind a place where another stream goes on was written again there.
        self.entries = [
            entry
            for entry in self.entries
            if entry.connection not in following or entry.offset < self.valid[entry.connection]
        ]
        self.order, self.starts, total = [], [], 0  # the pieces of the archive, and where each begins in it
        for connection in sorted(self.valid):
            if connection in following and following[connection][1] == 0:
                continue  # all of it is of a member that goes on
            for piece in self.pieces(connection, following):
                self.order.append(piece)
                self.starts.append(total)
                total += piece[2] - piece[1]
        self.length = total
        for extents in self.extents.values():
            extents.sort()
        # Where one path comes twice, the later one counts.
        self.entries.sort(key=lambda entry: (entry.connection, entry.offset))
        by_path = {entry.path: entry for entry in self.entries}
        self.members = {path: by_path[path] for path in sorted(by_path)}

    def start(self, entry):
        for (connection, begin, end), start in zip(self.order, self.starts):
            if connection == entry.connection and begin <= entry.offset < end:
                return start + entry.offset - begin
        raise Damage(f"byte {entry.offset} of connection {entry.connection} is not there")

    def piece(self, at, most):
        """Up to `most` bytes of the archive from `at`: what one block holds of them."""
        place = bisect.bisect_right(self.starts, at) - 1
        connection, begin, end = self.order[place]
        at += begin - self.starts[place]
        most = min(most, end - at)
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
        for entry in unpack_entries(fields.bytes()):
            (image.fragments if entry.flags & FRAGMENT else image.entries).append(entry)
    fields.bytes()
    expect(fields.done(), "more stands behind a catalog part")
