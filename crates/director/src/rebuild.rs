//! The catalog, made anew from the volumes alone.
//!
//! Each volume is read from its end: the last checkpoint, then the one before it, and so on to the label; nothing but
//! catalog parts is read. Where a checkpoint is damaged the one before it is found by its filemark, and what the
//! damaged one held comes from the volume's twin. Recording does not depend on the order, so volumes are taken as they
//! come.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use capstan_catalog::{
    Catalog, CatalogError, CheckpointSeen, Database, KeyRef, MediumKind, Pool, Resource, ScratchFeed, Volume,
    VolumeState,
};
use capstan_format::{Volser, VolumeId};
use capstan_keys::Unlock;
use capstan_mover::FIRST_SESSION_LBN;
use capstan_mover::devices::Loader;
use capstan_tape::{Blame, ChangerError, EncryptionState, with_causes};

use crate::catch_up::session_record;
use crate::config::{Config, find_settings};
use crate::error::refuses_part;
use crate::expiry::KEEP_RULES_FACT;
use crate::hold::CATALOG_FACT;
use crate::library_marker::library_fact;
use crate::mounter::{InDrive, Mounter};
use crate::names::{last_used, note_used, volser_of};
use crate::process;
use crate::server_term::AUDIT_ANCHOR_FACT;
use crate::shared::{Clock, first_of};
use crate::site::{Site, check_writable, locked};
use crate::{DirectorError, Event, Events};

/// What a rebuild found.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// Volumes that were read.
    pub volumes: u64,
    /// Blank volumes.
    pub blank: u64,
    /// Checkpoints that were recorded.
    pub checkpoints: u64,
    /// Objects that are complete.
    pub complete: u64,
    /// Objects that a run left open.
    pub open: u64,
    /// What could not be read, and why.
    pub problems: Vec<(Volser, String)>,
    /// Where the old catalog lies now, if there was one.
    pub old: Option<PathBuf>,
}

/// How a catalog is made anew.
#[derive(Debug, Default)]
pub struct RebuildOptions {
    /// What holds the new one's tables; the old one's database, where none is named.
    pub database: Option<Database>,
    /// Whether the old one is removed once the new one is there and all volumes were read, and not kept beside it.
    pub discard_old: bool,
    /// Whether volumes are forgotten that the old one knows and that are not there.
    pub forget_absent: bool,
}

/// Drives, robots and movers that fail for so many volumes, one after the other, are at fault themselves.
const FAILURES_MAX: u32 = 3;
/// Volumes that a message names.
const NAMED_MAX: usize = 10;

/// The catalog that is replaced, as far as it can be read.
type Old = Result<Catalog, CatalogError>;

