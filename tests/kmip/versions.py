"""What each version of KMIP has, from the lists of changes in the standards: 1.0, 1.1, 1.2, 1.3, 1.4, 2.0, 2.1.

A case of 1.4 is played in another version where that has all of what the case needs; a response must not have anything that
its version does not know.
"""

from numbers_of_kmip import ENUMERATIONS

VERSIONS = [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 0), (2, 1)]

# The version that brought something; what is not named is as old as 1.0.
OPERATIONS = {name: since for since, names in {
    (1, 1): 'ReKeyKeyPair DiscoverVersions',
    (1, 2): 'Encrypt Decrypt Sign SignatureVerify MAC MACVerify RNGRetrieve RNGSeed Hash CreateSplitKey JoinSplitKey',
    (1, 4): 'Import Export',
    (2, 0): 'Log Login Logout DelegatedLogin AdjustAttribute SetAttribute SetEndpointRole PKCS_11 Interop ReProvision',
    (2, 1): 'SetDefaults SetConstraints GetConstraints QueryAsynchronousRequests Process Ping',
}.items() for name in names.split()}
ATTRIBUTES = {
    'Fresh': (1, 1), 'Alternative Name': (1, 2), 'Original Creation Date': (1, 2), 'Random Number Generator': (1, 3),
    'Description': (1, 4), 'Comment': (1, 4), 'Sensitive': (1, 4), 'Always Sensitive': (1, 4), 'Extractable': (1, 4),
    'Never Extractable': (1, 4), 'Short Unique Identifier': (2, 0), 'Key Format Type': (2, 0), 'Opaque Data Type': (2, 0),
    'Protection Storage Mask': (2, 0), 'Protection Level': (2, 0), 'Protection Period': (2, 0), 'Quantum Safe': (2, 0),
    'NIST Key Type': (2, 0), 'PKCS#12 Friendly Name': (1, 4), 'Rotate Name': (2, 1),
}
TAGS = {name: since for since, names in {
    (1, 1): 'EncodingOption',
    (1, 2): 'RandomIV IVLength TagLength DataLength Data MACData CorrelationValue AlternativeNameValue',
    (1, 3): 'InitIndicator FinalIndicator OffsetItems LocatedItems CapabilityInformation RNGParameters',
    (1, 4): 'AuthenticatedEncryptionAdditionalData AuthenticatedEncryptionTag SaltLength MaskGenerator PSource'
            ' ClientCorrelationValue BatchUndoCapability',
    (2, 0): 'Attributes AttributeReference CurrentAttribute NewAttribute ProtectionStorageMask DefaultsInformation',
}.items() for name in names.split()}
# The version that took something away.
GONE = {name: (2, 0) for name in 'TemplateAttribute Template AttributeIndex CustomAttribute OperationPolicyName'.split()}

OPERATION_NAMES = {number: name for name, number in ENUMERATIONS['Operation'].items()}


def has_operation(version, number):
    """Whether a version has an operation."""
    return OPERATIONS.get(OPERATION_NAMES.get(number), (1, 0)) <= version


def has_attribute(version, name):
    """Whether a version has an attribute, by the name that 1.x has for it."""
    return name != 'Operation Policy Name' and ATTRIBUTES.get(name, (1, 0)) <= version


def has_tag(version, tag):
    """Whether a version has a field."""
    return TAGS.get(tag, (1, 0)) <= version < GONE.get(tag, (9, 9))


def foreign(item, version):
    """What there is in a message that its version does not have."""
    tag, kind, value = item
    if not has_tag(version, tag):
        yield tag
    if version < (2, 0) and tag == 'AttributeName' and not value.startswith(('x-', 'y-')) and not has_attribute(version, value):
        yield f'attribute {value}'
    if tag == 'ObjectType' and version >= (2, 0) and value == ENUMERATIONS['ObjectType']['Template']:
        yield 'templates'
    if tag == 'Operation' and kind == 'Enumeration' and not has_operation(version, value):
        yield OPERATION_NAMES.get(value, value)
    if kind == 'Structure':
        for child in value:
            yield from foreign(child, version)
