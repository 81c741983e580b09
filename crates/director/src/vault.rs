//! Vaults: where volumes are that were sent out of the libraries, which ones are to go, and which to be fetched.
//!
//! A policy of care with a `vault` has the full volumes of its pools go there; with `vault_after` also one that is not
//! full, once the oldest of what it holds is that old. Nobody knows where a volume is that has left but who carried it:
//! so what is noted when it is sent counts until it is seen in a library again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use capstan_catalog::{CopyState, NeededTimes, SentVolume, Volume, VolumeState};
use capstan_format::{ObjectId, Volser};
use capstan_tape::{ChangerError, ElementAddress, with_causes};

use crate::DirectorError;
use crate::config::{JobConfig, VaultRule, check_vault};
use crate::library::Whereabouts;
use crate::mounter::Mounter;
use crate::shared::apart;
use crate::site::{Site, locked};

/// A volume that is at a vault, is to go there, or is to be fetched from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultVolume {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool; `None` for scratch.
    pub pool: Option<String>,
    /// How it stands.
    pub state: VolumeState,
    /// Where it is in a library, if it is there.
    pub place: Whereabouts,
    /// The vault where it is, or that it is to go to; `None` if it is outside and nobody said where.
    pub vault: Option<String>,
    /// When it was sent, nanoseconds since 1970.
    pub sent_ns: Option<i64>,
    /// Until when something on it is needed.
    pub needed: NeededUntil,
    /// What is to be done with it.
    pub act: VaultAct,
    /// Why.
    pub reasons: Vec<String>,
}

/// What a person is to do with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VaultAct {
    /// Bring it from the vault.
    Fetch,
    /// Bring it to the vault.
    Send,
    /// Nothing: it stays there.
    Keep,
}

/// Until when something on a volume is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededUntil {
    /// Nothing on it is.
    Nothing,
    /// Nanoseconds since 1970.
    At(i64),
    /// For ever, or as long as a keep rule keeps it.
    Open,
}

/// What became of volumes that were to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// In a mail slot, to be taken out; each with its vault.
    pub in_mail_slot: Vec<(Volser, String)>,
    /// Noted to be there already: they are in no library.
    pub noted: Vec<(Volser, String)>,
    /// Not sent, and why.
    pub left: Vec<(Volser, String)>,
}

/// What is known of a volume.
struct Known<'a> {
    volume: &'a Volume,
    place: Whereabouts,
    needed: Option<&'a NeededTimes>,
    sent: Option<&'a SentVolume>,
    rule: Option<&'a VaultRule>,
    is_in_use: bool,
    /// Whether it is in a library, and a copy that is owed or lacking is made from it.
    is_copied_from: bool,
    /// Who waits for it.
    wanted: Vec<String>,
}

/// What is to be done with a volume, if it is one to be spoken of.
fn act(known: &Known<'_>, now_ns: i64) -> Option<(VaultAct, Vec<String>)> {
    let Known { volume, place, needed, sent, rule, is_in_use, is_copied_from, wanted } = known;
    let is_writable = matches!(volume.state, VolumeState::Filling | VolumeState::Full);
    let may_leave = || is_writable && !is_in_use && !is_copied_from && wanted.is_empty();
    let goes = || {
        let (rule, needed) = (rule.as_ref()?, needed.as_ref()?);
        if !may_leave() {
            return None;
        }
        if volume.state == VolumeState::Full {
            return Some((VaultAct::Send, vec!["full".to_owned()]));
        }
        let since_ns = now_ns.saturating_sub(needed.first_ns);
        let is_old = rule.after_ns.is_some_and(|after_ns| since_ns >= after_ns);
        let days = since_ns / 86_400_000_000_000;
        let age = if days == 1 { "1 day".to_owned() } else { format!("{days} days") };
        is_old.then(|| (VaultAct::Send, vec![format!("the first on it is {age} old")]))
    };
    let was_used = volume.id.is_some() && !matches!(volume.state, VolumeState::Blank | VolumeState::Retired);
    match place {
        Whereabouts::At(ElementAddress::Slot(_) | ElementAddress::Drive(_)) => return goes(),
        Whereabouts::Shelf if sent.is_none() => return goes(),
        // It may be where it was last.
        Whereabouts::Unknown => return sent.map(|_| (VaultAct::Keep, Vec::new())),
        Whereabouts::At(ElementAddress::ImportExport(_)) | Whereabouts::Outside | Whereabouts::Shelf => {}
    }
    let is_on_its_way = matches!(place, Whereabouts::At(_));
    if !wanted.is_empty() {
        return Some((VaultAct::Fetch, wanted.clone()));
    }
    if needed.is_none() && was_used && !is_on_its_way {
        let reason = match volume.state {
            VolumeState::Suspect => "nothing on it is needed; it was set aside",
            _ => "nothing on it is needed: it can be written again",
        };
        return Some((VaultAct::Fetch, vec![reason.to_owned()]));
    }
    sent.map(|_| (VaultAct::Keep, Vec::new()))
}