/// Makes the catalog of a state directory anew.
///
/// # Errors
/// [`DirectorError::Busy`] if a job runs, [`DirectorError::ServerRuns`] if a server does;
/// [`DirectorError::KeysLocked`] if volumes are encrypted and nobody unlocked the keys;
/// [`DirectorError::RebuildForgets`] if a volume that the old catalog knows is not there. Otherwise no drive works, or
/// the new catalog cannot be written. Unless the error says that it could not be put in place, the old one stands where
/// it was. Volumes that cannot be read are in the report.
pub fn rebuild(
    dir: &Path,
    unlock: Option<&Unlock>,
    clock: Clock,
    events: Events,
    options: &RebuildOptions,
) -> Result<RebuildReport, DirectorError> {
    check_writable(dir)?;
    let (place, staged) = (dir.join("catalog"), dir.join("catalog.new"));
    if staged.exists() {
        discard(&staged, &events)?;
    }
    let config = Config::read(&find_settings(dir)?)?;
    if let Some((name, library)) = config.all_libraries().find(|(_, library)| !library.mover.is_empty()) {
        return Err(DirectorError::RebuildAtMover { library: name.to_owned(), mover: library.mover.clone() });
    }
    let database = match &options.database {
        Some(database) => database.clone(),
        None => Database::of(&place)?,
    };
    let old = Catalog::exists(&place).then(|| Catalog::open(&place));
    if let Some(Ok(old)) = &old {
        check_unserved(old)?;
    }
    let mut catalog = Catalog::create(&staged, &database)?;
    if let Some(Ok(old)) = &old {
        keep_libraries(old, &mut catalog, &config)?;
    }
    let site = Site::assemble(dir, Arc::new(Mutex::new(catalog)), unlock, clock, events)?;
    let _alone = site.alone()?;
    let mut report = RebuildReport::default();
    let mut libraries = Vec::new();
    for library in site.library_names() {
        let mounter = Mounter::new(&site.clone().in_library(&library)?);
        let volumes = volumes_to_read(old.as_ref(), &site, &mounter)?;
        libraries.push((mounter, volumes));
    }
    let there = libraries.iter().flat_map(|(_, volumes)| volumes);
    let absent = absent_volumes(old.as_ref(), &there.collect());
    if !absent.is_empty() && !options.forget_absent {
        return Err(DirectorError::RebuildForgets { volumes: first_of(&absent, NAMED_MAX, ToString::to_string) });
    }
    for (mounter, volumes) in libraries {
        read_volumes(&mounter, volumes, &mut report)?;
    }
    match &old {
        Some(old) => {
            keep_pools(old, &site)?;
            keep_findings(old, &site);
        }
        None => {
            let message = "there is no old catalog here: policies, members of the cell, the retention of pools and the \
                           history are not known any more. Set the retention of each pool (`capstan pools add`); if \
                           this is the server of a cell, apply the file of its policies (`capstan policies apply FILE`), \
                           and enrol its clients, movers and users again";
            (site.events)(Event::Notice { message: message.to_owned() });
        }
    }
    let unsealed = locked(&site.catalog).unsealed()?;
    site.seal_complete(&unsealed)?;
    site.look_at_copies()?;
    // Where the key store is locked, nothing encrypted was read either.
    if unlock.is_some() && !site.config.keys.is_cluster() {
        site.look_at_keys()?;
    }
    let objects = locked(&site.catalog).objects(&capstan_catalog::ObjectFilter::default())?;
    for object in objects {
        match object.status {
            capstan_catalog::ObjectStatus::Complete => report.complete += 1,
            _ => report.open += 1,
        }
    }
    let now_ns = site.now_ns();
    // The databases must be closed before their directories are moved.
    let events = Arc::clone(&site.events);
    drop(site);
    drop(old);
    if place.exists() {
        let old = dir.join(format!("catalog.old-{now_ns}"));
        std::fs::rename(&place, &old).map_err(DirectorError::host("move aside", &place))?;
        report.old = Some(old);
    }
    std::fs::rename(&staged, &place).map_err(DirectorError::host("put in place", &place))?;
    if options.discard_old && !report.problems.is_empty() {
        let message = "the old catalog is kept: not all volumes could be read".to_owned();
        events(Event::Notice { message });
    } else if let Some(old) = report.old.take_if(|_| options.discard_old) {
        discard(&old, &events)?;
    }
    let reason = "the old catalog knew it, and it is not there: what it holds is not known any more";
    report.problems.extend(absent.into_iter().map(|volser| (volser, reason.to_owned())));
    Ok(report)
}

/// Volumes that hold something as the old catalog says, and are not there.
fn absent_volumes(old: Option<&Old>, there: &HashSet<&Volser>) -> Vec<Volser> {
    let known = old.and_then(|old| old.as_ref().ok()).and_then(|old| old.volumes().ok()).unwrap_or_default();
    let holds = |volume: &Volume| volume.checkpoint_lbn > 0 && volume.state != VolumeState::Scratch;
    let absent = known.into_iter().filter(|volume| holds(volume) && !there.contains(&volume.volser));
    absent.map(|volume| volume.volser).collect()
}

/// Reads the volumes of a library. What is wrong with one of them is in the report.
fn read_volumes(mounter: &Mounter, volumes: Vec<Volser>, report: &mut RebuildReport) -> Result<(), DirectorError> {
    let mut failures = 0;
    for volser in volumes {
        match read_volume(mounter, &volser, report) {
            Ok(()) => failures = 0,
            // Without keys nothing can be read, and without a catalog nothing be kept: that is no matter of one volume.
            Err(error) if error.no_keys_at_all() => return Err(error),
            Err(DirectorError::Catalog(error)) if !refuses_part(&error) => return Err(error.into()),
            // No volume, though its barcode is that of one.
            Err(DirectorError::Changer(ChangerError::CleaningCartridge { .. })) => {}
            Err(error) => {
                let is_of_volume = error.blames_volume() && !error.is_of_drive()
                    || error.is_of_unfit_drive()
                    || error.blame() == Some(Blame::Keys)
                    || matches!(error, DirectorError::Keys(_) | DirectorError::Changer(ChangerError::Foreign { .. }));
                failures = if is_of_volume { 0 } else { failures + 1 };
                if failures >= FAILURES_MAX {
                    return Err(error);
                }
                report.problems.push((volser, with_causes(&error)));
            }
        }
    }
    Ok(())
}

