#!/usr/bin/env python3
"""PyKMIP (Debian: python3-pykmip) as a client of a node.

    pykmip.py --connect HOST:PORT --cert FILE --key FILE --ca FILE COMMAND [UID]

life           a key's whole life at each of KMIP 1.0 to 1.4 and 2.0
create         makes a key and prints its Unique Identifier
get            prints a key in hexadecimal
keep-creating  makes keys until the server goes away; prints each with its SHA-256 once both were answered
check          reads such lines, and fails unless the server still has all of those keys
"""

import argparse
import hashlib
import sys
import warnings

# PyKMIP opens TLS by a function that Python 3.12 has no more.
warnings.simplefilter('ignore', DeprecationWarning)

from kmip import enums  # noqa: E402
from kmip.core.factories.attributes import AttributeFactory  # noqa: E402
from kmip.pie.client import ProxyKmipClient  # noqa: E402
from kmip.pie.exceptions import KmipOperationFailure  # noqa: E402

AES = enums.CryptographicAlgorithm.AES
USES = [enums.CryptographicUsageMask.ENCRYPT, enums.CryptographicUsageMask.DECRYPT]
VERSIONS = [enums.KMIPVersion.KMIP_1_0, enums.KMIPVersion.KMIP_1_1, enums.KMIPVersion.KMIP_1_2, enums.KMIPVersion.KMIP_1_3,
            enums.KMIPVersion.KMIP_1_4, enums.KMIPVersion.KMIP_2_0]
# What an active key is not destroyed for, and what a destroyed one is not got for: 2.0 has reasons of its own.
REASONS = {
    False: (enums.ResultReason.PERMISSION_DENIED, enums.ResultReason.ITEM_NOT_FOUND),
    True: (enums.ResultReason.WRONG_KEY_LIFECYCLE_STATE, enums.ResultReason.OBJECT_DESTROYED),
}


def connect(options, version=enums.KMIPVersion.KMIP_1_4):
    """A client, not yet connected."""
    host, port = options.connect.rsplit(':', 1)
    return ProxyKmipClient(hostname=host, port=int(port), cert=options.cert, key=options.key, ca=options.ca,
                           config_file='/dev/null', kmip_version=version)


def life(client, name, version):
    """Create, get, locate, activate, revoke, destroy."""
    active, destroyed = REASONS[version >= enums.KMIPVersion.KMIP_2_0]
    uid = client.create(AES, 256, name=name, cryptographic_usage_mask=USES)
    key = client.get(uid)
    assert len(key.value) == 32 and key.cryptographic_algorithm == AES, key
    attribute = AttributeFactory().create_attribute(enums.AttributeType.NAME, name_of(name))
    assert client.locate(attributes=[attribute]) == [uid]
    assert 'State' in client.get_attribute_list(uid)
    _, (state,) = client.get_attributes(uid, ['State'])
    assert state.attribute_value.value == enums.State.PRE_ACTIVE, state
    client.activate(uid)
    refused(client.destroy, uid, reason=active)
    client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, uid)
    assert client.get(uid).value == key.value
    client.destroy(uid)
    refused(client.get, uid, reason=destroyed)
    assert client.locate(attributes=[attribute]) == []


def name_of(name):
    """A name as PyKMIP's factories take it."""
    from kmip.core.attributes import Name
    return Name.create(name, enums.NameType.UNINTERPRETED_TEXT_STRING)


def refused(operation, *arguments, reason):
    """Does what must be refused."""
    try:
        operation(*arguments)
    except KmipOperationFailure as failure:
        assert failure.reason == reason, failure
    else:
        raise AssertionError(f'{operation} was not refused')


def keep_creating(options):
    """Creates until the server is gone."""
    with connect(options) as client:
        while True:
            uid = client.create(AES, 256)
            print(uid, hashlib.sha256(client.get(uid).value).hexdigest(), flush=True)


def check(options):
    """Compares what the server has with what it answered."""
    with connect(options) as client:
        for line in sys.stdin:
            uid, digest = line.split()
            assert hashlib.sha256(client.get(uid).value).hexdigest() == digest, uid


def main():
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ('--connect', '--cert', '--key', '--ca'):
        parser.add_argument(option, required=True)
    parser.add_argument('command', choices=['life', 'create', 'get', 'keep-creating', 'check'])
    parser.add_argument('uid', nargs='?')
    options = parser.parse_args()
    if options.command == 'life':
        for version in VERSIONS:
            with connect(options, version) as client:
                life(client, f'life of {version.name}', version)
            print(f'done at KMIP {version.value}')
    elif options.command == 'keep-creating':
        keep_creating(options)
    elif options.command == 'check':
        check(options)
    else:
        with connect(options) as client:
            print(client.create(AES, 256) if options.command == 'create' else client.get(options.uid).value.hex())


if __name__ == '__main__':
    main()
