#!/usr/bin/env python3
"""Makes seeds for the fuzz target `ttlv` of OASIS cases: seeds.py FOLDER VERSION CASE.xml...

Each case, said in that version, becomes one batch of all its items, without the Unique Identifiers that a server would have given: the ID
placeholder stands for them, so that a seed reaches as far as the case does.
"""

import pathlib
import sys

import cases
import translate
import ttlv

NOW = 1_790_000_000


def settled(item):
    """An item without variables."""
    tag, kind, value = item
    if isinstance(value, cases.Variable):
        return tag, kind, {'DateTime': NOW + value.offset, 'TextString': 'unknown', 'ByteString': bytes(16)}[kind]
    if kind == 'Structure':
        unknown = [child for child in value if child[0] == 'UniqueIdentifier' and isinstance(child[2], cases.Variable)]
        value = [settled(child) for child in value if child not in unknown]
    return tag, kind, value


def batch(exchanges):
    """All requests of a case as one."""
    items = [settled(item) for request, _ in exchanges for item in request[2] if item[0] == 'BatchItem']
    header = next(item for item in exchanges[0][0][2] if item[0] == 'RequestHeader')
    fields = [field for field in header[2] if field[0] == 'ProtocolVersion']
    fields += [('BatchErrorContinuationOption', 'Enumeration', 1), ('BatchCount', 'Integer', len(items))]
    return 'RequestMessage', 'Structure', [('RequestHeader', 'Structure', fields)] + items


def main():
    """Writes a file for each case."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    version = tuple(map(int, sys.argv[2].split('.')))
    for path in map(pathlib.Path, sys.argv[3:]):
        seed = ttlv.encode(batch(translate.exchanges(cases.read(path), version)))
        (folder / path.stem.replace('-14', f'-{version[0]}{version[1]}')).write_bytes(seed)


if __name__ == '__main__':
    main()
