//! A site with two libraries: a job writes in one of them, and reads from both.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use capstan_catalog::{Grant, Object, Resource, SeatsWanted, Wish};
use capstan_director::{
    BackupRequest, BackupWatch, Config, DirectorError, Event, Level, Loss, OtherPolicies, Place, RestoreReport, Site,
    UnitConfig, Whereabouts,
};
use capstan_mover::devices::LibraryConfig;
use capstan_mover::extract::{ExtractOptions, ExtractReport};
use capstan_mover::{RestoreInto, RestoreWatch};

use crate::mover_elsewhere::{FromClient, Mover, at, latest, with_client};
use crate::place::database::refuse_checkpoints;
use crate::place::{Bench, small, tree};

/// Settings with a second library in a folder of this host, or at mover rook; and a unit of both.
fn two_libraries(mover: &str) -> Config {
    let mut config = small();
    let west = LibraryConfig { path: PathBuf::from("west"), mover: mover.to_owned(), ..config.library.clone() };
    config.libraries.insert("west".to_owned(), west);
    let both = UnitConfig { libraries: vec!["west".into(), "main".into()], ..UnitConfig::default() };
    config.units.insert("both".to_owned(), both);
    config
}

/// The site, with its second library at a mover, if there is one.
fn site(bench: &Bench, mover: Option<&Arc<Mover>>) -> Site {
    let site = bench.site();
    match mover {
        None => site,
        Some(mover) => at(mover, site.in_library("west").unwrap()).in_library("main").unwrap(),
    }
}

fn back_up_in(site: &Site, library: &str, request: &BackupRequest) {
    let site = site.clone().in_library(library).unwrap();
    let report = site.backup(request, &BackupWatch::default()).unwrap();
    assert!(report.failed_copies.is_empty() && report.sources[0].report.is_ok(), "{report:?}");
}

fn libraries_of(site: &Site) -> Vec<(String, String)> {
    let volumes = site.catalog().volumes().unwrap();
    volumes.into_iter().map(|volume| (volume.volser.to_string(), volume.library)).collect()
}

fn restore(site: &Site, bench: &Bench, object: &Object, to: &str) -> RestoreReport {
    let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
    site.restore(&plan, &bench.path(to), &ExtractOptions::default(), &RestoreWatch::default()).unwrap()
}