impl Site {
    /// Volumes that are at vaults, are to go there, or are to be fetched from outside: first what is to be fetched,
    /// then what is to go. Those that are back are noted.
    ///
    /// # Errors
    /// The only library does not answer, or the catalog cannot be read or written.
    pub fn vault_volumes(&self) -> Result<Vec<VaultVolume>, DirectorError> {
        let (volumes, needed, pending) = apart(&self.catalog, |catalog| {
            Ok::<_, DirectorError>((catalog.volumes()?, catalog.needed_times()?, catalog.unfinished_runs()?.pending))
        })?;
        let places = self.whereabouts(&volumes)?;
        let sent = locked(&self.catalog).sent_volumes()?;
        let in_use: HashSet<String> = self.volumes_in_use()?.into_iter().map(|held| held.volser).collect();
        let rules = self.vault_rules()?;
        let mut wanted: HashMap<Volser, Vec<String>> = HashMap::new();
        for run in &pending {
            for volser in run.lacks_volumes.iter().filter_map(|name| Volser::new(name).ok()) {
                wanted.entry(volser).or_default().push(format!("restore {} waits for it", run.run.run));
            }
        }
        let there: HashSet<&Volser> = volumes
            .iter()
            .zip(&places)
            .filter(|(_, place)| place.is_inside() || matches!(place, Whereabouts::Shelf | Whereabouts::Unknown))
            .map(|(volume, _)| &volume.volser)
            .filter(|volser| sent.iter().all(|sent| sent.volser != **volser))
            .collect();
        let is_away = |needed: &NeededTimes| !there.contains(&needed.volser);
        let mut copied_from = BTreeSet::new();
        if !rules.is_empty() || needed.iter().any(is_away) {
            for (volser, reason) in self.to_be_copied_from(&there)? {
                match there.contains(&volser) {
                    true => drop(copied_from.insert(volser)),
                    false => wanted.entry(volser).or_default().push(reason),
                }
            }
        }
        let needed: HashMap<&Volser, &NeededTimes> = needed.iter().map(|needed| (&needed.volser, needed)).collect();
        let sent: HashMap<&Volser, &SentVolume> = sent.iter().map(|sent| (&sent.volser, sent)).collect();
        let mut rows = Vec::new();
        for (volume, place) in volumes.iter().zip(places) {
            let known = Known {
                volume,
                place,
                needed: needed.get(&volume.volser).copied(),
                sent: sent.get(&volume.volser).copied(),
                rule: volume.pool.as_ref().and_then(|pool| rules.get(pool)),
                is_in_use: in_use.contains(volume.volser.as_str()),
                is_copied_from: copied_from.contains(&volume.volser),
                wanted: wanted.remove(&volume.volser).unwrap_or_default(),
            };
            let Some((act, reasons)) = act(&known, self.now_ns()) else { continue };
            let of_rule = known.rule.filter(|_| act == VaultAct::Send).map(|rule| rule.vault.clone());
            rows.push(VaultVolume {
                volser: volume.volser.clone(),
                pool: volume.pool.clone(),
                state: volume.state,
                place,
                vault: of_rule.or_else(|| known.sent.map(|sent| sent.vault.clone())),
                sent_ns: known.sent.map(|sent| sent.sent_ns),
                needed: match known.needed {
                    None => NeededUntil::Nothing,
                    Some(needed) => needed.until_ns.map_or(NeededUntil::Open, NeededUntil::At),
                },
                act,
                reasons,
            });
        }
        rows.sort_by(|one, other| (one.act, &one.vault, &one.volser).cmp(&(other.act, &other.vault, &other.volser)));
        Ok(rows)
    }

    /// Where policies have the volumes of pools go. Of two that look after a pool, the first by name.
    fn vault_rules(&self) -> Result<BTreeMap<String, VaultRule>, DirectorError> {
        let mut rules = BTreeMap::new();
        for policy in
            self.policies()?.iter().filter(|policy| policy.fault.is_none() && !policy.config.is_switched_off())
        {
            let Some(rule) = policy.config.vault_rule() else { continue };
            for pool in &policy.config.care_of {
                rules.entry(pool.clone()).or_insert_with(|| rule.clone());
            }
        }
        Ok(rules)
    }

