"""What the independent reader reports, and how it checks: damage, CRC32C."""
import functools, struct, sys
from datetime import datetime, timezone


class Damage(Exception):
    """Something that is not as the page says it must be."""


damages = []  # all that was reported, in order


def report(message):
    if message not in damages:
        damages.append(message)
        print("damage:", message, file=sys.stderr)


def note(message):
    print("note:", message, file=sys.stderr)


def expect(condition, message):
    if not condition:
        raise Damage(message)


def shown(path):
    """A path of bytes as one line of text."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def when(nanoseconds):
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest:09}"
    except (ValueError, OverflowError, OSError):
        return f"{seconds}.{rest:09}"


# CRC32C. A long text is folded in halves: each byte of the first half is replaced by the four bytes that have the same
# effect M bytes later. bytes.translate and whole numbers of any length do that for all bytes at once, at some 100 MB/s.


def crc_table():
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


TABLE = crc_table()


def zeros(value, count):
    """The register after `count` (few) bytes of zero."""
    for _ in range(count):
        value = TABLE[value & 0xFF] ^ value >> 8
    return value


@functools.cache
def shift_bits(power):
    """What each bit of the register becomes after 2^power bytes of zero."""
    if power == 0:
        return [zeros(1 << bit, 1) for bit in range(32)]
    half = shift_bits(power - 1)
    return [shift(value, half) for value in half]


def shift(value, bits):
    result = 0
    for bit in range(32):
        if value >> bit & 1:
            result ^= bits[bit]
    return result


@functools.cache
def fold_tables(power):
    """For each of the four bytes: which value a byte of the first half has there, 2^power bytes later."""
    values = [shift(byte, shift_bits(power)) for byte in range(256)]
    return [bytes(value >> 8 * at & 0xFF for value in values) for at in range(4)]


def crc32c(data, crc=0):
    """The checksum of what `crc` is the checksum of, and then `data`."""
    crc ^= 0xFFFFFFFF
    if len(data) > 64:
        first = struct.unpack_from("<I", data)[0] ^ crc
        data, crc = struct.pack("<I", first) + bytes(data[4:]), 0
    while len(data) > 64:
        power = (len(data) - 4).bit_length() - 1
        cut = len(data) - (1 << power) - 3  # bytes of the first half; the second half has M + 3
        folded = int.from_bytes(data[cut:], "little")
        for at, table in enumerate(fold_tables(power)):
            folded ^= int.from_bytes(data[:cut].translate(table), "little") << 8 * ((1 << power) - cut + at)
        data = folded.to_bytes((1 << power) + 3, "little")
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c_zeros(crc, count):
    """The checksum of what `crc` is the checksum of, and then `count` bytes of zero."""
    crc ^= 0xFFFFFFFF
    for power in range(count.bit_length()):
        if count >> power & 1:
            crc = shift(crc, shift_bits(power))
    return crc ^ 0xFFFFFFFF