fn assert_restores(site: &Site, bench: &Bench, to: &str) {
    let report = restore(site, bench, &latest(bench), to);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(tree(&bench.path(to).join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
}

#[test]
fn a_job_writes_in_one_library_and_reads_from_both() {
    for mover in ["", "rook"] {
        let bench = Bench::new(two_libraries(mover));
        bench.fill("a", 60, 50_000);
        let mover = (!mover.is_empty()).then(|| Mover::of_library(&bench, "west"));
        let site = site(&bench, mover.as_ref());
        back_up_in(&site, "main", &bench.request(Level::Full));
        bench.fill("b", 40, 50_000);
        back_up_in(&site, "west", &BackupRequest { copies: 2, ..bench.request(Level::Incremental) });
        let (main, west) = ("main".to_owned(), "west".to_owned());
        let of = |site: &Site| libraries_of(site).into_iter().map(|(_, library)| library).collect::<Vec<_>>();
        assert_eq!(of(&site), [main.clone(), west.clone(), west.clone()]);
        assert_restores(&site, &bench, "both");

        let objects = bench.objects();
        let verified = site.verify_objects(&objects, &RestoreWatch::default()).unwrap();
        assert!(verified.len() == 3 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
        for (volser, _) in libraries_of(&site) {
            let report = site.verify_volume(&volser.parse().unwrap(), &RestoreWatch::default()).unwrap();
            assert!(report.is_whole() && report.bad.is_empty() && report.blocks > 0, "{volser}: {report:?}");
        }
        // A copy of what the main library has, where the pool's volumes are: it is read there and written here.
        let full = objects.iter().min_by_key(|object| object.id).unwrap();
        let copied = site.clone().in_library_of_pool("default-copy2").unwrap();
        copied.copy_objects(std::slice::from_ref(full), "default-copy2", &RestoreWatch::default()).unwrap();
        assert_eq!(of(&site), [main, west.clone(), west], "it went on the volume that was there");
        let verified = site.verify_objects(std::slice::from_ref(full), &RestoreWatch::default()).unwrap();
        assert!(verified.len() == 2 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");

        // What is lost with a volume of one library is copied anew to it from the other one.
        let (lost, _) = libraries_of(&site).into_iter().rfind(|(_, library)| library == "west").unwrap();
        let lost = lost.parse().unwrap();
        site.label(&lost, None, None, Loss::Accept, capstan_catalog::Promise::Keep).unwrap();
        let mended = site.repair(&[], capstan_director::Shortfall::Fail, &RestoreWatch::default()).unwrap();
        assert!(mended.copies.iter().all(|copy| copy.failure.is_none()), "{mended:?}");
        let verified = site.verify_objects(&bench.objects(), &RestoreWatch::default()).unwrap();
        assert!(verified.len() == 4 && verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");
        assert_restores(&site, &bench, "mended");
    }
}

/// The backup went to tape first, and its copy to disk: the copy's number said that the tape is read.
#[test]
fn what_is_on_disk_and_on_tape_comes_from_disk() {
    let mut config = two_libraries("");
    config.library.pace = "LTO-8".to_owned();
    let bench = Bench::new(config);
    bench.fill("a", 20, 30_000);
    let site = bench.site();
    back_up_in(&site, "main", &bench.request(Level::Full));
    site.add_pool("disk", None, None).unwrap();
    let object = latest(&bench);
    let from = |site: &Site| {
        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        let libraries = libraries_of(site);
        let library = |volser: &str| libraries.iter().find(|(known, _)| known == volser).unwrap().1.clone();
        plan.passes.iter().map(|pass| library(pass.volser.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(from(&site), ["main"]);
    site.clone()
        .in_library("west")
        .unwrap()
        .copy_objects(std::slice::from_ref(&object), "disk", &RestoreWatch::default())
        .unwrap();
    assert_eq!(from(&site), ["west"]);
    assert_restores(&site, &bench, "from-disk");
    let volume = site.catalog().copies(object.id).unwrap()[1].volumes[0].clone();
    std::fs::remove_file(bench.path(&format!("state/west/slots/{volume}.tape"))).unwrap();
    assert_eq!(from(&site), ["main"], "and from tape where that is all there is");
}

/// A restore waited for a volume that a backup was writing on, and the other copy lay free.
#[test]
fn the_copy_is_read_that_nobody_writes_beside() {
    let bench = Bench::new(Config::default());
    bench.fill("a", 20, 30_000);
    let site = bench.site();
    bench.backup(&BackupRequest { copies: 2, ..bench.request(Level::Full) }).unwrap();
    let object = latest(&bench);
    let copies = site.catalog().copies(object.id).unwrap();
    let [first, second] = &copies[..] else { panic!("{copies:?}") };
    let from = || {
        let plan = site.plan_restore(&[Place { object: object.id, paths: Vec::new() }]).unwrap();
        plan.passes.iter().map(|pass| pass.volser.clone()).collect::<Vec<_>>()
    };
    assert_eq!(from(), first.volumes);
    let wish = Wish::alone(Resource::Volume(first.volumes[0].clone()));
    let held = site.catalog().reserve(&wish, "elsewhere 1 1", i64::MAX, &|_| false);
    let Grant::Held(generation) = held.unwrap() else { panic!("it is free") };
    assert_eq!(from(), second.volumes);
    assert_restores(&site, &bench, "beside");
    site.catalog().release(&[generation]).unwrap();
    assert_eq!(from(), first.volumes);
}

#[test]
fn a_rebuild_finds_the_volumes_of_each_library_where_they_are() {
    let bench = Bench::new(two_libraries(""));
    bench.fill("a", 30, 50_000);
    back_up_in(&bench.site(), "main", &bench.request(Level::Full));
    bench.fill("b", 30, 50_000);
    back_up_in(&bench.site(), "west", &bench.request(Level::Incremental));
    let (dump, libraries) = (bench.dump(), libraries_of(&bench.site()));
    bench.rebuild();
    assert_eq!((bench.dump(), libraries_of(&bench.site())), (dump, libraries));
    bench.assert_restores(&latest(&bench), "rebuilt");
}

/// Files of one stream are on two volumes, and these in two libraries.
#[test]
fn a_volume_that_was_moved_is_found_and_a_stream_goes_on_in_another_library() {
    for mover in ["", "rook"] {
        let mut config = two_libraries("");
        config.library.volume_mib = 8;
        let bench = Bench::new(config);
        bench.fill("a", 240, 50_000);
        back_up_in(&bench.site(), "main", &BackupRequest { connections: 1, ..bench.request(Level::Full) });
        let volumes: Vec<String> = libraries_of(&bench.site()).into_iter().map(|(volser, _)| volser).collect();
        assert_eq!(volumes.len(), 2, "{volumes:?}");
        let second = bench.path(&format!("state/west/slots/{}.tape", volumes[1]));
        std::fs::create_dir_all(second.parent().unwrap()).unwrap();
        std::fs::rename(bench.cartridge(&volumes[1]), second).unwrap();
        let settings = bench.path("state/capstan.toml");
        let text = std::fs::read_to_string(&settings).unwrap();
        let (before, west) = text.split_once("[libraries.west]").unwrap();
        let west = west.replacen("mover = \"\"", &format!("mover = \"{mover}\""), 1);
        std::fs::write(&settings, format!("{before}[libraries.west]{west}")).unwrap();
        let mover = (!mover.is_empty()).then(|| Mover::of_library(&bench, "west"));
        let site = site(&bench, mover.as_ref());
        assert_eq!(site.config().libraries["west"].mover.is_empty(), mover.is_none());
        let known = site.catalog().volumes().unwrap();
        let places = site.whereabouts(&known).unwrap();
        assert!(places.iter().all(|place| matches!(place, Whereabouts::At(_))), "{places:?}");
        assert_restores(&site, &bench, "moved");
        assert_eq!(libraries_of(&site)[1], (volumes[1].clone(), "west".to_owned()));
        // One file that begins on one volume and ends on the other; and the object as one stream.
        let mut stream = Vec::new();
        site.cat_object(latest(&bench).id, &mut stream).unwrap();
        assert!(stream.len() > 240 * 50_000);
        let verified = site.verify_objects(&bench.objects(), &RestoreWatch::default()).unwrap();
        assert!(verified[0].report.is_whole() && verified[0].report.members == 241, "{verified:?}");
    }
}

/// Restores the latest object at a client, after something happened to what it was planned on: the report, and what was
/// told when it was finished.
fn restore_to_client(
    bench: &Bench,
    site: &Site,
    way: &FromClient,
    to: &str,
    happens: &dyn Fn(),
) -> (RestoreReport, Vec<u64>) {
    let (to, written) = (bench.path(to), Mutex::new(Vec::new()));
    let told = |report: &ExtractReport| written.lock().unwrap().push(report.files);
    let into = RestoreInto { directory: &to, options: ExtractOptions::default(), told: &told };
    let report = with_client(way, Some(into), |job| {
        let plan = site.plan_restore(&[Place { object: latest(bench).id, paths: Vec::new() }]).unwrap();
        happens();
        site.restore_to_client(&plan, &job, &RestoreWatch::default()).unwrap()
    });
    (report, written.into_inner().unwrap())
}

#[test]
fn a_client_gets_back_what_lies_in_two_libraries() {
    let mut config = two_libraries("rook");
    config.libraries.get_mut("west").unwrap().volume_mib = 8;
    let bench = Bench::new(config);
    bench.fill("a", 40, 50_000);
    let mover = Mover::of_library(&bench, "west");
    let site = site(&bench, Some(&mover));
    back_up_in(&site, "main", &bench.request(Level::Full));
    bench.fill("b", 200, 50_000);
    // A link alone may go unnoticed (its change time within the same second, one of 256), and a-3 is to be in the west.
    std::fs::write(bench.source().join("a-3"), "other words").unwrap();
    std::fs::hard_link(bench.source().join("a-3"), bench.source().join("linked")).unwrap();
    back_up_in(&site, "west", &BackupRequest { connections: 1, ..bench.request(Level::Incremental) });
    let volumes: Vec<String> = libraries_of(&site).into_iter().map(|(volser, _)| volser).collect();
    assert_eq!(volumes.len(), 3, "two are in the west: {volumes:?}");
    let way = FromClient::new(Arc::clone(&mover));
    let (report, written) = restore_to_client(&bench, &site, &way, "whole", &|| ());
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(written, [240], "it is finished once, behind the last library");
    assert_eq!(way.to_mover.load(Ordering::Relaxed), 1);
    let restored = |to: &str| tree(&bench.path(to).join(bench.source().strip_prefix("/").unwrap()));
    assert_eq!(restored("whole"), tree(&bench.source()));

    // A volume of the second library is in the vault: what is on it is missing, and nothing else.
    let slot = bench.path(&format!("state/west/slots/{}.tape", volumes[2]));
    std::fs::rename(&slot, bench.path("vault")).unwrap();
    let (report, written) = restore_to_client(&bench, &site, &way, "in-part", &|| ());
    let (failed, files) = (report.failed.len() as u64, written[0]);
    assert!(failed > 20 && failed < 120 && files >= 240 - failed, "{failed} failed, {files} are there");
    std::fs::rename(bench.path("vault"), slot).unwrap();
    // The mover goes away behind the plan: what is in the main library comes, and is finished.
    let (report, written) = restore_to_client(&bench, &site, &way, "without", &|| mover.dies());
    assert!(report.failed.len() >= 200 && report.failed[0].reason.contains("mover"), "{:?}", report.failed.first());
    // The file of two names has changed since the full backup, so it is in the second.
    assert_eq!((written, restored("without").len()), (vec![39], 39), "a-3 was changed, so it is in the other library");
}

/// What cannot be read in one library comes from a copy in the other one, in the same restore.
#[test]
fn a_copy_in_another_library_stands_in() {
    for what in ["label", "blocks"] {
        let bench = Bench::new(two_libraries(""));
        bench.fill("a", 40, 50_000);
        let site = bench.site();
        back_up_in(&site, "main", &bench.request(Level::Full));
        site.add_pool("vault", None, None).unwrap();
        let west = site.clone().in_library("west").unwrap();
        west.copy_objects(&[latest(&bench)], "vault", &RestoreWatch::default()).unwrap();
        drop((site, west));
        let (volser, library) = libraries_of(&bench.site()).remove(0);
        assert_eq!(library, "main");
        let cartridge = bench.cartridge(&volser);
        let mut bytes = std::fs::read(&cartridge).unwrap();
        let from = if what == "label" { 0 } else { bytes.len() / 3 };
        bytes[from..].iter_mut().take(300_000).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&cartridge, bytes).unwrap();
        assert_restores(&bench.site(), &bench, "restored");
    }
}

/// The same of a restore to a client: blocks of the first copy are damaged; its mover goes away behind the plan; or
/// while it reads.
#[test]
fn a_client_gets_what_cannot_be_read_from_a_copy_in_another_library() {
    for what in ["damaged", "away", "dies"] {
        let mut config = two_libraries("rook");
        // What is on a disk here would come first.
        config.library.pace = "LTO-8".to_owned();
        let bench = Bench::new(config);
        bench.fill("a", 200, 50_000);
        let mover = Mover::of_library(&bench, "west");
        let first = site(&bench, Some(&mover));
        back_up_in(&first, "west", &BackupRequest { connections: 1, ..bench.request(Level::Full) });
        first.add_pool("vault", None, None).unwrap();
        let main = first.clone().in_library("main").unwrap();
        main.copy_objects(&[latest(&bench)], "vault", &RestoreWatch::default()).unwrap();
        drop((first, main));
        let (volser, library) = libraries_of(&bench.site()).remove(0);
        assert_eq!(library, "west");
        if what == "damaged" {
            let cartridge = bench.path(&format!("state/west/slots/{volser}.tape"));
            let mut bytes = std::fs::read(&cartridge).unwrap();
            let from = bytes.len() / 3;
            bytes[from..].iter_mut().take(300_000).for_each(|byte| *byte ^= 0x55);
            std::fs::write(&cartridge, bytes).unwrap();
        }
        let (dying, way) = (Arc::clone(&mover), FromClient::new(Arc::clone(&mover)));
        let dies = move |event: &Event| {
            if matches!(event, Event::Mounted { .. }) {
                dying.dies();
            }
        };
        bench.set_hook((what == "dies").then_some(Box::new(dies)));
        let again = site(&bench, Some(&mover));
        let happens = || {
            if what == "away" {
                mover.dies();
            }
        };
        let (report, written) = restore_to_client(&bench, &again, &way, "restored", &happens);
        assert!(report.is_whole() && !report.recovered.is_empty(), "{what}: {report:?}");
        assert_eq!(written.len(), 1, "{what}: it is finished once");
        let restored = tree(&bench.path("restored").join(bench.source().strip_prefix("/").unwrap()));
        assert_eq!(restored, tree(&bench.source()), "{what}");
    }
}

#[test]
fn a_volume_is_labelled_and_known_in_the_library_that_has_it() {
    let bench = Bench::new(two_libraries(""));
    let west = bench.site().in_library("west").unwrap();
    let volser = "W00001".parse().unwrap();
    let label = |site: &Site| {
        site.label(&volser, Some("default"), None, Loss::Accept, capstan_catalog::Promise::Keep).unwrap();
    };
    label(&west);
    // As one that a person has put there, and that nobody knows.
    bench.sql("DELETE FROM volumes; DELETE FROM reservations");
    label(&bench.site());
    assert_eq!(libraries_of(&bench.site()), [("W00001".to_owned(), "west".to_owned())]);
    // A stranger of its barcode in the main library is not written on, and its name is not given again.
    std::fs::copy(bench.path("state/west/slots/W00001.tape"), bench.cartridge("W00001")).unwrap();
    bench.fill("a", 10, 50_000);
    back_up_in(&bench.site(), "main", &bench.request(Level::Full));
    back_up_in(&bench.site(), "west", &bench.request(Level::Full));
    let libraries: Vec<_> = libraries_of(&bench.site()).into_iter().map(|(_, library)| library).collect();
    assert_eq!(libraries, ["main", "west"]);
    bench.assert_restores(&latest(&bench), "restored");
    // One directory is not two libraries, whatever it is called.
    let settings = bench.path("state/capstan.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, format!("{text}\n[libraries.east]\npath = \"./west\"\n")).unwrap();
    let problem = bench.site().library_problem().unwrap();
    assert!(problem.contains("it is the directory of library west, too"), "{problem}");
}

#[test]
fn a_library_whose_mover_is_away_is_nobodys_but_those_who_name_it() {
    let bench = Bench::new(two_libraries("rook"));
    bench.fill("a", 20, 50_000);
    let mover = Mover::of_library(&bench, "west");
    back_up_in(&site(&bench, Some(&mover)), "main", &bench.request(Level::Full));
    bench.fill("b", 20, 50_000);
    back_up_in(&site(&bench, Some(&mover)), "west", &bench.request(Level::Incremental));
    mover.dies();
    let site = site(&bench, Some(&mover));
    // A unit of both goes to the one that answers; what names the other one says why not.
    bench.fill("c", 20, 50_000);
    let in_unit = site.clone().in_unit(Some("both")).unwrap();
    assert_eq!(in_unit.library_name(), "main");
    in_unit.backup(&bench.request(Level::Full), &BackupWatch::default()).unwrap();
    assert_restores(&site, &bench, "new");
    let west = site.clone().in_library("west").unwrap();
    let error = west.backup(&bench.request(Level::Full), &BackupWatch::default()).unwrap_err();
    assert!(capstan_tape::with_causes(&error).contains("mover rook is not connected"), "{error:?}");
    // What needs a volume of it names that volume, and a notice says why it is not there.
    let objects = bench.objects();
    let incremental = objects.iter().find(|object| object.base.is_some()).unwrap();
    let report = restore(&site, &bench, incremental, "old");
    assert!(!report.is_whole() && report.absent.len() == 1, "{report:?}");
    let notices = bench.notices.lock().unwrap();
    let said: Vec<_> = notices.iter().filter(|notice| notice.contains("library west cannot be asked")).collect();
    assert!(!said.is_empty() && said[0].contains("mover rook is not connected"), "{notices:?}");
}

#[test]
fn libraries_and_units_that_make_no_sense_are_named() {
    let wrong = |change: &dyn Fn(&mut Config)| {
        let mut config = two_libraries("");
        change(&mut config);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capstan.toml");
        std::fs::write(&path, config.to_text()).unwrap();
        Config::read(&path).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(wrong(&|_| {}), Ok(()));
    let unit = |libraries: &[&str]| UnitConfig {
        libraries: libraries.iter().map(|library| (*library).to_owned()).collect(),
        ..UnitConfig::default()
    };
    let west = || two_libraries("").libraries["west"].clone();
    let library = |name: &'static str, settings: LibraryConfig| {
        wrong(&move |config| drop(config.libraries.insert(name.to_owned(), settings.clone())))
    };
    let named = |name: &'static str, settings: UnitConfig| {
        wrong(&move |config| drop(config.units.insert(name.to_owned(), settings.clone())))
    };
    let at = |path: &str| LibraryConfig { path: path.into(), ..west() };
    for (found, said) in [
        (library("main", at("m")), "libraries.main: that is what [library] is called"),
        (library("a b", at("m")), "libraries.a b: its name has up to 32"),
        (library("east", west()), "libraries.west: another library has the folder west, too"),
        (wrong(&|config| config.library.path = "west".into()), "libraries.west: another library has the folder west"),
        (
            library("east", LibraryConfig { drives: 0, ..at("e") }),
            "libraries.east.drives and libraries.east.volume_mib",
        ),
        (named("west", unit(&["main"])), "units.west: a library has that name"),
        (named("u", unit(&[])), "units.u names no library: set libraries, or mover_labels"),
        (named("u", unit(&["east"])), "there is no library east: there are main, west"),
        (named("u", unit(&["west", "west"])), "west is named twice"),
        (named("u", UnitConfig { drives: Some(0), ..unit(&["west"]) }), "units.u.drives must be above 0"),
        (named("u", UnitConfig { models: vec!["LTO-77".into()], ..unit(&["west"]) }), "units.u.models: "),
        (
            named("u", UnitConfig { models: vec!["lto9".into()], ..unit(&["west"]) }),
            "units.u.models: lto9 is written as LTO-9",
        ),
    ] {
        let error = found.unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let bench = Bench::new(two_libraries(""));
    let error = bench.site().in_unit(Some("east")).map(drop).unwrap_err();
    assert!(matches!(&error, DirectorError::UnknownUnit { .. }), "{error:?}");
    assert!(error.to_string().contains("there are both, main, west"), "{error}");
}

#[test]
fn a_unit_has_the_libraries_of_movers_with_its_labels() {
    let mut config = two_libraries("rook");
    let cellar = UnitConfig { mover_labels: vec!["cellar".into(), "lto9".into()], ..UnitConfig::default() };
    config.units.insert("more".into(), UnitConfig { libraries: vec!["main".into()], ..cellar.clone() });
    config.units.insert("cellar".into(), cellar);
    let bench = Bench::new(config);
    let site = bench.site();
    let libraries = |unit| site.unit(Some(unit)).unwrap().libraries;
    let label = |mover: &str, label: &str| site.label_member("mover", mover, &[label.to_owned()]).unwrap();
    site.label_member("client", "rook", &["cellar".to_owned()]).unwrap();
    label("rook", "cellar");
    assert!(libraries("cellar").is_empty(), "it has not joined");
    bench.sql(
        "INSERT INTO peers (kind, name, serial, enrolled_ns, expires_ns, address, version)
         VALUES ('mover', 'rook', x'01', 1, 9, '', ''), ('mover', 'jay', x'02', 1, 9, '', '')",
    );
    assert_eq!(libraries("cellar"), ["west"]);
    assert_eq!(libraries("more"), ["main", "west"]);
    assert_eq!(libraries("both"), ["west", "main"]);
    label("jay", "cellar");
    label("rook", "attic");
    let error = bench.site().in_unit(Some("cellar")).map(drop).unwrap_err();
    assert!(matches!(&error, DirectorError::UnitWithoutLibrary { name } if name == "cellar"), "{error:?}");
    assert_eq!(libraries("more"), ["main"]);
    // Who will have its labels, and how many drives, nobody knows.
    let text = "[policies.w]\nsources = [\"/srv\"]\ncopies = 2\nunit = \"cellar\"\n";
    let plan = site.plan_policies(text, "cell.toml".as_ref(), OtherPolicies::Keep).unwrap();
    site.change_policies(&plan).unwrap();
    assert_eq!(site.policies().unwrap()[0].fault, None);
}

/// An attempt of a run wrote all of it in one library, and could not record that; the next one writes in the other.
#[test]
fn an_attempt_takes_what_an_earlier_one_has_written_in_another_library() {
    let bench = Bench::new(two_libraries(""));
    bench.fill("a", 20, 5_000);
    let site = bench.site();
    let _journal = site.begin_run("backup", "").unwrap();
    bench.sql("UPDATE jobs SET run = 5");
    let request = BackupRequest { run: Some(5), session: Some(1), ..bench.request(Level::Full) };
    let back_up = |library: &str, session: i64| {
        let request = BackupRequest { session: Some(session), ..request.clone() };
        bench.site().in_library(library).unwrap().backup(&request, &BackupWatch::default())
    };
    refuse_checkpoints(&bench.path("state/catalog"), true);
    let ended = back_up("west", 1);
    assert!(ended.is_err() && bench.objects().is_empty(), "{ended:?}");
    refuse_checkpoints(&bench.path("state/catalog"), false);

    let of = site.config().libraries["west"].drives;
    let seats = vec![SeatsWanted { library: "west".into(), wanted: of, of }];
    let in_use = Wish { seats, ..Wish::default() };
    let held = site.catalog().reserve(&in_use, "elsewhere 1 1", i64::MAX, &|_| false).unwrap();
    let Grant::Held(generation) = held else { panic!("{held:?}") };
    let catalog = site.clone();
    bench.set_hook(Some(Box::new(move |event| {
        if matches!(event, Event::Waiting { message } if message.contains("an earlier attempt")) {
            catalog.catalog().release(&[generation]).unwrap();
        }
    })));
    let report = back_up("main", 2).unwrap();
    bench.set_hook(None);
    assert_eq!((report.sources.len(), report.earlier.len(), bench.objects().len()), (0, 1, 1), "{report:?}");
    assert_restores(&site, &bench, "out");
}