    /// Volumes from which copies are to be made that are owed or lacking: those inside that have all of their object,
    /// or those outside of the copy of which least is to be fetched.
    fn to_be_copied_from(&self, there: &HashSet<&Volser>) -> Result<Vec<(Volser, String)>, DirectorError> {
        let mut objects: BTreeMap<ObjectId, String> = BTreeMap::new();
        for policy in self.policies()?.iter() {
            let job = &policy.config;
            if policy.fault.is_some() || job.is_switched_off() || !job.is_of_copies() {
                continue;
            }
            // One that is to be copied later is to be there then.
            let at_once = JobConfig { delay: None, ..job.clone() };
            for object in self.copies_owed(&at_once)?.objects {
                objects.entry(object.id).or_insert_with(|| format!("policy {} copies from it", policy.name));
            }
        }
        for lacking in apart(&self.catalog, capstan_catalog::Catalog::lacking_copies)? {
            objects.entry(lacking.object).or_insert_with(|| "`capstan repair` reads it".to_owned());
        }
        let mut found = BTreeSet::new();
        apart(&self.catalog, |catalog| {
            for (object, reason) in objects {
                let mut copies: BTreeMap<u8, BTreeSet<Volser>> = BTreeMap::new();
                for extent in catalog.extents(object, None)? {
                    copies.entry(extent.copy).or_default().insert(extent.volser);
                }
                // What has a part of it is no help.
                let wanted = catalog.wanted_copies(object)?;
                let is_whole =
                    |number: &u8| wanted.iter().any(|copy| copy.copy == *number && copy.state == CopyState::Whole);
                copies.retain(|number, _| is_whole(number));
                let is_inside = |volumes: &&BTreeSet<Volser>| volumes.iter().all(|volser| there.contains(volser));
                if let Some(inside) = copies.values().find(is_inside) {
                    found.extend(inside.iter().map(|volser| (volser.clone(), reason.clone())));
                    continue;
                }
                let away = |volumes: &BTreeSet<Volser>| -> Vec<Volser> {
                    volumes.iter().filter(|volser| !there.contains(volser)).cloned().collect()
                };
                let fewest = copies.values().map(away).min_by_key(Vec::len).unwrap_or_default();
                found.extend(fewest.into_iter().map(|volser| (volser, reason.clone())));
            }
            Ok::<_, DirectorError>(())
        })?;
        Ok(found.into_iter().collect())
    }

    /// Sends volumes to a vault, or to that of their pool's policy: those in a library are brought to its mail slot,
    /// as far as there is room, and where they go is noted.
    ///
    /// # Errors
    /// The name is none for a vault, or none is named and no policy says one; the catalog does not know a volume; the
    /// library does not do it. What was sent before is sent.
    pub fn send_to_vault(&self, volsers: &[Volser], vault: Option<&str>) -> Result<Sent, DirectorError> {
        if let Some(vault) = vault {
            check_vault(vault).map_err(|reason| DirectorError::Vault { reason })?;
        }
        for volser in volsers {
            Mounter::new(self).volume(volser)?;
        }
        let goes: Vec<(Volser, String)> = match vault {
            Some(vault) => volsers.iter().map(|volser| (volser.clone(), vault.to_owned())).collect(),
            None => {
                let rules = self.vault_rules()?;
                let of = |volser: &Volser| {
                    let pool = locked(&self.catalog).volume(volser)?.and_then(|volume| volume.pool);
                    let rule = pool.and_then(|pool| rules.get(&pool));
                    let reason = || format!("no policy says where volume {volser} goes: name the vault with --to");
                    let rule = rule.ok_or_else(|| DirectorError::Vault { reason: reason() })?;
                    Ok::<_, DirectorError>((volser.clone(), rule.vault.clone()))
                };
                volsers.iter().map(of).collect::<Result<_, _>>()?
            }
        };
        self.send_all(goes, false, Sent::default())
    }

