//! Some paths of an object come back, at the server and at a client: what nobody named stays as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use capstan_director::{BackupRequest, Level, Place, RestorePlan, index_path};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::{ExtractOptions, ExtractProblemKind, ExtractReport, Overwrite};

use crate::over_network::{restore_as_planned, unbroken};
use crate::place::{Bench, noise, small};

#[derive(Debug, Clone, Copy)]
enum WrittenBy {
    Server,
    Client,
}

const EITHER: [WrittenBy; 2] = [WrittenBy::Server, WrittenBy::Client];

/// Where a path of the source comes back.
fn below(bench: &Bench, to: &Path, path: &str) -> PathBuf {
    to.join(bench.source().strip_prefix("/").unwrap()).join(path)
}

/// Restores paths of the source.
fn restore(bench: &Bench, by: WrittenBy, paths: &[&str], to: &Path, overwrite: Overwrite) -> ExtractReport {
    let (object, watch) = (bench.objects()[0].id, RestoreWatch::default());
    let whole = |path: &&str| index_path(bench.source().join(path).as_os_str().as_encoded_bytes());
    let place = Place { object, paths: paths.iter().map(whole).collect() };
    let plan = || bench.site().plan_restore(std::slice::from_ref(&place)).unwrap();
    let report = match by {
        WrittenBy::Server => {
            let options = ExtractOptions { overwrite, ..ExtractOptions::default() };
            bench.site().restore(&plan(), to, &options, &watch).unwrap()
        }
        WrittenBy::Client => {
            let those = |planned: &mut RestorePlan| *planned = plan();
            restore_as_planned(bench, &unbroken(), object, (to, overwrite), (&watch, &those)).0.unwrap()
        }
    };
    assert!(report.is_whole(), "{by:?}: {report:?}");
    report.extract.unwrap()
}

/// The content of a file stands in a backup under one of its names. Whoever asked for another one got that, too: it was
/// written over what stood there by now, which nobody had named.
#[test]
fn a_further_name_alone_is_a_file_of_its_own() {
    const NAMES: [&str; 3] = ["d/file-0", "d/other", "third"];
    let bench = Bench::new(small());
    bench.fill("d/file", 1, 9_000);
    NAMES[1..].iter().for_each(|name| fs::hard_link(bench.source().join(NAMES[0]), bench.source().join(name)).unwrap());
    bench.backup(&bench.request(Level::Full)).unwrap();
    let content = fs::read(bench.source().join(NAMES[0])).unwrap();
    for by in EITHER {
        for (number, name) in NAMES.iter().enumerate() {
            let to = bench.path(&format!("{by:?}-{number}"));
            let at = |name: &str| below(&bench, &to, name);
            fs::create_dir_all(at("d")).unwrap();
            let others = NAMES.iter().filter(|other| *other != name);
            others.clone().for_each(|other| fs::write(at(other), "the work of today").unwrap());
            let report = restore(&bench, by, &[name], &to, Overwrite::Changed);
            assert_eq!((report.files, report.hard_links, report.problems), (1, 0, vec![]), "{by:?} {name}");
            assert!(fs::read(at(name)).unwrap() == content && fs::metadata(at(name)).unwrap().nlink() == 1);
            others.for_each(|other| assert_eq!(fs::read(at(other)).unwrap(), b"the work of today", "{by:?} {name}"));

            // With nothing changed since, nothing is written.
            let report = restore(&bench, by, &[name], &to, Overwrite::Changed);
            assert_eq!((report.files, report.unchanged), (0, 1), "{by:?} {name}");

            // Two of the three are one file, and the third does not appear.
            let to = bench.path(&format!("{by:?}-without-{number}"));
            let at = |name: &str| below(&bench, &to, name);
            let two: Vec<_> = NAMES.into_iter().filter(|other| other != name).collect();
            let report = restore(&bench, by, &two, &to, Overwrite::Changed);
            assert_eq!((report.files, report.hard_links, report.problems), (1, 1, vec![]), "{by:?} {two:?}");
            assert_eq!(fs::metadata(at(two[0])).unwrap().ino(), fs::metadata(at(two[1])).unwrap().ino());
            assert!(fs::read(at(two[0])).unwrap() == content && !at(name).exists(), "{by:?} {two:?}");
        }
    }
}

