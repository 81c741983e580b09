//! A site whose keys a cluster keeps: nodes that are gone before a mount, in the middle of a backup, and between a key
//! and its report.
//!
//! The double keeps its keys in a sealed store and fails as a cluster does: late, and from one call to the next.

use std::fs;
use std::sync::{Arc, Mutex};

use capstan_catalog::Promise;
use capstan_catalog::VolumeState;
use capstan_director::{
    BackupReport, BackupWatch, Config, DirectorError, Event, KeysConfig, Level, Loss, Place, RebuildOptions, Site,
    VerifiedCopy, rebuild,
};
use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::cluster::{ClusterError, Gone, Silence};
use capstan_keys::{
    Cartridge, ClusterRefusal, KeyError, KeyProvider, KeyRecord, KeyState, Name, SealedStore, VolumeKey,
};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;

use crate::place::{Bench, small};

/// What the cluster does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    Nothing,
    /// Keys are given, and that one is in use is not taken in.
    Reports,
    /// No node answers.
    Everything,
    /// The volume goes on under no further key.
    Appends,
    /// What keys a volume has is not told.
    Lists,
    /// A lost node gave out the key of A00001, and nobody has confirmed its group.
    Unconfirmed,
}

struct Cluster {
    store: Mutex<SealedStore>,
    down: Arc<Mutex<Down>>,
}

impl Cluster {
    fn fails_at(&self, downs: &[Down]) -> Result<(), KeyError> {
        let down = *self.down.lock().unwrap();
        if down != Down::Everything && !downs.contains(&down) {
            return Ok(());
        }
        if down == Down::Appends {
            let detail = "the volume has all the keys that it can have".to_owned();
            return Err(KeyError::RefusedByCluster { reason: ClusterRefusal::KeysUsedUp, detail });
        }
        let gone = |name: &str, silence| Gone { name: Some(name.to_owned()), address: format!("{name}:7443"), silence };
        let nodes = vec![gone("kma1", Silence::TimedOut), gone("kma2", Silence::Unreachable("refused".to_owned()))];
        Err(KeyError::Cluster(Box::new(ClusterError::AllGone(nodes))))
    }
}

impl Cluster {
    fn is_confirmed(&self, volser: &Volser, tag: &KeyTag) -> Result<(), KeyError> {
        if *self.down.lock().unwrap() != Down::Unconfirmed || volser.as_str() != "A00001" {
            return Ok(());
        }
        let detail = "of which group it is must be confirmed first".to_owned();
        Err(KeyError::RefusedByCluster { reason: ClusterRefusal::Unconfirmed { tag: *tag }, detail })
    }
}

impl KeyProvider for Cluster {
    fn check_new_volume(&self, drive: Option<&Name>, pool: &str, algorithm: Algorithm) -> Result<(), KeyError> {
        self.fails_at(&[])?;
        self.store.check_new_volume(drive, pool, algorithm)
    }

    fn key_for_new_volume(
        &self,
        volser: &Volser,
        drive: Option<&Name>,
        pool: Option<&str>,
        algorithm: Algorithm,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        self.fails_at(&[])?;
        self.store.key_for_new_volume(volser, drive, pool, algorithm, now_ns)
    }

    fn activate(&self, cartridge: Cartridge<'_>, tag: &KeyTag, now_ns: i64) -> Result<Vec<KeyTag>, KeyError> {
        self.fails_at(&[Down::Reports])?;
        self.store.activate(cartridge, tag, now_ns)
    }

    fn key_for_append(
        &self,
        cartridge: Cartridge<'_>,
        first: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        self.fails_at(&[Down::Reports, Down::Appends])?;
        self.is_confirmed(cartridge.volser, first)?;
        self.store.key_for_append(cartridge, first, drive, now_ns)
    }

