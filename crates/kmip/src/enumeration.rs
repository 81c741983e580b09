//! The enumerations of KMIP 1.0 to 2.1 that decide something here (KMIP 1.4, section 9.1.3.2; KMIP 2.1, section 11).
//!
//! An enumeration that is only kept and given back (a link's type, a name's type) stays the number that it came as.

macro_rules! enumerations {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[allow(missing_docs, reason = "the names are the standard's")]
            pub enum $name {
                $($variant = $number),*
            }

            impl $name {
                /// All of them, in the order of their numbers.
                pub const ALL: &[Self] = &[$(Self::$variant),*];

                /// The one with this number, if it is one of them.
                pub fn from_number(number: u32) -> Option<Self> {
                    match number {
                        $($number => Some(Self::$variant),)*
                        _ => None,
                    }
                }

                /// Its name as the standard has it, without blanks.
                pub fn name(self) -> &'static str {
                    match self {
                        $(Self::$variant => stringify!($variant)),*
                    }
                }
            }

            impl From<$name> for u32 {
                fn from(value: $name) -> Self {
                    value as Self
                }
            }
        )*
    };
}

enumerations! {
    /// What a batch item asks for.
    Operation {
        Create = 0x01 CreateKeyPair = 0x02 Register = 0x03 ReKey = 0x04 DeriveKey = 0x05 Certify = 0x06 ReCertify = 0x07
        Locate = 0x08 Check = 0x09 Get = 0x0a GetAttributes = 0x0b GetAttributeList = 0x0c AddAttribute = 0x0d
        ModifyAttribute = 0x0e DeleteAttribute = 0x0f ObtainLease = 0x10 GetUsageAllocation = 0x11 Activate = 0x12
        Revoke = 0x13 Destroy = 0x14 Archive = 0x15 Recover = 0x16 Validate = 0x17 Query = 0x18 Cancel = 0x19 Poll = 0x1a
        Notify = 0x1b Put = 0x1c ReKeyKeyPair = 0x1d DiscoverVersions = 0x1e Encrypt = 0x1f Decrypt = 0x20 Sign = 0x21
        SignatureVerify = 0x22 Mac = 0x23 MacVerify = 0x24 RngRetrieve = 0x25 RngSeed = 0x26 Hash = 0x27
        CreateSplitKey = 0x28 JoinSplitKey = 0x29 Import = 0x2a Export = 0x2b Log = 0x2c Login = 0x2d Logout = 0x2e
        DelegatedLogin = 0x2f AdjustAttribute = 0x30 SetAttribute = 0x31 SetEndpointRole = 0x32 Pkcs11 = 0x33 Interop = 0x34
        ReProvision = 0x35 SetDefaults = 0x36 SetConstraints = 0x37 GetConstraints = 0x38 QueryAsynchronousRequests = 0x39
        Process = 0x3a Ping = 0x3b
    }
    /// What became of a batch item.
    ResultStatus { Success = 0 OperationFailed = 1 OperationPending = 2 OperationUndone = 3 }
    /// Why a batch item failed. What KMIP 1.x has no number for is told to its clients in that version's words.
    ResultReason {
        ItemNotFound = 0x01 ResponseTooLarge = 0x02 AuthenticationNotSuccessful = 0x03 InvalidMessage = 0x04
        OperationNotSupported = 0x05 MissingData = 0x06 InvalidField = 0x07 FeatureNotSupported = 0x08
        OperationCanceledByRequester = 0x09 CryptographicFailure = 0x0a IllegalOperation = 0x0b PermissionDenied = 0x0c
        ObjectArchived = 0x0d IndexOutOfBounds = 0x0e ApplicationNamespaceNotSupported = 0x0f
        KeyFormatTypeNotSupported = 0x10 KeyCompressionTypeNotSupported = 0x11 EncodingOptionError = 0x12
        KeyValueNotPresent = 0x13 AttestationRequired = 0x14 AttestationFailed = 0x15 Sensitive = 0x16
        NotExtractable = 0x17 ObjectAlreadyExists = 0x18 NumericRange = 0x1b InvalidDataType = 0x1c ReadOnlyAttribute = 0x1d
        MultiValuedAttribute = 0x1e UnsupportedAttribute = 0x1f AttributeInstanceNotFound = 0x20 AttributeNotFound = 0x21
        AttributeReadOnly = 0x22 AttributeSingleValued = 0x23 IllegalObjectType = 0x28
        IncompatibleCryptographicUsageMask = 0x29 InvalidAttributeValue = 0x2d KeyWrapTypeNotSupported = 0x32
        NonUniqueNameAttribute = 0x35 ObjectDestroyed = 0x36 ObjectNotFound = 0x37 UnsupportedProtocolVersion = 0x3f
        WrappingObjectDestroyed = 0x41 WrappingObjectNotFound = 0x42 WrongKeyLifecycleState = 0x43
        ProtectionStorageUnavailable = 0x44 GeneralFailure = 0x100
    }
    /// What a managed object is.
    ObjectType {
        Certificate = 1 SymmetricKey = 2 PublicKey = 3 PrivateKey = 4 SplitKey = 5 Template = 6 SecretData = 7
        OpaqueObject = 8 PgpKey = 9
    }
    /// What is asked about the server.
    QueryFunction {
        Operations = 1 Objects = 2 ServerInformation = 3 ApplicationNamespaces = 4 ExtensionList = 5 ExtensionMap = 6
        AttestationTypes = 7 Rngs = 8 Validations = 9 Profiles = 0x0a Capabilities = 0x0b ClientRegistrationMethods = 0x0c
        DefaultsInformation = 0x0d StorageProtectionMasks = 0x0e
    }
    /// What an attribute is adjusted by.
    AdjustmentType { Increment = 1 Decrement = 2 Negate = 3 }
    /// What a test of interoperability says.
    InteropFunction { Begin = 1 End = 2 Reset = 3 }
    /// The operation whose object an enumerated Unique Identifier means.
    UniqueIdentifierOf { IdPlaceholder = 0x01 Create = 0x03 Locate = 0x0b Register = 0x0c ReKey = 0x0d }
    /// How the rest of a batch goes on after a failure.
    BatchErrorContinuation { Continue = 1 Stop = 2 Undo = 3 }
    /// How key material is laid out.
    KeyFormat { Raw = 1 Opaque = 2 TransparentSymmetricKey = 7 }
    /// What a key is for.
    Algorithm {
        TripleDes = 0x02 Aes = 0x03 HmacSha1 = 0x07 HmacSha224 = 0x08 HmacSha256 = 0x09 HmacSha384 = 0x0a HmacSha512 = 0x0b
    }
    /// How blocks are chained, or keys wrapped.
    BlockCipherMode { Cbc = 1 Ecb = 2 Ctr = 6 Gcm = 9 AesKeyWrapPadding = 0x0c NistKeyWrap = 0x0d }
    /// How a last block is filled.
    PaddingMethod { None = 1 Pkcs5 = 3 }
    /// A hash.
    HashingAlgorithm { Sha1 = 4 Sha224 = 5 Sha256 = 6 Sha384 = 7 Sha512 = 8 }
    /// Why an object is revoked.
    RevocationReasonCode {
        Unspecified = 1 KeyCompromise = 2 CaCompromise = 3 AffiliationChanged = 4 Superseded = 5 CessationOfOperation = 6
        PrivilegeWithdrawn = 7
    }
}

/// Bits of the Cryptographic Usage Mask.
pub(crate) mod usage {
    pub(crate) const ENCRYPT: i32 = 0x04;
    pub(crate) const DECRYPT: i32 = 0x08;
    pub(crate) const WRAP_KEY: i32 = 0x10;
    pub(crate) const MAC_GENERATE: i32 = 0x80;
    pub(crate) const MAC_VERIFY: i32 = 0x100;
}

/// Link types that the server sets.
pub(crate) mod link {
    pub(crate) const REPLACEMENT_OBJECT: u32 = 0x106;
    pub(crate) const REPLACED_OBJECT: u32 = 0x107;
}
