//! What the seam between whoever decides and a mover promises, as a test that runs in one process and over sockets.
//!
//! [`run`] orders volumes mounted, labelled and looked at, writes a session and reads it back, and panics with the name
//! of the rule that is broken. `ends` says how the two sides are connected.

use std::io::Read;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_format::{
    CatalogPart, ObjectId, ObjectKind, ObjectRecord, ObjectState, SessionId, SessionRecord, Volser, VolumeHeader,
    VolumeId,
};
use capstan_tape::{CartridgeSpec, ChangerError, DriveNeeds, ElementAddress, EncryptionState};

use super::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DriveReservation, MountOrder, MountReport, MountWatch,
    ReservationKey, VolumeReport, VolumeRequest,
};
use crate::{
    CheckpointBounds, Commit, CopyHost, DrivesAt, ExtentBounds, ExtentPlace, FIRST_SESSION_LBN, HostError, MountId,
    Mounted, MountedDrives, MoverError, PackOptions, ReadHost, ReadMeters, Session, SessionOptions, StreamSink,
    VolumeAccess, VolumeEnd, VolumePlace, Wanted, WantedMember, WantedStream, plan_reads, read_streams,
};

/// How the two sides are connected: directly, or each by its own socket.
pub struct Ends<'a> {
    /// Orders, as whoever decides gives them.
    pub devices: Arc<dyn Devices>,
    /// The drives that are mounted, where the mover runs.
    pub mounted: Arc<MountedDrives>,
    /// The host of a copy, as the mover has it.
    pub copy_host: &'a dyn Fn(Box<dyn CopyHost>) -> Box<dyn CopyHost>,
    /// The host of a read, as the mover has it.
    pub read_host: &'a dyn Fn(Box<dyn ReadHost + Send>) -> Box<dyn ReadHost>,
}

/// The life that the test labels.
const LIFE: VolumeId = VolumeId(0x1122_3344_5566_7788);
const CHUNK_LEN: usize = 64 << 10;
const OBJECT: ObjectId = ObjectId([7; 16]);

/// Holds devices to the rules. Their library has two drives and no cartridge, and can make some.
///
/// # Panics
/// A rule is broken; the message says which.
pub fn run(ends: &Ends<'_>) {
    let (one, other, third) = (volser("SEAM01"), volser("SEAM02"), volser("SEAM03"));
    library(ends, [&one, &other, &third]);
    drives(ends, [&one, &other, &third]);
    labels(ends, &one);
    let written = session(ends, &one);
    looks(ends, &one, &written);
    reads(ends, &one, &written);
    failures(ends, &one);
}

fn volser(text: &str) -> Volser {
    Volser::new(text).expect("a volser")
}

/// Waits for nobody, and keeps what it is told.
#[derive(Default)]
struct Watch(Mutex<Vec<String>>);