    fn key_for_reading(
        &self,
        cartridge: Cartridge<'_>,
        tag: &KeyTag,
        drive: Option<&Name>,
        now_ns: i64,
    ) -> Result<VolumeKey, KeyError> {
        self.fails_at(&[])?;
        self.is_confirmed(cartridge.volser, tag)?;
        self.store.key_for_reading(cartridge, tag, drive, now_ns)
    }

    fn ended(&self, cartridge: Cartridge<'_>, now_ns: i64) -> Result<(), KeyError> {
        self.fails_at(&[Down::Reports])?;
        self.store.ended(cartridge, now_ns)
    }

    fn keys_of(&self, volser: &Volser) -> Result<Vec<KeyRecord>, KeyError> {
        self.fails_at(&[Down::Lists])?;
        self.store.keys_of(volser)
    }
}

/// A site with an encrypted pool, whose keys come from the double.
struct Ground {
    bench: Bench,
    down: Arc<Mutex<Down>>,
}

impl Ground {
    fn new(config: Config) -> Self {
        let bench = Bench::encrypted(config, Some(Algorithm::Aes256Gcm));
        Self { bench, down: Arc::new(Mutex::new(Down::Nothing)) }
    }

    fn is(&self, down: Down) {
        *self.down.lock().unwrap() = down;
    }

    fn site(&self) -> Site {
        self.bench.site().with_keys(Cluster { store: Mutex::new(self.bench.keys()), down: Arc::clone(&self.down) })
    }

    fn backup(&self) -> Result<BackupReport, DirectorError> {
        self.site().backup(&self.bench.request(Level::Full), &BackupWatch::default())
    }

    fn volumes(&self) -> Vec<(Volser, VolumeState, u64)> {
        let volumes = self.bench.site().catalog().volumes().unwrap();
        volumes.into_iter().map(|volume| (volume.volser, volume.state, volume.errors)).collect()
    }

    fn states_of_keys(&self) -> Vec<KeyState> {
        self.bench.keys().list().unwrap().into_iter().map(|key| key.state).collect()
    }

    fn newest_restores(&self, to: &str) {
        let mut objects = self.bench.objects();
        objects.sort_by_key(|object| object.started_ns);
        self.bench.assert_restores(objects.last().unwrap(), to);
    }
}

/// It is the cluster that is named, each node of it and why, and what to do.
#[track_caller]
fn names_the_nodes(ended: Result<BackupReport, DirectorError>) {
    let Err(error @ DirectorError::Keys(KeyError::Cluster(_))) = ended else { panic!("{ended:?}") };
    let text = error.to_string();
    for part in ["kma1 (kma1:7443) is silent", "kma2 (kma2:7443) cannot be connected to", "See that one of them runs"] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

#[test]
fn without_a_node_nothing_is_written_and_nothing_is_noted() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.is(Down::Everything);
    names_the_nodes(ground.backup());
    assert_eq!((ground.volumes(), ground.bench.objects()), (vec![], vec![]));
    assert_eq!(fs::read_dir(ground.bench.path("state/library/slots")).unwrap().count(), 0);
    ground.is(Down::Nothing);
    ground.backup().unwrap();
    ground.newest_restores("back");
}

#[test]
fn a_volume_whose_nodes_are_gone_is_left_as_it_is() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    let before = (ground.volumes(), fs::read(ground.bench.cartridge("A00001")).unwrap());
    ground.bench.fill("b", 5, 100_000);
    ground.is(Down::Everything);
    names_the_nodes(ground.backup());
    assert!(before == (ground.volumes(), fs::read(ground.bench.cartridge("A00001")).unwrap()), "it was changed");
    ground.is(Down::Nothing);
    ground.backup().unwrap();
    assert_eq!(ground.volumes().len(), 1, "the volume was not gone on with");
    ground.newest_restores("back");
}

