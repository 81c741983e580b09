//! A state directory: catalog, virtual library, sealed key store, settings.
//!
//! ```text
//! capstan.toml     settings
//! catalog/         what is on which volume
//! library/         virtual cartridges (or wherever the settings say)
//! keys.db          sealed key store, unless a cluster keeps the keys
//! writer.lock      shared by all who change something; a rebuild has it alone
//! ```
//! Any number of jobs may run at the same time, in one process or in several. What a job uses (a source, objects,
//! volumes, a place at the drives) it reserves in the catalog. Locking order: library, keys, what this process holds,
//! catalog; none of these locks is held while another process, a node of a key cluster or a person is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use capstan_catalog::{Catalog, Database, MAIN_LIBRARY, Pool, ScratchFeed};
use capstan_format::Algorithm;
use capstan_keys::cluster::{ClusterPlace, Identity, KeyCluster};
use capstan_keys::{Argon2Cost, KeyError, KeyProvider, SealedStore, Unlock};
use capstan_mover::devices::Devices;
use capstan_mover::{Connect, LocalSources, MoverAt, RemoteMover, SourceFound, SourceHost};
use capstan_tape::Library;
use tempfile::TempDir;

use crate::config::{Config, StorageUnit, find_settings};
use crate::drive_keys::BlockKeys;
use crate::hold::Holds;
use crate::known_policies::KnownPolicies;
use crate::libraries::{Libraries, LibraryAt, VolumeRoutes};
use crate::library_marker;
use crate::mounts::Mounts;
use crate::mover_socket::MoverSocket;
use crate::pools::DEFAULT_POOL;
use crate::read_only;
use crate::sessions::Sessions;
pub(crate) use crate::shared::locked;
use crate::shared::{Clock, SharedKeys};
use crate::unentered::UnenteredEnds;
use crate::{DirectorError, Event, Events};

/// An open state directory.
#[derive(Clone)]
pub struct Site {
    /// The state directory.
    dir: PathBuf,
    /// Where this process works: there, or in what stands in for it.
    work_dir: PathBuf,
    /// What stands in for a directory that cannot be written; it goes with the site.
    stand_in: Option<Arc<TempDir>>,
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Arc<Mutex<Catalog>>,
    pub(crate) keys: Option<SharedKeys>,
    store: Option<Arc<Mutex<SealedStore>>>,
    /// All libraries.
    pub(crate) libraries: Libraries,
    /// The one that this site's jobs write in.
    pub(crate) library: Arc<LibraryAt>,
    /// Models of its drives that they write with; none for all.
    pub(crate) models: Arc<[String]>,
    /// What drives said of volumes, whichever job of this process mounted them.
    pub(crate) mounts: Arc<Mounts>,
    /// What jobs of this process have reserved.
    pub(crate) holds: Arc<Holds>,
    /// The sessions that jobs of this process share.
    pub(crate) sessions: Arc<Sessions>,
    /// Ends of this process's commands that could not be entered in the history.
    pub(crate) unentered: Arc<UnenteredEnds>,
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    /// The machine that sources are of.
    pub(crate) client: String,
    /// Whoever reads sources: this process, or the client itself.
    pub(crate) sources: Arc<dyn SourceHost>,
    /// The host that this runs on.
    pub(crate) host: String,
    /// Which of the jobs by name are policies of the catalog, and why some of them cannot be run here.
    pub(crate) policy_names: Arc<BTreeSet<String>>,
    pub(crate) policy_faults: Arc<BTreeMap<String, String>>,
    /// The policies as they were read last.
    pub(crate) known_policies: Arc<KnownPolicies>,
    /// Jobs and scripts as the file of settings last said them when it could be read.
    last_settings: Arc<Mutex<Option<Config>>>,
    /// The directory of the catalog that is open.
    catalog_inode: Option<u64>,
    /// Set when what waits for a drive or a person is to stop.
    pub(crate) stop: Arc<AtomicBool>,
}

/// What `init` is told.
pub struct InitOptions {
    /// Settings.
    pub config: Config,
    /// Cipher of the default pool.
    pub encryption: Option<Algorithm>,
    /// What holds the catalog's tables.
    pub database: Database,
}

