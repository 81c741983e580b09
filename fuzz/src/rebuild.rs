//! The whole way of hostile blocks: into the catalog by a rebuild, through listing and planning, to restored files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use capstan_catalog::{Database, ObjectFilter};
use capstan_director::{Clock, Config, Events, InitOptions, Place, RebuildOptions, Site};
use capstan_format::Volser;
use capstan_keys::create_key_file;
use capstan_mover::RestoreWatch;
use capstan_mover::extract::{DeviceNodes, ExtractOptions};
use tempfile::TempDir;

use crate::scratch;
use crate::script::{VOLSER, write_cartridge};

const CLOCK: Clock = || 1_790_000_000_000_000_000;
/// Longest restore that is carried out: what a catalog part claims need not be there.
const RESTORE_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    static STATE: State = State::new();
}

struct State {
    directory: TempDir,
}

/// A library with one plain volume whose blocks the input made up: rebuilt into an empty catalog, listed, planned,
/// verified and restored.
pub fn rebuild(data: &[u8]) {
    STATE.with(|state| state.rebuild(data));
}

impl State {
    fn new() -> Self {
        let directory = scratch::directory();
        let mut config = Config::default();
        config.library.drives = 1;
        config.data.buffer_mib = 8;
        let unlock = create_key_file(&directory.path().join("key")).expect("room for a key file");
        Site::init(
            &directory.path().join("state"),
            &InitOptions { config, encryption: None, database: Database::Sqlite },
            Some(&unlock),
        )
        .expect("a new state directory");
        Self { directory }
    }

    fn rebuild(&self, script: &[u8]) {
        let state = self.directory.path().join("state");
        drop(write_cartridge(&state.join("library/slots").join(format!("{VOLSER}.tape")), script));
        let events: Events = Arc::new(|_| ());
        let options = RebuildOptions { discard_old: true, ..RebuildOptions::default() };
        let rebuilt = capstan_director::rebuild(&state, None, CLOCK, Arc::clone(&events), &options);
        let report = rebuilt.expect("one bad volume is no reason for a rebuild to fail");
        let site = Site::open(&state, None, CLOCK, events).expect("the state directory was just made");
        let objects = site.catalog().objects(&ObjectFilter::default()).expect("the catalog can be listed");
        assert_eq!(objects.len() as u64, report.complete + report.open);
        for object in &objects {
            let place = Place { object: object.id, paths: Vec::new() };
            self.restore(&site, place);
            let _ = site.verify_objects(std::slice::from_ref(object), &RestoreWatch::default());
        }
        let volser = Volser::new(VOLSER).expect("a barcode");
        let _ = site.verify_volume(&volser, &RestoreWatch::default());
    }

    fn restore(&self, site: &Site, place: Place) {
        let Ok(plan) = site.plan_restore(&[place]) else { return };
        if plan.bytes > RESTORE_BYTES_MAX || plan.read_bytes > RESTORE_BYTES_MAX {
            return;
        }
        let to = self.directory.path().join("restored");
        let options = ExtractOptions { devices: DeviceNodes::Refuse, ..ExtractOptions::default() };
        let _ = site.restore(&plan, &to, &options, &Arc::new(RestoreWatch::default()));
        remove(&to);
    }
}

fn remove(directory: &Path) {
    if directory.exists() {
        fs::remove_dir_all(directory).expect("what was restored can be removed");
    }
}