/// Refuses to take the catalog away from a server, by its name: whoever waits for it waits for ever.
fn check_unserved(old: &Catalog) -> Result<(), DirectorError> {
    // One that cannot be read is what a rebuild is for; the lock of the server's presence stands in any case.
    let Ok(held) = old.reservations() else { return Ok(()) };
    match held.iter().find(|held| held.resource == Resource::Server && process::lives(&held.owner)) {
        Some(held) => Err(DirectorError::ServerRuns { process: process::number_of(&held.owner) }),
        None => Ok(()),
    }
}

/// Removes a catalog that is not needed any more, even where its database is gone.
fn discard(dir: &Path, events: &Events) -> Result<(), DirectorError> {
    match Catalog::discard(dir) {
        Ok(()) => Ok(()),
        Err(error) => {
            let message = format!("tables of an old catalog stay where they are: {}", with_causes(&error));
            events(Event::Notice { message });
            std::fs::remove_dir_all(dir).map_err(DirectorError::host("remove", dir))
        }
    }
}

/// The volumes in the library; those that the old catalog knows, where a person brings them.
fn volumes_to_read(old: Option<&Old>, site: &Site, mounter: &Mounter) -> Result<Vec<Volser>, DirectorError> {
    if mounter.library.config.loader() == Loader::Robot {
        let present = mounter.present_here()?;
        for volser in mounter.anywhere_here()?.into_iter().filter(|volser| !present.contains(volser)) {
            let message = format!(
                "volume {volser} lies in a mail slot and is not read: `capstan library import` brings it in, for another rebuild"
            );
            (site.events)(Event::Notice { message });
        }
        return Ok(present);
    }
    let known = old.and_then(|old| old.as_ref().ok()).map(Catalog::volumes);
    match known {
        Some(Ok(mut volumes)) if !volumes.is_empty() => {
            volumes.retain(|volume| !mounter.libraries.are_several() || volume.library == mounter.library.name);
            Ok(volumes.into_iter().map(|volume| volume.volser).collect())
        }
        _ => {
            let reason = "nobody knows which volumes there are: without the old catalog a rebuild needs a library with a changer";
            let library = capstan_mover::devices::BY_HAND.to_owned();
            Err(DirectorError::Changer(ChangerError::Unusable { library, reason: reason.to_owned() }))
        }
    }
}

/// Takes over which directories the libraries are: one that is not mounted holds no volumes, and must not be taken for
/// a library.
fn keep_libraries(old: &Catalog, anew: &mut Catalog, config: &Config) -> Result<(), DirectorError> {
    // One that cannot be read knows no library; then what is there is taken.
    for (name, _) in config.all_libraries() {
        if let Ok(Some(library)) = old.fact(&library_fact(name)) {
            anew.put_fact(&library_fact(name), &library)?;
        }
    }
    // What was reserved before stays older than what is reserved from now on, and drives are reserved in the same name.
    anew.take_over_generations(old)?;
    if let Ok(Some(anchor)) = old.fact(AUDIT_ANCHOR_FACT) {
        anew.put_fact(AUDIT_ANCHOR_FACT, &anchor)?;
    }
    for fact in [CATALOG_FACT, KEEP_RULES_FACT] {
        if let Ok(Some(value)) = old.fact(fact) {
            anew.put_fact(fact, &value)?;
        }
    }
    // A volume that is away comes back under its name, which no other may have by then.
    if let Some(name) = volser_of(last_used(old)) {
        note_used(anew, [&name]);
    }
    if let Ok(volumes) = old.volumes() {
        note_used(anew, volumes.iter().map(|volume| &volume.volser));
    }
    Ok(())
}

/// Takes over what the old catalog knows of the volumes that were read, and that does not stand on them: that they are
/// set aside or full, that a session has not closed them, and which copies of what they hold are wanted.
fn keep_states(old: &Catalog, site: &Site) -> Result<(), DirectorError> {
    let known = old.volumes()?;
    let mut catalog = locked(&site.catalog);
    for now in catalog.volumes()? {
        let before = known.iter().find(|before| before.volser == now.volser && before.id.is_some());
        let Some(before) = before.filter(|before| before.id == now.id) else { continue };
        let keeps = matches!(before.state, VolumeState::Suspect | VolumeState::Retired)
            || before.state == VolumeState::Full && now.state == VolumeState::Filling;
        if keeps || before.errors > now.errors {
            catalog.update_volume(&now.volser, |volume| {
                volume.state = if keeps { before.state } else { volume.state };
                volume.errors = volume.errors.max(before.errors);
            })?;
        }
    }
    let lives: HashSet<_> = catalog.volumes()?.into_iter().filter_map(|volume| volume.id).collect();
    for life in old.opened_volumes()?.into_iter().filter(|life| lives.contains(life)) {
        catalog.volume_opened(life, old.opened_under(life)?.unwrap_or_default())?;
    }
    let (mut wanted, mut numbers) = (Vec::new(), Vec::new());
    for object in catalog.objects(&capstan_catalog::ObjectFilter::default())? {
        wanted.extend(old.wanted_copies(object.id)?);
        numbers.extend(old.copy_numbers(object.id)?.into_iter().map(|(copy, pool)| (object.id, copy, pool)));
    }
    let wanted: Vec<_> = wanted.iter().map(|copy| (copy.object, copy.copy, copy.pool.as_str())).collect();
    catalog.promise_copies(&wanted)?;
    let numbers: Vec<_> = numbers.iter().map(|(object, copy, pool)| (*object, *copy, pool.as_str())).collect();
    Ok(catalog.keep_copy_numbers(&numbers)?)
}