    /// Sends all volumes that are to go to a vault, by what policies say: of these pools, or of all where none is
    /// named; to this vault, or to any.
    ///
    /// # Errors
    /// As [`Site::send_to_vault`].
    pub fn send_due_to_vault(&self, pools: &[String], vault: Option<&str>) -> Result<Sent, DirectorError> {
        let mut due = self.vault_volumes()?;
        due.retain(|row| row.act == VaultAct::Send);
        due.retain(|row| pools.is_empty() || row.pool.as_ref().is_some_and(|pool| pools.contains(pool)));
        due.retain(|row| vault.is_none() || row.vault.as_deref() == vault);
        let mut sent = Sent::default();
        // Nothing moves what a person keeps.
        let on_shelf = due.extract_if(.., |row| row.place == Whereabouts::Shelf);
        sent.left.extend(on_shelf.map(|VaultVolume { volser, vault, .. }| {
            let vault = vault.unwrap_or_default();
            let reason = format!(
                "no robot has it: take it to vault {vault}, then run `capstan vault send {volser} --to {vault:?}`"
            );
            (volser, reason)
        }));
        let goes = due.into_iter().filter_map(|row| row.vault.map(|vault| (row.volser, vault)));
        self.send_all(goes.collect(), true, sent)
    }

    /// Sends these, of which `due` ones go only as long as nothing has changed that.
    fn send_all(&self, goes: Vec<(Volser, String)>, due: bool, mut sent: Sent) -> Result<Sent, DirectorError> {
        let mut full: HashSet<String> = HashSet::new();
        for (volser, vault) in goes {
            if self.is_to_stop() {
                return Err(DirectorError::Interrupted);
            }
            match self.send_one(&volser, &vault, due, &mut full, &mut sent) {
                Ok(()) => {}
                Err(DirectorError::Interrupted) => return Err(DirectorError::Interrupted),
                // What cannot be done with one keeps no other from it.
                Err(error) => sent.left.push((volser, with_causes(&error))),
            }
        }
        Ok(sent)
    }

