//! The way back in: as many holders as open the root key, at the node's own machine, let a user enrol anew.
//!
//! People are let in by people who are in. Where nobody is any more, since certificates have ended, passphrases were
//! lost or their week is over, the holders are who is left: they have the root key, and who has that has everything. It
//! goes through the socket of the state directory alone.

use std::sync::Arc;

use capstan_keys::Name;
use capstan_keys::api::{EnrolmentOpened, PeerId, PeerKind, Problem, ShownOnce};
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin, AuditOutcome};
use capstan_service::enrolment::Enrolment;
use capstan_service::problem::Refusal;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Service;
use super::registrar::enrolment_path;
use super::shares::{GivenShare, TokenPin};
use crate::authority::{User, UserStatus};
use crate::desk::Decided;
use crate::path::Path;
use crate::root::{Opens, Pin, Token, Unlocking, UnlockingStage};

/// A passphrase is handed on within days, or asked for anew.
const ENROLMENT_TIME_NS: i64 = 7 * 86_400 * 1_000_000_000;

const REENROLLED: AuditAction = AuditAction::named("enrolment-opened-by-holders");

/// Who is to enrol anew, and what opens the root key.
#[derive(Serialize, Deserialize)]
pub struct Reenrol {
    /// The user.
    pub reenrol: Name,
    /// As many shares of the root key as it takes.
    pub shares: Vec<GivenShare>,
    /// Or the PIN of the token that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenPin>,
}

impl Service {
    /// Opens an enrolment for a user, on the word of the holders.
    pub(super) async fn reenrol(self: &Arc<Self>, asked: Reenrol) -> Result<EnrolmentOpened, Refusal> {
        let node = self.node()?;
        let noted = AuditEntry::new(AuditActor::Nobody, AuditOrigin::Here, REENROLLED).of("user", &asked.reenrol);
        // One guess at a time, as at unlocking.
        let turn = self.unlocking.lock().await;
        let service = self.clone();
        let Reenrol { reenrol: name, shares, token } = asked;
        let opened = tokio::task::spawn_blocking(move || service.opens_root(shares, token));
        let opened = opened.await.map_err(|_| Refusal::failed())?;
        drop(turn);
        if let Err(detail) = opened {
            self.note(noted.came_to(AuditOutcome::Refused { why: "the root key did not open".into() })).await?;
            return Err(Problem::new(403, "not-unlocked", "The root key does not open", detail).into());
        }
        let peer = PeerId { kind: PeerKind::User, name: name.clone() };
        let failed = |_| Refusal::failed();
        let passphrase = EnrolmentPassphrase::random().map_err(failed)?;
        let expires_ns = node.now_ns().saturating_add(ENROLMENT_TIME_NS);
        let enrolment = Enrolment::open(peer.clone(), Vec::new(), &passphrase, expires_ns);
        let enrolment = enrolment.map_err(|_| Refusal::failed())?;
        self.note(noted).await?;
        node.change(|view| {
            let user = view.ledger().other(&format!("user/{name}")).and_then(|bytes| User::decode(bytes).ok());
            match user.map(|user| user.standing) {
                Some(UserStatus::Enabled) => {}
                Some(_) => {
                    return Err(Refusal::conflict(format!("User {name} is disabled: name one who is not.")));
                }
                None => return Err(Refusal::not_found(format!("There is no user {name}."))),
            }
            let put: (Path, Vec<u8>) = (enrolment_path(&peer), enrolment.encode().to_vec());
            Ok(Decided::records(vec![put], Vec::new()))
        })
        .await?;
        let expires = Timestamp::from_nanosecond(i128::from(expires_ns)).unwrap_or_default();
        Ok(EnrolmentOpened { peer: peer.clone(), passphrase: ShownOnce(passphrase), expires })
    }

    /// Whether the root key opens so. It takes a second or so of Argon2 for each share.
    fn opens_root(&self, shares: Vec<GivenShare>, token: Option<TokenPin>) -> Result<(), String> {
        let sealed = self.sealed_root();
        match sealed.opens() {
            Opens::Token { label } => {
                let (Some(TokenPin { pin }), Some(settings)) = (token, &self.settings.token) else {
                    return Err("The root key is in a token: give its PIN (--token).".to_owned());
                };
                let token =
                    Token::open(&settings.module, &label, &Pin::new(&pin)).map_err(|error| error.to_string())?;
                sealed.open_with_token(&token).map(drop).map_err(|error| error.to_string())
            }
            Opens::Quorum { threshold, .. } => {
                let mut opening = Unlocking::default();
                for GivenShare { holder, passphrase } in shares {
                    let share = sealed.open_share(&holder, &passphrase).map_err(|error| error.to_string())?;
                    let stage = opening.give(&sealed, share, (self.clock)()).map_err(|error| error.to_string())?;
                    if stage == UnlockingStage::Unlocked {
                        return Ok(());
                    }
                }
                Err(format!(
                    "It takes {threshold} holders: name them all (--holder), and have each type their passphrase."
                ))
            }
        }
    }
}