/// Takes over policies and their queue, the peers of the cell, what people were told, the history, what was found bad,
/// when volumes were verified, and what backups were told to leave out: it stands on no volume.
fn keep_findings(old: &Old, site: &Site) {
    let policies = old.as_ref().map_err(ToString::to_string);
    let policies =
        policies.and_then(|old| locked(&site.catalog).take_over_policies(old).map_err(|error| error.to_string()));
    let has_queue = policies.is_ok();
    if let Err(error) = policies {
        let message = format!(
            "the policies and the queue of the old catalog cannot be read ({error}). If there were policies, apply their \
             file again: capstan policies apply FILE"
        );
        (site.events)(Event::Notice { message });
    }
    let peers = old.as_ref().map_err(ToString::to_string);
    let peers = peers.and_then(|old| {
        let mut catalog = locked(&site.catalog);
        let taken_over = catalog.take_over_peers(old).and_then(|()| catalog.take_over_users(old));
        let taken_over = taken_over.and_then(|()| catalog.take_over_member_labels(old));
        taken_over.map_err(|error| error.to_string())
    });
    if let (Err(error), true) = (peers, site.dir().join("cell/authority.pem").exists()) {
        let message = format!(
            "the peers of the old catalog cannot be read ({error}). No client, mover or user is let in until it is \
             enrolled again: capstan client enrol NAME"
        );
        (site.events)(Event::Notice { message });
    }
    if let Ok(old) = old.as_ref() {
        if let Err(error) = keep_states(old, site) {
            let message = format!(
                "which volumes were set aside cannot be read from the old catalog ({}): `capstan verify VOLUME` shows \
                 whether a volume is good",
                with_causes(&error)
            );
            (site.events)(Event::Notice { message });
        }
        // What was told and is forgotten is told once more, which is no reason for a word.
        let _ = locked(&site.catalog).take_over_told(old);
    }
    let kept = old.as_ref().map_err(ToString::to_string).and_then(|old| {
        let mut catalog = locked(&site.catalog);
        let jobs = catalog.take_over_jobs(old, has_queue).and_then(|()| catalog.take_over_left_out(old));
        jobs.and_then(|()| catalog.take_over_findings(old)).map_err(|error| error.to_string())
    });
    if let Err(error) = kept {
        let message = format!(
            "the old catalog cannot be read, so nothing is known of earlier jobs, and of damage that was found before: `capstan verify` finds that again ({error})"
        );
        (site.events)(Event::Notice { message });
    }
}

/// Takes over from the old catalog, as far as it can be read, what is on no volume: pools' retention, pools without
/// volumes, and what operators said of clocks and sources.
fn keep_pools(old: &Old, site: &Site) -> Result<(), DirectorError> {
    let kept = old.as_ref().map_err(ToString::to_string).and_then(|old| {
        let words = locked(&site.catalog).keep_words(old);
        words.and_then(|()| old.pools()).map_err(|error| error.to_string())
    });
    let pools = match kept {
        Ok(pools) => pools,
        Err(error) => {
            let message = format!("the old catalog cannot be read, so pools have no retention now: {error}");
            (site.events)(Event::Notice { message });
            return Ok(());
        }
    };
    let catalog = &mut locked(&site.catalog);
    for pool in pools {
        let found = catalog.pool(&pool.name)?;
        // What the volumes say of encryption counts.
        if found.is_none_or(|found| found.encryption == pool.encryption) {
            catalog.put_pool(&pool)?;
        }
    }
    Ok(())
}

fn read_volume(mounter: &Mounter, volser: &Volser, report: &mut RebuildReport) -> Result<(), DirectorError> {
    let mut volume = mounter.mount(volser)?;
    let outcome = record_volume(mounter, &mut volume, report);
    mounter.dismount(volume)?;
    outcome
}

