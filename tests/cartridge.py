"""Virtual cartridges as files: their records, and how to write a changed one whose checksums hold.

The layout is in docs/FORMAT.md. It is written here a second time on purpose: to forge a block well, as a hand or a
broken controller might, takes no code of ours.
"""

import struct

RECORDS_AT = 4096
HEADER = struct.Struct("<4sQB3xQIII")
MAGIC = b"CPR1"
FILEMARK = 3

TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Record:
    """One block or filemark as it is stored."""

    def __init__(self, kind, stored):
        self.kind = kind
        self.stored = stored

    def __eq__(self, other):
        return (self.kind, self.stored) == (other.kind, other.stored)


class Cartridge:
    """A cartridge file, taken apart."""

    def __init__(self, content):
        self.memory = content[:RECORDS_AT]
        self.records = []
        self.life = None
        at = RECORDS_AT
        while at < len(content):
            magic, life, kind, number, length, data_crc, header_crc = HEADER.unpack_from(content, at)
            stored = content[at + HEADER.size:at + HEADER.size + length]
            expected = header_checksum(content[at:at + 32], at)
            if magic != MAGIC or number != len(self.records) or header_crc != expected or crc32c(stored) != data_crc:
                raise ValueError(f"byte {at} is not as docs/FORMAT.md says")
            self.life = life
            self.records.append(Record(kind, stored))
            at += HEADER.size + length

    def blocks(self):
        """Numbers of the records that are blocks."""
        return [number for number, record in enumerate(self.records) if record.kind != FILEMARK]

    def content(self, records=None):
        """The file again, with these records instead of its own, each with checksums that hold where it stands."""
        parts, at = [self.memory], RECORDS_AT
        for number, record in enumerate(self.records if records is None else records):
            data_crc = crc32c(record.stored) if record.stored else 0
            header = HEADER.pack(MAGIC, self.life, record.kind, number, len(record.stored), data_crc, 0)[:32]
            parts += [header, struct.pack("<I", header_checksum(header, at)), record.stored]
            at += HEADER.size + len(record.stored)
        return b"".join(parts)


def header_checksum(header, at):
    return crc32c(header + struct.pack("<Q", at))
