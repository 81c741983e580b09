//! The node's own certificate: renewed by itself, from two thirds of its time.
//!
//! And at once where it begins later than now: a clock that was ahead made it out, and by a clock that is right nobody takes it. And where the
//! node was moved to another host, which KMIP clients look for in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use capstan_keys::cluster::{CertificateKey, Identity};

use super::super::Service;
use super::super::registrar::moved_from;
use crate::audit::Origin;
use crate::identity::{Peer, PresentedCertificate, Registrar};
use crate::node::Standing;

/// How often it looks whether it is time to: a clock that was set counts soon, and whoever looks for a node that was moved waits for it.
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
        if let Some(node) = service.open_node().filter(|node| node.standing() == Standing::Current) {
            let (own, now_ns) = (identity.certificate(), (service.clock)());
            let moved = node.view(|view| moved_from(view, &own.peer, &own.serial));
            if let Some(host) = &moved {
                tracing::info!(%host, "this node was moved: its certificate is to name its new host");
            }
            let begins_later = now_ns < own.not_before_ns;
            if begins_later || moved.is_some() || now_ns >= own.renewal_due_ns() {
                match renewed(registrar, &identity, path, presented).await {
                    Ok(renewed) => {
                        tracing::info!(serial = %renewed.certificate().serial, "this node has a new certificate");
                        service.metrics.own_certificate(renewed.certificate().not_after_ns);
                        identity = renewed;
                    }
                    Err(error) => {
                        tracing::warn!(error = format!("{error:#}"), "this node's certificate is not renewed yet");
                        pause = TRY_AGAIN;
                    }
                }
            }
        }
        tokio::time::sleep(pause).await;
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
    let key = CertificateKey::generate()?;
    let peer = Peer { id: own.peer.clone(), serial: own.serial, not_after_ns: own.not_after_ns };
    let issued = registrar.renew(&peer, key.request(), Origin::Here).await;
    let issued = issued.map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let identity = key.certified(&issued)?;
    identity.save(path)?;
    presented.replace(&identity).context("the new certificate cannot be shown")?;
    Ok(identity)
}