impl MountWatch for Watch {
    fn waiting(&self, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
    fn notice(&self, message: String) {
        self.waiting(message);
    }
    fn is_stopped(&self) -> bool {
        false
    }
}

fn order(volser: &Volser) -> MountOrder {
    let reservation = DriveReservation { key: ReservationKey::new("conformance", 1), living: None };
    MountOrder { volser: volser.clone(), reservation, labelled: false, first_key: None, needs: DriveNeeds::default() }
}

fn mount(ends: &Ends<'_>, volser: &Volser) -> MountReport {
    ends.devices.mount(&order(volser), &Watch::default()).expect("a volume in the library is mounted")
}

fn dismount(ends: &Ends<'_>, mount: MountId) {
    let report = ends.devices.dismount(&DismountOrder { mount, description: None }).expect("a mount is ended");
    report.outcome.expect("the volume goes back to its slot");
}

fn place_of(ends: &Ends<'_>, volser: &Volser) -> Option<ElementAddress> {
    let inventory = ends.devices.inventory().expect("an inventory");
    let there = inventory.elements.into_iter().find(|element| element.volser.as_ref() == Some(volser));
    there.map(|element| element.address)
}

/// A library says what it has, and makes cartridges once.
fn library(ends: &Ends<'_>, volsers: [&Volser; 3]) {
    let devices = &ends.devices;
    assert_eq!(devices.drives().expect("a number of drives"), 2, "drives are counted");
    assert_eq!(devices.describe_drives().expect("descriptions").len(), 2, "each drive is described");
    for volser in volsers {
        assert_eq!(place_of(ends, volser), None, "the library is empty");
        let spec = CartridgeSpec {
            volser: volser.clone(),
            capacity_bytes: 64 << 20,
            early_warning_bytes: 4 << 20,
            generation: "virtual".to_owned(),
        };
        devices.change(&ChangerOrder::Create(spec.clone())).expect("a cartridge is made");
        assert!(matches!(place_of(ends, volser), Some(ElementAddress::Slot(_))), "what was made is in a slot");
        let again = devices.change(&ChangerOrder::Create(spec));
        let is_taken = matches!(again, Err(DevicesError::Changer(ChangerError::VolserTaken { .. })));
        assert!(is_taken, "a barcode is given once: {again:?}");
    }
    let absent = devices.mount(&order(&volser("NOWHERE")), &Watch::default());
    let is_absent = matches!(absent, Err(DevicesError::Changer(ChangerError::UnknownVolume { .. })));
    assert!(is_absent, "a volume that is not there is named: {absent:?}");
}

/// A volume has a drive for itself from its mount to its dismount.
fn drives(ends: &Ends<'_>, [one, other, third]: [&Volser; 3]) {
    let (first, second) = (mount(ends, one), mount(ends, other));
    assert_ne!((first.mount, first.number), (second.mount, second.number), "two mounts have two drives");
    assert_eq!(first.medium.encryption, EncryptionState::Blank, "the medium is described");
    assert!(matches!(place_of(ends, one), Some(ElementAddress::Drive(_))), "a mounted volume is in a drive");
    let busy = ends.devices.mount(&order(third), &Watch::default());
    assert!(matches!(busy, Err(DevicesError::NoDrive(ChangerError::InUse { .. }))), "no drive is free: {busy:?}");
    // The data path has the drive, and orders wait for nobody: they are refused.
    let drive = ends.mounted.take(first.mount).expect("the data path finds a mounted drive");
    let refused = ends.devices.at_volume(first.mount, &VolumeRequest::EndOfData);
    let is_refused =
        matches!(refused, Err(DevicesError::Mover(MoverError::NotMounted { mount })) if mount == first.mount);
    assert!(is_refused, "a drive in use takes no orders: {refused:?}");
    ends.mounted.give_back(first.mount, drive);
    dismount(ends, first.mount);
    assert!(matches!(place_of(ends, one), Some(ElementAddress::Slot(_))), "a dismounted volume is in a slot");
    let twice = ends.devices.dismount(&DismountOrder { mount: first.mount, description: None });
    assert!(twice.is_err(), "a mount ends once");
    ends.devices.abandon(second.mount);
    let again = mount(ends, other);
    assert_ne!(again.mount, second.mount, "an abandoned volume is mounted anew, under a new name");
    dismount(ends, again.mount);
}

fn header(volser: &Volser) -> VolumeHeader {
    let pool = "pool".to_owned();
    VolumeHeader { volume: LIFE, volser: volser.clone(), labelled_ns: 5, pool, block_len_max: 1 << 20, recycled: 3 }
}

/// A label is read as it was written.
fn labels(ends: &Ends<'_>, volser: &Volser) {
    let mounted = mount(ends, volser).mount;
    let blank = ends.devices.at_volume(mounted, &VolumeRequest::ReadLabel);
    let is_blank = matches!(blank, Err(DevicesError::Mover(MoverError::NotLabelled { .. })));
    assert!(is_blank, "a blank volume has no label: {blank:?}");
    ends.devices.set_key(mounted, None).expect("an empty key slot");
    let labelled = ends.devices.at_volume(mounted, &VolumeRequest::WriteLabel(header(volser))).expect("a label");
    let VolumeReport::Medium(medium) = labelled else { panic!("a label is answered with the medium: {labelled:?}") };
    assert_eq!(medium.encryption, EncryptionState::Plain, "the medium is described as it is behind the label");
    let read = ends.devices.at_volume(mounted, &VolumeRequest::ReadLabel).expect("the label");
    assert_eq!(read, VolumeReport::Label(header(volser)), "a label is read as it was written");
    let end = ends.devices.at_volume(mounted, &VolumeRequest::EndOfData).expect("the end of data");
    let is_behind = matches!(&end, VolumeReport::Position(position) if position.lbn == FIRST_SESSION_LBN);
    assert!(is_behind, "data end behind the label: {end:?}");
    let none = ends.devices.at_volume(mounted, &VolumeRequest::LastCheckpoint(LIFE)).expect("a look");
    assert_eq!(none, VolumeReport::Checkpoint(None), "a new volume has no checkpoint");
    dismount(ends, mounted);
}

/// What a host was asked and told.
#[derive(Debug, Default)]
struct Told {
    commits: Vec<(Volser, SessionRecord, u64, CatalogPart)>,
    released: Vec<(Volser, VolumeEnd)>,
}

/// Mounts one volume, and records.
struct Host {
    devices: Arc<dyn Devices>,
    volser: Volser,
    refuses: bool,
    told: Arc<Mutex<Told>>,
}

impl Host {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CopyHost for Host {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        if self.refuses {
            return Err("pool seam has no volume".into());
        }
        let mount = self.devices.mount(&order(&self.volser), &Watch::default())?.mount;
        let (volser, append_lbn) = (self.volser.clone(), FIRST_SESSION_LBN);
        Ok(Mounted { mount, volser, volume: LIFE, append_lbn, session: SessionId(9) })
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        let kept = (commit.volser.clone(), commit.session_record.clone(), commit.checkpoint_lbn, commit.part.clone());
        self.told().commits.push(kept);
        Ok(())
    }

    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd) {
        let report = self.devices.dismount(&DismountOrder { mount, description: None }).expect("a mount is ended");
        report.outcome.expect("the volume goes back");
        self.told().released.push((volser.clone(), end));
    }