#[test]
fn a_lost_report_costs_nothing_and_leaves_no_key_that_seems_unused() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.is(Down::Reports);
    for _ in 0..2 {
        names_the_nodes(ground.backup());
        assert!(ground.states_of_keys().iter().all(|state| *state == KeyState::Ready));
        assert!(ground.volumes().iter().all(|(_, state, errors)| *state == VolumeState::Filling && *errors == 0));
    }
    ground.is(Down::Nothing);
    ground.backup().unwrap();
    ground.newest_restores("back");
    let in_force = ground.states_of_keys().into_iter().filter(|state| *state == KeyState::ProtectAndProcess).count();
    assert_eq!((in_force, ground.volumes().len()), (1, 1));
}

#[test]
fn a_backup_under_way_goes_on_with_the_key_in_the_drive() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 60, 100_000);
    let down = Arc::clone(&ground.down);
    ground.bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Checkpoint { .. }) {
            *down.lock().unwrap() = Down::Everything;
        }
    })));
    ground.backup().unwrap();
    assert_eq!(*ground.down.lock().unwrap(), Down::Everything, "there was no checkpoint to lose the nodes at");
    ground.bench.set_hook(None);
    ground.newest_restores("back");
}

#[test]
fn a_backup_that_needs_another_volume_ends_and_is_gone_on_with() {
    let mut config = small();
    config.library.volume_mib = 4;
    let ground = Ground::new(config);
    ground.bench.fill("a", 80, 100_000);
    let down = Arc::clone(&ground.down);
    ground.bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Checkpoint { .. }) {
            *down.lock().unwrap() = Down::Everything;
        }
    })));
    names_the_nodes(ground.backup());
    ground.bench.set_hook(None);
    assert!(matches!(ground.volumes()[..], [(_, VolumeState::Full, 0)]), "{:?}", ground.volumes());
    ground.is(Down::Nothing);
    ground.backup().unwrap();
    assert_eq!(ground.bench.objects().len(), 1, "what was protected was written again");
    ground.newest_restores("back");
}

#[test]
fn what_cannot_be_read_now_is_not_set_aside() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    let object = ground.bench.objects().remove(0);
    ground.is(Down::Everything);
    let site = ground.site();
    let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
    let report =
        site.restore(&plan, &ground.bench.path("none"), &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
    let [(_, DirectorError::Keys(KeyError::Cluster(_)))] = &report.without_key[..] else {
        panic!("{:?}", report.without_key)
    };
    assert!(matches!(ground.volumes()[..], [(_, VolumeState::Filling, 0)]), "{:?}", ground.volumes());
    ground.is(Down::Nothing);
    ground.newest_restores("back");
}

/// With no key node to ask, an object that nobody had read was told as damaged, and a good volume given up for it.
#[test]
fn what_cannot_be_read_for_want_of_a_node_is_not_called_damaged() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    ground.is(Down::Everything);
    let objects = ground.bench.objects();
    let verified = ground.site().verify_objects(&objects, &RestoreWatch::default()).unwrap();
    for VerifiedCopy { report, .. } in &verified {
        assert!(!report.is_whole() && !report.is_damaged(), "{report:?}");
        assert!(matches!(report.without_key[..], [(_, DirectorError::Keys(KeyError::Cluster(_)))]), "{report:?}");
    }
    let error = ground.site().verify_volume(&"A00001".parse().unwrap(), &RestoreWatch::default()).unwrap_err();
    assert!(matches!(error, DirectorError::Keys(KeyError::Cluster(_))), "{error}");
    ground.is(Down::Nothing);
    let verified = ground.site().verify_objects(&objects, &RestoreWatch::default()).unwrap();
    assert!(verified.iter().all(|copy| copy.report.is_whole()), "nothing of it is on record");
}

#[test]
fn a_volume_that_takes_no_further_key_by_the_clusters_word_is_full() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    ground.is(Down::Appends);
    ground.backup().unwrap();
    let states: Vec<_> = ground.volumes().into_iter().map(|(_, state, _)| state).collect();
    assert_eq!(states, [VolumeState::Full, VolumeState::Filling]);
}