/// To give one file back, its directory got the mode that it had had, and a link that stood for a directory was
/// replaced by one: what it led to was out of sight.
#[test]
fn directories_on_the_way_stay_as_they_are() {
    let bench = Bench::new(small());
    bench.fill("home/ada/f", 1, 9_000);
    fs::set_permissions(bench.source().join("home/ada"), Permissions::from_mode(0o751)).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    for (by, overwrite) in
        EITHER.into_iter().flat_map(|by| [Overwrite::Changed, Overwrite::Always].map(|how| (by, how)))
    {
        let case = format!("{by:?} {overwrite:?}");
        let to = bench.path(&case);
        let at = |path: &str| below(&bench, &to, path);
        let file = |report: &ExtractReport| (report.files, report.problems.len());
        let report = restore(&bench, by, &["home/ada/f-0"], &to, overwrite);
        assert_eq!((file(&report), mode(&at("home/ada"))), ((1, 0), 0o751), "{case}: a way that is missing is made");

        fs::set_permissions(at("home/ada"), Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(at("home/ada/f-0")).unwrap();
        let report = restore(&bench, by, &["home/ada/f-0"], &to, overwrite);
        assert_eq!((file(&report), mode(&at("home/ada"))), ((1, 0), 0o700), "{case}");
        restore(&bench, by, &["home/ada"], &to, overwrite);
        assert_eq!(mode(&at("home/ada")), 0o751, "{case}: it was asked for");

        let live = bench.path(&format!("{case}-live"));
        fs::create_dir(&live).unwrap();
        fs::remove_dir_all(at("home")).unwrap();
        symlink(&live, at("home")).unwrap();
        let report = restore(&bench, by, &["home/ada/f-0"], &to, overwrite);
        assert!(at("home").is_symlink() && fs::read_dir(&live).unwrap().count() == 0, "{case}");
        let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
        assert_eq!(report.files, 0, "{case}");
        assert!(
            kinds.contains(&ExtractProblemKind::InTheWay) && kinds.contains(&ExtractProblemKind::Refused),
            "{kinds:?}"
        );

        // Where it was asked for, it is replaced if everything is to be.
        let report = restore(&bench, by, &["home"], &to, overwrite);
        assert_eq!(at("home").is_symlink(), overwrite == Overwrite::Changed, "{case}: {:?}", report.problems);
        assert_eq!(fs::read_dir(&live).unwrap().count(), 0, "{case}");
    }
}

/// Two sources lay one in the other, and what was restored of both was the older version or the newer one by chance.
#[test]
fn two_versions_of_a_path_are_refused() {
    let bench = Bench::new(small());
    bench.fill("ada/f", 2, 9_000);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let inner = BackupRequest::of(vec![bench.source().join("ada")]);
    let checked = || {
        let places: Vec<_> = bench.objects().iter().map(|of| Place { object: of.id, paths: Vec::new() }).collect();
        let plan = bench.site().plan_restore(&places[..2]).unwrap();
        plan.check_strip(0).map(|()| plan)
    };
    bench.backup(&inner).unwrap();
    let (plan, to) = (checked().map_err(|error| error.to_string()).unwrap(), bench.path("alike"));
    let report = bench.site().restore(&plan, &to, &ExtractOptions::default(), &RestoreWatch::default()).unwrap();
    let extract = report.extract.unwrap();
    assert_eq!((extract.files, extract.kept, extract.problems), (2, 0, vec![]), "what is alike is written once");

    fs::write(bench.source().join("ada/f-0"), "NEW").unwrap();
    bench.backup(&BackupRequest { level: Level::Full, ..inner }).unwrap();
    let objects = bench.objects();
    let places = [&objects[0], &objects[2]].map(|of| Place { object: of.id, paths: Vec::new() });
    let refused = bench.site().plan_restore(&places).unwrap().check_strip(0).unwrap_err().to_string();
    assert!(refused.contains("different versions of") && refused.contains("ada/f-0"), "{refused}");
    assert!(refused.contains(&objects[0].id.to_string()) && refused.contains(&objects[2].id.to_string()), "{refused}");
}

/// A path that begins with what is taken away was given to whoever named another name of the file: nothing could be
/// restored, and the advice was of no help.
#[test]
fn a_further_name_alone_can_be_stripped() {
    let bench = Bench::new(small());
    fs::create_dir(bench.source().join("d")).unwrap();
    fs::write(bench.source().join("a"), noise(1, 9_000)).unwrap();
    fs::hard_link(bench.source().join("a"), bench.source().join("d/b")).unwrap();
    bench.backup(&bench.request(Level::Full)).unwrap();
    let depth = bench.source().components().count();
    for (name, strip) in [("d/b", depth), ("a", depth - 1)] {
        let path = index_path(bench.source().join(name).as_os_str().as_encoded_bytes());
        let plan = bench.site().plan_restore(&[Place { object: bench.objects()[0].id, paths: vec![path] }]).unwrap();
        plan.check_strip(strip).unwrap();
        let (to, options) = (bench.path(&format!("stripped-{strip}")), ExtractOptions { strip, ..Default::default() });
        let report = bench.site().restore(&plan, &to, &options, &RestoreWatch::default()).unwrap();
        assert_eq!((report.is_whole(), report.extract.unwrap().problems), (true, vec![]), "{name}");
        let found: Vec<_> = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found, [to.join(Path::new(name).file_name().unwrap())]);
        assert_eq!(fs::read(&found[0]).unwrap(), noise(1, 9_000));
    }
}
