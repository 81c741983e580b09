//! What of people and their acts may stand in the audit log: acts, times, users, roles and serial numbers.

use capstan_service::audit::{AuditAction, PublicText};

use super::{Act, CertificateSerial, Denied, PendingId, Refused, RequestDigest};

impl From<Act> for AuditAction {
    fn from(act: Act) -> Self {
        Self::named(act.name())
    }
}

macro_rules! public_texts {
    ($($public:ty),*) => {
        $(impl PublicText for $public {
            fn text(&self) -> String {
                self.to_string()
            }
        })*
    };
}

public_texts!(Act, PendingId, RequestDigest, &CertificateSerial, &Denied, &Refused);
