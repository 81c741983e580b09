//! A state directory and a source tree for tests, with a hand on every checkpoint.

pub(crate) mod database;
pub(crate) mod spoil;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use capstan_catalog::{Object, ObjectFilter};
use capstan_director::{
    BackupReport, BackupRequest, BackupWatch, Config, DirectorError, Event, InitOptions, Level, Place, RestoreReport,
    Site,
};
use capstan_format::Algorithm;
use capstan_keys::SealedStore;
use capstan_keys::{Unlock, create_key_file};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use tempfile::TempDir;

type Hook = Box<dyn FnMut(&Event) + Send>;

/// A state directory, the key file that opens it, and a source tree.
pub(crate) struct Bench {
    dir: TempDir,
    pub(crate) unlock: Unlock,
    hook: Arc<Mutex<Option<Hook>>>,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
}

/// Small blocks, small buffers, a checkpoint every MiB.
pub(crate) fn small() -> Config {
    let mut config = Config::default();
    config.data.block_kib = 64;
    config.data.buffer_mib = 4;
    config.data.checkpoint_mib = 1;
    config.data.compression_level = 0;
    config.data.extent_worthwhile_mib = 1;
    config.data.extent_longest_mib = 1;
    config.library.volume_mib = 64;
    config
}

pub(crate) fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_nanos()).unwrap()
}

impl Bench {
    pub(crate) fn new(config: Config) -> Self {
        Self::encrypted(config, None)
    }

    /// With a default pool that is encrypted, or not.
    pub(crate) fn encrypted(config: Config, encryption: Option<Algorithm>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let options = InitOptions { config, encryption, database: database::database() };
        Site::init(&dir.path().join("state"), &options, Some(&unlock)).unwrap();
        fs::create_dir(dir.path().join("source")).unwrap();
        Self { dir, unlock, hook: Arc::default(), notices: Arc::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    pub(crate) fn cartridge(&self, volser: &str) -> PathBuf {
        self.path(&format!("state/library/slots/{volser}.tape"))
    }

    pub(crate) fn site(&self) -> Site {
        let (hook, notices) = (Arc::clone(&self.hook), Arc::clone(&self.notices));
        let events = Arc::new(move |event: Event| {
            if let Event::Notice { message } = &event {
                notices.lock().unwrap().push(message.clone());
            }
            if let Some(hook) = hook.lock().unwrap().as_mut() {
                hook(&event);
            }
        });
        self.site_told(events)
    }

    /// A site that tells what happens to somebody else.
    pub(crate) fn site_told(&self, events: Arc<dyn Fn(Event) + Send + Sync>) -> Site {
        Site::open(&self.path("state"), Some(&self.unlock), now_ns, events).unwrap()
    }

    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.lock().unwrap() = hook;
    }

    /// Files of `len` bytes that do not compress and differ, `name-0` and so on.
    pub(crate) fn fill(&self, name: &str, count: u32, len: usize) {
        for number in 0..count {
            let path = self.source().join(format!("{name}-{number}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, noise(u64::from(number) * 7919 + name.len() as u64 * 31 + 1, len)).unwrap();
        }
    }

    pub(crate) fn request(&self, level: Level) -> BackupRequest {
        BackupRequest { connections: 2, level, ..BackupRequest::of(vec![self.source()]) }
    }

    pub(crate) fn backup(&self, request: &BackupRequest) -> Result<BackupReport, DirectorError> {
        self.site().backup(request, &BackupWatch::default())
    }

    /// A backup that is stopped once `checkpoints` of them are recorded; each is told to `seen` first.
    pub(crate) fn interrupted(
        &self,
        request: &BackupRequest,
        checkpoints: u32,
        mut seen: impl FnMut(u32) + Send + 'static,
    ) {
        let watch = BackupWatch::default();
        let stop = Arc::clone(&watch.stop);
        let mut count = 0;
        self.set_hook(Some(Box::new(move |event| {
            if matches!(event, Event::Checkpoint { .. }) {
                count += 1;
                seen(count);
                if count == checkpoints {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        })));
        let ended = self.site().backup(request, &watch);
        self.set_hook(None);
        assert!(matches!(ended, Err(DirectorError::Interrupted)), "{ended:?}");
    }

    pub(crate) fn objects(&self) -> Vec<Object> {
        self.site().catalog().objects(&ObjectFilter::default()).unwrap()
    }

    pub(crate) fn restore(&self, object: &Object, to: &str) -> RestoreReport {
        let site = self.site();
        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        site.restore(&plan, &self.path(to), &ExtractOptions::default(), &RestoreWatch::default()).unwrap()
    }

    /// Restores everything and compares it with the source.
    pub(crate) fn assert_restores(&self, object: &Object, to: &str) {
        let report = self.restore(object, to);
        let reasons: Vec<_> = report.failed.iter().map(|file| &file.reason).take(3).collect();
        assert!(report.is_whole(), "{} failed, {} lost: {reasons:?}", report.failed.len(), report.lost.len());
        let source = self.source();
        let restored = self.path(to).join(source.strip_prefix("/").unwrap());
        let (found, wanted) = (tree(&restored), tree(&source));
        let differs = wanted.iter().filter(|(path, is)| found.get(*path) != Some(is)).map(|(path, _)| path);
        let extra = found.keys().filter(|path| !wanted.contains_key(*path));
        let odd: Vec<_> = differs.chain(extra).take(5).collect();
        assert!(odd.is_empty(), "{odd:?} differ");
    }

    /// Makes the catalog anew from the volumes.
    pub(crate) fn rebuild(&self) {
        let events = Arc::new(|_| ());
        capstan_director::rebuild(
            &self.path("state"),
            Some(&self.unlock),
            now_ns,
            events,
            &capstan_director::RebuildOptions { discard_old: true, forget_absent: true, database: None },
        )
        .unwrap();
    }

    /// What the catalog knows that volumes hold, a line a row.
    pub(crate) fn dump(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.site().catalog().dump(&mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    /// The key store, as another program would open it.
    pub(crate) fn keys(&self) -> SealedStore {
        SealedStore::open(&self.path("state/keys.db"), &self.unlock).unwrap()
    }

    /// Changes the catalog behind its back.
    pub(crate) fn sql(&self, statements: &str) {
        database::sql(&self.path("state/catalog"), statements);
    }

    pub(crate) fn put_back(&self, name: &str, place: &str) {
        let place = self.path(place);
        fs::remove_dir_all(&place).unwrap();
        copy_tree(&self.path(name), &place);
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &place),
            false => database::copy_file(&entry.path(), &place),
        }
    }
}

/// Path to mode, time and content of everything below a directory.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, i64, usize, u32)> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mut content = Vec::new();
            if metadata.is_dir() {
                left.push(path.clone());
            } else {
                content = fs::read(&path).unwrap();
            }
            let crc = capstan_format::crc32c(&content);
            found.insert(
                path.strip_prefix(dir).unwrap().to_owned(),
                (metadata.mode(), metadata.mtime(), content.len(), crc),
            );
        }
    }
    found
}