    fn now_ns(&self) -> i64 {
        77
    }
}

impl ReadHost for Host {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        Ok(self.devices.mount(&order(&place.volser), &Watch::default())?.mount)
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        CopyHost::release(self, mount, &place.volser, VolumeEnd::Closed);
    }
}

fn content() -> Vec<u8> {
    (0..1u32 << 18).flat_map(u32::to_le_bytes).collect()
}

fn record() -> SessionRecord {
    SessionRecord { started_ns: 5, host: "seam".to_owned(), software: "conformance".to_owned() }
}

fn write(ends: &Ends<'_>, volser: &Volser, refuses: bool) -> (Vec<Result<(), MoverError>>, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let (devices, volser) = (Arc::clone(&ends.devices), volser.clone());
    let host = (ends.copy_host)(Box::new(Host { devices, volser, refuses, told: Arc::clone(&told) }));
    let checkpoints = CheckpointBounds { bytes: 512 << 10, every: Duration::from_secs(3600), entry_bytes: 1 << 20 };
    let options = SessionOptions {
        chunk_len: CHUNK_LEN,
        pool_bytes: 4 << 20,
        pack: PackOptions::Store,
        pack_workers: 1,
        first_copy: 1,
        connections: 1,
        extents: ExtentBounds { worthwhile: 1 << 20, longest: 8 << 20 },
        checkpoints,
        ended_within: None,
        mounts_for_blocks: false,
        drive_sets: 1,
    };
    let session = Session::start(&options, &record(), &ends.mounted, vec![host], Arc::default()).expect("a session");
    let object = ObjectRecord {
        object: OBJECT,
        source: b"/seam".to_vec(),
        client: "seam".to_owned(),
        policy: String::new(),
        kind: ObjectKind::Stream,
        state: ObjectState::Open,
        base: None,
        copy: 1,
        chunk_len: CHUNK_LEN as u32,
        started_ns: 5,
        ended_ns: 0,
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    };
    let sent = session.intake().begin_object(object).map_err(drop).and_then(|()| {
        let mut sink = session.intake().connection(OBJECT, 0);
        sink.write(&content()).map_err(drop)?;
        sink.finish().map_err(drop)?;
        session.intake().end_object(OBJECT, 6).map_err(drop)
    });
    let copies = session.finish().writers;
    assert_eq!(sent.is_ok() && !refuses, copies.iter().all(Result::is_ok) && !refuses, "a copy says how it ended");
    (copies, told)
}

/// A session asks for a volume, reports each checkpoint once it is flushed, and gives the volume back.
fn session(ends: &Ends<'_>, volser: &Volser) -> Told {
    let (copies, told) = write(ends, volser, false);
    copies.into_iter().for_each(|copy| copy.expect("a copy without faults ends well"));
    let told = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(told.commits.len() > 1, "checkpoints come on the way: {}", told.commits.len());
    assert!(told.commits.iter().all(|(at, by, ..)| at == volser && *by == record()), "each says where and by whom");
    assert_eq!(told.released, [(volser.clone(), VolumeEnd::Closed)], "the volume is given back once");
    let last = told.commits.last().map(|(.., part)| part.objects.clone()).unwrap_or_default();
    assert!(last.iter().any(|object| object.state == ObjectState::Complete), "the last checkpoint ends the object");
    told
}

