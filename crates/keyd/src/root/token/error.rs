//! What a token says, as what the operator does about it.

use std::path::PathBuf;

use capstan_keys::KeyError;
use cryptoki::context::Function;
use cryptoki::error::{Error as CryptokiError, RvError};
use thiserror::Error;

/// Why a token did not give the keys.
#[derive(Debug, Error)]
pub enum TokenError {
    /// Operator: the module is not there, or is none.
    #[error(
        "the PKCS#11 module {} cannot be used: install the package of your token's maker, and name its library (SoftHSM's is \
         /usr/lib/softhsm/libsofthsm2.so, package softhsm2)", module.display()
    )]
    Module {
        /// The library.
        module: PathBuf,
        /// What the loader or the module says.
        #[source]
        source: CryptokiError,
    },
    /// Operator: no token at all.
    #[error(
        "the PKCS#11 module {} shows no token that is set up: plug the one labelled {label:?} in, or initialise it \
         (`pkcs11-tool --module ... --init-token`)", module.display()
    )]
    NoToken {
        /// The library.
        module: PathBuf,
        /// What was looked for.
        label: String,
    },
    /// Operator: another token.
    #[error("there is no token labelled {label:?}, only {found}: plug the right one in, or name one of these")]
    NoSuchToken {
        /// What was looked for.
        label: String,
        /// What is there.
        found: String,
    },
    /// Operator: two tokens of one label.
    #[error("there is more than one token labelled {label:?}: take one out, or give it another label")]
    SameLabel {
        /// The label.
        label: String,
    },
    /// Operator: the PIN is wrong.
    #[error(
        "the token {token:?} refuses the PIN: give the user's PIN, and mind that after a few wrong ones it locks itself"
    )]
    WrongPin {
        /// The label.
        token: String,
    },
    /// Operator: too many wrong PINs.
    #[error(
        "the token {token:?} is locked after wrong PINs: its security officer sets a new user PIN \
         (`pkcs11-tool --init-pin --login --login-type so`)"
    )]
    PinLocked {
        /// The label.
        token: String,
    },
    /// Operator: there is no PIN yet, or it must be changed.
    #[error(
        "the user's PIN of token {token:?} is not set or has expired: set one (`pkcs11-tool --init-pin`, `--change-pin`)"
    )]
    PinNotSet {
        /// The label.
        token: String,
    },
    /// Operator: a file that holds a PIN.
    #[error("the file {} cannot be used for a PIN: {reason}", path.display())]
    PinFile {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Operator: the token is there and the root key is not on it.
    #[error(
        "the token {token:?} does not hold this cluster's root key, which was made in the token {expected:?}: plug in that one or \
         its clone; if it is lost for good, restore from the core security backup"
    )]
    KeyMissing {
        /// The token that was asked.
        token: String,
        /// The label of the token that made the key.
        expected: String,
    },
    /// Operator: pulled out while in use.
    #[error(
        "the token {token:?} was removed or reset while in use: plug it in again and repeat, then the PIN is asked for anew"
    )]
    Removed {
        /// The label.
        token: String,
    },
    /// Operator: a token that can do none of what is needed.
    #[error(
        "the token {label:?} has neither AES-GCM nor AES key wrap with padding (CKM_AES_KEY_WRAP_PAD): use another token, or a \
         quorum of passphrases"
    )]
    CannotWrap {
        /// The label.
        label: String,
    },
    /// Medium or attacker: what the token was given to unwrap is not what it wrapped.
    #[error(
        "the token {token:?} does not unwrap the cluster key: `root.sealed` was altered. Take it from another node; if that one does \
         not open either, the token is at fault: restore from the core security backup"
    )]
    Altered {
        /// The label.
        token: String,
    },
    /// Peer: the token refused, for a reason of its own.
    #[error("the token {token:?} refused: see what it says below, and its maker's documentation")]
    Refused {
        /// The label.
        token: String,
        /// What it said.
        #[source]
        source: CryptokiError,
    },
    /// The random generator, or memory.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl TokenError {
    pub(super) fn altered(token: &str) -> Self {
        Self::Altered { token: token.to_owned() }
    }

    pub(super) fn classify(token: &str, error: CryptokiError) -> Self {
        let label = token.to_owned();
        let CryptokiError::Pkcs11(value, function) = &error else {
            return Self::Refused { token: label, source: error };
        };
        match value {
            RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange => Self::WrongPin { token: label },
            RvError::PinLocked => Self::PinLocked { token: label },
            RvError::PinExpired | RvError::UserPinNotInitialized => Self::PinNotSet { token: label },
            RvError::DeviceRemoved
            | RvError::TokenNotPresent
            | RvError::TokenNotRecognized
            | RvError::SessionHandleInvalid
            | RvError::SessionClosed
            | RvError::SlotIdInvalid
            | RvError::UserNotLoggedIn => Self::Removed { token: label },
            RvError::EncryptedDataInvalid
            | RvError::EncryptedDataLenRange
            | RvError::WrappedKeyInvalid
            | RvError::WrappedKeyLenRange => Self::Altered { token: label },
            // What SoftHSM 2.6.1 says of a wrapped key that does not unwrap.
            RvError::GeneralError if matches!(function, Function::UnwrapKey | Function::Decrypt) => {
                Self::Altered { token: label }
            }
            _ => Self::Refused { token: label, source: error },
        }
    }
}
