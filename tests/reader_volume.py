"""Volume labels, blocks, checkpoints: sections 1, 2 and 4 of docs/FORMAT.md."""
import functools, shutil, struct, subprocess
from collections import namedtuple

from reader_cartridge import Cartridge
from reader_checks import Damage, crc32c, expect, report

DATA, SESSION, CATALOG, CHECKPOINT = 1, 2, 3, 4

Block = namedtuple("Block", "kind flags connection session object sequence offset payload")
Checkpoint = namedtuple("Checkpoint", "lbn session number before catalog_lbn catalog_blocks closed catalog_length time")


def zstd_command(data):
    program = shutil.which("zstd")
    expect(program, "the block is compressed and there is no zstd")
    done = subprocess.run([program, "-dcq"], input=data, capture_output=True)
    expect(done.returncode == 0, f"zstd: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def decompress(data, length):
    try:
        from compression.zstd import decompress as method
    except ImportError:
        try:
            from zstandard import ZstdDecompressor

            def method(data):
                return ZstdDecompressor().decompress(data, max_output_size=length)
        except ImportError:
            method = zstd_command
    try:
        return method(data)
    except Damage:
        raise
    except Exception as error:
        raise Damage(f"zstd: {error}") from error


class Fields:
    """Reads the fields of a varint structure one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        expect(self.at + length <= len(self.data), "a structure ends too early")
        self.at += length
        return self.data[self.at - length : self.at]

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def varint(self):
        value = 0
        for at in range(10):
            byte = self.u8()
            value |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                return value
        raise Damage("a varint has more than ten bytes")

    def signed(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def bytes(self):
        return self.take(self.varint())

    def done(self):
        return self.at == len(self.data)


class Volume(Cartridge):
    def __init__(self, path, keys):
        super().__init__(path, keys)
        self.checkpoints, self.headers, self.unprotected = [], {}, 0
        self.copies = {}  # which copy of an object it holds
        self.label = None
        if self.encryption == 0 or not self.records:
            return
        self.read_label()
        self.read_checkpoints()

    def read_label(self):
        try:
            vol1 = self.block(0)
            expect(len(vol1) == 80 and vol1[:4] == b"VOL1" and vol1[79:] == b"3", "this is no VOL1 label")
            expect(vol1[4:10] == self.volser.encode()[:6].ljust(6), f"VOL1 names {vol1[4:10]}")
        except Damage as damage:
            report(f"{self.name} block 0: {damage}")
        header = self.block(1)
        expect(len(header) == 128 and header[:8] == b"CPSTNVOL", "this is no volume header")
        version, self.longest, self.id, barcode, self.labelled, length = struct.unpack_from("<IIQ8sqB", header, 8)
        expect(version == 1, f"the volume's format has version {version}")
        expect(struct.pack("<I", crc32c(header[:124])) == header[124:], "the checksum of the volume header is wrong")
        self.label, self.pool = barcode.decode("ascii").rstrip(), header[41 : 41 + length].decode()
        self.times = struct.unpack("<I", header[104:108])[0]

    @functools.lru_cache(24)
    def framed(self, lbn):
        """A block from lbn 3 on, or the damage that is found there. Each is reported once."""
        try:
            return self.unpack(self.block(lbn))
        except Damage as damage:
            message = f"{self.name} block {lbn}: {damage}"
            report(message)
            return Damage(message)

    def read(self, lbn):
        block = self.framed(lbn)
        if isinstance(block, Damage):
            raise block
        return block

    def unpack(self, raw):
        expect(len(raw) >= 64 and raw[:4] == b"CPB1", "this is no framed block")
        kind, flags, connection, volume, session, object_id, sequence, stored, offset, length, crc = struct.unpack(
            "<BBHQQ16sIIQII", raw[4:64]
        )
        payload = raw[64:]
        expect(crc32c(payload, crc32c(raw[:60])) == crc, "the checksum of the block is wrong")
        expect(volume == self.id, "it belongs to an earlier life of the volume")
        expect(stored == len(payload) and len(raw) <= self.longest, "its length is wrong")
        if flags & 1:
            payload = decompress(payload, length)
        expect(len(payload) == length, f"its payload has {len(payload)} bytes, not {length}")
        return Block(kind, flags, connection, session, object_id, sequence, offset, payload)

    def checkpoint(self, lbn):
        block = self.read(lbn)
        there = block.kind == CHECKPOINT and len(block.payload) == 56 and block.payload[:8] == b"CPCHECK1"
        expect(there, f"{self.name} block {lbn}: no checkpoint stands there")
        number, before, first, blocks, closed, length, time = struct.unpack("<QQQIIQq", block.payload[8:])
        return Checkpoint(lbn, block.session, number, before, first, blocks, closed, length, time)

    def read_checkpoints(self):
        """By the filemarks and by the chain, so that one damaged place hides no more than what stands there."""
        if not self.is_filemark(2):
            report(f"{self.name} block 2: no filemark behind the label")
        marks = [lbn for lbn in range(3, len(self.records)) if self.is_filemark(lbn)]
        self.unprotected = len(self.records) - 1 - (marks[-1] if marks else 2)
        wanted, found = {mark - 1 for mark in marks}, {}
        while wanted:
            lbn = max(wanted)
            wanted.remove(lbn)
            try:
                found[lbn] = self.checkpoint(lbn)
                before = found[lbn].before
                expect(before < lbn, f"{self.name} block {lbn}: the checkpoint before it is {before}")
                if before and before not in found:
                    wanted.add(before)
            except Damage as damage:
                report(f"{self.name}: what the checkpoint in block {lbn} protects is lost: {damage}")
        self.checkpoints = [found[lbn] for lbn in sorted(found)]
        last = None
        for point in self.checkpoints:
            if last is None or last.session != point.session:
                try:
                    self.read_session(last.lbn + 2 if last else 3, point.session)
                except Damage as damage:
                    report(f"{self.name}: no header of session {point.session:016x}: {damage}")
            if last and last.lbn != point.before:
                report(f"{self.name} block {point.lbn}: it names {point.before} as the one before it, not {last.lbn}")
            last = point

    def read_session(self, lbn, session):
        block = self.read(lbn)
        expect(block.kind == SESSION and block.session == session, f"block {lbn} is none")
        fields = Fields(block.payload)
        self.headers[session] = (fields.signed(), fields.bytes().decode(), fields.bytes().decode())

    def catalog(self, point):
        """The joined payloads of a checkpoint's catalog part."""
        parts = []
        for number in range(point.catalog_blocks):
            lbn = point.catalog_lbn + number
            block = self.read(lbn)
            right = (block.kind, block.sequence, block.session) == (CATALOG, number, point.session)
            expect(right, f"{self.name} block {lbn}: not block {number} of the catalog part")
            parts.append(block.payload)
        part = b"".join(parts)
        expect(len(part) == point.catalog_length, f"it has {len(part)} bytes, not {point.catalog_length}")
        return Fields(part)
