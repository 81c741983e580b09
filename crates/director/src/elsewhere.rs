//! Where a path may be found that an object does not have, in words.

use std::fmt;

use capstan_format::ObjectId;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Where a path may be found that an object does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Elsewhere {
    /// Nothing is known of it.
    #[default]
    Nowhere,
    /// Another backup of the same source has it.
    InBackup {
        /// The backup: the last before the one that was asked, or else the first behind it.
        object: ObjectId,
        /// When it began, in nanoseconds of the Unix time.
        begun_ns: i64,
        /// The path in it, without the slash in front.
        path: Vec<u8>,
        /// Whether the path was deleted between the two.
        deleted_since: bool,
    },
    /// The object has it further below.
    Below {
        /// The first of these paths, without the slash in front.
        paths: Vec<Vec<u8>>,
        /// How many more there are.
        more: usize,
        /// What was typed.
        typed: Vec<u8>,
    },
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        match self {
            Self::Nowhere => {
                f.write_str(": `capstan ls` lists what it has, and `capstan find` looks for a name in all backups")
            }
            Self::InBackup { object, begun_ns, path, deleted_since } => {
                let (why, which) = match deleted_since {
                    true => (". It was deleted since", "last"),
                    false => (" yet", "first"),
                };
                let path = text(path);
                let begun = Timestamp::from_nanosecond(i128::from(*begun_ns)).unwrap_or_default();
                let begun = begun.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S");
                write!(
                    f,
                    "{why}. The {which} version of it is in the backup that began {begun}: `capstan restore '{object}:/{path}' --to DIR`, \
                     and `capstan versions '/{path}'` lists all"
                )
            }
            Self::Below { paths, more, typed } => {
                let named: Vec<_> = paths.iter().map(|path| format!("/{}", text(path))).collect();
                let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
                let each =
                    if paths.len() > 1 { format!(", or '**/{}' for all of them", text(typed)) } else { String::new() };
                write!(f, ", but has {}{more}: write the path below the source{each}", named.join(", "))
            }
        }
    }
}