    fn send_one(
        &self,
        volser: &Volser,
        vault: &str,
        due: bool,
        full: &mut HashSet<String>,
        sent: &mut Sent,
    ) -> Result<(), DirectorError> {
        let mut leave = |reason: String| sent.left.push((volser.clone(), reason));
        // Nobody mounts it meanwhile.
        let hold = match self.holds.volume(volser) {
            Ok(hold) => hold,
            Err(DirectorError::InUse { .. }) => {
                leave("another job uses it".to_owned());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let known = Mounter::new(self).volume(volser)?;
        if due && !matches!(known.state, VolumeState::Filling | VolumeState::Full) {
            leave("it is neither filling nor full any more".to_owned());
            return Ok(());
        }
        let place = self.whereabouts(std::slice::from_ref(&known))?[0];
        match place {
            Whereabouts::Unknown => {
                leave(format!("library {} does not answer", known.library));
                return Ok(());
            }
            Whereabouts::At(ElementAddress::Slot(_) | ElementAddress::Drive(_)) => {
                let library = self.library_of(volser.as_str())?;
                if full.contains(&library) {
                    leave(full_mail_slots(&library));
                    return Ok(());
                }
                match self.clone().in_library(&library)?.export(volser) {
                    Ok(()) => {}
                    Err(DirectorError::Changer(ChangerError::NoRoom { .. })) => {
                        leave(full_mail_slots(&library));
                        full.insert(library);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            Whereabouts::At(ElementAddress::ImportExport(_)) | Whereabouts::Outside | Whereabouts::Shelf => {}
        }
        let sent_ns = self.now_ns();
        let noted = SentVolume { volser: volser.clone(), vault: vault.to_owned(), sent_ns };
        locked(&self.catalog).note_sent(&[noted])?;
        drop(hold);
        let to = match place {
            Whereabouts::At(_) => &mut sent.in_mail_slot,
            _ => &mut sent.noted,
        };
        to.push((volser.clone(), vault.to_owned()));
        Ok(())
    }

    /// Notes that volumes are not at a vault any more; gives those that were said to be.
    ///
    /// # Errors
    /// The catalog does not know one, or cannot be written.
    pub fn back_from_vault(&self, volsers: &[Volser]) -> Result<Vec<Volser>, DirectorError> {
        for volser in volsers {
            Mounter::new(self).volume(volser)?;
        }
        Ok(locked(&self.catalog).note_back(volsers, i64::MAX, i64::MAX)?)
    }

    /// The vaults where volumes are that were sent.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn vaults_of_sent(&self) -> Result<BTreeMap<Volser, String>, DirectorError> {
        let sent = locked(&self.catalog).sent_volumes()?;
        Ok(sent.into_iter().map(|sent| (sent.volser, sent.vault)).collect())
    }
}

fn full_mail_slots(library: &str) -> String {
    format!("no mail slot of library {library} is free: take out what is there, then run `capstan vault send` again")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_format::VolumeId;

    use super::*;

    const DAY: i64 = 86_400_000_000_000;
    const SLOT: Whereabouts = Whereabouts::At(ElementAddress::Slot(3));
    const MAIL: Whereabouts = Whereabouts::At(ElementAddress::ImportExport(0));

    fn volume(state: VolumeState) -> Volume {
        let volser = Volser::new("A00001").unwrap();
        Volume { id: Some(VolumeId(7)), pool: Some("tape".to_owned()), state, ..Volume::blank(volser) }
    }

    #[test]
    fn what_is_to_be_done_with_a_volume() {
        let volser = Volser::new("A00001").unwrap();
        let needed = NeededTimes { volser: volser.clone(), first_ns: 10 * DAY, until_ns: None };
        let sent = SentVolume { volser, vault: "hill".to_owned(), sent_ns: DAY };
        let rule = |after_ns| VaultRule { vault: "hill".to_owned(), after_ns };
        let (at_once, after) = (rule(None), rule(Some(7 * DAY)));
        let (filling, full, suspect) =
            (volume(VolumeState::Filling), volume(VolumeState::Full), volume(VolumeState::Suspect));
        let is = |volume, place, rule| Known {
            volume,
            place,
            needed: Some(&needed),
            sent: None,
            rule,
            is_in_use: false,
            is_copied_from: false,
            wanted: Vec::new(),
        };
        let act_at = |known: &Known<'_>, days: i64| act(known, days * DAY).map(|(act, _)| act);
        // In a library: full ones go, and others once the first on them is old.
        assert_eq!(act_at(&is(&full, SLOT, None), 30), None);
        assert_eq!(act_at(&is(&full, SLOT, Some(&at_once)), 10), Some(VaultAct::Send));
        assert_eq!(act_at(&is(&filling, SLOT, Some(&at_once)), 400), None);
        assert_eq!(act_at(&is(&filling, SLOT, Some(&after)), 16), None);
        assert_eq!(act_at(&is(&filling, SLOT, Some(&after)), 17), Some(VaultAct::Send));
        assert_eq!(act_at(&is(&filling, Whereabouts::Shelf, Some(&after)), 17), Some(VaultAct::Send));
        // None that somebody uses or waits for, that was set aside, or of which nothing is needed.
        assert_eq!(act_at(&is(&suspect, SLOT, Some(&at_once)), 30), None);
        assert_eq!(act_at(&Known { is_in_use: true, ..is(&full, SLOT, Some(&at_once)) }, 30), None);
        assert_eq!(act_at(&Known { wanted: vec!["x".into()], ..is(&full, SLOT, Some(&at_once)) }, 30), None);
        assert_eq!(act_at(&Known { is_copied_from: true, ..is(&full, SLOT, Some(&at_once)) }, 30), None);
        assert_eq!(act_at(&Known { needed: None, ..is(&full, SLOT, Some(&at_once)) }, 30), None);
        // Outside: it is fetched for whoever waits for it, and once nothing on it is needed.
        let away = |place| Known { sent: Some(&sent), ..is(&full, place, Some(&at_once)) };
        for place in [Whereabouts::Outside, Whereabouts::Shelf, MAIL] {
            assert_eq!(act_at(&away(place), 30), Some(VaultAct::Keep), "{place}");
            assert_eq!(act_at(&Known { wanted: vec!["x".into()], ..away(place) }, 30), Some(VaultAct::Fetch));
        }
        assert_eq!(act_at(&Known { needed: None, ..away(Whereabouts::Outside) }, 30), Some(VaultAct::Fetch));
        assert_eq!(act_at(&Known { needed: None, ..away(MAIL) }, 30), Some(VaultAct::Keep), "it is on its way");
        assert_eq!(act_at(&away(Whereabouts::Unknown), 30), Some(VaultAct::Keep));
        // Nobody said where one is; and one that is not written again need not come.
        assert_eq!(act_at(&is(&full, Whereabouts::Outside, Some(&at_once)), 30), None);
        assert_eq!(act_at(&Known { needed: None, ..is(&full, Whereabouts::Outside, None) }, 30), Some(VaultAct::Fetch));
        let retired = volume(VolumeState::Retired);
        assert_eq!(act_at(&Known { needed: None, ..is(&retired, Whereabouts::Outside, None) }, 30), None);
    }
}
