"""The numbers of KMIP 1.0 to 2.1: tags and the enumerations that the OASIS cases name (KMIP 1.4, section 9.1.3; KMIP 2.1, section 11)."""

# In the order of their numbers, from 0x420001 on; a hyphen is a number that no version has given away.
TAG_NAMES = """
ActivationDate ApplicationData ApplicationNamespace ApplicationSpecificInformation ArchiveDate
AsynchronousCorrelationValue AsynchronousIndicator Attribute AttributeIndex AttributeName AttributeValue
Authentication BatchCount BatchErrorContinuationOption BatchItem BatchOrderOption BlockCipherMode CancellationResult
Certificate CertificateIdentifier CertificateIssuer CertificateIssuerAlternativeName
CertificateIssuerDistinguishedName CertificateRequest CertificateRequestType CertificateSubject
CertificateSubjectAlternativeName CertificateSubjectDistinguishedName CertificateType CertificateValue
CommonTemplateAttribute CompromiseDate CompromiseOccurrenceDate ContactInformation Credential CredentialType
CredentialValue CriticalityIndicator CRTCoefficient CryptographicAlgorithm CryptographicDomainParameters
CryptographicLength CryptographicParameters CryptographicUsageMask CustomAttribute D DeactivationDate DerivationData
DerivationMethod DerivationParameters DestroyDate Digest DigestValue EncryptionKeyInformation G HashingAlgorithm
InitialDate InitializationVector Issuer IterationCount IVCounterNonce J Key KeyBlock KeyCompressionType
KeyFormatType KeyMaterial KeyPartIdentifier KeyValue KeyWrappingData KeyWrappingSpecification LastChangeDate
LeaseTime Link LinkType LinkedObjectIdentifier MACSignature MACSignatureKeyInformation MaximumItems
MaximumResponseSize MessageExtension Modulus Name NameType NameValue ObjectGroup ObjectType Offset OpaqueDataType
OpaqueDataValue OpaqueObject Operation OperationPolicyName P PaddingMethod PrimeExponentP PrimeExponentQ
PrimeFieldSize PrivateExponent PrivateKey PrivateKeyTemplateAttribute PrivateKeyUniqueIdentifier ProcessStartDate
ProtectStopDate ProtocolVersion ProtocolVersionMajor ProtocolVersionMinor PublicExponent PublicKey
PublicKeyTemplateAttribute PublicKeyUniqueIdentifier PutFunction Q QString Qlength QueryFunction RecommendedCurve
ReplacedUniqueIdentifier RequestHeader RequestMessage RequestPayload ResponseHeader ResponseMessage ResponsePayload
ResultMessage ResultReason ResultStatus RevocationMessage RevocationReason RevocationReasonCode KeyRoleType Salt
SecretData SecretDataType SerialNumber ServerInformation SplitKey SplitKeyMethod SplitKeyParts SplitKeyThreshold
State StorageStatusMask SymmetricKey Template TemplateAttribute TimeStamp UniqueBatchItemID UniqueIdentifier
UsageLimits UsageLimitsCount UsageLimitsTotal UsageLimitsUnit Username ValidityDate ValidityIndicator
VendorExtension VendorIdentification WrappingMethod X Y Password DeviceIdentifier EncodingOption
ExtensionInformation ExtensionName ExtensionTag ExtensionType Fresh MachineIdentifier MediaIdentifier
NetworkIdentifier ObjectGroupMember CertificateLength DigitalSignatureAlgorithm CertificateSerialNumber
DeviceSerialNumber IssuerAlternativeName IssuerDistinguishedName SubjectAlternativeName SubjectDistinguishedName
X_509CertificateIdentifier X_509CertificateIssuer X_509CertificateSubject KeyValueLocation KeyValueLocationValue
KeyValueLocationType KeyValuePresent OriginalCreationDate PGPKey PGPKeyVersion AlternativeName AlternativeNameValue
AlternativeNameType Data SignatureData DataLength RandomIV MACData AttestationType Nonce NonceID NonceValue
AttestationMeasurement AttestationAssertion IVLength TagLength FixedFieldLength CounterLength InitialCounterValue
InvocationFieldLength AttestationCapableIndicator OffsetItems LocatedItems CorrelationValue InitIndicator
FinalIndicator RNGParameters RNGAlgorithm DRBGAlgorithm FIPS186Variation PredictionResistance RandomNumberGenerator
ValidationInformation ValidationAuthorityType ValidationAuthorityCountry ValidationAuthorityURI
ValidationVersionMajor ValidationVersionMinor ValidationType ValidationLevel ValidationCertificateIdentifier
ValidationCertificateURI ValidationVendorURI ValidationProfile ProfileInformation ProfileName ServerURI ServerPort
StreamingCapability AsynchronousCapability AttestationCapability UnwrapMode DestroyAction ShreddingAlgorithm RNGMode
ClientRegistrationMethod CapabilityInformation KeyWrapType BatchUndoCapability BatchContinueCapability
PKCS_12FriendlyName Description Comment AuthenticatedEncryptionAdditionalData AuthenticatedEncryptionTag SaltLength
MaskGenerator MaskGeneratorHashingAlgorithm PSource TrailerField ClientCorrelationValue ServerCorrelationValue
DigestedData CertificateSubjectCN CertificateSubjectO CertificateSubjectOU CertificateSubjectEmail
CertificateSubjectC CertificateSubjectST CertificateSubjectL CertificateSubjectUID CertificateSubjectSerialNumber
CertificateSubjectTitle CertificateSubjectDC CertificateSubjectDNQualifier CertificateIssuerCN CertificateIssuerO
CertificateIssuerOU CertificateIssuerEmail CertificateIssuerC CertificateIssuerST CertificateIssuerL
CertificateIssuerUID CertificateIssuerSerialNumber CertificateIssuerTitle CertificateIssuerDC
CertificateIssuerDNQualifier Sensitive AlwaysSensitive Extractable NeverExtractable ReplaceExisting
Attributes CommonAttributes PrivateKeyAttributes PublicKeyAttributes ExtensionEnumeration ExtensionAttribute
ExtensionParentStructureTag ExtensionDescription ServerName ServerSerialNumber ServerVersion ServerLoad ProductName
BuildLevel BuildDate ClusterInfo AlternateFailoverEndpoints ShortUniqueIdentifier - - CertificateRequestUniqueIdentifier
NISTKeyType AttributeReference CurrentAttribute NewAttribute - - CertificateRequestValue LogMessage ProfileVersion
ProfileVersionMajor ProfileVersionMinor ProtectionLevel ProtectionPeriod QuantumSafe QuantumSafeCapability Ticket
TicketType TicketValue RequestCount Rights Objects Operations Right EndpointRole DefaultsInformation ObjectDefaults
Ephemeral ServerHashedPassword OneTimePassword HashedPassword AdjustmentType PKCS_11Interface PKCS_11Function
PKCS_11InputParameters PKCS_11OutputParameters PKCS_11ReturnCode ProtectionStorageMask ProtectionStorageMasks
InteropFunction InteropIdentifier AdjustmentValue CommonProtectionStorageMasks PrivateProtectionStorageMasks
PublicProtectionStorageMasks ObjectGroups ObjectTypes Constraints Constraint RotateInterval RotateAutomatic
RotateOffset RotateDate RotateGeneration RotateName RotateNameValue RotateNameType RotateLatest
"""

