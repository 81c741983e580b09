"""The OASIS test cases: XML in, messages out."""

import datetime
import re
import xml.etree.ElementTree as ElementTree

from numbers_of_kmip import ENUMERATIONS, USAGE


class Variable:
    """A value that a case names and does not know: $NAME, or $NOW-3600."""

    def __init__(self, text):
        self.name, offset = re.fullmatch(r'\$([A-Z_0-9]+?)([+-]\d+)?', text).groups()
        self.offset = int(offset or 0)

    def __repr__(self):
        return f'${self.name}'


def read(path):
    """A case as a list of (request, response)."""
    messages = [message(element) for element in ElementTree.parse(path).getroot()]
    assert len(messages) % 2 == 0, f'{path} has a request without a response'
    return list(zip(messages[::2], messages[1::2]))


def message(element, attribute=None):
    """An element as an item; of an attribute's value, the attribute's name tells the enumeration."""
    tag, kind, text = element.tag, element.get('type', 'Structure'), element.get('value')
    if kind == 'Structure' and text is None:
        children, name = [], attribute
        for child in element:
            children.append(message(child, name))
            if child.tag == 'AttributeName':
                name = child.get('value')
        return tag, kind, children
    if text.startswith('$'):
        # A Key Value that is wrapped is a byte string, and the cases leave its type away.
        return tag, 'ByteString' if kind == 'Structure' else kind, Variable(text)
    return tag, kind, scalar(attribute.replace(' ', '') if tag == 'AttributeValue' else tag, kind, text)


def scalar(tag, kind, text):
    """The value that a text stands for."""
    if kind in ('Integer', 'LongInteger', 'Interval'):
        if re.fullmatch(r'-?\d+', text):
            return int(text)
        return sum(1 << USAGE.index(word) for word in text.replace('|', ' ').split())
    if kind == 'Enumeration':
        return int(text, 16) if text.startswith('0x') else ENUMERATIONS[tag][text]
    if kind == 'Boolean':
        return {'true': 1, 'false': 0}[text]
    if kind == 'DateTime':
        return int(datetime.datetime.fromisoformat(text).timestamp())
    if kind == 'ByteString':
        return bytes.fromhex(text)
    return text
