//! Extended header records: the length that counts itself, extended attributes, and access control lists as text.
//!
//! A record is `LEN KEY=VALUE\n`, where LEN is decimal and counts the whole record with itself. An extended attribute
//! is the record `SCHILY.xattr.NAME`; `%` and `=` in NAME are written `%25` and `%3D`, as GNU tar does, since the first
//! `=` ends the key. The two attributes in which Linux keeps POSIX access control lists become `SCHILY.acl.access` and
//! `SCHILY.acl.default` instead: text with numeric ids, so that `tar --acls` and bsdtar set them on any system.

/// Appends one record.
pub fn put_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    put_record_parts(records, &[key, b"=", value]);
}

/// Appends the record of one extended attribute, given the value as the kernel has it.
pub fn put_attribute(records: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let acl_key: Option<&[u8]> = match name {
        b"system.posix_acl_access" => Some(b"SCHILY.acl.access"),
        b"system.posix_acl_default" => Some(b"SCHILY.acl.default"),
        _ => None,
    };
    if let Some((key, text)) = acl_key.zip(acl_text(value)) {
        return put_record(records, key, &text);
    }
    if name.iter().any(|byte| matches!(byte, b'%' | b'=')) {
        let mut escaped = Vec::with_capacity(name.len() + 16);
        for &byte in name {
            match byte {
                b'%' => escaped.extend_from_slice(b"%25"),
                b'=' => escaped.extend_from_slice(b"%3D"),
                _ => escaped.push(byte),
            }
        }
        return put_record_parts(records, &[b"SCHILY.xattr.", &escaped, b"=", value]);
    }
    put_record_parts(records, &[b"SCHILY.xattr.", name, b"=", value]);
}

fn put_record_parts(records: &mut Vec<u8>, parts: &[&[u8]]) {
    let rest = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut digits = decimal_len(rest);
    if decimal_len(rest + digits) > digits {
        digits += 1;
    }
    put_decimal(records, (rest + digits) as u64);
    records.push(b' ');
    for part in parts {
        records.extend_from_slice(part);
    }
    records.push(b'\n');
}

fn decimal_len(value: usize) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends a number in decimal, without the machinery of `format!`.
pub(crate) fn put_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Linux's binary form (`linux/posix_acl_xattr.h`: u32 version 2, then u16 tag, u16 permissions, u32 id for each entry,
/// little-endian) as comma separated text; `None` if it is not of that form, so that the bytes are kept as they are.
fn acl_text(value: &[u8]) -> Option<Vec<u8>> {
    const VERSION: [u8; 4] = 2u32.to_le_bytes();
    let entries = value.strip_prefix(&VERSION)?;
    if entries.is_empty() || entries.len() % 8 != 0 {
        return None;
    }
    let mut text = Vec::with_capacity(entries.len() * 3);
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let (word, named): (&[u8], bool) = match tag {
            0x01 => (b"user:", false),
            0x02 => (b"user:", true),
            0x04 => (b"group:", false),
            0x08 => (b"group:", true),
            0x10 => (b"mask:", false),
            0x20 => (b"other:", false),
            _ => return None,
        };
        if permissions > 7 {
            return None;
        }
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(word);
        if named {
            put_decimal(&mut text, u64::from(id));
        }
        text.push(b':');
        for (bit, letter) in [(4, b'r'), (2, b'w'), (1, b'x')] {
            text.push(if permissions & bit == 0 { b'-' } else { letter });
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use proptest::prelude::*;

    /// Splits records the way a reader does: by the length in front.
    fn split(mut records: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        while !records.is_empty() {
            let space = records.iter().position(|&byte| byte == b' ').unwrap();
            let len: usize = str::from_utf8(&records[..space]).unwrap().parse().unwrap();
            let (record, rest) = records.split_at(len);
            let body = record[space + 1..].strip_suffix(b"\n").unwrap();
            let equals = body.iter().position(|&byte| byte == b'=').unwrap();
            found.push((body[..equals].to_vec(), body[equals + 1..].to_vec()));
            records = rest;
        }
        found
    }

    #[test]
    fn the_length_counts_itself_at_every_power_of_ten() {
        for len in (0..120).chain(980..1_020).chain(9_980..10_020).chain(99_980..100_020) {
            let value = vec![b'v'; len];
            let mut records = Vec::new();
            put_record(&mut records, b"k", &value);
            put_record(&mut records, b"next", b"");
            assert_eq!(
                split(&records),
                [(b"k".to_vec(), value), (b"next".to_vec(), Vec::new())],
                "value of {len} bytes"
            );
        }
    }

    proptest! {
        #[test]
        fn records_come_apart_as_they_were_put(pairs in proptest::collection::vec(("[a-zA-Z.]{1,40}", proptest::collection::vec(any::<u8>(), 0..2_000)), 0..8)) {
            let mut records = Vec::new();
            for (key, value) in &pairs {
                put_record(&mut records, key.as_bytes(), value);
            }
            let expected: Vec<_> = pairs.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect();
            prop_assert_eq!(split(&records), expected);
        }

        #[test]
        fn any_attribute_is_kept(value in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut records = Vec::new();
            put_attribute(&mut records, b"system.posix_acl_access", &value);
            let (key, kept) = split(&records).pop().unwrap();
            prop_assert!(key == b"SCHILY.acl.access" || (key == b"SCHILY.xattr.system.posix_acl_access" && kept == value));
        }
    }

    #[test]
    fn an_access_control_list_becomes_text_with_numeric_ids() {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in
            [(1u16, 7u16, u32::MAX), (2, 5, 1000), (4, 4, u32::MAX), (8, 6, 4_000_000_000), (16, 7, 0), (32, 0, 0)]
        {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        let mut records = Vec::new();
        put_attribute(&mut records, b"system.posix_acl_default", &value);
        let text = b"user::rwx,user:1000:r-x,group::r--,group:4000000000:rw-,mask::rwx,other::---".to_vec();
        assert_eq!(split(&records), [(b"SCHILY.acl.default".to_vec(), text)]);
    }

    #[test]
    fn an_attribute_name_may_hold_equals_and_percent() {
        let mut records = Vec::new();
        put_attribute(&mut records, b"user.a=b%c", b"\0=\n");
        assert_eq!(split(&records), [(b"SCHILY.xattr.user.a%3Db%25c".to_vec(), b"\0=\n".to_vec())]);
    }
}