/// A key that was destroyed in the cluster failed the mover's next backup.
/// The backup ended, whatever other volumes there were: the next one began with the same volume again.
#[test]
fn a_volume_whose_key_waits_to_be_confirmed_is_left_as_it_is_and_another_is_taken() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    let before = fs::read(ground.bench.cartridge("A00001")).unwrap();
    ground.bench.fill("b", 5, 100_000);
    ground.is(Down::Unconfirmed);
    ground.backup().unwrap();
    assert!(before == fs::read(ground.bench.cartridge("A00001")).unwrap(), "it was changed");
    let filling = |name: &str| (Volser::new(name).unwrap(), VolumeState::Filling, 0);
    assert_eq!(ground.volumes(), ["A00001", "A00002"].map(filling));
    ground.is(Down::Nothing);
    ground.newest_restores("back");
}

#[test]
fn a_volume_whose_key_was_destroyed_elsewhere_is_passed_over_in_the_same_run() {
    for down in [Down::Nothing, Down::Lists] {
        let ground = Ground::new(small());
        ground.bench.fill("a", 5, 100_000);
        ground.backup().unwrap();
        // At a node: the catalog of this site is told nothing.
        let tag = ground.bench.keys().list().unwrap()[0].tag;
        ground.bench.keys().destroy(&tag, 5).unwrap();
        ground.bench.fill("b", 5, 100_000);
        ground.is(down);
        let mounted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&mounted);
        ground.bench.set_hook(Some(Box::new(move |event| {
            if let Event::Mounted { volser, .. } = event {
                seen.lock().unwrap().push(volser.to_string());
            }
        })));
        let backup = || ground.backup().unwrap();
        let report = backup();
        let [(volser, reason)] = &report.passed_over[..] else { panic!("{report:?}") };
        assert_eq!((volser.as_str(), reason.contains("was destroyed")), ("A00001", true), "{reason}");
        let said = ground.bench.notices.lock().unwrap().join("\n");
        assert!(
            said.contains("volume A00001 is passed over") && said.contains("capstan label A00001 --force"),
            "{said}"
        );
        // Where the nodes tell it, the volume is not even mounted; and by the next run it is known.
        let mounts_of_lost =
            |mounted: &Mutex<Vec<String>>| mounted.lock().unwrap().iter().filter(|name| *name == "A00001").count();
        assert_eq!(mounts_of_lost(&mounted), usize::from(down == Down::Lists));
        mounted.lock().unwrap().clear();
        assert_eq!(backup().passed_over, []);
        assert_eq!(mounts_of_lost(&mounted), 0, "it was mounted again");
        ground.bench.set_hook(None);
        ground.is(Down::Nothing);
        ground.newest_restores("back");
    }
}

/// The next incremental stood on what nobody could read any more, and could not be restored either.
#[test]
fn an_incremental_does_not_stand_on_a_key_that_was_destroyed_elsewhere() {
    let incremental = |ground: &Ground| {
        let mut report =
            ground.site().backup(&ground.bench.request(Level::Incremental), &BackupWatch::default()).unwrap();
        report.sources.remove(0)
    };
    for down in [Down::Nothing, Down::Lists] {
        let ground = Ground::new(small());
        ground.bench.fill("a", 5, 100_000);
        ground.backup().unwrap();
        let mut last = ground.bench.objects()[0].id;
        let tag = ground.bench.keys().list().unwrap()[0].tag;
        ground.bench.keys().destroy(&tag, 5).unwrap();
        ground.bench.fill("b", 5, 100_000);
        ground.is(down);
        if down == Down::Lists {
            // Nobody tells it, and that is said; at the mount it is learnt, and by the next run it is known.
            let made = incremental(&ground);
            assert_eq!((made.base, made.base_gone), (Some(last), None));
            let said = ground.bench.notices.lock().unwrap().join("\n");
            assert!(said.contains("could not ask"), "{said}");
            last = made.object;
        }
        let made = incremental(&ground);
        let gone = made.base_gone.unwrap();
        assert_eq!((made.base, gone.object), (None, last));
        assert!(gone.reason.contains("the key of volume A00001 was destroyed"), "{}", gone.reason);
        ground.is(Down::Nothing);
        ground.newest_restores("back");
        ground.bench.fill("c", 5, 100_000);
        let next = incremental(&ground);
        assert_eq!((next.base, next.base_gone), (Some(made.object), None));
        ground.newest_restores("again");
    }
}

