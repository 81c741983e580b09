"""Whether a response is the one that a case expects, as far as the profiles hold a server to it, in any version.

KMIP Profiles 1.4, section 4.1 (permitted test case variations): unique identifiers, times, digests, random numbers, key
material that the server made and what is computed with it, the vendor's name, the random number generator and the words
of an error are the server's own; it may have more attributes than a case lists, in any order, and other operations and
objects than a query of the case tells, as long as every case that is not of key pairs can be played. Everything else must
be equal: the structure, the order of batch items, statuses, reasons, states, and every byte that is computed with a key
that the case gave. A key that the server made must be the same each time, and its digest must be that of it.
"""

import hashlib

from cases import Variable
from numbers_of_kmip import ENUMERATIONS
from versions import foreign

# Whatever they are, they must be there and of the same type.
ANY_VALUE = {'TimeStamp', 'VendorIdentification', 'ResultMessage', 'ServerInformation'}
OWN_ATTRIBUTES = {'Digest', 'Random Number Generator', 'Lease Time', 'Initial Date', 'Last Change Date', 'Original Creation Date'}
# The same, as the tags of KMIP 2.x.
OWN_TAGS = {name.replace(' ', '') for name in OWN_ATTRIBUTES} | {'ShortUniqueIdentifier'}
# Made with random numbers, if the key was, or if the case asks for a random nonce.
COMPUTED = {'KeyMaterial', 'KeyValue', 'Data', 'IVCounterNonce', 'AuthenticatedEncryptionTag', 'MACData'}
# What a query may leave out of what a case tells: it belongs to profiles that are not played.
LEFT_OUT = {'Operation': {ENUMERATIONS['Operation'][name] for name in (
    'Poll Cancel GetUsageAllocation CreateKeyPair Archive Recover ObtainLease ReKeyKeyPair Certify ReCertify Notify Put Sign'
    ' SignatureVerify CreateSplitKey JoinSplitKey').split()},
            'ObjectType': {ENUMERATIONS['ObjectType'][name] for name in 'Certificate PublicKey PrivateKey SplitKey PGPKey'.split()}}


class Mismatch(Exception):
    """What is not as the case has it."""


class Made:
    """What the server has made in all cases so far: some rest on the objects of those before them."""

    def __init__(self):
        self.created, self.materials = set(), {}


