//! What is not counted as it happens is looked for now and then, away from scrapes and from who asks for keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_keys::api::{PeerId, PeerKind};
use capstan_keys::{KeyState, Name};
use capstan_service::audit::Anchor;
use capstan_service::housekeeping::NextCheck;
use jiff::Timestamp;
use tokio::sync::watch;

use super::super::Service;
use super::super::backups::{backups, core_backups, newest_kept};
use super::super::proof::own_proof;
use super::super::registrar::CertificateRecord;
use super::{Gauges, InState, OfKind, OfKma, seconds};
use crate::authority::{User, UserStatus};
use crate::node::{self, Node};
use crate::replica::Freshness;
use crate::state::View;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(5);
/// How long the ledger is waited for.
const LEDGER_PATIENCE: Duration = Duration::from_secs(2);
/// A prefix of paths with nothing behind it: to read it is to ask for the ledger's last commit.
const NOTHING: &str = "nothing/";

/// Looks for what is not counted as it happens.
pub(in super::super) async fn look<'a>(service: &'a Arc<Service>, fresh: &watch::Receiver<Freshness>) -> NextCheck<'a> {
    let opened = service.opened.notified();
    service.look_at_standing();
    service.look_at_ledger(fresh).await;
    if let Some(node) = service.open_node() {
        service.metrics.gauges.journal.set(count(node.journal_pending().await.unwrap_or_default()));
        let at_work = service.clone();
        // The certificates of a large cluster are some thousand records of JSON.
        let looked = tokio::task::spawn_blocking(move || at_work.metrics.gauges.look_at(&at_work, &node));
        if let Err(error) = looked.await {
            tracing::error!(%error, "the numbers for those who watch could not be looked for");
        }
    }
    NextCheck::after(EVERY).or_when(opened)
}

impl Service {
    /// What may change at any moment and costs nothing to see.
    pub(super) fn look_at_standing(&self) {
        let gauges = &self.metrics.gauges;
        let node = self.open_node();
        gauges.unlocked.set(i64::from(node.is_some()));
        if let Some(node) = node {
            gauges.in_touch.set(i64::from(node.standing() == node::MajorityContact::Current));
            gauges.heard.set(node.progress().borrow().last_heard.since_ns() as f64 / 1e9);
        }
        self.look_at_room();
        gauges.audit_records.set(i64::try_from(self.audit.head().sequence).unwrap_or(i64::MAX));
    }

    async fn look_at_ledger(&self, fresh: &watch::Receiver<Freshness>) {
        let head = tokio::time::timeout(LEDGER_PATIENCE, self.opening.ledger.read(NOTHING)).await;
        let (applied, current) = {
            let fresh = fresh.borrow();
            (fresh.applied.unwrap_or(0), fresh.current_revision.unwrap_or(0))
        };
        let gauges = &self.metrics.gauges;
        gauges.replica_revision.set(applied);
        // The ledger's commits that changed nothing of this cluster are not applied, and not missing either.
        if let Ok(Ok(head)) = head {
            gauges.replica_lag.set(head.revision.saturating_sub(applied.max(current)).max(0));
        }
    }
}

impl Gauges {
    fn look_at(&self, service: &Service, node: &Node) {
        let now_ns = node.now_ns();
        let (pool, settings) = (node.pool(), node.settings());
        for (state, keys) in [("ready", pool.ready), ("reserve", pool.reserve), ("waiting", pool.waiting)] {
            self.pool.get_or_create(&InState { state }).set(count(keys));
        }
        self.pool_low.set(i64::from(pool.is_below(settings.pool_low)));
        self.doubts.set(count(node.doubt_count()));
        node.view(|view| {
            self.look_at_records(view);
            self.look_at_peers(view, service.name(), now_ns);
            self.look_at_certificates(view, now_ns);
            self.look_at_backups(view, service.settings.epoch);
            self.look_at_proofs(view, service.name(), service.audit.head().sequence);
        });
    }

