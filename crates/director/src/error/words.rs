//! Parts of the messages.

use std::path::PathBuf;

use capstan_mover::devices::LibraryConfig;
use jiff::Timestamp;

use crate::pools::Shortage;

pub(super) fn copies_text(copies: u8) -> String {
    if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") }
}

/// Who decides on how many drives a library has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrivesOwner {
    /// The settings of this machine: it is a virtual library.
    Settings,
    /// This machine, which has its drives.
    Host,
    /// The mover that has them.
    Mover(String),
}

impl DrivesOwner {
    /// That of the drives of a library.
    pub(crate) fn of(library: &LibraryConfig) -> Self {
        match (&*library.mover, library.is_virtual()) {
            ("", true) => Self::Settings,
            ("", false) => Self::Host,
            (mover, _) => Self::Mover(mover.to_owned()),
        }
    }
}

pub(super) fn more_drives(owner: &DrivesOwner) -> String {
    match owner {
        DrivesOwner::Settings => "set drives in capstan.toml".to_owned(),
        DrivesOwner::Host => "let this host use more drives".to_owned(),
        DrivesOwner::Mover(mover) => format!("let mover {mover} use more drives, as its capstan.toml says it"),
    }
}

/// What may have been meant, where something looks like it.
pub fn meant_by(like: Option<&str>) -> String {
    like.map(|like| format!(", did you mean {like:?}?")).unwrap_or_default()
}

pub(super) fn tried_as(tried: &[String]) -> String {
    match tried {
        [] | [_] => String::new(),
        several => format!(" (tried as {})", several.join(", ")),
    }
}

pub(super) fn further_sources(missing: &[PathBuf]) -> String {
    missing.iter().map(|path| format!(", nor {}", path.display())).collect()
}

/// Until when a lock holds, in words.
pub(crate) fn until_words(until_ns: i64) -> String {
    match Timestamp::from_nanosecond(until_ns.into()) {
        Ok(until) if until_ns < i64::MAX => format!("until {} UTC", until.strftime("%Y-%m-%d %H:%M")),
        _ => "for as long as nobody knows when it was begun".to_owned(),
    }
}

/// What would be gone with a volume; nothing of what is on it is known where it holds no object of the catalog.
/// What a volume holds that would be lost: so many objects, on which so many others stand.
pub(super) fn held_text(objects: usize, standing: usize) -> String {
    let standing = match standing {
        0 => String::new(),
        1 => ", and 1 incremental that stands on that could not be restored whole".to_owned(),
        _ => format!(", and {standing} incrementals that stand on that could not be restored whole"),
    };
    let held = match objects {
        0 => "data that this catalog does not know, of another program or another site: they would be gone for good"
            .to_owned(),
        1 => "1 object, and may be its last copy: the object would be lost for good".to_owned(),
        _ => format!("{objects} objects, and may be their last copy: they would be lost for good"),
    };
    held + &standing
}

pub(super) fn shortage_text(shortage: &Shortage) -> String {
    let unfit = match shortage.unfit {
        0 => String::new(),
        unfit => format!(", {unfit} that no drive there writes"),
    };
    let lacking_room = match shortage.lacking_room {
        0 => String::new(),
        lacking => format!(", {lacking} in folders without room"),
    };
    let folders_full = match shortage.folders_full {
        true => "; all folders of the library have less room than is to stay free",
        false => "",
    };
    format!(
        "{} full, {} not to be written, {} not in the library, {} in use{unfit}{lacking_room}{}{folders_full}",
        shortage.full,
        shortage.barred,
        shortage.absent,
        shortage.in_use,
        shortage.cartridges_max.map(|max| format!("; volumes_max = {max} cartridges are there")).unwrap_or_default()
    )
}

pub(super) fn shortage_advice(pool: &str, shortage: &Shortage) -> String {
    if shortage.folders_full {
        return "make room on their disks, give the library another folder (`folders` in capstan.toml), or expire \
                objects so that a volume can be recycled"
            .to_owned();
    }
    if shortage.cartridges_max.is_some() && shortage.absent == 0 {
        return format!(
            "if the disk has room, raise volumes_max of the library in capstan.toml, or add one with `capstan label \
             BARCODE --pool {pool}`; or expire objects so that a volume can be recycled"
        );
    }
    if shortage.absent > 0 {
        format!(
            "insert one of the pool's volumes (`capstan library import` brings in what lies in a mail slot), or add one \
             with `capstan label BARCODE --pool {pool}`"
        )
    } else if shortage.unfit > 0 {
        format!(
            "add one of a generation that the drives write (`capstan drives`) with `capstan label BARCODE --pool {pool}`"
        )
    } else {
        format!(
            "add one with `capstan label BARCODE --pool {pool}`, or expire objects so that a volume can be recycled"
        )
    }
}
