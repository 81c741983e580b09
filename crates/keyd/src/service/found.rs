//! Founding a cluster: its first node, its root key, its authority, its first users.

use capstan_keys::api::{ClusterId, IssuedCertificate, PeerId, PeerKind};
use capstan_keys::cluster::{CertificateKey, EnrolmentPassphrase, Identity, IdentityError};
use capstan_keys::{KeyError, KeyGroup, Name, random};
use capstan_service::enrolment::Enrolment;
use capstan_service::identity::OldestTls;
use capstan_service::identity::{Authority, AuthorityError, random_serial};
use serde_json::Error as JsonError;
use thiserror::Error;

use super::directory::{DirectoryError, EtcdSettings, KmaSettings, StateDirectory, kmip_domain_objects};
use super::registrar::{CertificateRecord, authority_path, certificate_path, enrolment_path, host_of};
use super::site_record::SiteRecord;
use crate::authority::{QuorumRule, Roles, Unworkable, User, Users};
use crate::authority_record::AuthorityRecord;
use crate::ledger::{Ledger, LedgerError, Outcome, Transaction};
use crate::path::Path;
use crate::record::{GroupRecord, KmaRecord};
use crate::root::{ClusterKeys, Existing, Quorum, RootError, SealedRoot, Token};
use crate::seal::SealError;

const DAY_NS: i64 = 86_400_000_000_000;
const EPOCH: u32 = 1;

/// What a cluster is founded with.
pub struct Founding {
    /// The first node.
    pub kma: KmaSettings,
    /// What opens the root key.
    pub root: RootChoice,
    /// The first users: each enrols with a passphrase.
    pub users: Vec<FirstUser>,
    /// How many approve what takes a quorum.
    pub rule: QuorumRule,
    /// Now, in nanoseconds since 1970.
    pub now_ns: i64,
}

/// A user that is there from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUser {
    /// The name.
    pub name: Name,
    /// What they may do.
    pub roles: Roles,
}

/// Where the root key comes from.
pub enum RootChoice {
    /// A quorum of holders.
    Quorum(Quorum),
    /// A token, which makes it and never gives it away.
    Token(Token),
}

/// A cluster that was founded.
pub struct Founded {
    /// Which.
    pub cluster: ClusterId,
    /// What each user enrols with, once, within a week.
    pub passphrases: Vec<(Name, EnrolmentPassphrase)>,
}

