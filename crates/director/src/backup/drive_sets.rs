//! How many drives a backup writes each of its copies to.

use std::os::unix::ffi::OsStrExt;

use capstan_catalog::{Catalog, ObjectFilter, ObjectStatus, Pool};
use capstan_format::Volser;
use capstan_tape::{DriveDescription, ElementAddress};

use crate::append::AppendHost;
use crate::config::JobConfig;
use crate::mounter::Mounter;
use crate::pools::Choice;
use crate::request::{BackupRequest, Level};
use crate::site::{Site, locked};
use crate::{DirectorError, Event};

/// What a source will probably have to write: as much as the last time, full or incremental, as it will be. Nobody
/// knows where there is no full backup of it.
fn bytes_expected(
    catalog: &Catalog,
    (client, source): (&str, &[u8]),
    full_every: Option<Option<i64>>,
    now_ns: i64,
) -> Result<Option<u64>, DirectorError> {
    let filter = ObjectFilter {
        source: Some(source.to_owned()),
        client: Some(client.to_owned()),
        status: Some(ObjectStatus::Complete),
        ..ObjectFilter::default()
    };
    let objects = catalog.objects(&filter)?;
    let latest = |is_full: bool| {
        let alike = objects.iter().filter(|object| object.base.is_none() == is_full);
        alike.max_by_key(|object| object.started_ns)
    };
    let Some(full) = latest(true) else { return Ok(None) };
    let bytes = |object: &capstan_catalog::Object| object.counts.map(|counts| counts.bytes);
    Ok(match full_every {
        Some(every) if every.is_none_or(|every| now_ns.saturating_sub(full.started_ns) < every) => {
            latest(false).map_or(Some(0), bytes)
        }
        _ => bytes(full),
    })
}

impl Site {
    /// How many drives a job or policy can use for each copy of what a client has: as many as it may, unless its
    /// sources had little to write the last time.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn drives_needed(&self, job: &JobConfig, client: &str) -> Result<u32, DirectorError> {
        let most = job.drives.unwrap_or(1).max(1).into();
        if most == 1 {
            return Ok(1);
        }
        let full_every = job.is_incremental().then(|| job.full_every_ns());
        let sources: Vec<_> = job.sources.iter().map(|path| path.as_os_str().as_bytes()).collect();
        self.drives_for((client, &sources), full_every, most)
    }

    /// The same for sources; `full_every` is there where it is an incremental, and says when it becomes a full one.
    fn drives_for(
        &self,
        (client, sources): (&str, &[&[u8]]),
        full_every: Option<Option<i64>>,
        most: u32,
    ) -> Result<u32, DirectorError> {
        let catalog = locked(&self.catalog);
        let mut bytes = 0u64;
        for source in sources {
            match bytes_expected(&catalog, (client, source), full_every, self.now_ns())? {
                Some(of_source) => bytes = bytes.saturating_add(of_source),
                // It may be anything.
                None => return Ok(most),
            }
        }
        let each = (self.config.data.drive_worthwhile_gib << 30).max(1);
        Ok(u32::try_from(bytes / each).unwrap_or(u32::MAX).clamp(1, most))
    }

    /// The drives that each copy may have: as many as the request names, and as there are drives and volumes for. A
    /// drive that finds no volume would end the whole session.
    pub(super) fn drive_sets(
        &self,
        mounter: &Mounter,
        pools: &[Pool],
        request: &BackupRequest,
    ) -> Result<u32, DirectorError> {
        let mut wanted = u32::from(request.drives.max(1));
        if wanted > 1 && request.drives_by_need {
            let full_every = (request.level == Level::Incremental).then_some(request.full_every_ns);
            let sources: Vec<_> = request.sources.iter().map(|path| path.as_os_str().as_bytes()).collect();
            wanted = self.drives_for((&self.client, &sources), full_every, wanted)?;
        }
        if wanted == 1 {
            return Ok(1);
        }
        let drives = self.drives_for_pools(pools)?;
        let most = wanted.min(drives / u32::from(request.copies.max(1))).max(1);
        let sets = self.sets_with_volumes(mounter, pools, request, most)?.max(1);
        if sets < most {
            let pools: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
            let of = if pools.len() > 1 { "each copy" } else { "it" };
            let message = format!(
                "this backup may write to {most} drives at once, and pool {} has volumes for {sets} of them: {of} is \
                 written to {sets}. Label more volumes for it",
                pools.join(", ")
            );
            (mounter.events)(Event::Notice { message });
        }
        Ok(sets)
    }

    /// How many drives there are volumes for, as far as can be seen without mounting them.
    fn sets_with_volumes(
        &self,
        mounter: &Mounter,
        pools: &[Pool],
        request: &BackupRequest,
        most: u32,
    ) -> Result<u32, DirectorError> {
        let hosts: Vec<AppendHost> =
            (1..=request.copies).map(|copy| self.append_host(mounter, pools, copy, request)).collect();
        let drives = match mounter.library.has_unlike_drives() {
            true => mounter.library.devices.describe_drives()?,
            false => Vec::new(),
        };
        let used = if drives.is_empty() { Vec::new() } else { drives_in_use(mounter)? };
        let mut taken = Taken { drives, used, ..Taken::default() };
        for set in 0..most {
            for host in &hosts {
                if !taken.takes_one(host)? {
                    return Ok(set);
                }
            }
        }
        Ok(most)
    }
}

/// The drives of the job's library whose volumes other jobs have.
fn drives_in_use(mounter: &Mounter) -> Result<Vec<usize>, DirectorError> {
    let held = mounter.holds.volumes()?;
    let elements = mounter.library.devices.inventory()?.elements.into_iter();
    Ok(elements
        .filter_map(|element| match element.address {
            ElementAddress::Drive(number) if element.volser.as_ref().is_some_and(|volser| held.contains(volser)) => {
                Some(number as usize)
            }
            _ => None,
        })
        .collect())
}

/// What sets of drives take of a library.
#[derive(Default)]
struct Taken {
    /// Volumes that are used, or that no drive is left for.
    volumes: Vec<Volser>,
    /// Cartridges that are made.
    made: usize,
    /// The drives of the library, where they differ: each volume needs one that is fit for it.
    drives: Vec<DriveDescription>,
    /// Those that are used.
    used: Vec<usize>,
}

impl Taken {
    /// Takes a volume for a copy, and a drive for it. Whether there is one.
    fn takes_one(&mut self, host: &AppendHost) -> Result<bool, DirectorError> {
        loop {
            let volser = match host.choice_beside(self.made, &self.volumes, None)? {
                Choice::Append(volser) | Choice::Label(volser) => volser,
                Choice::Create => {
                    self.made += 1;
                    return Ok(true);
                }
                Choice::Nothing(_) => return Ok(false),
            };
            let needs = match self.drives.is_empty() {
                true => None,
                false => Some(host.mounter.needs_of(&volser)?),
            };
            self.volumes.push(volser);
            let Some(needs) = needs else { return Ok(true) };
            if let Some(drive) = needs.drive_among(&self.drives, &self.used) {
                self.used.push(drive);
                return Ok(true);
            }
        }
    }
}
