"""The virtual cartridge and its encryption: sections 8 and 3 of docs/FORMAT.md."""
import fcntl, functools, hmac, os, struct
from collections import namedtuple

from reader_checks import Damage, crc32c, expect, note, report

HEADER, MEMORY = 36, 4096  # a record's header; where records begin


def key_tag(key):
    return hmac.digest(key, b"capstan key tag v1", "sha256")[:16]


def hkdf(salt, key, info):
    """HKDF-SHA-256 for a length of 32 bytes, which is one round."""
    return hmac.digest(hmac.digest(salt, key, "sha256"), info + b"\x01", "sha256")


@functools.cache
def cipher(algorithm, volume_key, salt):
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM

    key = hkdf(salt, volume_key, b"capstan mount key v1" + bytes([algorithm]))
    return AESGCM(key) if algorithm == 1 else AESCCM(key, tag_length=16)


Record = namedtuple("Record", "offset kind key length crc")


class Cartridge:
    """A data file: its memory, and where its blocks stand."""

    def __init__(self, path, keys):
        self.name = os.path.basename(path).removesuffix(".tape")
        self.file = open(path, "rb")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Damage("in use by another program") from error
        self.size = os.fstat(self.file.fileno()).st_size
        self.read_memory()
        self.keys = []
        if self.encryption == 2:
            self.keys = [keys.get(tag) for tag in self.tags]
            missing = [tag.hex() for tag, key in zip(self.tags, self.keys) if not key]
            expect(len(missing) < len(self.keys), f"no --key has the tag {', '.join(missing)}")
            if missing:
                note(f"{self.name}: what is under these keys is not read, as no --key has the tag: {', '.join(missing)}")
        self.scan()

    def at(self, offset, length):
        return os.pread(self.file.fileno(), length, offset)

    def read_memory(self):
        copies = []
        for number, offset in enumerate((0, 2048), 1):
            copy = self.at(offset, 512)
            if copy[:8] == b"CPSTNCRT" and struct.pack("<I", crc32c(copy[:508])) == copy[508:]:
                copies.append(copy)
            else:
                report(f"{self.name}: copy {number} of the cartridge memory")
        expect(copies, "no copy of the cartridge memory is valid")
        memory = max(copies, key=lambda copy: struct.unpack("<Q", copy[16:24]))
        version = struct.unpack("<I", memory[8:12])[0]
        expect(version in (1, 2), f"the cartridge memory has version {version}")
        self.volser, self.life = memory[24:32].decode("ascii").rstrip(), memory[48:56]
        self.encryption, self.algorithm, length = memory[57:60]
        self.generation = memory[76 : 76 + length].decode()
        further = memory[108] if version == 2 else 0
        expect(version == 1 or 1 <= further <= 23 and self.encryption == 2, f"{further} further keys")
        self.tags = [memory[60:76]] + [memory[at : at + 16] for at in range(112, 112 + 16 * further, 16)]
        expect(self.encryption <= 2 and (self.encryption != 2 or self.algorithm in (1, 2)), "unknown encryption")

    def record(self, offset):
        """The valid record header that stands there: its lbn and the record; or nothing."""
        header = self.at(offset, HEADER)
        if len(header) < HEADER or header[:12] != b"CPR1" + self.life:
            return None
        kind, key, lbn, length, stored_crc, crc = struct.unpack("<BB2xQIII", header[12:])
        limits = {1: (1, 2097152), 2: (37, 2097188), 3: (0, 0)}.get(kind)
        if limits is None or not limits[0] <= length <= limits[1]:
            return None
        if crc32c(header[:32] + struct.pack("<Q", offset)) != crc:
            return None
        return lbn, Record(offset, kind, key, length, stored_crc)

    def scan(self):
        self.records = []  # by lbn; None for a damaged block
        offset = end = MEMORY
        while True:
            found, lbn = self.record(offset), len(self.records)
            if found is None or found[0] != lbn:
                found = self.search(offset, lbn)
                if found is None:
                    break
                report(f"{self.name}: no valid record header for blocks {lbn} to {found[0] - 1}")
                self.records += [None] * (found[0] - lbn)
            record = found[1]
            offset = record.offset + HEADER + record.length
            if offset > self.size:
                break
            self.records.append(record)
            end = offset
        while self.records and self.records[-1] is None:
            self.records.pop()
        self.behind_end(end)

    def behind_end(self, end):
        """A torn record and an earlier life are no damage; another record that cannot be told from the end may be."""
        rest = self.at(end, HEADER)
        if len(rest) == HEADER and self.record(end) is None and (rest[:4] != b"CPR1" or rest[4:12] == self.life):
            report(f"{self.name}: no valid record header for block {len(self.records)}, and none behind it")
        elif rest:
            note(f"{self.name}: {self.size - end} bytes behind the end of data are not read")

    def search(self, damaged, lbn):
        """The first valid header behind the damaged place that can belong to a later block."""
        mark, at = b"CPR1" + self.life, damaged + 1
        while at < self.size:
            window = self.at(at, 1 << 20)
            found = window.find(mark)
            if found < 0:
                at += max(len(window) - len(mark) + 1, 1)
                continue
            at += found
            valid = self.record(at)
            if valid and 0 < valid[0] - lbn <= (at - damaged) // HEADER:
                return valid
            at += 1
        return None

    def is_filemark(self, lbn):
        return 0 <= lbn < len(self.records) and self.records[lbn] is not None and self.records[lbn].kind == 3

    def block(self, lbn):
        """The block in the clear."""
        expect(0 <= lbn < len(self.records), "behind the end of data")
        record = self.records[lbn]
        expect(record, "the record's header is damaged")
        expect(record.kind != 3, "a filemark stands where a block should")
        expect(record.kind == self.encryption, "plain on an encrypted volume, or encrypted on a plain one")
        stored = self.at(record.offset + HEADER, record.length)
        expect(crc32c(stored) == record.crc, "the checksum of the record is wrong")
        return self.decrypt(lbn, record.key, stored) if record.kind == 2 else stored

    def decrypt(self, lbn, number, stored):
        """§3."""
        from cryptography.exceptions import InvalidTag

        expect(number < len(self.keys), f"it names key number {number}, and the memory has {len(self.keys)}")
        expect(self.keys[number], f"no --key has the tag {self.tags[number].hex()}")

        expect(stored[0] == self.algorithm, "the algorithm is not the volume's")
        nonce = bytes(4) + stored[12:20][::-1]
        try:
            aead = cipher(self.algorithm, self.keys[number], stored[1:12])
            return aead.decrypt(nonce, stored[20:], stored[:20] + struct.pack("<Q", lbn))
        except InvalidTag as error:
            raise Damage("it does not decrypt") from error