TAGS = {name: 0x420001 + place for place, name in enumerate(TAG_NAMES.split()) if name != '-'}
NAMES = {number: name for name, number in TAGS.items()}

# Names as the XML encoding has them; each is one 32-bit number on the wire.
ENUMERATIONS = {
    'AlternativeNameType': {'UninterpretedTextString': 1, 'URI': 2},
    'BatchErrorContinuationOption': {'Continue': 1, 'Stop': 2, 'Undo': 3},
    'BlockCipherMode': {'CBC': 1, 'ECB': 2, 'CTR': 6, 'GCM': 9, 'XTS': 0xb, 'AESKeyWrapPadding': 0xc, 'NISTKeyWrap': 0xd},
    'CryptographicAlgorithm': {'DES': 1, 'DES3': 2, 'AES': 3, 'RSA': 4, 'HMAC_SHA1': 7, 'HMAC_SHA224': 8, 'HMAC_SHA256': 9,
                               'HMAC_SHA384': 0xa, 'HMAC_SHA512': 0xb},
    'HashingAlgorithm': {'MD5': 3, 'SHA_1': 4, 'SHA_224': 5, 'SHA_256': 6, 'SHA_384': 7, 'SHA_512': 8},
    'KeyFormatType': {'Raw': 1, 'Opaque': 2, 'PKCS_1': 3, 'PKCS_8': 4, 'X_509': 5, 'TransparentSymmetricKey': 7},
    'LinkType': {'ReplacementObjectLink': 0x106, 'ReplacedObjectLink': 0x107, 'PreviousLink': 0x10a, 'NextLink': 0x10b},
    'MaskGenerator': {'MGF1': 1},
    'NameType': {'UninterpretedTextString': 1, 'URI': 2},
    'ObjectType': {'Certificate': 1, 'SymmetricKey': 2, 'PublicKey': 3, 'PrivateKey': 4, 'SplitKey': 5, 'Template': 6,
                   'SecretData': 7, 'OpaqueObject': 8, 'PGPKey': 9},
    'OpaqueDataType': {},
    'Operation': {name: number for number, name in enumerate(
        'Create CreateKeyPair Register ReKey DeriveKey Certify ReCertify Locate Check Get GetAttributes GetAttributeList'
        ' AddAttribute ModifyAttribute DeleteAttribute ObtainLease GetUsageAllocation Activate Revoke Destroy Archive'
        ' Recover Validate Query Cancel Poll Notify Put ReKeyKeyPair DiscoverVersions Encrypt Decrypt Sign'
        ' SignatureVerify MAC MACVerify RNGRetrieve RNGSeed Hash CreateSplitKey JoinSplitKey Import Export Log Login Logout'
        ' DelegatedLogin AdjustAttribute SetAttribute SetEndpointRole PKCS_11 Interop ReProvision SetDefaults SetConstraints'
        ' GetConstraints QueryAsynchronousRequests Process Ping'.split(), 1)},
    'PaddingMethod': {'None': 1, 'OAEP': 2, 'PKCS5': 3, 'PSS': 0xa},
    'AdjustmentType': {'Increment': 1, 'Decrement': 2, 'Negate': 3},
    'InteropFunction': {'Begin': 1, 'End': 2, 'Reset': 3},
    'ProtectionLevel': {'High': 1, 'Low': 2},
    'UniqueIdentifier': {'IDPlaceholder': 1, 'Create': 3, 'Locate': 0xb, 'Register': 0xc, 'ReKey': 0xd},
    'QueryFunction': {'QueryOperations': 1, 'QueryObjects': 2, 'QueryServerInformation': 3, 'QueryApplicationNamespaces': 4,
                      'QueryExtensionList': 5, 'QueryExtensionMap': 6, 'QueryDefaultsInformation': 0xd,
                      'QueryStorageProtectionMasks': 0xe},
    'ResultReason': {'ItemNotFound': 1, 'ResponseTooLarge': 2, 'AuthenticationNotSuccessful': 3, 'InvalidMessage': 4,
                     'OperationNotSupported': 5, 'MissingData': 6, 'InvalidField': 7, 'FeatureNotSupported': 8,
                     'OperationCanceledByRequester': 9, 'CryptographicFailure': 0xa, 'IllegalOperation': 0xb,
                     'PermissionDenied': 0xc, 'ObjectArchived': 0xd, 'IndexOutOfBounds': 0xe,
                     'ApplicationNamespaceNotSupported': 0xf, 'KeyFormatTypeNotSupported': 0x10,
                     'KeyCompressionTypeNotSupported': 0x11, 'EncodingOptionError': 0x12, 'Sensitive': 0x16,
                     'NotExtractable': 0x17, 'NumericRange': 0x1b, 'InvalidDataType': 0x1c, 'ReadOnlyAttribute': 0x1d,
                     'MultiValuedAttribute': 0x1e, 'UnsupportedAttribute': 0x1f, 'AttributeInstanceNotFound': 0x20,
                     'AttributeNotFound': 0x21, 'AttributeReadOnly': 0x22, 'AttributeSingleValued': 0x23,
                     'IncompatibleCryptographicUsageMask': 0x29, 'InvalidAttributeValue': 0x2d,
                     'NonUniqueNameAttribute': 0x35, 'ObjectDestroyed': 0x36, 'ObjectNotFound': 0x37,
                     'UnsupportedProtocolVersion': 0x3f, 'WrongKeyLifecycleState': 0x43,
                     'ProtectionStorageUnavailable': 0x44, 'GeneralFailure': 0x100},
    'ResultStatus': {'Success': 0, 'OperationFailed': 1, 'OperationPending': 2, 'OperationUndone': 3},
    'RevocationReasonCode': {'Unspecified': 1, 'KeyCompromise': 2, 'CACompromise': 3},
    'RNGAlgorithm': {'Unspecified': 1, 'FIPS186_2': 2, 'DRBG': 3, 'NRBG': 4, 'ANSIX9_31': 5, 'ANSIX9_62': 6},
    'SecretDataType': {'Password': 1, 'Seed': 2},
    'State': {'PreActive': 1, 'Active': 2, 'Deactivated': 3, 'Compromised': 4, 'Destroyed': 5, 'DestroyedCompromised': 6},
    'UsageLimitsUnit': {'Byte': 1, 'Object': 2},
    'ValidityIndicator': {'Valid': 1, 'Invalid': 2, 'Unknown': 3},
    'WrappingMethod': {'Encrypt': 1, 'MACSign': 2},
}
ENUMERATIONS['MaskGeneratorHashingAlgorithm'] = ENUMERATIONS['HashingAlgorithm']
ENUMERATIONS['LinkedObjectIdentifier'] = ENUMERATIONS['UniqueIdentifier']
# KMIP 2.x refers to an attribute by its tag.
ENUMERATIONS['AttributeReference'] = TAGS

# The Cryptographic Usage Mask, bit by bit from the lowest.
USAGE = ('Sign Verify Encrypt Decrypt WrapKey UnwrapKey Export MACGenerate MACVerify DeriveKey ContentCommitment KeyAgreement'
         ' CertificateSign CRLSign GenerateCryptogram ValidateCryptogram').split()
