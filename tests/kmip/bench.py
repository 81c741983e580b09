#!/usr/bin/env python3
"""Loads a KMIP server over TLS and prints how fast it answers: the same client and the same messages for every server.

    bench.py --connect HOST:PORT --cert FILE --key FILE --ca FILE COMMAND [--connections N] [--seconds S] [--of M]

keys    creates keys, then gets them, each connection one request after the other; lines of `measured NAME: VALUE`
make    creates one key, as those of `locate` are, and prints its Unique Identifier
locate  finds single keys among M by their Application Specific Information

Each connection is a process of its own, and its messages are encoded by ttlv.py, which shares no code with any server.
"""

import argparse
import multiprocessing
import socket
import ssl
import time

import ttlv

SUCCESS = ('ResultStatus', 'Enumeration', 0)


def connect(options):
    """A connection: TLS 1.2 or 1.3, as the server has it."""
    host, port = options.connect.rsplit(':', 1)
    context = ssl.create_default_context(cafile=options.ca)
    context.load_cert_chain(options.cert, options.key)
    plain = socket.create_connection((host, int(port)), timeout=120)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=host)


def ask(server, operation, payload):
    """One request; the payload of its response."""
    version = ('ProtocolVersion', 'Structure', [('ProtocolVersionMajor', 'Integer', 1), ('ProtocolVersionMinor', 'Integer', 2)])
    header = ('RequestHeader', 'Structure', [version, ('BatchCount', 'Integer', 1)])
    item = ('BatchItem', 'Structure', [('Operation', 'Enumeration', operation), ('RequestPayload', 'Structure', payload)])
    server.sendall(ttlv.encode(('RequestMessage', 'Structure', [header, item])))
    head = receive(server, 8)
    _, _, (_, item) = ttlv.decode(head + receive(server, int.from_bytes(head[4:], 'big')))
    fields = {field[0]: field for field in item[2]}
    assert fields['ResultStatus'] == SUCCESS, item
    return fields['ResponsePayload'][2]


def receive(server, length):
    """So many bytes."""
    data = b''
    while len(data) < length:
        part = server.recv(length - len(data))
        assert part, 'the server hung up'
        data += part
    return data


def attribute(name, kind, value):
    """An attribute as KMIP 1.x has them."""
    return ('Attribute', 'Structure', [('AttributeName', 'TextString', name), ('AttributeValue', kind, value)])


def information(number):
    """What a tape library calls a key."""
    return attribute('Application Specific Information', 'Structure', [
        ('ApplicationNamespace', 'TextString', 'LIBRARY-LTO'), ('ApplicationData', 'TextString', f'{number:064X}')])


def create(server, *more):
    """Makes a key of AES-256; its Unique Identifier."""
    attributes = [attribute('Cryptographic Algorithm', 'Enumeration', 3), attribute('Cryptographic Length', 'Integer', 256),
                  attribute('Cryptographic Usage Mask', 'Integer', 12), *more]
    payload = ask(server, 1, [('ObjectType', 'Enumeration', 2), ('TemplateAttribute', 'Structure', attributes)])
    return payload[1][2]


def get(server, uid):
    """Gets a key."""
    return ask(server, 10, [('UniqueIdentifier', 'TextString', uid)])


def timed(seconds, work):
    """Does it as often as there is time for, with its number; how long each took, and what it gave."""
    ends, took, gave = time.monotonic() + seconds, [], []
    while time.monotonic() < ends:
        begun = time.monotonic()
        gave.append(work(len(gave)))
        took.append(time.monotonic() - begun)
    return took, gave


def load(options, barrier, results):
    """One connection of `keys`."""
    server = connect(options)
    barrier.wait()
    created, uids = timed(options.seconds, lambda _: create(server))
    barrier.wait()
    got, _ = timed(options.seconds, lambda number: get(server, uids[number % len(uids)]))
    results.put((created, got))


def keys(options):
    """Creates, and gets."""
    barrier, results = multiprocessing.Barrier(options.connections), multiprocessing.Queue()
    loads = [multiprocessing.Process(target=load, args=(options, barrier, results)) for _ in range(options.connections)]
    for process in loads:
        process.start()
    measured = [results.get(timeout=options.seconds * 4 + 60) for _ in loads]
    for process in loads:
        process.join()
    for what, took in (('creates', [one for created, _ in measured for one in created]),
                       ('gets', [one for _, got in measured for one in got])):
        print(f'measured {options.server}, {what} a second: {len(took) / options.seconds:.0f}')
        print(f'measured {options.server}, {what}, p50 and p99: {centiles(took)}')


def locate(options):
    """Finds keys that lie everywhere among the others."""
    server, count = connect(options), 500
    took = []
    for number in range(0, options.of, max(options.of // count, 1)):
        begun = time.monotonic()
        found = ask(server, 8, [information(number)])
        took.append(time.monotonic() - begun)
        assert len([item for item in found if item[0] == 'UniqueIdentifier']) == 1, (number, found)
    print(f'measured {options.server}, a key located by attribute among {options.of}, p50 and p99: {centiles(took)}')


def centiles(took):
    """The middle one and the one that a hundredth are slower than."""
    took.sort()
    return ' and '.join(f'{took[int(len(took) * share)] * 1000:.2f} ms' for share in (0.5, 0.99))


def main():
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ('--connect', '--cert', '--key', '--ca'):
        parser.add_argument(option, required=True)
    parser.add_argument('--connections', type=int, default=4)
    parser.add_argument('--seconds', type=float, default=4)
    parser.add_argument('--of', type=int, default=0)
    parser.add_argument('--server', default='KMIP')
    parser.add_argument('command', choices=['keys', 'make', 'locate'])
    options = parser.parse_args()
    match options.command:
        case 'keys':
            keys(options)
        case 'make':
            print(create(connect(options), information(0)))
        case 'locate':
            locate(options)


if __name__ == '__main__':
    main()