impl Site {
    /// Makes a state directory; whatever exists already is left as it is. `unlock` will open its key store; a site of a
    /// key cluster has none.
    ///
    /// # Errors
    /// [`DirectorError::AlreadyInitialised`]; [`DirectorError::Config`] if a setting is wrong;
    /// [`DirectorError::KeysLocked`] without `unlock`. Otherwise something cannot be written: the directory is not
    /// whole then, and the same call may be made again.
    pub fn init(dir: &Path, options: &InitOptions, unlock: Option<&Unlock>) -> Result<(), DirectorError> {
        let config_path = dir.join("capstan.toml");
        if config_path.exists() {
            return Err(DirectorError::AlreadyInitialised { path: dir.to_owned() });
        }
        options.config.check().map_err(|reason| DirectorError::Config { path: config_path.clone(), reason })?;
        std::fs::create_dir_all(dir).map_err(DirectorError::host("make", dir))?;
        check_ours(dir)?;
        restrict(dir)?;
        match options.config.keys.cluster(dir) {
            // A file that was never made, or that others can read, is better known of today than at the first mount.
            Some(place) => drop(Identity::load(&place.identity).map_err(|error| cluster_error(error.into()))?),
            None => {
                let (store, unlock) = (key_store_path(dir), unlock.ok_or(DirectorError::KeysLocked)?);
                if !store.exists() {
                    SealedStore::create(&store, unlock, Argon2Cost::default())?;
                }
            }
        }
        let mut catalog = Catalog::create(&dir.join("catalog"), &options.database)?;
        let pool = Pool {
            name: DEFAULT_POOL.to_owned(),
            encryption: options.encryption,
            retention_ns: None,
            feed: ScratchFeed::Allowed,
        };
        catalog.put_pool(&pool)?;
        if options.config.library.is_folder_here() {
            options.config.library.open(dir, Arc::new(|_| {})).map_err(DirectorError::Changer)?;
            let library = &options.config.library;
            let folders = library.folders_below(dir);
            library_marker::adopt((&dir.join(&library.path), &folders), &mut catalog, MAIN_LIBRARY)?;
        }
        // Last, because its presence says that the directory is whole.
        let staged = dir.join("capstan.toml.new");
        std::fs::write(&staged, options.config.to_text()).map_err(DirectorError::host("write", &staged))?;
        std::fs::rename(&staged, &config_path).map_err(DirectorError::host("write", &config_path))
    }

    /// Opens a state directory. Without `unlock` everything works that needs no key; where a cluster keeps the keys it
    /// is not needed for anything, and nobody is asked before a key is wanted.
    ///
    /// # Errors
    /// [`DirectorError::NotInitialised`], [`DirectorError::StateUnreadable`] or [`DirectorError::CatalogMissing`] says
    /// what is not there; otherwise a setting is wrong, or `unlock` opens no key store.
    pub fn open(dir: &Path, unlock: Option<&Unlock>, clock: Clock, events: Events) -> Result<Self, DirectorError> {
        find_settings(dir)?;
        let named = dir;
        let stand_in = read_only::stand_in(named)?.map(Arc::new);
        let dir = stand_in.as_ref().map_or(named, |stand_in| stand_in.path());
        // An empty one in its place would say that nothing is protected.
        if !Catalog::exists(&dir.join("catalog")) {
            return Err(DirectorError::CatalogMissing { path: named.join("catalog") });
        }
        let catalog_inode = inode(&dir.join("catalog"));
        let catalog = Arc::new(Mutex::new(Catalog::open(&dir.join("catalog"))?));
        let mut site = Self { catalog_inode, ..Self::assemble(dir, catalog, unlock, clock, events)? };
        site = site.with_movers(&|mover| Arc::new(MoverSocket::new(named, mover)))?;
        site.fold_policies_in()?;
        Ok(Self { dir: named.to_owned(), stand_in, ..site })
    }

    /// Whether the state directory cannot be written: what is read works, and nothing that is found is recorded.
    pub fn is_read_only(&self) -> bool {
        self.stand_in.is_some()
    }

