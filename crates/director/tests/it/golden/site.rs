//! A state directory around one golden cartridge.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_catalog::{Database, Object, ObjectFilter};
use capstan_director::{
    Clock, Config, Events, InitOptions, Place, RebuildOptions, RebuildReport, RestoreReport, Site, rebuild,
};
use capstan_keys::Name;
use capstan_keys::{Unlock, create_key_file};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::ExtractOptions;
use tempfile::TempDir;
use zeroize::Zeroizing;

/// Opens the export that lies beside the fixtures, as `testdata/format-v1/README.md` says.
pub(crate) const PASSPHRASE: &str = "golden volumes hold nothing secret";
/// When the fixtures are read; they were written in the minutes before and after.
pub(crate) const CLOCK: Clock = || 1_790_000_000_000_000_000;

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/format-v1")
}

/// What opens the key store of a state directory that is made below `directory`: a key file, which costs no time.
pub(crate) fn new_unlock(directory: &Path) -> Unlock {
    create_key_file(&directory.join("key")).unwrap()
}

pub(crate) fn no_events() -> Events {
    Arc::new(|_| ())
}

/// Whether the keys of the golden volumes are in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    Imported,
    Absent,
}

/// A state directory whose catalog was made from one cartridge.
pub(crate) struct Rebuilt {
    pub(crate) site: Site,
    pub(crate) report: RebuildReport,
    directory: TempDir,
}

impl Rebuilt {
    /// Puts a fixture into the library of a new state directory as volume `volser`, and rebuilds the catalog.
    pub(crate) fn from(fixture: &str, volser: &str, keys: Keys) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let mut config = Config::default();
        config.library.drives = 1;
        config.data.buffer_mib = 8;
        let unlock = new_unlock(directory.path());
        Site::init(&state, &InitOptions { config, encryption: None, database: Database::Sqlite }, Some(&unlock))
            .unwrap();
        let site = Site::open(&state, Some(&unlock), CLOCK, no_events()).unwrap();
        if keys == Keys::Imported {
            let export = fs::read(fixtures().join("keys.export")).unwrap();
            let imported = site
                .keys()
                .unwrap()
                .import(&export, &Zeroizing::new(PASSPHRASE.to_owned()), &Name::default(), CLOCK())
                .unwrap();
            assert_eq!(imported.len(), 2, "a key for each encrypted volume");
        }
        let slot = site.library_dir().join("slots").join(format!("{volser}.tape"));
        drop(site);
        fs::copy(fixtures().join(fixture), slot).unwrap();
        let report = rebuild(
            &state,
            Some(&unlock),
            CLOCK,
            no_events(),
            &RebuildOptions { discard_old: true, ..RebuildOptions::default() },
        )
        .unwrap();
        let site = Site::open(&state, Some(&unlock), CLOCK, no_events()).unwrap();
        Self { site, report, directory }
    }

    /// The objects, the oldest first.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let mut objects = self.site.catalog().objects(&ObjectFilter::default()).unwrap();
        objects.sort_by_key(|object| object.started_ns);
        objects
    }

    /// Restores an object; returns the report and where its source is now.
    pub(crate) fn restore(&self, object: &Object) -> (RestoreReport, PathBuf) {
        let to = self.directory.path().join(format!("restored-{}", object.id));
        let plan = self.site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        let report = self.site.restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
        let source = str::from_utf8(&object.source).unwrap().trim_start_matches('/').to_owned();
        (report, to.join(source))
    }
}
