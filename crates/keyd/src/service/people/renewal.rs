//! The node's own certificate: renewed by itself, from two thirds of its time.
//!
//! And at once where it begins later than now: a clock that was ahead made it out, and by a clock that is right nobody takes it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use capstan_keys::cluster::{CertificateKey, Identity};

use super::super::Service;
use crate::identity::{Peer, PresentedCertificate, Registrar};
use crate::node::Standing;

/// How often it looks whether it is time to: a clock that was set counts soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it waits when that failed: a month is left to try in.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// Renews the node's certificate whenever that is due, for as long as the node runs.
pub(in super::super) async fn renew_own(
    service: &Service,
    registrar: &dyn Registrar,
    mut identity: Identity,
    path: &Path,
    presented: &Arc<PresentedCertificate>,
) {
    loop {
        let mut pause = LOOK_EVERY;
        if service.open_node().is_some_and(|node| node.standing() == Standing::Current) {
            match renewed(registrar, &identity, path, presented, (service.clock)()).await {
                Ok(Some(renewed)) => {
                    tracing::info!(serial = %renewed.certificate().serial, "this node has a new certificate");
                    service.metrics.own_certificate(renewed.certificate().not_after_ns);
                    identity = renewed;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "this node's certificate is not renewed yet");
                    pause = TRY_AGAIN;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// The new identity, if it is time for one. It is on disk before it is shown to anybody.
async fn renewed(
    registrar: &dyn Registrar,
    identity: &Identity,
    path: &Path,
    presented: &PresentedCertificate,
    now_ns: i64,
) -> anyhow::Result<Option<Identity>> {
    let own = identity.certificate();
    let begins_later = now_ns < own.not_before_ns;
    if now_ns < own.renewal_due_ns() && !begins_later {
        return Ok(None);
    }
    let key = CertificateKey::generate()?;
    let peer = Peer { id: own.peer.clone(), serial: own.serial, not_after_ns: own.not_after_ns };
    let issued = registrar.renew(&peer, key.request()).await.map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let identity = key.certified(&issued)?;
    identity.save(path)?;
    presented.replace(&identity).context("the new certificate cannot be shown")?;
    Ok(Some(identity))
}
