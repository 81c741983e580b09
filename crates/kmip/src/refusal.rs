//! Why an operation was not done.

use std::borrow::Cow;

use crate::enumeration::ResultReason;

/// A refusal as the client gets it: the standard's reason, and words for whoever reads its log. Never anything secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: ResultReason,
    pub(crate) message: Cow<'static, str>,
}

impl Refused {
    pub(crate) fn new(reason: ResultReason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, message: message.into() }
    }

    pub(crate) fn message(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ResultReason::InvalidMessage, message)
    }

    pub(crate) fn field(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ResultReason::InvalidField, message)
    }

    pub(crate) fn denied(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ResultReason::PermissionDenied, message)
    }

    pub(crate) fn feature(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ResultReason::FeatureNotSupported, message)
    }
}