    /// The same open site, with jobs, scripts and policies as they are now, for a job that tells somebody else of its
    /// events.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn beside(&self, events: Events) -> Result<Self, DirectorError> {
        let mut site = Self { events, ..self.clone() };
        site.fold_policies_in_now()?;
        Ok(site)
    }

    /// The same site with a connection of its own to the catalog: whoever reads for long there holds up nobody. On a
    /// full disk it is this site itself.
    ///
    /// # Errors
    /// The catalog cannot be opened.
    pub fn with_own_catalog(&self) -> Result<Self, DirectorError> {
        let another = locked(&self.catalog).another()?;
        let catalog = another.map_or_else(|| Arc::clone(&self.catalog), |another| Arc::new(Mutex::new(another)));
        Ok(Self { catalog, ..self.clone() })
    }

    /// The same site, whose acts give up waiting for a drive or a person when this is set.
    #[must_use]
    pub fn stopped_by(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    /// Whether its acts are to stop.
    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The same site with another library than its settings name: what uses it, and how, is the caller's affair.
    #[must_use]
    pub fn with_library(self, library: impl Library + 'static) -> Self {
        let keys = self.block_keys();
        let changed = LibraryAt { library: Arc::new(Mutex::new(library)), ..(*self.library).clone() }.with_keys(keys);
        self.change_library(&changed)
    }

    /// The same site, whose jobs write in another of its libraries.
    ///
    /// # Errors
    /// [`DirectorError::UnknownLibrary`].
    pub fn in_library(mut self, name: &str) -> Result<Self, DirectorError> {
        self.library = Arc::clone(self.library_named(name)?);
        Ok(self)
    }

    /// The same site, whose jobs write with the drives that a storage unit has.
    #[must_use]
    pub fn with_drives_of(mut self, unit: &StorageUnit) -> Self {
        self.models = unit.models.clone().into();
        self
    }

    /// The library that this site's jobs write in.
    pub fn library_name(&self) -> &str {
        &self.library.name
    }

    /// The names of all libraries, that of the main one first.
    pub fn library_names(&self) -> Vec<String> {
        self.libraries.all().iter().map(|library| library.name.clone()).collect()
    }

    pub(crate) fn library_named(&self, name: &str) -> Result<&Arc<LibraryAt>, DirectorError> {
        self.libraries.get(name).ok_or_else(|| DirectorError::UnknownLibrary {
            name: name.to_owned(),
            known: self.library_names().join(", "),
        })
    }

    fn change_library(mut self, changed: &LibraryAt) -> Self {
        let name = changed.name.clone();
        self.libraries =
            self.libraries.changed(|other| if other.name == name { changed.clone() } else { other.clone() });
        self.with_library_of_before()
    }

    /// After all libraries were made anew.
    fn with_library_of_before(mut self) -> Self {
        if let Some(library) = self.libraries.get(&self.library.name) {
            self.library = Arc::clone(library);
        }
        self
    }

    /// The same site for the sources of another machine, as objects name it.
    #[must_use]
    pub fn for_client(mut self, client: &str) -> Self {
        client.clone_into(&mut self.client);
        self
    }

    /// The same site, whose sources are read by another machine than this one.
    #[must_use]
    pub fn with_sources(mut self, sources: Arc<dyn SourceHost>) -> Self {
        self.sources = sources;
        self
    }

    /// Whether sources are read in this process.
    pub fn sources_are_here(&self) -> bool {
        self.sources.is_here()
    }

    /// Looks at paths, where they are.
    pub(crate) fn look_at(&self, paths: &[PathBuf]) -> Result<Vec<io::Result<SourceFound>>, DirectorError> {
        Ok(self.sources.look(paths)?)
    }

    /// The same site with drives' keys from elsewhere than its settings say.
    #[must_use]
    pub fn with_keys(mut self, keys: impl KeyProvider + 'static) -> Self {
        self.keys = Some(Arc::new(keys));
        self.libraries = self.libraries.changed(|library| match library.config.mover.is_empty() {
            true => library.with_keys(self.block_keys()),
            false => library.clone(),
        });
        self.with_library_of_before()
    }

    /// The same site with other devices than its settings name, and the data path that takes their drives.
    #[must_use]
    pub fn with_devices(self, devices: Arc<dyn Devices>, data_path: MoverAt) -> Self {
        let changed = LibraryAt { devices, data_path, ..(*self.library).clone() };
        self.change_library(&changed)
    }

    /// The same site, whose drives are those of a mover elsewhere.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_mover(self, connect: Arc<dyn Connect>) -> Result<Self, DirectorError> {
        let keys = Arc::new(self.block_keys());
        let mover =
            RemoteMover::new(connect, keys).map_err(DirectorError::host("draw random numbers for", &self.dir))?;
        Ok(self.with_devices(Arc::new(mover.clone()), MoverAt::Elsewhere(mover)))
    }

    /// The same site, whose movers are reached so.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_movers(self, way_to: &dyn Fn(&str) -> Arc<dyn Connect>) -> Result<Self, DirectorError> {
        let (own, of_movers) = (self.library.name.clone(), self.libraries.clone());
        let mut site = self;
        for library in of_movers.all().iter().filter(|library| !library.config.mover.is_empty()) {
            site = site.in_library(&library.name)?.with_mover(way_to(&library.config.mover))?;
        }
        site.in_library(&own)
    }

    /// What mounts this site's volumes, and the data path that takes their drives: to be served to another process, or
    /// put behind something.
    pub fn devices(&self) -> (Arc<dyn Devices>, MoverAt) {
        (Arc::clone(&self.library.devices), self.library.data_path.clone())
    }

    /// Where volumes are read.
    pub(crate) fn routes(&self) -> Result<VolumeRoutes, DirectorError> {
        VolumeRoutes::new(&self.libraries, &self.catalog)
    }

    /// Who gives the keys that blocks name, to drives and to mounters.
    pub(crate) fn block_keys(&self) -> BlockKeys {
        BlockKeys {
            catalog: Arc::clone(&self.catalog),
            provider: self.keys.clone(),
            clock: self.clock,
            mounts: Arc::clone(&self.mounts),
        }
    }

    pub(crate) fn assemble(
        dir: &Path,
        catalog: Arc<Mutex<Catalog>>,
        unlock: Option<&Unlock>,
        clock: Clock,
        events: Events,
    ) -> Result<Self, DirectorError> {
        let config_path = find_settings(dir)?;
        let config = Config::read(&config_path)?;
        let (mut keys, mut store) = (None, None);
        match (config.keys.cluster(dir), unlock) {
            (Some(place), _) => keys = Some(Arc::new(key_cluster(place, clock, &events)) as SharedKeys),
            (None, Some(unlock)) => {
                let opened = Arc::new(Mutex::new(SealedStore::open(&key_store_path(dir), unlock)?));
                keys = Some(Arc::clone(&opened) as SharedKeys);
                store = Some(opened);
            }
            (None, None) => {}
        }
        let holds = Arc::new(Holds::new(&catalog, clock, &events));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let client = Some(config.client.clone()).filter(|name| !name.is_empty()).unwrap_or_else(|| host.clone());
        let mounts: Arc<Mounts> = Arc::default();
        let block_keys =
            || BlockKeys { catalog: Arc::clone(&catalog), provider: keys.clone(), clock, mounts: Arc::clone(&mounts) };
        let names: Vec<&str> = config.all_libraries().map(|(name, _)| name).collect();
        let opened: Result<Vec<_>, _> = config
            .all_libraries()
            .map(|named| LibraryAt::open(dir, named, &names, &mut locked(&catalog), block_keys(), &events))
            .collect();
        let libraries = Libraries::new(opened?);
        let library = Arc::clone(&libraries.all()[0]);
        Ok(Self {
            dir: dir.to_owned(),
            work_dir: dir.to_owned(),
            stand_in: None,
            config: Arc::new(config),
            catalog,
            keys,
            store,
            libraries,
            library,
            models: Arc::default(),
            mounts,
            holds,
            sessions: Arc::default(),
            unentered: Arc::default(),
            clock,
            events,
            client,
            sources: Arc::new(LocalSources),
            host,
            policy_names: Arc::default(),
            policy_faults: Arc::default(),
            known_policies: Arc::default(),
            last_settings: Arc::default(),
            catalog_inode: None,
            stop: Arc::default(),
        })
    }

    /// What the file of settings says now; while it cannot be read, what it said last: a mistake in it stops nothing
    /// that runs.
    pub(crate) fn settings_now(&self) -> Config {
        let mut last = locked(&self.last_settings);
        if let Ok(now) = self.read_settings() {
            *last = Some(now);
        }
        last.clone().unwrap_or_else(|| {
            let mut opened = (*self.config).clone();
            opened.jobs.retain(|name, _| !self.policy_names.contains(name));
            opened
        })
    }

    /// What is wrong with the file of settings now, if it cannot be read.
    pub fn settings_fault(&self) -> Option<DirectorError> {
        self.read_settings().err()
    }

    fn read_settings(&self) -> Result<Config, DirectorError> {
        Config::read(&find_settings(&self.dir)?)
    }

    /// Whether another catalog is in the place of the one that is open.
    pub(crate) fn catalog_was_replaced(&self) -> bool {
        self.catalog_inode.is_some() && self.catalog_inode != inode(&self.dir.join("catalog"))
    }

    /// The state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where this process keeps its locks.
    pub(crate) fn work_dir(&self) -> &Path {
        &self.work_dir
    }

    /// The key store that is missing; `None` where it is there, or a cluster keeps the keys.
    pub fn key_store_missing(&self) -> Option<PathBuf> {
        let store = key_store_path(&self.work_dir);
        (!self.config.keys.is_cluster() && !store.exists()).then_some(store)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The machine that sources are of.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Where the virtual cartridges of the library lie that this site's jobs write in.
    pub fn library_dir(&self) -> PathBuf {
        self.work_dir.join(&self.library.config.path)
    }

    /// The catalog, for questions.
    pub fn catalog(&self) -> MutexGuard<'_, Catalog> {
        locked(&self.catalog)
    }

    /// The key store of this machine, if it was unlocked. A site whose keys a cluster keeps has none.
    ///
    /// # Errors
    /// [`DirectorError::KeysInCluster`], or [`DirectorError::KeysLocked`] if nobody unlocked it.
    pub fn keys(&self) -> Result<MutexGuard<'_, SealedStore>, DirectorError> {
        if self.config.keys.is_cluster() {
            return Err(DirectorError::KeysInCluster { nodes: self.config.keys.nodes.join(", ") });
        }
        self.store.as_deref().map(locked).ok_or(DirectorError::KeysLocked)
    }

    /// The time by the clock of this process, nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        (self.clock)()
    }
}