class Play:
    """What one case has told so far."""

    def __init__(self, now, made, version):
        self.now, self.made, self.version, self.variables, self.last = now, made, version, {}, {}

    def value(self, variable):
        """What a request is to say for a variable."""
        if variable.name == 'NOW':
            return self.now + variable.offset
        if variable.name in self.variables:
            return self.variables[variable.name]
        # Some cases name a value that their responses do not: it is that of the last response that had the field.
        field = variable.name.rstrip('0123456789').rstrip('_').replace('_', '').lower()
        return self.last[field]

    def fill(self, item):
        """A request with its variables filled in."""
        tag, kind, value = item
        if isinstance(value, Variable):
            return tag, kind, self.value(value)
        return tag, kind, [self.fill(child) for child in value] if kind == 'Structure' else value

    def check(self, request, expected, got):
        """Compares one response, and keeps what it tells."""
        self.remember(got)
        unknown = sorted(set(map(str, foreign(got, self.version))))
        if unknown:
            raise Mismatch(f'{unknown} is not in this version')
        items = children(got, 'BatchItem')
        if len(items) != len(children(expected, 'BatchItem')):
            raise Mismatch(f'{len(items)} batch items')
        for asked, wanted, answered in zip(children(request, 'BatchItem'), children(expected, 'BatchItem'), items):
            self.item(asked, wanted, answered)
        self.structure(field(expected, 'ResponseHeader'), field(got, 'ResponseHeader'), False)

    def item(self, asked, wanted, answered):
        """Compares one batch item."""
        operation = field(wanted, 'Operation')[2]
        payload = field(wanted, 'ResponsePayload')
        answer = field(answered, 'ResponsePayload')
        uid = find(answer, 'UniqueIdentifier') if answer else None
        if operation == ENUMERATIONS['Operation']['Create'] and uid:
            self.made.created.add(uid)
        own = uid in self.made.created or random_nonce(asked, wanted, answered) or operation == ENUMERATIONS['Operation']['RNGRetrieve']
        if payload and operation == ENUMERATIONS['Operation']['Query'] and answer:
            self.query(payload, answer)
        else:
            self.structure(wanted, answered, own)
        if answer:
            self.material(uid, answer)

    def material(self, uid, answer):
        """A key is the same each time that it is got, and its digest is that of it."""
        block = descend(answer, 'SymmetricKey', 'KeyBlock', 'KeyValue', 'KeyMaterial')
        if block and self.made.materials.setdefault(uid, block[2]) != block[2]:
            raise Mismatch('KeyMaterial is not what it was before')
        digests = [descend(attribute, 'AttributeValue', 'DigestValue') for attribute in children(answer, 'Attribute')]
        for digest in digests + [descend(answer, 'Attributes', 'Digest', 'DigestValue')]:
            if digest and uid in self.made.materials:
                if digest[2] != hashlib.sha256(self.made.materials[uid]).digest():
                    raise Mismatch('Digest is not that of the key')

    def query(self, payload, answer):
        """A server tells what it does; a case of another server tells what a client must not trip over."""
        for kind, left_out in LEFT_OUT.items():
            missing = {item[2] for item in children(payload, kind)} - {item[2] for item in children(answer, kind)}
            if missing - left_out:
                raise Mismatch(f'{kind} {sorted(missing)} is not told of')
        rest = [[item for item in items[2] if item[0] not in LEFT_OUT] for items in (payload, answer)]
        self.structure((payload[0], 'Structure', rest[0]), (answer[0], 'Structure', rest[1]), False)

    def structure(self, wanted, got, own):
        """Compares two structures: attributes whatever their order, all else in order."""
        if wanted[0] == 'Attributes':
            self.tagged(wanted, got, own)
            return
        # A reference, and the name of a vendor's attribute, are named by what else they have, as all is.
        lists = ('Attribute', 'AttributeName', 'AttributeReference') if wanted[0] == 'ResponsePayload' else ('Attribute',)
        listed = [split(item[2], *lists) for item in (wanted, got)]
        (names, plain), (found, others) = listed
        self.attributes(names, found, own)
        if [item[0] for item in plain] != [item[0] for item in others]:
            raise Mismatch(f'{wanted[0]} has {[item[0] for item in others]}, not {[item[0] for item in plain]}')
        for one, two in zip(plain, others):
            self.same(one, two, own)

    def attributes(self, wanted, found, own):
        """Every attribute that the case has must be there; others may."""
        for item in wanted:
            errors = []
            if item[0] in ('AttributeName', 'AttributeReference'):
                if item not in found:
                    raise Mismatch(f'no attribute {item[2]}')
                continue
            name = field(item, 'AttributeName')[2]
            for other in found:
                if other[0] == 'Attribute' and field(other, 'AttributeName')[2] == name:
                    try:
                        if name not in OWN_ATTRIBUTES:
                            self.structure((item[0], 'Structure', item[2][1:]), (other[0], 'Structure', other[2][1:]), own)
                        break
                    except Mismatch as mismatch:
                        errors.append(str(mismatch))
            else:
                raise Mismatch(f'{name}: {errors or "is missing"}')

    def tagged(self, wanted, got, own):
        """The same of KMIP 2.x, where an attribute has its tag, and a vendor's a name."""
        for item in wanted[2]:
            errors = []
            for other in got[2]:
                if other[0] == item[0] and (item[0] != 'Attribute' or item[2][:2] == other[2][:2]):
                    try:
                        if item[0] not in OWN_TAGS:
                            self.same(item, other, own)
                        break
                    except Mismatch as mismatch:
                        errors.append(str(mismatch))
            else:
                raise Mismatch(f'{item[0]}: {errors or "is missing"}')

    def same(self, wanted, got, own):
        """Compares two items with the same tag."""
        (tag, kind, value), (_, got_kind, got_value) = wanted, got
        if kind != got_kind:
            raise Mismatch(f'{tag} is of type {got_kind}')
        if tag in ANY_VALUE:
            return
        if isinstance(value, Variable):
            self.bind(tag, value, got_value)
        elif kind == 'Structure':
            self.structure(wanted, got, own)
        elif tag in COMPUTED and own:
            if len(value) != len(got_value):
                raise Mismatch(f'{tag} has {len(got_value)} bytes, not {len(value)}')
        elif value != got_value:
            raise Mismatch(f'{tag} is {got_value!r}, not {value!r}')

    def bind(self, tag, variable, got):
        """A variable keeps the value that it has first."""
        if variable.name == 'NOW':
            if abs(got - self.now - variable.offset) > 120:
                raise Mismatch(f'{tag} is {got - self.now:+} s from now')
        elif self.variables.setdefault(variable.name, got) != got:
            raise Mismatch(f'{tag} is {got!r}, and {variable} was {self.variables[variable.name]!r} before')

    def remember(self, item):
        """Keeps the last value of every field."""
        tag, kind, value = item
        if kind == 'Structure':
            for child in value:
                self.remember(child)
        else:
            self.last[tag.lower()] = value


def children(item, tag):
    """The items of a structure with this tag."""
    return [child for child in item[2] if child[0] == tag]


def field(item, tag):
    """The first of them, if there is any."""
    return next(iter(children(item, tag)), None)


def find(item, tag):
    """The value of a payload's field."""
    found = field(item, tag)
    return found[2] if found else None


def descend(item, *tags):
    """The item at the end of a path."""
    for tag in tags:
        item = item and item[1] == 'Structure' and field(item, tag)
    return item or None


def split(items, *tags):
    """The items with these tags, and the others."""
    return [item for item in items if item[0] in tags], [item for item in items if item[0] not in tags]


def random_nonce(asked, wanted, answered):
    """Whether the server drew the nonce: the request gave none, and the response does."""
    payload, answer = field(wanted, 'ResponsePayload'), field(answered, 'ResponsePayload')
    return bool(payload and answer and field(payload, 'IVCounterNonce') and field(answer, 'IVCounterNonce')
                and not field(field(asked, 'RequestPayload'), 'IVCounterNonce'))
