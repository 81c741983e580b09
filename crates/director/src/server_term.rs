//! What a server and its operators need of a site beside its jobs: the right to move runs through the queue, what
//! people do with runs and with peers of the cell, and which drives others use.

use capstan_catalog::{
    Cancelled, EnrolmentRow, Entered, HoldChange, MAIN_LIBRARY, NewRun, Reservation, Resource, UserRow, Wish,
};

use capstan_format::Volser;
use capstan_keys::api::PeerKind;
use capstan_tape::DriveNeeds;

use crate::DirectorError;
use crate::config::{JobConfig, StorageUnit};
use crate::drive_classes::{classes_fact, classes_of};
use crate::drive_waits::waited_since_ns;
use crate::hold::{Hold, holder};
use crate::libraries::LibraryAt;
use crate::presence::Presence;
use crate::process;
use crate::site::{Site, locked};

/// The catalog's fact that says where the audit log of the cell stood at its last record.
pub const AUDIT_ANCHOR_FACT: &str = "anchor of the audit log";

/// What a run that somebody enters backs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunLevel {
    /// What its policy says.
    OfPolicy,
    /// Everything.
    Full,
}

impl RunLevel {
    /// That of a run that is full, or is not.
    pub fn of(is_full: bool) -> Self {
        if is_full { Self::Full } else { Self::OfPolicy }
    }
}

/// When a run that somebody enters begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStart {
    /// In the window of its policy.
    InWindow,
    /// As soon as it can, whatever the window says.
    Now,
}

impl RunStart {
    /// That of a run that is wanted now, or is not.
    pub fn of(is_now: bool) -> Self {
        if is_now { Self::Now } else { Self::InWindow }
    }
}

/// How somebody wants a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAsked {
    /// What it backs up.
    pub level: RunLevel,
    /// When it begins.
    pub start: RunStart,
}

impl RunAsked {
    /// As its policy says.
    pub const OF_POLICY: Self = Self { level: RunLevel::OfPolicy, start: RunStart::InWindow };
}

/// The catalog's fact that says how many drives the server found in a library.
fn drives_fact(library: &str) -> String {
    if library == MAIN_LIBRARY { "drives of the server".to_owned() } else { format!("drives of the server: {library}") }
}

/// The right to move runs through the queue, until it is dropped.
pub struct ServerTerm {
    hold: Hold,
    /// No rebuild puts another catalog in the place of the one that is served.
    _presence: Presence,
}

impl ServerTerm {
    /// Higher than that of every server before.
    pub fn number(&self) -> u64 {
        self.hold.generation()
    }
}

/// A source that a job has for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceInUse {
    /// The machine that it is of.
    pub client: String,
    /// Its name there.
    pub source: Vec<u8>,
    /// The process of the job, if it can be told.
    pub process: Option<u32>,
}

/// A volume that a job has for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInUse {
    /// Its barcode.
    pub volser: String,
    /// Its pool; none if it is scratch.
    pub pool: Option<String>,
    /// Whose job that is, in words; none for a run of the server.
    pub holder: Option<String>,
}

/// How the drives of a library are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveUse {
    /// The library.
    pub library: String,
    /// Drives there are; none where nobody knows, as no server has found the library yet.
    pub all: Option<u32>,
    /// What they are, one class a drive; empty for one that is not known, and none where nobody has asked.
    pub classes: Vec<String>,
    /// Drives that jobs of other processes use.
    pub by_others: u32,
    /// Since when somebody outside the queue waits for one, nanoseconds since 1970, if somebody does.
    pub waited_for_ns: Option<i64>,
}

impl Site {
    /// Begins to serve this site: nobody else moves runs through its queue until the term is dropped.
    ///
    /// # Errors
    /// [`DirectorError::ServerRuns`] if another server does; [`DirectorError::Busy`] while the catalog is rebuilt.
    /// Otherwise the state directory cannot be written.
    pub fn begin_term(&self) -> Result<ServerTerm, DirectorError> {
        let presence = self.presence()?;
        // A rebuild may have ended while it was waited for.
        if self.catalog_was_replaced() {
            return Err(DirectorError::CatalogReplaced);
        }
        match self.holds.reserve(&Wish::alone(Resource::Server))? {
            Ok(hold) => Ok(ServerTerm { hold, _presence: presence }),
            Err(held) => Err(DirectorError::ServerRuns { process: process::number_of(&held.owner) }),
        }
    }

