//! Names of users and groups, read once.
//!
//! The two files are parsed here rather than asked of the C library, because its lookup may go to the network for each
//! unknown id, and a header needs the name only as a convenience for a restore on another machine.

/// Longer names than this are taken for damage.
const NAME_LEN_MAX: usize = 255;

/// Names, sorted by id.
type Names = Vec<(u32, Box<[u8]>)>;

/// Names of users and groups by id.
#[derive(Debug, Default)]
pub struct OwnerNames {
    users: Names,
    groups: Names,
}

impl OwnerNames {
    /// Reads `/etc/passwd` and `/etc/group`; without them there are no names, only numbers.
    pub fn read() -> Self {
        Self {
            users: parse(&std::fs::read("/etc/passwd").unwrap_or_default()),
            groups: parse(&std::fs::read("/etc/group").unwrap_or_default()),
        }
    }

    /// The name of a user; empty if it has none here.
    pub fn user(&self, uid: u32) -> &[u8] {
        find(&self.users, uid)
    }

    /// The name of a group; empty if it has none here.
    pub fn group(&self, gid: u32) -> &[u8] {
        find(&self.groups, gid)
    }
}

fn find(names: &Names, id: u32) -> &[u8] {
    names.binary_search_by_key(&id, |(id, _)| *id).map_or(b"", |at| &names[at].1)
}

/// `NAME:PASSWORD:ID:...` in lines, for both files; the first name of an id counts.
fn parse(text: &[u8]) -> Names {
    let mut names = Names::new();
    for line in text.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (Some(name), Some(_), Some(id)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Some(id) = str::from_utf8(id).ok().and_then(|id| id.parse().ok()) else { continue };
        if !name.is_empty() && name.len() <= NAME_LEN_MAX && !name.starts_with(b"#") {
            names.push((id, name.into()));
        }
    }
    names.sort_by_key(|(id, _)| *id);
    names.dedup_by_key(|(id, _)| *id);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_an_id_counts_and_damage_is_passed_over() {
        let names = parse(b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0::\n\n#no:x:5:\nbad:x:minus:\nlast:x:4294967294:");
        assert_eq!(find(&names, 0), b"root");
        assert_eq!(find(&names, 4_294_967_294), b"last");
        assert_eq!(find(&names, 5), b"");
        assert_eq!(names.len(), 2);
    }
}
