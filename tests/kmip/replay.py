#!/usr/bin/env python3
"""Plays OASIS KMIP test cases against a server and prints which pass.

    replay.py --connect HOST:PORT [--cert FILE --key FILE --ca FILE] [--version 2.1] [--table | --row] CASE.xml...

Without --cert, --key and --ca the connection is in the clear. Cases are played in the order of their names over one
connection, as some rest on those before them. Cases of KMIP 1.4 are said in the version that --version names, as far as that has
what they need. With --table the score is the table of docs/KMIP.md, with --row a row of that of the versions. The exit status is 0
when every case that is not asymmetric passes, and every asymmetric one is refused as the standard has it.
"""

import argparse
import pathlib
import re
import socket
import ssl
import sys
import time

import cases
import ttlv
from compare import Made, Mismatch, Play, children, field, find
from numbers_of_kmip import ENUMERATIONS
from translate import NotIn, exchanges as translated
from versions import VERSIONS

# Which of the cases need key pairs and signatures: this server has none, and must say so in the standard's words.
ASYMMETRIC = re.compile(r'AKLC-M-|CS-AC-M-(OAEP-\d+|[1238])-')
REFUSALS = {ENUMERATIONS['ResultReason'][name] for name in ('OperationNotSupported', 'InvalidField', 'FeatureNotSupported')}
PROFILES = {
    'AKLC': 'Asymmetric Key Lifecycle', 'AX': 'Storage Array with Encryption, AES XTS', 'CS-AC': 'Advanced Cryptographic Server',
    'CS-BC': 'Basic Cryptographic Server', 'CS-RNG': 'RNG Cryptographic Server', 'MSGENC': 'HTTPS, JSON and XML encodings: their messages, in TTLV',
    'OMOS': 'Opaque Managed Object Store', 'SASED': 'Storage Array with Self-Encrypting Drives',
    'SKFF': 'Symmetric Key Foundry for FIPS 140-2', 'SKLC': 'Symmetric Key Lifecycle', 'SUITEB': 'Suite B: its messages',
    'TL': 'Tape Library',
}


class Server:
    """A connection."""

    def __init__(self, options):
        host, port = options.connect.rsplit(':', 1)
        self.made = Made()
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        if options.ca:
            context = ssl.create_default_context(cafile=options.ca)
            if options.cert:
                context.load_cert_chain(options.cert, options.key)
            self.socket = context.wrap_socket(self.socket, server_hostname=host)

    def ask(self, request):
        """One request, one response."""
        self.socket.sendall(ttlv.encode(request))
        head = self.receive(8)
        return ttlv.decode(head + self.receive(int.from_bytes(head[4:], 'big')))

    def receive(self, length):
        """So many bytes."""
        data = b''
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise EOFError('the server closed the connection')
            data += part
        return data


def play(server, exchanges, version):
    """Plays a case; raises Mismatch where the server does not keep to it."""
    state = Play(int(time.time()), server.made, version)
    for number, (request, expected) in enumerate(exchanges, 1):
        request = state.fill(request)
        try:
            state.check(request, expected, server.ask(request))
        except Mismatch as mismatch:
            raise Mismatch(f'exchange {number} of {len(exchanges)}: {mismatch}') from None
    return 'pass'


def refused(server, exchanges, version):
    """Plays the first exchange of an asymmetric case; it must be refused with one of the reasons that fit."""
    response = server.ask(Play(int(time.time()), server.made, version).fill(exchanges[0][0]))
    item = children(response, 'BatchItem')[0]
    if find(item, 'ResultStatus') != ENUMERATIONS['ResultStatus']['OperationFailed'] or find(item, 'ResultReason') not in REFUSALS:
        raise Mismatch('an operation on key pairs is not refused as it should be')
    reasons = {number: name for name, number in ENUMERATIONS['ResultReason'].items()}
    operations = {number: name for name, number in ENUMERATIONS['Operation'].items()}
    return f'refused: {reasons[find(item, "ResultReason")]} for {operations[field(item, "Operation")[2]]}'


def profile(name):
    """The profile of a case."""
    return next(short for short in PROFILES if name.startswith(short))


def order(path):
    """SKFF-M-2 before SKFF-M-10."""
    return [int(part) if part.isdigit() else part for part in re.split(r'(\d+)', path.name)]


def table(score):
    """The score by profile, for the documentation."""
    lines = ['| profile | cases | pass | refused as the standard says | fail |', '|---|---|---|---|---|']
    for short, title in PROFILES.items():
        results = [result for name, result in score.items() if profile(name) == short]
        if not results:
            continue
        passed = results.count('pass')
        declined = sum(result.startswith('refused') for result in results)
        lines.append(f'| {title} ({short}) | {len(results)} | {passed} | {declined} | {len(results) - passed - declined} |')
    counts = [sum(int(line.split('|')[column]) for line in lines[2:]) for column in range(2, 6)]
    return '\n'.join(lines + ['| all | ' + ' | '.join(map(str, counts)) + ' |'])


def row(version, score):
    """The score of a version, for the documentation."""
    results = list(score.values())
    lacking, passed = sum(result.startswith('not in') for result in results), results.count('pass')
    declined = sum(result.startswith('refused') for result in results)
    said = f'{version[0]}.{version[1]}'
    return f'| {said} | {len(results)} | {passed} | {declined} | {lacking} | {len(results) - passed - declined - lacking} |'


def main():
    """Plays what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--connect', required=True, metavar='HOST:PORT')
    parser.add_argument('--cert')
    parser.add_argument('--key')
    parser.add_argument('--ca')
    parser.add_argument('--version', default='1.4', choices=['.'.join(map(str, version)) for version in VERSIONS])
    parser.add_argument('--table', action='store_true')
    parser.add_argument('--row', action='store_true')
    parser.add_argument('cases', nargs='+', type=pathlib.Path)
    options = parser.parse_args()
    version = tuple(map(int, options.version.split('.')))
    server, score = Server(options), {}
    for path in sorted(options.cases, key=order):
        try:
            exchanges = translated(cases.read(path), version)
            score[path.stem] = (refused if ASYMMETRIC.match(path.stem) else play)(server, exchanges, version)
        except NotIn as lacking:
            score[path.stem] = f'not in {options.version}: {lacking}'
        except (Mismatch, AssertionError, KeyError) as error:
            score[path.stem] = f'FAIL: {error}'
    if options.table:
        print(table(score))
    elif options.row:
        print(row(version, score))
    else:
        for name, result in score.items():
            print(f'{name:<24} {result}')
    return any(result.startswith('FAIL') for result in score.values())


if __name__ == '__main__':
    sys.exit(main())
