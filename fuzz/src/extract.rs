//! Restoring hostile streams: nothing outside the target is touched.
//!
//! ```text
//! DIRECTORY/canary/letter, canary/sealed/     must be at the end what they were at the beginning
//! DIRECTORY/target/                           the target; some things are in it already, links out of it too
//! ```

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use capstan_mover::extract::{DeviceNodes, Durability, ExtractOptions, MemberChoice, Overwrite, Owners, RestoreTarget};
use tempfile::TempDir;

use crate::input::Input;
use crate::{mend, scratch};

/// What the stream of each run may be extracted over.
const FURNISHED: u8 = 4;
const SPILLING: u8 = 8;
const OWNED: u8 = 16;
const IN_TWO: u8 = 32;

struct Cage {
    directory: TempDir,
    outside: Vec<String>,
}

thread_local! {
    static CAGE: Cage = Cage::new();
}

/// A stream of any bytes (behind a first one that chooses the options), its checksums made right, extracted as root or
/// as whoever runs this: what lies beside the target stays as it is, to the time of its last change.
pub fn extract(data: &[u8]) {
    let mut input = Input::new(data);
    let settings = input.byte();
    let mut stream = input.rest().to_vec();
    mend::pax_headers(&mut stream);
    CAGE.with(|cage| cage.extract(settings, &stream));
}

impl Cage {
    fn new() -> Self {
        let directory = scratch::directory();
        let canary = directory.path().join("canary");
        fs::create_dir_all(canary.join("sealed")).expect("make a directory");
        fs::write(canary.join("letter"), "not yours").expect("make a file");
        symlink("letter", canary.join("alias")).expect("make a link");
        let outside = look(&canary);
        Self { directory, outside }
    }

    fn extract(&self, settings: u8, stream: &[u8]) {
        let place = self.directory.path().join("target");
        if settings & FURNISHED != 0 {
            furnish(&place);
        }
        let options = ExtractOptions {
            overwrite: match settings & 3 {
                0 => Overwrite::Never,
                1 => Overwrite::Changed,
                _ => Overwrite::Always,
            },
            owners: if settings & OWNED != 0 { ExtractOptions::default().owners } else { Owners::Caller },
            // A node of this machine's devices is nothing to leave lying about, not even here.
            devices: DeviceNodes::Refuse,
            durability: Durability::Lazy,
            strip: 0,
            deferred_bytes_max: if settings & SPILLING != 0 { 64 } else { 1 << 20 },
        };
        let target = RestoreTarget::new(&place, options).expect("the target can be made");
        let mut extractor = target.extractor();
        let (first, second) = stream.split_at(if settings & IN_TWO != 0 { stream.len() / 1024 * 512 } else { 0 });
        for mut part in [first, second] {
            // A stream that cannot be read on is an answer; what it left behind is looked at below.
            let _ = extractor.extract(&mut part, &mut |_| MemberChoice::Take, &mut |_| ());
        }
        drop(extractor);
        let _ = target.finish();

        let temporary = fs::read_dir(&place).expect("the target is there").filter(|entry| {
            let name = entry.as_ref().map(fs::DirEntry::file_name).unwrap_or_default();
            name.as_bytes().starts_with(b".capstan-restore-")
        });
        let named_so = stream.windows(17).any(|bytes| bytes == b".capstan-restore-");
        assert!(named_so || temporary.count() == 0, "an unfinished file was left behind");
        assert_eq!(
            look(&self.directory.path().join("canary")),
            self.outside,
            "something outside the target was touched"
        );
        clear(&place);
        let beside = fs::read_dir(self.directory.path()).expect("the directory is there").count();
        assert_eq!(beside, 1, "something was made beside the target");
    }
}

/// What a stream meets in a target that was restored to before, or prepared by somebody.
fn furnish(place: &Path) {
    fs::create_dir_all(place.join("d/e")).expect("make a directory");
    fs::write(place.join("f"), "old").expect("make a file");
    fs::hard_link(place.join("f"), place.join("d/f")).expect("make a hard link");
    for (target, name) in [("../canary", "out"), ("../canary/letter", "l"), ("d", "s"), ("nowhere", "dangling")] {
        symlink(target, place.join(name)).expect("make a link");
    }
}

/// Everything below a directory with what a change would change.
fn look(directory: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let stat = path.symlink_metadata().expect("it is there");
        let content = if stat.is_file() { fs::read(&path).expect("it can be read") } else { Vec::new() };
        seen.push(format!(
            "{} {:o} {}:{} links {} changed {}.{} {content:?}",
            path.display(),
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.nlink(),
            stat.ctime(),
            stat.ctime_nsec()
        ));
        if stat.is_dir() {
            left.extend(fs::read_dir(&path).expect("it can be listed").map(|entry| entry.expect("listed").path()));
        }
    }
    seen.sort();
    seen
}

/// Removes a tree whose directories may have any mode.
fn clear(directory: &Path) {
    if fs::remove_dir_all(directory).is_ok() {
        return;
    }
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        if path.symlink_metadata().is_ok_and(|stat| stat.is_dir()) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
            left.extend(fs::read_dir(&path).expect("it can be listed").map(|entry| entry.expect("listed").path()));
        }
    }
    fs::remove_dir_all(directory).expect("the target can be removed");
}
