//! What a node tells those who watch it: numbers in the text form of OpenMetrics, health and readiness, on a listener
//! of their own.
//!
//! ```text
//!  requests, KMIP operations, connections --count as they happen--.
//!  looking loop, every 5 s: pool, keys, backups, certificates ----+--> Registry --GET /metrics--> Prometheus
//!  at each scrape: locked or open, in touch or cut off -----------'
//! ```
//! **A scrape costs the same with a million keys as with none:** it reads numbers that are there. What has to be looked
//! for is looked for by a loop, however often somebody scrapes; keys by state are counted where they change
//! ([`crate::state::State::keys_in`]).
//!
//! **Labels** are routes, states, nodes: few, and nothing that says what is on tape. Volumes, keys, agents and users
//! are never among them, for who reads metrics need not be one who may list those; each of them would be a time series
//! for ever besides.
//!
//! The listener speaks plain HTTP to whoever reaches it, since scrapers have no certificate of the cluster. It is off
//! unless `metrics_listen` says where, and belongs on loopback or on a network of watchers.

mod look;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use capstan_service::metrics::{ConnectionMetrics, MetricsSource, RequestMetrics, register};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::{KmaSettings, Service};

pub(super) use look::look;

/// Seconds, with fractions.
type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KmipOperation {
    operation: &'static str,
    /// `Success`, or the standard's reason.
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKma {
    kma: String,
}

/// Everything that is counted and measured.
pub(super) struct Metrics {
    registry: Registry,
    pub(super) requests: RequestMetrics,
    pub(super) connections: ConnectionMetrics,
    kmip: Family<KmipOperation, Counter>,
    gauges: Gauges,
}

/// What is looked for.
#[derive(Default)]
struct Gauges {
    unlocked: Gauge,
    in_touch: Gauge,
    heard: Seconds,
    replica_revision: Gauge,
    replica_lag: Gauge,
    pool: Family<InState, Gauge>,
    pool_low: Gauge,
    keys: Family<InState, Gauge>,
    units: Gauge,
    kmip_objects: Gauge,
    peer_held: Family<OfKma, Gauge>,
    peer_waits: Family<OfKma, Seconds>,
    journal: Gauge,
    doubts: Gauge,
    conflicts: Gauge,
    keys_refused: Gauge,
    proved_at: Gauge,
    audit_records: Gauge,
    audit_unanchored: Gauge,
    own_certificate: Gauge,
    certificate: Family<OfKind, Gauge>,
    ended: Family<OfKind, Gauge>,
    backup: Gauge,
    core_backup: Gauge,
    backups: Gauge,
    ledger_used: Gauge,
    ledger_quota: Gauge,
    ledger_full: Gauge,
}

impl Metrics {
    pub(super) fn new(settings: &KmaSettings) -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix("keyd"),
            requests: RequestMetrics::default(),
            connections: ConnectionMetrics::default(),
            kmip: Family::default(),
            gauges: Gauges::default(),
        };
        let info = vec![
            ("kma", settings.name.to_string()),
            ("site", settings.site.clone()),
            ("cluster", settings.cluster.to_string()),
            ("epoch", settings.epoch.to_string()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let registry = &mut metrics.registry;
        registry.register("node", "The node that speaks", Info::new(info));
        metrics.requests.register(registry);
        register(registry, "kmip_operations", "Items of KMIP requests, by operation and result", &metrics.kmip);
        metrics.connections.register(registry);
        metrics.gauges.register(registry);
        Arc::new(metrics)
    }

    /// An item of a KMIP request came to this.
    pub(super) fn kmip_operation(&self, operation: &'static str, result: &'static str) {
        self.kmip.get_or_create(&KmipOperation { operation, result }).inc();
    }

    /// How much room the ledger has.
    pub(super) fn ledger_room(&self, used_bytes: i64, quota_bytes: i64, is_full: bool) {
        self.gauges.ledger_used.set(used_bytes);
        self.gauges.ledger_quota.set(quota_bytes);
        self.gauges.ledger_full.set(i64::from(is_full));
    }

    /// This node's certificate holds until then, in nanoseconds since 1970.
    pub(super) fn own_certificate(&self, not_after_ns: i64) {
        self.gauges.own_certificate.set(seconds(not_after_ns));
    }
}

impl MetricsSource for Service {
    fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        self.look_at_standing();
        let mut text = String::new();
        encode(&mut text, &self.metrics.registry)?;
        Ok(text)
    }
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        let of = "Keys of this node's pool: ready, reserve (for when it is cut off), waiting to be stored twice";
        register(registry, "pool_keys", of, &self.pool);
        let of = "Keys that were issued, by the state on record; time may have moved them on";
        register(registry, "keys", of, &self.keys);
        register(
            registry,
            "peer_held_revision",
            "How far another node says its disk holds the ledger",
            &self.peer_held,
        );
        let of = "For how long the oldest key of this node's pool has waited to be held by that node";
        register(registry, "peer_held_waiting_seconds", of, &self.peer_waits);
        let of = "When the first certificate ends whose peer has no later one, by kind of peer; 0 if there is none";
        register(registry, "certificate_end_timestamp_seconds", of, &self.certificate);
        let of = "Agents, people, KMIP clients and nodes whose last certificate has ended";
        register(registry, "peers_without_certificate", of, &self.ended);
        register(
            registry,
            "majority_heard_timestamp_seconds",
            "When the ledger's majority was heard last",
            &self.heard,
        );
        for (name, help, gauge) in [
            ("unlocked", "1 if the node has its keys, 0 if it is locked", &self.unlocked),
            ("in_touch", "1 if the node is in touch with the majority, 0 if it is cut off", &self.in_touch),
            ("replica_revision", "The last commit that this node's disk holds", &self.replica_revision),
            ("replica_lag_revisions", "Commits of the ledger that this node's disk does not hold", &self.replica_lag),
            ("pool_low", "1 if one half of the pool is below its low-water mark", &self.pool_low),
            ("data_units", "Data units that ever had a key", &self.units),
            ("kmip_objects", "Objects of KMIP clients, destroyed ones too", &self.kmip_objects),
            ("journal_entries", "What was given out cut off and is not with the ledger yet", &self.journal),
            ("doubts", "Records of the ledger that are not believed", &self.doubts),
            ("conflicts", "Keys that may lie under two volumes, on record for people", &self.conflicts),
            (
                "keys_refused",
                "Keys of this node's copy that did not unwrap when it was proved last",
                &self.keys_refused,
            ),
            ("proof_timestamp_seconds", "When this node's copy was proved last; 0 if never", &self.proved_at),
            ("audit_records", "Records of this node's audit log", &self.audit_records),
            ("audit_unanchored_records", "Those of them that no anchor vouches for yet", &self.audit_unanchored),
            ("own_certificate_end_timestamp_seconds", "When this node's certificate ends", &self.own_certificate),
            (
                "backup_timestamp_seconds",
                "When the newest backup of this epoch was made that is kept; 0 if there is none",
                &self.backup,
            ),
            (
                "core_backup_timestamp_seconds",
                "When the newest core security backup was made; 0 if there is none",
                &self.core_backup,
            ),
            ("backups_kept", "Backups of the database that are kept", &self.backups),
            ("ledger_bytes", "What the largest member of etcd takes on its disk", &self.ledger_used),
            ("ledger_quota_bytes", "How much a member of etcd takes at most", &self.ledger_quota),
            ("ledger_full", "1 if etcd has met its quota and takes no change any more", &self.ledger_full),
        ] {
            register(registry, name, help, gauge);
        }
    }
}

/// Whole seconds since 1970.
fn seconds(ns: i64) -> i64 {
    ns.div_euclid(1_000_000_000)
}
