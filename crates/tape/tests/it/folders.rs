//! A library with cartridges in several folders.

use std::fs;
use std::path::{Path, PathBuf};

use capstan_format::Volser;
use capstan_tape::{
    CartridgeSpec, Changer, ChangerError, ChangerRequest, Drive, ElementAddress, Finding, Flush, FolderRules,
    KeySlotKind, Library, ReadOutcome, VirtualLibrary, WriteOutcome,
};

fn volser(number: u32) -> Volser {
    format!("A{number:05}").parse().unwrap()
}

fn spec(number: u32) -> CartridgeSpec {
    CartridgeSpec {
        volser: volser(number),
        capacity_bytes: 1_000_000,
        early_warning_bytes: 2_000,
        generation: "virtual".to_owned(),
    }
}

/// A folder for the library, and another one.
struct Folders {
    _dir: tempfile::TempDir,
    own: PathBuf,
    other: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        Self { _dir: dir, own, other }
    }

    fn open(&self, mut rules: FolderRules) -> VirtualLibrary {
        rules.further = vec![self.other.clone()];
        VirtualLibrary::open(&self.own, 2).unwrap().with_folders(rules)
    }

    /// Puts a cartridge that has its data there into the other folder, as when that had most room.
    fn with_one_there(&self) -> VirtualLibrary {
        let mut library = self.open(FolderRules::default());
        library.carry_out_request(&ChangerRequest::Initialize).unwrap();
        library.create_cartridge(&spec(1)).unwrap();
        drop(library);
        spec(2).create(&self.other.join("A00002.tape")).unwrap();
        self.open(FolderRules::default())
    }
}

fn volumes(library: &mut VirtualLibrary) -> Vec<String> {
    let elements = library.inventory().unwrap();
    elements.into_iter().filter_map(|element| Some(element.volser?.to_string())).collect()
}

