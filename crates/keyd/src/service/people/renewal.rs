//! The node's own certificate: renewed by itself, from two thirds of its time.
//!
//! And at once where it begins later than now: a clock that was ahead made it out, and by a clock that is right nobody
//! takes it. And where the node was moved to another host, which KMIP clients look for in it. Until then nobody takes
//! it for this node, so where the majority is away just then it asks again soon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use capstan_keys::cluster::{CertificateKey, Identity};
use capstan_service::audit::AuditOrigin;
use capstan_service::enrolment::Registrar;
use capstan_service::housekeeping::NextCheck;
use capstan_service::identity::{Peer, PresentedCertificate};

use super::super::Service;
use super::super::registrar::moved_from;
use crate::node::MajorityContact;

/// How often it looks whether it is time to: a clock that was set counts soon, and whoever looks for a node that was
/// moved waits for it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest wait after it failed: a month is left to try in.
const TRY_AGAIN: Duration = Duration::from_secs(600);
/// The same where nobody takes the certificate any more.
const TRY_AGAIN_SOON: Duration = Duration::from_secs(30);

/// When it may be tried again: after twice as long each time.
#[derive(Default)]
struct Tries {
    failed: Option<(Instant, Duration)>,
}

impl Tries {
    fn may(&self, now: Instant, is_urgent: bool) -> bool {
        let longest = if is_urgent { TRY_AGAIN_SOON } else { TRY_AGAIN };
        self.failed.is_none_or(|(at, wait)| now.duration_since(at) >= wait.min(longest))
    }

    fn fail(&mut self, now: Instant) {
        let wait = self.failed.map_or(LOOK_EVERY, |(_, wait)| (wait * 2).min(TRY_AGAIN));
        self.failed = Some((now, wait));
    }
}

/// The node's own certificate, which is renewed whenever that is due.
pub(in super::super) struct OwnRenewal {
    registrar: Arc<dyn Registrar>,
    identity: Identity,
    path: PathBuf,
    presented: Arc<PresentedCertificate>,
    tries: Tries,
}

impl OwnRenewal {
    /// Of the identity at `path`, which the listeners present.
    pub(in super::super) fn new(
        registrar: Arc<dyn Registrar>,
        identity: Identity,
        path: PathBuf,
        presented: Arc<PresentedCertificate>,
    ) -> Self {
        Self { registrar, identity, path, presented, tries: Tries::default() }
    }

    /// Renews it, if that is due.
    pub(in super::super) async fn check(&mut self, service: &Service) -> NextCheck<'static> {
        if let Some(node) = service.open_node().filter(|node| node.standing() == MajorityContact::Current) {
            let (own, now_ns) = (self.identity.certificate(), (service.clock)());
            let moved = node.view(|view| moved_from(view, &own.peer, &own.serial));
            let begins_later = now_ns < own.not_before_ns;
            let is_urgent = begins_later || moved.is_some() || now_ns >= own.not_after_ns;
            if (is_urgent || now_ns >= own.renewal_due_ns()) && self.tries.may(Instant::now(), is_urgent) {
                if let Some(host) = &moved {
                    tracing::info!(%host, "this node was moved: its certificate is to name its new host");
                }
                match renewed(&*self.registrar, &self.identity, &self.path, &self.presented).await {
                    Ok(renewed) => {
                        tracing::info!(serial = %renewed.certificate().serial, "this node has a new certificate");
                        service.metrics.own_certificate(renewed.certificate().not_after_ns);
                        self.identity = renewed;
                        self.tries = Tries::default();
                    }
                    Err(error) => {
                        tracing::warn!(error = format!("{error:#}"), "this node's certificate is not renewed yet");
                        self.tries.fail(Instant::now());
                    }
                }
            }
        }
        NextCheck::after(LOOK_EVERY)
    }
}

/// A new identity. It is on disk before it is shown to anybody.
async fn renewed(
    registrar: &dyn Registrar,
    identity: &Identity,
    path: &Path,
    presented: &PresentedCertificate,
) -> anyhow::Result<Identity> {
    let own = identity.certificate();
    // A disk that takes nothing is found before anything is put on record.
    identity.save(path)?;
    let key = CertificateKey::generate()?;
    let peer = Peer { id: own.peer.clone(), serial: own.serial, not_after_ns: own.not_after_ns };
    let issued = registrar.renew(&peer, key.request(), AuditOrigin::Here).await;
    let issued = issued.map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let identity = key.certified(&issued)?;
    identity.save(path)?;
    presented.replace(&identity).context("the new certificate cannot be shown")?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes without a certificate that anybody takes were too long: the majority was away for four seconds.
    #[test]
    fn a_certificate_that_nobody_takes_is_asked_for_again_soon() {
        let (mut tries, mut now) = (Tries::default(), Instant::now());
        assert!(tries.may(now, true) && tries.may(now, false));
        tries.fail(now);
        assert!(!tries.may(now, true) && !tries.may(now, false));
        assert!(tries.may(now + LOOK_EVERY, true));
        for _ in 0..12 {
            now += TRY_AGAIN;
            tries.fail(now);
        }
        assert!(!tries.may(now + TRY_AGAIN_SOON / 2, true));
        assert!(tries.may(now + TRY_AGAIN_SOON, true) && !tries.may(now + TRY_AGAIN_SOON, false));
        assert!(tries.may(now + TRY_AGAIN, false));
    }
}
