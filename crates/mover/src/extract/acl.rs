//! Access control lists: POSIX.1e text to the bytes that Linux keeps in an extended attribute.
//!
//! Text is `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`, by commas or newlines, as `pax` carries it.
//! Qualifiers are numbers; where a writer put a name and the number behind the permissions (bsdtar, star), the number
//! counts. A name alone is an error: it may mean another person here.
//!
//! Bytes (`linux/posix_acl_xattr.h`), little-endian: u32 version 2, then for each entry u16 tag, u16 permissions, u32
//! id, in order of tag and id.

/// Most entries; ext4 has room for about 500, XFS for 5,461.
const ENTRIES_MAX: usize = 8_192;
const NO_ID: u32 = u32::MAX;

const USER_OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A list as the kernel takes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AccessControlList {
    /// The attribute's value.
    pub(super) value: Vec<u8>,
    /// Permissions of the mask, if it has one: what the file's mode shows as the group's.
    pub(super) mask: Option<u16>,
}

/// The list, or which entry cannot be read.
pub(super) fn encode(text: &[u8]) -> Result<AccessControlList, String> {
    let mut entries = Vec::new();
    for line in lines(text) {
        if entries.len() == ENTRIES_MAX {
            return Err(format!("the access control list has more than {ENTRIES_MAX} entries"));
        }
        entries.push(entry(line).ok_or_else(|| {
            let shown = line[..line.len().min(80)].escape_ascii();
            format!("the entry '{shown}' of the access control list has no numeric id that could be set")
        })?);
    }
    entries.sort_unstable();
    let mask = entries.iter().find(|(tag, ..)| *tag == MASK).map(|&(.., permissions)| permissions);
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(AccessControlList { value, mask })
}

/// What the group itself may do by a list with a mask: that mask stands in the mode as the group's permissions, and
/// without the list it would give the group what others were given. `None` for a list without a mask.
pub(super) fn group_alone(text: &[u8]) -> Option<u16> {
    let entries = || lines(text).filter_map(entry);
    let of = |tag| entries().find(|(found, ..)| *found == tag).map(|(.., permissions)| permissions);
    Some(of(MASK)? & of(GROUP_OWNER).unwrap_or(0))
}

/// The entries of a list as they are written, without comments.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| matches!(byte, b',' | b'\n'));
    let lines = lines.map(|line| line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii());
    lines.filter(|line| !line.is_empty())
}

fn entry(line: &[u8]) -> Option<(u16, u32, u16)> {
    let mut fields = line.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let word = fields.next()?;
    let (owner_tag, tag) = match word {
        b"user" | b"u" => (USER_OWNER, USER),
        b"group" | b"g" => (GROUP_OWNER, GROUP),
        b"mask" | b"m" => (MASK, MASK),
        b"other" | b"o" => (OTHER, OTHER),
        _ => return None,
    };
    let mut qualifier = fields.next()?;
    let mut permissions = fields.next();
    if permissions.is_none() && tag == owner_tag {
        // `other:r--`, as Solaris and older bsdtar write it.
        permissions = Some(std::mem::take(&mut qualifier));
    }
    let permissions = bits(permissions?)?;
    let extra = fields.next();
    if qualifier.is_empty() {
        return Some((owner_tag, NO_ID, permissions));
    }
    if tag == owner_tag {
        return None;
    }
    let id = number(qualifier).or_else(|| number(extra?))?;
    Some((tag, id, permissions))
}

fn bits(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0, |bits, byte| match byte {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    #[test]
    fn every_writers_text() {
        let expected = bytes(&[(1, 6, NO_ID), (2, 4, 7), (2, 5, 1000), (4, 4, NO_ID), (16, 5, NO_ID), (32, 0, NO_ID)]);
        for text in [
            &b"user::rw-,user:1000:r-x,user:7:r--,group::r--,mask::r-x,other::---"[..],
            b"user::rw-\nuser:7:r--\nuser:1000:r-x\t#effective:r--\ngroup::r--\nmask::r-x\nother::---\n",
            b"user::rw-,user:seven:r--:7,user:alice:r-x:1000,group::r--,mask:r-x,other:---",
            b"u::rw,u:7:r,u:1000:rx,g::r,m::rx,o::",
        ] {
            let list = encode(text).unwrap();
            assert_eq!((list.value, list.mask), (expected.clone(), Some(5)), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn what_the_group_itself_may_do() {
        for (text, group) in [
            (&b"user::rw-,user:1000:rw-,group::---,mask::rw-,other::---"[..], Some(0)),
            (b"user::rw-\nuser:bob:rwx\ngroup::r-x\t#effective:r--\nmask::r--\nother::---\n", Some(4)),
            (b"user::rw-,user:1000:rw-,mask::rw-", Some(0)),
            (b"user::rw-,group::r--,other::---", None),
        ] {
            assert_eq!(group_alone(text), group, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn what_cannot_be_set() {
        for text in [
            &b"user:alice:rwx"[..],
            b"user:-1:rwx",
            b"user:4294967296:r",
            b"nobody::r",
            b"user",
            b"user::q",
            b"mask:3:r",
        ] {
            assert!(encode(text).is_err(), "{}", text.escape_ascii());
        }
        assert!(encode(&b"u:1:r,".repeat(ENTRIES_MAX + 1)).is_err());
        assert_eq!(encode(b""), Ok(AccessControlList { value: bytes(&[]), mask: None }));
    }
}
