//! A state directory whose library is one of virtual drives that are spoken to in SCSI, in this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_catalog::{Database, Object, ObjectFilter, ObjectStatus};
use capstan_director::{Config, InitOptions, Site};
use capstan_format::Algorithm;
use capstan_keys::{Unlock, create_key_file};
use capstan_vtl::{LAYOUT_FILE, LocalLibrary, ServedLibrary};
use tempfile::TempDir;

/// The library, the site's secret, and the folder that holds all of it, with an empty source.
pub(crate) struct Ground {
    pub(crate) folder: TempDir,
    pub(crate) library: Arc<ServedLibrary>,
    pub(crate) unlock: Unlock,
}

impl Ground {
    /// Small blocks, small buffers, an encrypted pool; `configure` changes the rest.
    pub(crate) fn new(layout: &str, configure: impl FnOnce(&mut Config)) -> Self {
        let folder = fast_folder();
        fs::write(folder.path().join(LAYOUT_FILE), layout).unwrap();
        let library = Arc::new(ServedLibrary::open(folder.path(), None).unwrap());
        let unlock = create_key_file(&folder.path().join("key")).unwrap();
        let mut config = Config::default();
        config.library.changer = PathBuf::from("in this process");
        config.data.block_kib = 64;
        config.data.buffer_mib = 4;
        config.data.compression_level = 0;
        configure(&mut config);
        let options = InitOptions { config, encryption: Some(Algorithm::Aes256Gcm), database: Database::Sqlite };
        Site::init(&folder.path().join("state"), &options, Some(&unlock)).unwrap();
        fs::create_dir(folder.path().join("source")).unwrap();
        Self { folder, library, unlock }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    /// What a mover has of the library.
    pub(crate) fn robot(&self) -> LocalLibrary {
        LocalLibrary::new(Arc::clone(&self.library), "mover")
    }
}

/// Objects that were reported as protected, in order of time.
pub(crate) fn protected(site: &Site) -> Vec<Object> {
    let mut objects = site.catalog().objects(&ObjectFilter::default()).unwrap();
    objects.retain(|object| object.status == ObjectStatus::Complete);
    objects.sort_by_key(|object| object.started_ns);
    objects
}

pub(crate) fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_nanos()).unwrap()
}

/// Bytes that do not compress, the same for a seed.
pub(crate) fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Where synchronising costs nothing, if there is such a place.
fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}
