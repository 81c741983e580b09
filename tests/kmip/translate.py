"""The OASIS cases of KMIP 1.4, said in another version.

Down to 1.0: the same messages, without the attributes that a client of that version would not give or get. Up to 2.x, by what the
standard changed: Template-Attribute is Attributes, whose fields have tags of their own (KMIP 2.1, sections 4 and 5); x- attributes
have the vendor "x" (4.60); attributes are referred to by tag (5.5); Add, Modify and Delete Attribute answer with the Unique
Identifier alone (6.1.2, 6.1.13, 6.1.33); and some refusals have reasons of their own (11.48).
"""

from cases import Variable
from numbers_of_kmip import ENUMERATIONS, TAGS
from versions import foreign, has_attribute, has_operation

OPERATION = ENUMERATIONS['Operation']
REASON = ENUMERATIONS['ResultReason']
NEW_OBJECTS = {OPERATION[name] for name in ('Create', 'Register', 'ReKey', 'CreateKeyPair')}
CHANGES = {OPERATION[name] for name in ('AddAttribute', 'ModifyAttribute', 'DeleteAttribute')}
LIFE = {OPERATION[name] for name in ('Activate', 'Revoke', 'Destroy', 'ModifyAttribute')}
USES = {OPERATION[name] for name in ('Encrypt', 'Decrypt', 'MAC', 'MACVerify')}


class NotIn(Exception):
    """The version does not have what a case needs."""


def exchanges(messages, version):
    """A case in another version; one of 2.x is played in 2.x alone, as it stands."""
    translated, written = [], major(messages[0][0])
    if written == 2 and version < (2, 0):
        raise NotIn('a case of 2.x')
    counted = 'UsageLimits' in repr(messages) or 'Usage Limits' in repr(messages)
    for request, response in messages:
        request, response = stripped(request, version), stripped(response, version)
        if version >= (2, 0) and written < 2:
            request, response = two(request, counted), two(response, counted)
        lacking = sorted(set(map(str, foreign(request, version))))
        if lacking:
            raise NotIn(', '.join(lacking))
        translated.append((request, response))
    return translated


def major(request):
    """The major version that a case is written in."""
    header = children(request, 'RequestHeader')[0]
    return children(children(header, 'ProtocolVersion')[0], 'ProtocolVersionMajor')[0][2]


def children(item, tag):
    """The items of a structure with this tag."""
    return [child for child in item[2] if child[0] == tag]


def stripped(message, version):
    """A message with its version, and without the attributes and operations that a response of that version leaves out."""
    def strip(item, request, operation):
        tag, kind, value = item
        if tag in ('ProtocolVersionMajor', 'ProtocolVersionMinor') and operation is None:
            return tag, kind, version[tag.endswith('Minor')]
        if kind != 'Structure':
            return item
        if tag == 'BatchItem':
            operation = (children(item, 'Operation') or [(0, 0, None)])[0][2]
        kept = []
        for child in value:
            name = None if children(item, 'VendorIdentification') else attribute_name(child)
            if name is not None and not has_attribute(version, name):
                if not request:
                    continue
                # A client of that version asks for no such attribute, and gives none.
                if operation not in (OPERATION['GetAttributes'], OPERATION['GetAttributeList']) and operation not in NEW_OBJECTS:
                    raise NotIn(f'attribute {name}')
                continue
            if tag == 'ResponsePayload' and child[0] == 'Operation' and not has_operation(version, child[2]):
                continue
            if tag == 'ResponsePayload' and child[:2] == ('ObjectType', 'Enumeration') and version >= (2, 0) \
                    and child[2] == ENUMERATIONS['ObjectType']['Template']:
                continue
            if tag == 'AttributeValue' and version < (1, 1) and item_is_digest(value) and child[0] == 'KeyFormatType':
                continue
            kept.append(strip(child, request, operation))
        if request and tag == 'RequestPayload' and operation == OPERATION['GetAttributes'] \
                and len(children(item, 'AttributeName')) and not children((tag, kind, kept), 'AttributeName'):
            raise NotIn('the attributes that are asked for')
        return tag, kind, kept
    return strip(message, message[0] == 'RequestMessage', None)