/// What was reported of checkpoints is what stands on the volume.
fn looks(ends: &Ends<'_>, volser: &Volser, written: &Told) {
    let mounted = mount(ends, volser).mount;
    let ask = |request| ends.devices.at_volume(mounted, &request).expect("a look at a good volume");
    let VolumeReport::Checkpoint(Some(mut found)) = ask(VolumeRequest::LastCheckpoint(LIFE)) else {
        panic!("a written volume has a checkpoint")
    };
    assert_eq!(ask(VolumeRequest::LastCheckpointLbn(LIFE)), VolumeReport::Lbn(Some(found.lbn)), "by its filemark too");
    for (nth, (.., lbn, part)) in written.commits.iter().enumerate().rev() {
        assert_eq!(found.lbn, *lbn, "a checkpoint stands where its commit said");
        let there = ends.devices.catalog_part(mounted, LIFE, &found).expect("its catalog part");
        assert_eq!(there, *part, "a catalog part is read as it was reported");
        if nth > 0 {
            let VolumeReport::Lbn(Some(before)) = ask(VolumeRequest::CheckpointLbnBefore(LIFE, found.lbn)) else {
                panic!("there is one before")
            };
            let VolumeReport::Checkpoint(Some(previous)) = ask(VolumeRequest::Checkpoint(LIFE, before)) else {
                panic!("a checkpoint stands there")
            };
            assert_eq!(found.checkpoint.previous_lbn, previous.lbn, "each names the one before it");
            found = previous;
        }
    }
    let session = ask(VolumeRequest::SessionRecord(LIFE, FIRST_SESSION_LBN));
    assert_eq!(session, VolumeReport::Session(SessionId(9), record()), "a session says who wrote it");
    assert_eq!(ask(VolumeRequest::Flush), VolumeReport::Done, "a flush is answered");
    let strange = ends.devices.at_volume(mounted, &VolumeRequest::Checkpoint(LIFE, FIRST_SESSION_LBN));
    assert!(matches!(&strange, Err(DevicesError::Mover(error)) if error.blames_medium()), "blame crosses: {strange:?}");
    dismount(ends, mounted);
}

/// What was written is read back, block for block.
fn reads(ends: &Ends<'_>, volser: &Volser, written: &Told) {
    let told = Arc::new(Mutex::new(Told::default()));
    let devices = Arc::clone(&ends.devices);
    let mut host = (ends.read_host)(Box::new(Host { devices, volser: volser.clone(), refuses: false, told }));
    let extents = written.commits.iter().flat_map(|(.., part)| &part.extents);
    let place = |extent: &capstan_format::ExtentRecord| ExtentPlace {
        volume: 0,
        copy: 1,
        connection: 0,
        base: 0,
        first_lbn: extent.first_lbn,
        blocks: extent.blocks,
        offset: extent.offset,
        plain_len: extent.plain_len,
    };
    let len = content().len() as u64;
    let stream = WantedStream {
        object: OBJECT,
        connection: 0,
        chunk_len: CHUNK_LEN as u32,
        members: vec![WantedMember { offset: 0, len, crc: 0 }],
        extents: extents.map(place).collect(),
    };
    let volumes = vec![VolumePlace { volser: volser.clone(), volume: LIFE }];
    let wanted = Wanted { volumes, streams: vec![stream] };
    let read = Mutex::new(Vec::new());
    let access = VolumeAccess { host: host.as_mut(), drives: DrivesAt::from(&*ends.mounted), between: None };
    let watch = (&AtomicBool::new(false), &ReadMeters::default());
    let report = read_streams(&wanted, &plan_reads(&wanted), access, watch, &|_, reader| {
        let mut bytes = read.lock().unwrap_or_else(PoisonError::into_inner);
        reader.range(0..len).read_to_end(&mut bytes).expect("the bytes of the stream");
    });
    assert_eq!((report.lost.len(), report.bad.len()), (0, 0), "nothing is lost");
    let read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(read == content(), "what is read is what was written");
    assert!(matches!(place_of(ends, volser), Some(ElementAddress::Slot(_))), "the volume was given back");
}

/// What one side cannot do, the other one learns in its words.
fn failures(ends: &Ends<'_>, volser: &Volser) {
    let (copies, told) = write(ends, volser, true);
    let error = copies.into_iter().next().expect("one copy").expect_err("its host has no volume");
    let text = capstan_tape::with_causes(&error);
    assert!(text.contains("pool seam has no volume"), "a host's reason reaches the copy: {text}");
    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(told.commits.is_empty() && told.released.is_empty(), "nothing was mounted, so nothing is given back");
}
