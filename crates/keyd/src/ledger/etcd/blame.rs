//! What an error of the client means: whether nothing happened, or whether nobody knows.

use std::error::Error as StdError;
use std::fmt;

use etcd_client::Error;
use tonic::Code;

use crate::ledger::LedgerError;

/// What etcd says before it takes a request, as it stands in its `api/v3rpc/rpctypes/error.go`. Its other errors of the
/// same code may come after the request was proposed.
const NO_LEADER: &str = "etcdserver: no leader";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
/// What the client says of an answer that is longer than it takes (tonic's `codec/decode.rs`).
const ANSWER_TOO_LONG: &str = "decoded message length too large";

/// Why one member did not answer.
#[derive(Debug)]
pub(super) struct Failure {
    endpoint: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Late,
    Error(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Late => write!(f, "member {} did not answer in time", self.endpoint),
            Reason::Error(error) => write!(f, "member {}: {error}", self.endpoint),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.reason {
            Reason::Error(Error::GRpcStatus(status)) => status.source(),
            _ => None,
        }
    }
}

/// Why a page of a snapshot was not read.
#[derive(Debug)]
pub(super) enum PageFailure {
    /// The moment that is read is no longer kept.
    Compacted,
    /// The page is longer than an answer may be.
    TooLong,
    /// Everything else.
    Ledger(LedgerError),
}

impl From<LedgerError> for PageFailure {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl PageFailure {
    pub(super) fn into_ledger_error(self) -> LedgerError {
        match self {
            Self::Ledger(error) => error,
            Self::Compacted => LedgerError::Unreachable {
                source: "the ledger is compacted faster than it can be copied: keep more of its history".into(),
            },
            Self::TooLong => LedgerError::Protocol { what: "a record longer than any may be".to_owned() },
        }
    }
}

impl Failure {
    pub(super) fn answered(endpoint: &str, error: Error) -> Self {
        Self { endpoint: endpoint.to_owned(), reason: Reason::Error(error) }
    }

    pub(super) fn late(endpoint: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), reason: Reason::Late }
    }

    fn status(&self) -> Option<&tonic::Status> {
        match &self.reason {
            Reason::Error(Error::GRpcStatus(status)) => Some(status),
            _ => None,
        }
    }

    /// The request was certainly not taken.
    fn never_taken(&self) -> bool {
        let Some(status) = self.status() else { return false };
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<tonic::ConnectError>() {
                return true;
            }
            source = error.source();
        }
        matches!(
            (status.code(), status.message()),
            (Code::Unavailable, NO_LEADER) | (Code::ResourceExhausted, TOO_MANY_REQUESTS)
        )
    }

    /// What a commit that ended so is.
    pub(super) fn of_commit(self) -> LedgerError {
        if self.never_taken() {
            return LedgerError::Unreachable { source: self.into() };
        }
        match self.refusal() {
            Ok(refusal) => refusal,
            Err(unknown) => LedgerError::Unknown { source: unknown.into() },
        }
    }

    /// What a question that ended so is: it changed nothing, whatever became of it.
    pub(super) fn of_read(self) -> LedgerError {
        match self.refusal() {
            Ok(refusal) => refusal,
            Err(unreachable) => LedgerError::Unreachable { source: unreachable.into() },
        }
    }

    pub(super) fn of_page(self) -> PageFailure {
        match self.status().map(|status| (status.code(), status.message())) {
            Some((Code::OutOfRange, COMPACTED)) => PageFailure::Compacted,
            Some((Code::OutOfRange | Code::ResourceExhausted, message)) if message.contains(ANSWER_TOO_LONG) => {
                PageFailure::TooLong
            }
            _ => PageFailure::Ledger(self.of_read()),
        }
    }

    /// An answer that says no for good, and changed nothing; else the failure itself.
    fn refusal(self) -> Result<LedgerError, Self> {
        let Some(status) = self.status() else { return Err(self) };
        match (status.code(), status.message()) {
            (Code::ResourceExhausted, NO_SPACE) => Ok(LedgerError::Full { source: self.into() }),
            (Code::InvalidArgument, message) => Ok(LedgerError::Protocol { what: message.to_owned() }),
            (Code::DataLoss, message) => Ok(LedgerError::Protocol {
                what: format!("{message}: a member of etcd differs from the others. Replace it before anything else"),
            }),
            (Code::Unauthenticated | Code::PermissionDenied, _) => Ok(LedgerError::Unusable {
                what: "etcd refuses this node: see its certificate for etcd, and etcd's own users".to_owned(),
                source: Some(self.into()),
            }),
            _ => Err(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, message: &str) -> Failure {
        Failure::answered("http://there", Error::GRpcStatus(tonic::Status::new(code, message)))
    }

    #[test]
    fn what_etcd_says_before_it_takes_a_commit_is_a_no_and_everything_else_is_unknown() {
        for message in [NO_LEADER, "etcdserver: request timed out", "etcdserver: leader changed", "transport error"] {
            let error = failure(Code::Unavailable, message).of_commit();
            let no = matches!(error, LedgerError::Unreachable { .. });
            assert_eq!(no, message == NO_LEADER, "{message}: {error:?}");
            assert!(no || matches!(error, LedgerError::Unknown { .. }), "{message}: {error:?}");
        }
        assert!(matches!(Failure::late("http://there").of_commit(), LedgerError::Unknown { .. }));
        assert!(matches!(Failure::late("http://there").of_read(), LedgerError::Unreachable { .. }));
        assert!(matches!(failure(Code::ResourceExhausted, NO_SPACE).of_commit(), LedgerError::Full { .. }));
        assert!(matches!(
            failure(Code::ResourceExhausted, TOO_MANY_REQUESTS).of_commit(),
            LedgerError::Unreachable { .. }
        ));
    }

    #[test]
    fn a_connection_that_never_was_is_a_no() {
        let connect = tonic::ConnectError(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        let status = tonic::Status::from_error(Box::new(connect));
        let error = Failure::answered("http://there", Error::GRpcStatus(status)).of_commit();
        assert!(matches!(error, LedgerError::Unreachable { .. }), "{error:?}");
    }
}