    /// Whether a server moves runs through the queue.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn is_served(&self) -> Result<bool, DirectorError> {
        Ok(self.holds.living()?.iter().any(|held| held.resource == Resource::Server))
    }

    /// How the drives of each library are used. No library is asked: it may be off, or a robot may move.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn drive_use(&self) -> Result<Vec<DriveUse>, DirectorError> {
        let held = self.holds.living()?;
        let server = held.iter().find(|held| held.resource == Resource::Server).map(|held| held.owner.as_str());
        let catalog = locked(&self.catalog);
        let use_of = |library: String| {
            let is_of_others = |held: &&Reservation| {
                let is_seat = matches!(&held.resource, Resource::Seat { library: of, .. } if *of == library);
                is_seat && Some(held.owner.as_str()) != server
            };
            let by_others = u32::try_from(held.iter().filter(is_of_others).count()).unwrap_or(u32::MAX);
            let all = catalog.fact(&drives_fact(&library))?.and_then(|text| text.parse().ok());
            let waited_for_ns = waited_since_ns(&catalog, &library, self.now_ns())?;
            let classes = catalog.fact(&classes_fact(&library))?.unwrap_or_default();
            let classes = classes.split(',').map(str::to_owned).collect();
            Ok(DriveUse { library, all, classes, by_others, waited_for_ns })
        };
        self.library_names().into_iter().map(use_of).collect()
    }

    /// Asks each library how many drives there are, for all that want to know; gives those that do not answer, and why.
    /// How many they have is not known any more then.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub fn find_drives(&self) -> Result<Vec<(String, DirectorError)>, DirectorError> {
        let ask = |library: &LibraryAt| -> Result<Option<(String, DirectorError)>, DirectorError> {
            let (text, silent) = match library.devices.drives() {
                Ok(drives) => (drives.to_string(), None),
                Err(error) => (String::new(), Some((library.name.clone(), error.into()))),
            };
            let classes = if silent.is_none() { classes_of(library) } else { None };
            let mut catalog = locked(&self.catalog);
            for (fact, text) in [(drives_fact(&library.name), Some(text)), (classes_fact(&library.name), classes)] {
                let Some(text) = text else { continue };
                if catalog.fact(&fact)?.unwrap_or_default() != text {
                    catalog.put_fact(&fact, &text)?;
                }
            }
            Ok(silent)
        };
        // One that is slow, or away, holds up no other.
        let asked: Vec<_> = std::thread::scope(|scope| {
            let asks: Vec<_> = self.libraries.all().iter().map(|library| scope.spawn(|| ask(library))).collect();
            asks.into_iter().map(|ask| ask.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        asked.into_iter().filter_map(Result::transpose).collect()
    }

    /// A storage unit; that of the main library where none is named. One of some models has no more drives than its
    /// libraries have of them, as far as a server has asked.
    ///
    /// # Errors
    /// [`DirectorError::UnknownUnit`]; or the catalog cannot be read.
    pub fn unit(&self, name: Option<&str>) -> Result<StorageUnit, DirectorError> {
        let unit = self.config.unit(name).ok_or_else(|| DirectorError::UnknownUnit {
            name: name.unwrap_or_default().to_owned(),
            known: self.config.unit_names().join(", "),
        })?;
        let unit = self.with_labelled(unit)?;
        let there = if unit.models.is_empty() { None } else { self.drives_of_models(&unit)? };
        let drives = unit.drives.map_or(there, |most| Some(there.map_or(most, |there| most.min(there))));
        Ok(StorageUnit { drives, ..unit })
    }

    /// The storage unit of a policy. One of copies that names none writes where volumes of its pool are.
    ///
    /// # Errors
    /// As [`Site::unit`].
    pub fn unit_of(&self, job: &JobConfig) -> Result<StorageUnit, DirectorError> {
        match &job.unit {
            None if !job.makes_backups() => {
                let pool = job.care_of.first().map_or(job.first_pool(), String::as_str);
                let library = self.libraries.of_pool(&self.catalog, pool, &self.library)?;
                self.unit(Some(&library.name))
            }
            unit => self.unit(unit.as_deref()),
        }
    }

    /// A unit with the libraries of the movers that have its labels now.
    fn with_labelled(&self, mut unit: StorageUnit) -> Result<StorageUnit, DirectorError> {
        let settings = self.config.units.get(&unit.name);
        let Some(wanted) = settings.map(|settings| &settings.mover_labels).filter(|wanted| !wanted.is_empty()) else {
            return Ok(unit);
        };
        let labels = locked(&self.catalog).labels_of_joined(PeerKind::Mover.as_str())?;
        let has_label = |mover: &str| labels.iter().any(|of| of.member == mover && wanted.contains(&of.label));
        for (name, library) in self.config.all_libraries() {
            if has_label(&library.mover) && !unit.libraries.iter().any(|known| known == name) {
                unit.libraries.push(name.to_owned());
            }
        }
        Ok(unit)
    }

    /// The same site, whose jobs write in a library of a storage unit: that with the most drives free.
    ///
    /// # Errors
    /// [`DirectorError::UnknownUnit`]; [`DirectorError::UnitWithoutLibrary`]; or no library of it can be asked.
    pub fn in_unit(self, name: Option<&str>) -> Result<Self, DirectorError> {
        let unit = self.unit(name)?;
        if unit.libraries.is_empty() {
            return Err(DirectorError::UnitWithoutLibrary { name: unit.name });
        }
        let own = self.with_drives_of(&unit);
        if let [only] = &unit.libraries[..] {
            return own.in_library(only);
        }
        own.in_freest_library(&unit)
    }

    fn in_freest_library(self, unit: &StorageUnit) -> Result<Self, DirectorError> {
        let held = self.holds.living()?;
        let needs = || DriveNeeds { writes: true, ..DriveNeeds::default() };
        let (mut best, mut failure): (Option<(&str, u32)>, _) = (None, None);
        for library in &unit.libraries {
            let is_taken =
                |held: &&Reservation| matches!(&held.resource, Resource::Seat { library: of, .. } if of == library);
            match self.library_named(library)?.drives_fit(&DriveNeeds { models: unit.models.clone(), ..needs() }) {
                Ok(drives) => {
                    let taken = u32::try_from(held.iter().filter(is_taken).count()).unwrap_or(u32::MAX);
                    let free = drives.saturating_sub(taken);
                    if best.is_none_or(|(_, most)| free > most) {
                        best = Some((library, free));
                    }
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match (best, failure) {
            (Some((library, _)), _) => self.clone().in_library(library),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Ok(self),
        }
    }

    /// The same site, whose jobs write where volumes of a pool are: in its own library if that has some, else in the
    /// one that has most.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn in_library_of_pool(self, pool: &str) -> Result<Self, DirectorError> {
        let library = self.libraries.of_pool(&self.catalog, pool, &self.library)?;
        self.in_library(&library.name)
    }

    /// Sources that jobs have for themselves now, with their client, and the process of each job, if it can be told.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn sources_in_use(&self) -> Result<Vec<SourceInUse>, DirectorError> {
        let in_use = |held: Reservation| match held.resource {
            Resource::Source { client, source } => {
                Some(SourceInUse { client, source, process: process::number_of(&held.owner) })
            }
            _ => None,
        };
        Ok(self.holds.living()?.into_iter().filter_map(in_use).collect())
    }

    /// Volumes that jobs have reserved now.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn volumes_in_use(&self) -> Result<Vec<VolumeInUse>, DirectorError> {
        let held = self.holds.living()?;
        let server = held.iter().find(|held| held.resource == Resource::Server).map(|held| held.owner.clone());
        let mut in_use = Vec::new();
        for held in &held {
            let Resource::Volume(volser) = &held.resource else { continue };
            let pool = locked(&self.catalog).volume(volser)?.and_then(|volume| volume.pool);
            let holder = (Some(&held.owner) != server.as_ref()).then(|| holder(held));
            in_use.push(VolumeInUse { volser: volser.to_string(), pool, holder });
        }
        Ok(in_use)
    }

    /// The library that the volume of a barcode is in, or was last.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn library_of(&self, volser: &str) -> Result<String, DirectorError> {
        let library = match Volser::new(volser) {
            Ok(volser) => self.libraries.of_volume(&self.catalog, &volser, &self.library)?,
            Err(_) => &self.library,
        };
        Ok(library.name.clone())
    }

    /// Lets a restore begin that was entered and noted.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn release_restore(&self, run: i64) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).release_restore(run)?)
    }

    /// Takes a run back that has not begun, as if it had never been entered. Whether it waited.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn withdraw_run(&self, run: i64) -> Result<bool, DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).withdraw_run(run)?)
    }

    /// Enters a restore to a client, in the words of whoever carries it out, held until it is released; gives the
    /// number of its run.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn enter_restore(&self, client: &str, restore: &str, priority: i64) -> Result<i64, DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).enter_restore(client, restore, priority, self.now_ns())?)
    }

    /// Enters a run of a policy that somebody asks for, of each of its clients or of the one that is named. What came
    /// of each.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPolicy`]; [`DirectorError::PolicyFault`] if it cannot be run here, or has no such
    /// client. Otherwise the state directory cannot be written.
    pub fn enter_runs(
        &self,
        policy: &str,
        client: Option<&str>,
        asked: RunAsked,
    ) -> Result<Vec<(String, Entered)>, DirectorError> {
        let _presence = self.presence()?;
        let unknown = || DirectorError::UnknownPolicy { name: policy.to_owned() };
        let known = self.policy(policy)?.ok_or_else(unknown)?;
        if let Some(reason) = known.fault {
            return Err(DirectorError::PolicyFault { name: known.name, reason });
        }
        if known.config.takes_puts() {
            let reason = "it stores what `capstan put` brings, whenever that is: there is nothing to run".to_owned();
            return Err(DirectorError::PolicyFault { name: known.name, reason });
        }
        if !known.config.makes_backups() && asked.level == RunLevel::Full {
            let reason = match known.config.is_of_copies() {
                true => "it copies backups as they are, full or not: leave --full out".to_owned(),
                false => "it looks after volumes, and makes no backups: leave --full out".to_owned(),
            };
            return Err(DirectorError::PolicyFault { name: known.name, reason });
        }
        let mut clients = known.config.clients_of(&self.client);
        if clients.is_empty() {
            let reason = format!(
                "no client is one of its {}: `capstan client label` gives a label",
                known.config.clients_in_words()
            );
            return Err(DirectorError::PolicyFault { name: known.name, reason });
        }
        if let Some(client) = client {
            clients.retain(|known| *known == client);
            if clients.is_empty() {
                let reason = format!("it does not name client {client}");
                return Err(DirectorError::PolicyFault { name: known.name, reason });
            }
        }
        let priority = known.config.timing().map_or(0, |timing| timing.priority);
        let (is_full, any_time) = (asked.level == RunLevel::Full, asked.start == RunStart::Now);
        let enter = |client: &str| {
            let run = NewRun { policy, client, due_ns: None, priority, not_before_ns: 0, is_full, any_time };
            match locked(&self.catalog).enter_run(&run, self.now_ns())? {
                Entered::Void => Err(unknown()),
                entered => Ok((client.to_owned(), entered)),
            }
        };
        clients.into_iter().map(enter).collect()
    }

    /// Opens the enrolment of a peer of the cell, in place of one that is open.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn put_enrolment(&self, enrolment: &EnrolmentRow) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).put_enrolment(enrolment)?)
    }

    /// Revokes the certificates of a peer of the cell and removes its enrolment; how many of both there were.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn revoke_peer(&self, kind: &str, name: &str) -> Result<u64, DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).revoke_peer(kind, name, self.now_ns())?)
    }

    /// Gives a client or a mover labels, in place of those before. Runs that wait for a client are cancelled where no
    /// label has their policy name it any more.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn label_member(&self, kind: &str, member: &str, labels: &[String]) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        let named = || self.policies_naming(member);
        let before = if kind == PeerKind::Client.as_str() { named()? } else { Vec::new() };
        locked(&self.catalog).label_member(kind, member, labels, self.now_ns())?;
        let after = if before.is_empty() { Vec::new() } else { named()? };
        let left: Vec<String> = before.into_iter().filter(|policy| !after.contains(policy)).collect();
        Ok(locked(&self.catalog).cancel_waiting(&left, member, self.now_ns())?)
    }

    /// The policies that back a client up, by its name or by a label.
    fn policies_naming(&self, client: &str) -> Result<Vec<String>, DirectorError> {
        let policies = self.policies()?;
        let naming = policies.iter().filter(|policy| policy.config.clients_of(&self.client).contains(&client));
        Ok(naming.map(|policy| policy.name.clone()).collect())
    }

    /// Puts on record what a user of the cell may do from now on.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn put_user(&self, user: &UserRow) -> Result<(), DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).put_user(user)?)
    }

    /// Cancels a run, whether it waits or is at work.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn cancel_run(&self, run: i64) -> Result<Cancelled, DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).cancel_run(run, self.now_ns())?)
    }

    /// Keeps a run that waits from beginning, or lets it begin.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn hold_run(&self, run: i64, is_held: bool) -> Result<HoldChange, DirectorError> {
        let _presence = self.presence()?;
        Ok(locked(&self.catalog).hold_run(run, is_held, self.now_ns())?)
    }
}