fn reasons(library: &VirtualLibrary) -> Vec<String> {
    let reason = |finding: Finding| match finding {
        Finding::FolderAway { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    library.findings().into_iter().map(reason).collect()
}

fn write(library: &mut VirtualLibrary, number: u32, block: &[u8]) -> WriteOutcome {
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    library.load(&volser(number), 0).unwrap();
    drive.load().unwrap();
    let outcome = drive.write_block(block).unwrap();
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    drive.unload().unwrap();
    library.unload(0).unwrap();
    outcome
}

fn read(library: &mut VirtualLibrary, number: u32) -> Vec<u8> {
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    library.load(&volser(number), 0).unwrap();
    drive.load().unwrap();
    let mut block = vec![0; 100];
    let ReadOutcome::Block(len) = drive.read_block(&mut block).unwrap() else { panic!("no block") };
    block.truncate(len);
    drive.unload().unwrap();
    library.unload(0).unwrap();
    block
}

#[test]
fn a_cartridge_of_another_folder_is_used_like_any() {
    let folders = Folders::new();
    let mut library = folders.with_one_there();
    assert_eq!(volumes(&mut library), ["A00001", "A00002"]);
    assert_eq!(write(&mut library, 2, b"on the other disk"), WriteOutcome::Written);
    assert_eq!(read(&mut library, 2), b"on the other disk");
    assert!(folders.other.join("A00002.index").exists(), "the index lies beside it");
    let rooms = library.rooms().unwrap();
    let paths = [folders.own.join("slots"), folders.other.clone()].map(|path| path.display().to_string());
    assert_eq!(rooms.iter().map(|room| room.folder.clone()).collect::<Vec<_>>(), paths);
    assert_eq!(rooms[0].disk, rooms[1].disk);
    assert_eq!(rooms.iter().map(|room| room.volumes.clone()).collect::<Vec<_>>(), [[volser(1)], [volser(2)]]);
    assert!(rooms.iter().all(|room| room.has_room() && room.wanted_bytes == 0 && room.total_bytes >= room.free_bytes));
    assert!(matches!(library.create_cartridge(&spec(2)), Err(ChangerError::VolserTaken { .. })));
    library.remove_cartridge(&volser(2)).unwrap();
    assert_eq!(volumes(&mut library), ["A00001"]);
    let left: Vec<_> = fs::read_dir(&folders.other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["library.id"], "nothing of it is left");
}

#[test]
fn a_folder_without_its_disk_is_left_alone() {
    let folders = Folders::new();
    let mut library = folders.with_one_there();
    let disk = folders.other.with_file_name("disk");
    fs::rename(&folders.other, &disk).unwrap();
    fs::create_dir(&folders.other).unwrap();
    assert_eq!(volumes(&mut library), ["A00001"], "what lies there is away");
    assert!(reasons(&library)[0].contains("mount that disk"), "{:?}", library.findings());
    assert_eq!(library.rooms().unwrap().len(), 1);
    let mut again = folders.open(FolderRules::default());
    again.create_cartridge(&spec(3)).unwrap();
    let taken = again.create_cartridge(&spec(2));
    assert!(matches!(taken, Err(ChangerError::VolserTaken { .. })), "the name of what is away is taken: {taken:?}");
    assert_eq!(fs::read_dir(&folders.other).unwrap().count(), 0, "a mount point is not taken for the folder");
    assert!(matches!(again.load(&volser(2), 0), Err(ChangerError::UnknownVolume { .. })));
    fs::remove_dir(&folders.other).unwrap();
    assert_eq!(reasons(&folders.open(FolderRules::default())).len(), 1, "nor is one made where it was");
    fs::rename(&disk, &folders.other).unwrap();
    assert_eq!(volumes(&mut library), ["A00001", "A00002", "A00003"]);
    assert_eq!(reasons(&library), [""; 0]);
    // Its disk is mounted elsewhere from now on.
    fs::rename(&folders.other, &disk).unwrap();
    let rules = FolderRules { further: vec![disk], ..FolderRules::default() };
    let mut moved = VirtualLibrary::open(&folders.own, 2).unwrap().with_folders(rules);
    assert_eq!(volumes(&mut moved), ["A00001", "A00002", "A00003"]);
}

/// Whether it is new, or its disk is away, nobody knows but the operator.
#[test]
fn a_folder_that_nobody_marked_is_not_used() {
    let folders = Folders::new();
    let mut library = folders.open(FolderRules::default());
    library.create_cartridge(&spec(1)).unwrap();
    assert!(reasons(&library)[0].contains("capstan library initialize"), "{:?}", library.findings());
    assert!(!folders.other.exists());
    library.carry_out_request(&ChangerRequest::Initialize).unwrap();
    assert_eq!(reasons(&library), [""; 0]);
}

#[test]
fn a_folder_of_another_library_is_refused() {
    let folders = Folders::new();
    drop(folders.with_one_there());
    let rules = FolderRules { further: vec![folders.other.clone()], ..FolderRules::default() };
    let thief = folders.own.with_file_name("thief");
    VirtualLibrary::mark(&thief, "another").unwrap();
    let mut thief = VirtualLibrary::open(thief, 1).unwrap().with_folders(rules);
    assert!(reasons(&thief)[0].contains("another library"), "{:?}", thief.findings());
    assert!(thief.carry_out_request(&ChangerRequest::Initialize).is_err());
    assert_eq!(volumes(&mut thief), [""; 0]);
}

/// Its own directory was lost, or its disk is away: a new mark would make the folders strangers.
#[test]
fn a_directory_without_a_mark_gets_that_of_its_folders() {
    let folders = Folders::new();
    drop(folders.with_one_there());
    fs::rename(&folders.own, folders.own.with_file_name("lost")).unwrap();
    let mut library = folders.open(FolderRules::default());
    assert_eq!((volumes(&mut library), reasons(&library).len()), (Vec::new(), 1));
    library.carry_out_request(&ChangerRequest::Initialize).unwrap();
    assert_eq!((volumes(&mut library), reasons(&library).len()), (vec!["A00002".to_owned()], 0));
}

/// The links are all that the library's own folder has of the others.
#[test]
fn links_that_are_lost_are_made_anew() {
    let folders = Folders::new();
    let mut library = folders.with_one_there();
    write(&mut library, 2, b"still here");
    fs::remove_file(folders.own.join("slots/A00002.tape")).unwrap();
    assert_eq!(volumes(&mut library), ["A00001"]);
    assert_eq!(read(&mut folders.open(FolderRules::default()), 2), b"still here");
}

#[test]
fn a_cartridge_that_is_exported_and_imported_stays_in_its_folder() {
    let folders = Folders::new();
    let mut library = folders.with_one_there();
    write(&mut library, 2, b"away for a while");
    library.carry_out_request(&ChangerRequest::Export { volser: volser(2) }).unwrap();
    assert_eq!(library.rooms().unwrap()[1].volumes, []);
    assert_eq!(volumes(&mut folders.open(FolderRules::default())), ["A00001", "A00002"], "it is not taken in twice");
    let elements = library.inventory().unwrap();
    let in_mail = elements.iter().find(|element| element.address == ElementAddress::ImportExport(0)).unwrap();
    assert_eq!(in_mail.volser, Some(volser(2)));
    library.carry_out_request(&ChangerRequest::Import { mail_slot: 0 }).unwrap();
    assert_eq!(read(&mut library, 2), b"away for a while");
}

#[test]
fn a_full_disk_is_left_as_it_is() {
    let folders = Folders::new();
    drop(folders.with_one_there());
    // No disk has so much free.
    let mut library = folders.open(FolderRules { free_bytes: 1 << 60, ..FolderRules::default() });
    assert!(library.rooms().unwrap().iter().all(|room| !room.has_room()));
    assert!(matches!(library.create_cartridge(&spec(3)), Err(ChangerError::FoldersFull { .. })));
    let mut drive = library.drive(0, KeySlotKind::Missing).unwrap();
    library.load(&volser(2), 0).unwrap();
    drive.load().unwrap();
    // What stood there may have given enough back.
    assert_eq!(drive.write_block(b"the label").unwrap(), WriteOutcome::Written);
    assert_eq!(drive.write_block(b"the end").unwrap(), WriteOutcome::EarlyWarning, "who writes all the same is told");
    drop(drive);
    // The mark is one percent, which a disk in memory may not come to.
    let mut above = folders.open(FolderRules { high_percent: 1, low_percent: 0, ..FolderRules::default() });
    let room = &above.rooms().unwrap()[0];
    let is_above = room.total_bytes - room.free_bytes > room.total_bytes / 100;
    assert_eq!(room.wanted_bytes > 0, is_above, "{room:?}");
    assert!(room.wanted_bytes <= room.total_bytes - room.free_bytes);
    // Where so much is to stay free that the mark is never reached.
    let rules = FolderRules { free_bytes: u64::MAX, begin_bytes: 1, high_percent: 99, ..FolderRules::default() };
    let room = &folders.open(rules).rooms().unwrap()[0];
    assert_eq!((room.has_room(), room.wanted_bytes), (false, u64::MAX - room.free_bytes));
}

#[test]
fn a_library_without_rules_tells_no_rooms() {
    let directory = tempfile::tempdir().unwrap();
    let rules = FolderRules { begin_bytes: 5, ..FolderRules::default() };
    let mut library = VirtualLibrary::open(directory.path(), 1).unwrap().with_folders(rules);
    library.create_cartridge(&spec(1)).unwrap();
    assert_eq!(library.rooms().unwrap(), []);
    assert!(!Path::new(&directory.path().join("library.id")).exists());
}