def item_is_digest(fields):
    """Whether these are the fields of a Digest."""
    return any(field[0] == 'DigestValue' for field in fields)


def attribute_name(item):
    """The name of an attribute, or of a field that names one."""
    if item[0] == 'AttributeName':
        return item[2]
    if item[0] == 'Attribute' and item[1] == 'Structure' and not children(item, 'VendorIdentification'):
        return children(item, 'AttributeName')[0][2]
    return None


def two(message, counted):
    """A message in the form of KMIP 2.x."""
    return message[0], message[1], [batch_item(item, counted) if item[0] == 'BatchItem' else item for item in message[2]]


def batch_item(item, counted):
    """A batch item in the form of KMIP 2.x."""
    fields, operation = [], (children(item, 'Operation') or [(0, 0, None)])[0][2]
    for tag, kind, value in item[2]:
        if tag == 'RequestPayload':
            value = request_payload(operation, value)
        elif tag == 'ResponsePayload':
            value = response_payload(operation, value)
        elif tag == 'ResultReason':
            value = reason(operation, value, counted)
        fields.append((tag, kind, value))
    return item[0], item[1], fields


def reason(operation, number, counted):
    """A refusal because of a key's state has a reason of its own; one because its use is counted out has not."""
    if number == REASON['PermissionDenied'] and (operation in LIFE or (operation in USES and not counted)):
        return REASON['WrongKeyLifecycleState']
    return REASON['ObjectNotFound'] if number == REASON['ItemNotFound'] else number


def request_payload(operation, fields):
    """What is asked."""
    plain = [field for field in fields if field[0] not in ('Attribute', 'AttributeName', 'TemplateAttribute')]
    attributes = [attribute(field) for field in fields if field[0] == 'Attribute']
    names = [reference(field[2]) for field in fields if field[0] == 'AttributeName']
    if operation == OPERATION['Locate']:
        return plain + [('Attributes', 'Structure', attributes)]
    if operation in (OPERATION['AddAttribute'], OPERATION['ModifyAttribute']):
        return plain + [('NewAttribute', 'Structure', attributes)]
    if operation in (OPERATION['GetAttributes'], OPERATION['DeleteAttribute']):
        return plain + names
    if operation in NEW_OBJECTS:
        # The attributes stand where the Template-Attribute stood, before the object.
        return [('Attributes', 'Structure', [attribute(child) for child in field[2]]) if field[0] == 'TemplateAttribute' else
                field for field in fields]
    return fields


def response_payload(operation, fields):
    """What is answered."""
    if operation in CHANGES:
        return [field for field in fields if field[0] != 'Attribute']
    if operation == OPERATION['GetAttributes']:
        plain = [field for field in fields if field[0] != 'Attribute']
        return plain + [('Attributes', 'Structure', [attribute(field) for field in fields if field[0] == 'Attribute'])]
    return [reference(field[2]) if field[0] == 'AttributeName' else field for field in fields]


def tag_of(name):
    """The tag of a standard attribute: its name without blanks."""
    return name.replace(' ', '')


def vendor(name):
    """The fields that name an attribute of a client's own."""
    return [('VendorIdentification', 'TextString', name[0]), ('AttributeName', 'TextString', name[2:])]


def reference(name):
    """An attribute's name as 2.x refers to it."""
    if name.startswith(('x-', 'y-')):
        return 'AttributeReference', 'Structure', vendor(name)
    return 'AttributeReference', 'Enumeration', TAGS[tag_of(name)]


def attribute(item):
    """An attribute under its tag."""
    if item[0] != 'Attribute':
        raise NotIn('templates')
    name, value = children(item, 'AttributeName')[0][2], children(item, 'AttributeValue')[0]
    if children(item, 'AttributeIndex'):
        raise NotIn('Attribute Index')
    if isinstance(name, Variable):
        raise NotIn('an attribute without a name')
    if name.startswith(('x-', 'y-')):
        return 'Attribute', 'Structure', vendor(name) + [value]
    return tag_of(name), value[1], value[2]