fn record_volume(mounter: &Mounter, volume: &mut InDrive, report: &mut RebuildReport) -> Result<(), DirectorError> {
    let (volser, medium) = (volume.volser.clone(), volume.kind(MediumKind::Rewritable));
    let blank = Volume {
        capacity: Some(volume.medium.capacity_bytes),
        medium,
        library: volume.library.name.clone(),
        generation: volume.medium.generation.clone(),
        ..Volume::blank(volser.clone())
    };
    let key = match volume.medium.encryption {
        EncryptionState::Blank => {
            locked(&mounter.catalog).put_volume(&blank)?;
            report.blank += 1;
            return Ok(());
        }
        EncryptionState::Plain => None,
        EncryptionState::Encrypted { algorithm, tag } => Some(KeyRef { tag, algorithm }),
    };
    if volume.end_of_data()?.lbn < FIRST_SESSION_LBN {
        // A run was killed before the label was flushed: nothing was ever reported of this life.
        let state = match medium {
            MediumKind::Rewritable => VolumeState::Scratch,
            // It can never be labelled.
            MediumKind::WriteOnce => VolumeState::Retired,
        };
        locked(&mounter.catalog).put_volume(&Volume { state, ..blank })?;
        report.blank += 1;
        return Ok(());
    }
    let header = mounter.open_label(volume)?;
    let pool = (!header.pool.is_empty()).then(|| header.pool.clone());
    if let Some(name) = &pool {
        let mut catalog = locked(&mounter.catalog);
        if catalog.pool(name)?.is_none() {
            let encryption = key.map(|key| key.algorithm);
            let pool = Pool { name: name.clone(), encryption, retention_ns: None, feed: ScratchFeed::Allowed };
            catalog.put_pool(&pool)?;
        }
    }
    locked(&mounter.catalog).put_volume(&Volume {
        state: if pool.is_some() { VolumeState::Filling } else { VolumeState::Scratch },
        pool,
        id: Some(header.volume),
        key,
        end_of_data_lbn: FIRST_SESSION_LBN,
        labelled_ns: Some(header.labelled_ns),
        recycled: header.recycled,
        ..blank
    })?;
    report.volumes += 1;
    let early_warning = record_checkpoints(mounter, volume, header.volume, report);
    // What was written there may be more than is known now: nothing is written behind it, or over it.
    let reason = match &early_warning {
        Ok((_, reason)) => reason.clone(),
        Err(error) => Some(with_causes(error)),
    };
    if let Some(reason) = reason {
        mounter.suspect(&volser, &format!("a rebuild could not read all of what it holds: {reason}"))?;
    } else if let Ok((true, _)) = early_warning {
        locked(&mounter.catalog).update_volume(&volser, |volume| volume.state = VolumeState::Full)?;
    }
    early_warning.map(drop)
}

/// Records all checkpoints of a volume, from its end. Whether it is at its end, and the first thing that could not be
/// read.
fn record_checkpoints(
    mounter: &Mounter,
    volume: &InDrive,
    life: VolumeId,
    report: &mut RebuildReport,
) -> Result<(bool, Option<String>), DirectorError> {
    let volser = volume.volser.clone();
    let mut first = None;
    let mut problem = |report: &mut RebuildReport, error: &DirectorError| {
        let reason = with_causes(error);
        first.get_or_insert_with(|| reason.clone());
        report.problems.push((volser.clone(), reason));
    };
    let mut at = volume.last_checkpoint_lbn(life)?;
    while let Some(lbn) = at {
        let found = match volume.checkpoint(life, lbn) {
            Ok(found) => found,
            Err(error) => {
                problem(report, &error);
                at = volume.checkpoint_lbn_before(life, lbn)?;
                continue;
            }
        };
        let record = session_record(volume, life, &found).unwrap_or_else(|error| {
            problem(report, &error);
            None
        });
        match volume.catalog_part(life, &found) {
            Ok(part) => {
                let seen = CheckpointSeen {
                    volser: &volume.volser,
                    volume: life,
                    session: found.session,
                    session_record: record.as_ref(),
                    lbn,
                    checkpoint: &found.checkpoint,
                    part: &part,
                };
                match locked(&mounter.catalog).record_checkpoint(&seen) {
                    Ok(_) => report.checkpoints += 1,
                    Err(error) if refuses_part(&error) => problem(report, &error.into()),
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => problem(report, &error),
        }
        at = (found.checkpoint.previous_lbn > 0).then_some(found.checkpoint.previous_lbn);
    }
    Ok((volume.end_of_data()?.early_warning, first))
}
