#!/usr/bin/env python3
"""Takes the keys out of a key export or a key store without Capstan, after docs/KEYS.md alone.

usage: CAPSTAN_PASSPHRASE=... recover.py FILE      prints a line for each key: tag, barcode, state on record, key in hex
       CAPSTAN_KEY_FILE=... recover.py STORE

A state on record is not one by the clock: that an encryption period or a cryptoperiod is over stands in no record.
Needs python3 and its package `cryptography`; for a passphrase, version 44 or later of it, or `argon2-cffi`.
"""
import hashlib, hmac, os, sqlite3, struct, sys

from cryptography.hazmat.primitives.keywrap import aes_key_unwrap_with_padding

STATES = ["", "generated", "ready", "protect-and-process", "process-only", "deactivated", "compromised", "destroyed"]


def hkdf(key, salt, info):
    extracted = hmac.digest(salt or bytes(32), key, "sha256")
    return hmac.digest(extracted, info.encode() + b"\x01", "sha256")


def argon2(passphrase, parameters, salt):
    memory, iterations, lanes = parameters
    try:
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
    except ImportError:
        from argon2.low_level import Type, hash_secret_raw

        return hash_secret_raw(passphrase, salt, iterations, memory, lanes, 32, Type.ID)
    return Argon2id(salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory).derive(passphrase)


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def check_crc(data):
    assert struct.unpack("<I", data[-4:])[0] == crc32c(data[:-4]), "the checksum is wrong: damaged"
    return data[:-4]


def show(tag, volser, state, wrapped, wrapping):
    key = "-"
    if wrapped is not None:
        plain = aes_key_unwrap_with_padding(wrapping, wrapped)
        assert hmac.digest(plain, b"capstan key tag v1", "sha256")[:16] == tag, "the key is not what its tag says"
        key = plain.hex()
    print(tag.hex(), volser, STATES[state], key)


def read_export(data, passphrase):
    body = check_crc(data)
    signed, mac = body[:-32], body[-32:]
    opening = argon2(passphrase, struct.unpack("<III", body[22:34]), body[34:50])
    export_key = aes_key_unwrap_with_padding(opening, body[50:90])
    expected = hmac.digest(hkdf(export_key, b"", "capstan key export mac v1"), signed, "sha256")
    assert hmac.compare_digest(expected, mac), "the seal does not match: altered"
    wrapping = hkdf(export_key, b"", "capstan key export wrap v1")
    at = 94
    for _ in range(struct.unpack("<I", body[90:94])[0]):
        tag, state, length = signed[at : at + 16], signed[at + 17], signed[at + 18]
        volser = signed[at + 19 : at + 19 + length].decode()
        at += 19 + length + 8
        for _ in range(4):
            at += 1 + 8 * signed[at]
        wrapped = signed[at + 1 : at + 41] if signed[at] else None
        at += 1 + 40 * signed[at]
        show(tag, volser, state, wrapped, wrapping)
    assert at == len(signed)


def read_key_file(path):
    with open(path) as file:
        _, digits = file.read().splitlines()
    return check_crc(bytes.fromhex(digits))


def slot_key(slot, passphrase, file_key):
    """The key that a slot's root key is wrapped under; nothing if the secret is of the other kind."""
    kind, salt = slot[1], slot[14:30]
    if kind == 1 and passphrase is not None:
        return argon2(passphrase, struct.unpack("<III", slot[2:14]), salt)
    if kind == 2 and file_key is not None:
        return hkdf(file_key, salt, "capstan key store key file v1")
    return None


def read_store(path, passphrase, file_key):
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    header = database.execute("SELECT bytes FROM header").fetchone()[0]
    slots, store_id, root = check_crc(header)[29:], header[12:28], None
    assert header[:12] == b"CAPSKEYS\x01\0\0\0" and len(slots) == 70 * header[28]
    for slot in (slots[at : at + 70] for at in range(0, len(slots), 70)):
        opening = slot_key(slot, passphrase, file_key)
        if opening is not None:
            try:
                root = aes_key_unwrap_with_padding(opening, slot[30:])
            except Exception:
                continue
    assert root, "the passphrase or key file opens no slot"
    row_key, set_key = (hkdf(root, store_id, f"capstan key store {purpose} v1") for purpose in ("row", "set"))
    counter, seal = database.execute("SELECT counter, mac FROM seal").fetchone()
    macs = []
    for serial, tag, volser, algorithm, state, created, *times, wrapped, mac in database.execute(
        "SELECT serial, tag, volser, algorithm, state, created_ns, activated_ns, retired_ns, destroyed_ns, imported_ns,"
        " wrapped, mac FROM keys ORDER BY serial"
    ):
        record = tag + bytes([algorithm, state, len(volser)]) + volser.encode() + struct.pack("<q", created)
        record += b"".join(b"\0" if time is None else struct.pack("<bq", 1, time) for time in times)
        record += b"\0" if wrapped is None else b"\1" + wrapped
        assert hmac.digest(row_key, struct.pack("<q", serial) + record, "sha256") == mac, f"record {serial} was altered"
        macs.append(mac)
        show(tag, volser, state, wrapped, hkdf(root, store_id, "capstan key store wrap v1"))
    realm_key = hkdf(root, store_id, "capstan key store realm v1")
    realm_macs = []
    if database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'realm'").fetchone():
        for serial, kind, record, mac in database.execute("SELECT serial, kind, bytes, mac FROM realm ORDER BY serial"):
            message = struct.pack("<qB", serial, kind) + record
            assert hmac.digest(realm_key, message, "sha256") == mac, f"record {serial} of the realm was altered"
            realm_macs.append(mac)
    sealed = struct.pack("<q", counter) + hashlib.sha256(header).digest() + struct.pack("<Q", len(macs)) + b"".join(macs)
    if realm_macs:
        sealed += struct.pack("<Q", len(realm_macs)) + b"".join(realm_macs)
    assert hmac.digest(set_key, sealed, "sha256") == seal, "the seal over all records does not match: altered"


if __name__ == "__main__":
    name, passphrase, key_file = sys.argv[1], os.environ.get("CAPSTAN_PASSPHRASE"), os.environ.get("CAPSTAN_KEY_FILE")
    secret = passphrase.encode() if passphrase is not None else None
    with open(name, "rb") as file:
        contents = file.read()
    if contents.startswith(b"capstan key export v1\n"):
        read_export(contents, secret)
    else:
        read_store(name, secret, read_key_file(key_file) if key_file else None)
