"""TTLV both ways, from the standard's text and nothing else: KMIP 1.4, section 9.1.

An item is a tuple (tag name, type name, value); a structure's value is a list of items. It shares no code with the server
that it is played against, so that a mistake of one is seen by the other.
"""

import struct

from numbers_of_kmip import NAMES, TAGS

TYPES = ['Structure', 'Integer', 'LongInteger', 'BigInteger', 'Enumeration', 'Boolean', 'TextString', 'ByteString', 'DateTime',
         'Interval']
FIXED = {'Integer': '>i', 'LongInteger': '>q', 'Enumeration': '>I', 'Boolean': '>Q', 'DateTime': '>q', 'Interval': '>I'}


def encode(item):
    """The bytes of an item."""
    tag, kind, value = item
    if kind == 'Structure':
        body = b''.join(map(encode, value))
    elif kind in FIXED:
        body = struct.pack(FIXED[kind], value)
    elif kind == 'TextString':
        body = value.encode()
    else:
        body = value
    head = TAGS[tag].to_bytes(3, 'big') + bytes([TYPES.index(kind) + 1]) + len(body).to_bytes(4, 'big')
    return head + body + bytes(-len(body) % 8)


def decode(data):
    """The one item that the bytes are."""
    item, rest = take(data)
    assert not rest, f'{len(rest)} bytes behind the message'
    return item


def take(data):
    """The first item of the bytes, and what comes behind it."""
    assert len(data) >= 8, 'an item without a header'
    number, kind, length = int.from_bytes(data[:3], 'big'), TYPES[data[3] - 1], int.from_bytes(data[4:8], 'big')
    end = 8 + length + -length % 8
    assert len(data) >= end and not any(data[8 + length:end]), f'tag {number:06x} is cut off, or its padding is not zero'
    body, tag = data[8:8 + length], NAMES.get(number, f'{number:06x}')
    if kind == 'Structure':
        value = []
        while body:
            item, body = take(body)
            value.append(item)
    elif kind in FIXED:
        value, = struct.unpack(FIXED[kind], body)
    elif kind == 'TextString':
        value = body.decode()
    else:
        value = body
    return (tag, kind, value), data[end:]