#[test]
fn a_volume_is_erased_though_nobody_can_be_told() {
    let ground = Ground::new(small());
    ground.bench.fill("a", 5, 100_000);
    ground.backup().unwrap();
    let (volser, ..) = ground.volumes().remove(0);
    ground.is(Down::Everything);
    ground.site().erase(&volser, Loss::Accept, Promise::Keep).unwrap();
    let said = ground.bench.notices.lock().unwrap().join("\n");
    assert!(said.contains("will be recorded later") && said.contains("kma1"), "{said}");
    assert!(matches!(ground.volumes()[..], [(_, VolumeState::Blank, 0)]), "{:?}", ground.volumes());
}

/// The settings are switched to a cluster by hand; the cluster cannot be asked, for the identity was forgotten.
#[test]
fn a_site_is_switched_to_a_cluster_by_its_settings() {
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    bench.fill("a", 5, 100_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let settings = bench.path("state/capstan.toml");
    let mut config = Config::read(&settings).unwrap();
    config.keys = KeysConfig { nodes: vec!["kma1:7443".to_owned()], identity: "agent.pem".into(), site: String::new() };
    fs::write(&settings, config.to_text()).unwrap();

    // What needs no key needs neither a node nor a passphrase.
    let site = Site::open(&bench.path("state"), None, || 1, Arc::new(|_| {})).unwrap();
    assert!(matches!(site.keys(), Err(DirectorError::KeysInCluster { .. })));
    let ended = site.backup(&bench.request(Level::Full), &BackupWatch::default());
    let Err(DirectorError::Keys(KeyError::Cluster(error))) = ended else { panic!("{ended:?}") };
    assert!(error.to_string().contains("agent.pem"), "{error}");
    drop(site);

    // The catalog that there is stays: nothing could be read to make another from.
    let before = bench.dump();
    let ended = rebuild(
        &bench.path("state"),
        None,
        || 2,
        Arc::new(|_| {}),
        &RebuildOptions { discard_old: true, ..RebuildOptions::default() },
    );
    assert!(matches!(ended, Err(DirectorError::Keys(KeyError::Cluster(_)))), "{ended:?}");
    assert_eq!(bench.dump(), before);
}

#[test]
fn settings_that_name_half_a_cluster_are_refused() {
    let bench = Bench::new(small());
    let settings = bench.path("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let plain = text.split("[keys]").next().unwrap().to_owned();
    for (keys, word) in [
        ("nodes = [\"kma1:7443\"]", "go together"),
        ("identity = \"agent.pem\"", "go together"),
        ("nodes = [\"kma1\"]\nidentity = \"agent.pem\"", "no host and port"),
        ("nodes = [\"kma1:\"]\nidentity = \"agent.pem\"", "no host and port"),
        ("nodes = [\":7443\"]\nidentity = \"agent.pem\"", "no host and port"),
        ("nodes = [\"kma1:70000\"]\nidentity = \"agent.pem\"", "no host and port"),
    ] {
        fs::write(&settings, format!("{plain}[keys]\n{keys}\n")).unwrap();
        let error = Config::read(&settings).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    fs::write(&settings, format!("{plain}[keys]\nnodes = [\"[::1]:7443\"]\nidentity = \"agent.pem\"\n")).unwrap();
    assert!(Config::read(&settings).unwrap().keys.is_cluster());
    // Settings of before there were clusters.
    fs::write(&settings, plain).unwrap();
    assert!(!Config::read(&settings).unwrap().keys.is_cluster());
}