/// What a directory is known by, wherever it is moved.
fn inode(directory: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(directory).ok().map(|metadata| metadata.ino())
}

/// Refuses a state directory that cannot be written, for what is more than reading.
///
/// # Errors
/// [`DirectorError::StateReadOnly`].
pub fn check_writable(dir: &Path) -> Result<(), DirectorError> {
    match read_only::can_write(dir) {
        true => Ok(()),
        false => Err(DirectorError::StateReadOnly { path: dir.to_owned() }),
    }
}

/// Keys from a cluster, whose notices go where this site's go.
pub fn key_cluster(place: ClusterPlace, clock: Clock, events: &Events) -> KeyCluster {
    let events = Arc::clone(events);
    KeyCluster::new(place, clock, Box::new(move |message| events(Event::Notice { message })))
}

fn cluster_error(error: capstan_keys::cluster::ClusterError) -> DirectorError {
    KeyError::Cluster(Box::new(error)).into()
}

/// Where the key store of a state directory lies.
pub fn key_store_path(dir: &Path) -> PathBuf {
    dir.join("keys.db")
}

/// What an initialisation that was stopped may have left, and what the laboratory measured before.
const OWN: [&str; 6] = ["keys.db", "keys.db-journal", "catalog", "library", "laboratory.json", "laboratory.lock"];

/// Refuses a directory that others use: nobody else could enter it any more.
fn check_ours(dir: &Path) -> Result<(), DirectorError> {
    let cannot = DirectorError::host("use", dir);
    let listed = std::fs::metadata(dir).and_then(|metadata| Ok((metadata.mode(), std::fs::read_dir(dir)?)));
    let listed = match listed {
        Ok((mode, _)) if mode & 0o077 == 0 => return Ok(()),
        Ok((_, listed)) => listed,
        Err(error) => return Err(cannot(error)),
    };
    let mut names = listed.filter_map(Result::ok).map(|entry| entry.file_name());
    match names.find(|name| !OWN.iter().any(|own| name == own)) {
        Some(name) => Err(cannot(io::Error::other(format!(
            "others may enter it, and it holds something else ({}): name a directory of its own",
            name.display()
        )))),
        None => Ok(()),
    }
}

fn restrict(dir: &Path) -> Result<(), DirectorError> {
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(dir, mode).map_err(DirectorError::host("restrict", dir))
}