    fn look_at_records(&self, view: View<'_>) {
        let ledger = view.ledger();
        for state in KeyState::ALL {
            self.keys.get_or_create(&InState { state: state.name() }).set(count(ledger.keys_in(state)));
        }
        self.units.set(count(ledger.unit_count()));
        self.kmip_objects.set(count(ledger.kmip().len()));
        self.conflicts.set(count(ledger.others("conflict/").count()));
    }

    /// How far the others have got, and since when this node's pool waits for each.
    fn look_at_peers(&self, view: View<'_>, own: &Name, now_ns: i64) {
        let ledger = view.ledger();
        for kma in ledger.kmas().keys().filter(|kma| *kma != own) {
            let held = ledger.held(kma);
            let waiting =
                ledger.pool(own).filter(|(_, _, mark)| mark.revision > held).map(|(_, key, _)| key.created_ns);
            let waited_ns = waiting.min().map_or(0, |since_ns| now_ns.saturating_sub(since_ns).max(0));
            let of = OfKma { kma: kma.to_string() };
            self.peer_held.get_or_create(&of).set(held);
            self.peer_waits.get_or_create(&of).set(waited_ns as f64 / 1e9);
        }
    }

    /// Who was renewed has an old certificate too, whose end is nobody's concern; and who was disabled or removed has
    /// none that counts.
    fn look_at_certificates(&self, view: View<'_>, now_ns: i64) {
        let enabled = |name: &Name| {
            let user = view.ledger().other(&format!("user/{name}")).and_then(|bytes| User::decode(bytes).ok());
            user.is_some_and(|user| user.standing == UserStatus::Enabled)
        };
        let mut last: BTreeMap<PeerId, i64> = BTreeMap::new();
        for (path, bytes) in view.ledger().others("certificate/") {
            let Ok(record) = serde_json::from_slice::<CertificateRecord>(bytes) else { continue };
            let revoked = path.replacen("certificate/", "revoked/", 1);
            let counts = record.peer.kind != PeerKind::User || enabled(&record.peer.name);
            if counts && view.ledger().other(&revoked).is_none() {
                let end_ns = last.entry(record.peer).or_insert(record.not_after_ns);
                *end_ns = record.not_after_ns.max(*end_ns);
            }
        }
        for kind in PeerKind::OF_KEY_CLUSTER {
            let ends = last.iter().filter(|(peer, _)| peer.kind == kind).map(|(_, end_ns)| *end_ns);
            let (ended, holds): (Vec<i64>, Vec<i64>) = ends.partition(|end_ns| *end_ns <= now_ns);
            let of = OfKind { kind: kind.as_str() };
            self.ended.get_or_create(&of).set(count(ended.len()));
            self.certificate.get_or_create(&of).set(holds.into_iter().min().map_or(0, seconds));
        }
    }

    fn look_at_backups(&self, view: View<'_>, epoch: u32) {
        let kept = backups(view).iter().filter(|backup| backup.is_kept()).count();
        self.backups.set(count(kept));
        self.backup.set(newest_kept(view, epoch).map_or(0, |backup| backup.made.as_second()));
        let core = core_backups(view).into_iter().map(|core| core.made).max();
        self.core_backup.set(core.map_or(0, Timestamp::as_second));
    }

    fn look_at_proofs(&self, view: View<'_>, own: &Name, sequence: u64) {
        let anchor = view.ledger().other(&format!("anchor/{own}")).and_then(|bytes| Anchor::decode(bytes).ok());
        let anchored = anchor.map_or(0, |anchor| anchor.head.sequence);
        self.audit_unanchored.set(i64::try_from(sequence.saturating_sub(anchored)).unwrap_or(i64::MAX));
        if let Some(proof) = own_proof(view, own) {
            self.keys_refused.set(count(proof.refused.len()));
            self.proved_at.set(proof.at.as_second());
        }
    }
}

fn count(found: usize) -> i64 {
    i64::try_from(found).unwrap_or(i64::MAX)
}