/// Why no cluster was founded. Nothing of it is left.
#[derive(Debug, Error)]
pub enum FoundingError {
    /// Operator or host: the state directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Peer: the ledger.
    #[error("the cluster was not founded")]
    Ledger(#[from] LedgerError),
    /// Operator: the users cannot work.
    #[error(transparent)]
    Users(#[from] Unworkable),
    /// Operator or host: the root key.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Host: random numbers or ciphers failed.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Operator or host: the authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Host: the node's own identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Host: sealing.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Caller: a record has no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Operator: the settings have no host.
    #[error("{address:?} is no address: give host and port, as other nodes and agents are to use them")]
    Address {
        /// What was given.
        address: String,
    },
    /// Peers: somebody was faster, by an identity that was drawn at random.
    #[error("the ledger holds a cluster of this identity already: try again")]
    Taken,
}

/// Draws the identity of a cluster.
pub fn new_cluster() -> Result<ClusterId, KeyError> {
    let mut id = ClusterId([0; 16]);
    random(&mut id.0)?;
    Ok(id)
}

/// Founds a cluster on its ledger, with its first node in a new state directory. `founding.kma.cluster` says which
/// cluster, as the ledger was opened for.
pub async fn found(
    directory: &StateDirectory,
    ledger: &dyn Ledger,
    founding: Founding,
) -> Result<Founded, FoundingError> {
    let Founding { mut kma, root, users, rule, now_ns } = founding;
    kma.epoch = EPOCH;
    let cluster = kma.cluster;
    let mut registered = Users::default();
    users.iter().for_each(|user| registered.put(User::new(user.name.clone(), user.roles)));
    registered.check(&rule)?;

    let keys = ClusterKeys::create(cluster)?;
    let sealed_root = root.seal(&keys, EPOCH)?;
    let (authority, authority_key) = Authority::create(cluster, now_ns)?;
    let mut puts = vec![
        (authority_path(), serde_json::to_vec(&AuthorityRecord::new(&authority, &authority_key, &keys)?)?),
        (Path::Other("quorum".to_owned()), rule.encode()),
    ];

    let (identity, of_node) = first_node(&authority, &kma, now_ns)?;
    puts.extend(of_node);
    if !kma.site.is_empty() {
        let record = SiteRecord { description: String::new(), added_ns: now_ns };
        puts.push((SiteRecord::path(&kma.site), serde_json::to_vec(&record)?));
    }

    let (_, wrapped) = keys.new_group_key(&Name::default())?;
    let group = KeyGroup { name: Name::default(), policy: Name::default() };
    puts.push((Path::Group(group.name.clone()), GroupRecord { group, wrapped }.encode()));

    let mut passphrases = Vec::new();
    for user in registered.iter() {
        let peer = PeerId { kind: PeerKind::User, name: user.name.clone() };
        let (enrolment, passphrase) = enrolment_of(peer, now_ns)?;
        puts.push(enrolment);
        puts.push((Path::Other(format!("user/{}", user.name)), user.encode()));
        passphrases.push((user.name.clone(), passphrase));
    }

    // The disk first: a cluster in the ledger whose root key is nowhere would be one that nobody can open.
    sealed_root.write(&directory.root(), Existing::Kept)?;
    identity.save(&directory.identity())?;
    let mut transaction = Transaction::default();
    for (path, plaintext) in puts {
        let path = path.to_string();
        let sealed = keys.sealer().seal(&path, EPOCH, 1, &plaintext)?;
        transaction.expect.push((path.clone(), crate::ledger::Expected::Absent));
        transaction.put.push((path, sealed));
    }
    match ledger.commit(transaction).await? {
        Outcome::Committed { .. } => {}
        Outcome::Conflict => return Err(FoundingError::Taken),
    }
    directory.write_settings(&kma)?;
    Ok(Founded { cluster, passphrases })
}

impl RootChoice {
    /// The root key as it lies in the state directory.
    pub(super) fn seal(&self, keys: &ClusterKeys, epoch: u32) -> Result<SealedRoot, FoundingError> {
        Ok(match self {
            Self::Quorum(quorum) => SealedRoot::under_quorum(keys, epoch, quorum)?,
            Self::Token(token) => SealedRoot::under_token(keys, epoch, token)?,
        })
    }
}

/// Records that are to be, each with its plaintext.
type Records = Vec<(Path, Vec<u8>)>;

/// The first node enrols itself: its identity, and its records.
pub(super) fn first_node(
    authority: &Authority,
    kma: &KmaSettings,
    now_ns: i64,
) -> Result<(Identity, Records), FoundingError> {
    let own = PeerId { kind: PeerKind::Kma, name: kma.name.clone() };
    let host = host_of(&kma.address).ok_or_else(|| FoundingError::Address { address: kma.address.clone() })?;
    let key = CertificateKey::generate()?;
    let hosts = [host];
    let issued = authority.issue(&own, &hosts, key.request(), random_serial()?, now_ns)?;
    let record = CertificateRecord::new(&issued, &hosts);
    let certificate = (certificate_path(&issued.fields.serial), serde_json::to_vec(&record)?);
    let identity = key.certified(&IssuedCertificate {
        certificate: capstan_keys::api::Base64(issued.certificate),
        authority: capstan_keys::api::Base64(authority.certificate().to_vec()),
    })?;
    let record = KmaRecord { site: kma.site.clone(), address: kma.address.clone(), joined_ns: now_ns };
    Ok((identity, vec![certificate, (Path::Kma(kma.name.clone()), serde_json::to_vec(&record)?)]))
}

/// An enrolment of a week, as a record, and what it takes.
pub(super) fn enrolment_of(peer: PeerId, now_ns: i64) -> Result<((Path, Vec<u8>), EnrolmentPassphrase), FoundingError> {
    let passphrase = EnrolmentPassphrase::random()?;
    let enrolment = Enrolment::open(peer, Vec::new(), &passphrase, now_ns.saturating_add(7 * DAY_NS))?;
    Ok(((enrolment_path(&enrolment.peer), enrolment.encode().to_vec()), passphrase))
}

impl KmaSettings {
    /// The settings of a node that is about to be made.
    pub fn new(name: Name, cluster: ClusterId, address: String, listen: String, endpoints: Vec<String>) -> Self {
        let etcd = EtcdSettings { endpoints, authority: None, certificate: None, private_key: None, quota_bytes: None };
        Self {
            name,
            cluster,
            epoch: EPOCH,
            site: String::new(),
            address,
            listen,
            enrol_listen: None,
            kmip_listen: None,
            kmip_tls_oldest: OldestTls::default(),
            kmip_domain_objects: kmip_domain_objects(),
            kmip_domain_bytes: None,
            metrics_listen: None,
            pool_keys: 1000,
            autonomous_key_file: None,
            token: None,
            etcd,
        }
    }
}
