//! Restore where something else goes wrong: no room, no permission, a kill, another process that moves things about.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_format::EntryKind;
use capstan_format::pax::{Member, encode, padding, put_attribute, put_record};
use capstan_mover::extract::{
    ExtractError, ExtractOptions, ExtractProblemKind, ExtractReport, MemberChoice, Overwrite, Owners, RestoreTarget,
    StreamError,
};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::torture::{is_root, skipped, snapshot};

fn member(path: &str, kind: EntryKind, mode: u32, uid: u32, link: &str, content: &[u8]) -> Vec<u8> {
    let (user, group, records, extents, device) = (&b""[..], &b""[..], &b""[..], None, (0, 0));
    let (path, link, size, gid, mtime_ns) = (path.as_bytes(), link.as_bytes(), content.len() as u64, uid, 1_000);
    let mut out = Vec::new();
    encode(
        &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
        &mut out,
    );
    out.extend_from_slice(content);
    out.resize(out.len() + padding(size), 0);
    out
}

fn file(path: &str, content: &[u8]) -> Vec<u8> {
    member(path, EntryKind::File, 0o644, 0, "", content)
}

fn extract(stream: &[u8], to: &Path, options: ExtractOptions) -> Result<ExtractReport, ExtractError> {
    let target = RestoreTarget::new(to, options)?;
    let result = target.extractor().extract(&mut &stream[..], &mut |_| MemberChoice::Take, &mut |_| ());
    let report = target.finish()?;
    result.map(|()| report)
}

/// A file system of its own, taken away with the value.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(options: &str) -> Self {
        Self::of("tmpfs", options)
    }

    fn of(kind: &str, options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new("mount").args(["-t", kind, "-o", options, kind]).arg(directory.path()).status();
        assert!(status.unwrap().success(), "cannot mount a {kind}");
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn no_room_names_the_file_and_the_bytes() {
    if !is_root() {
        skipped("only root mounts a small file system");
        return;
    }
    let small = Mounted::tmpfs("size=1m");
    let stream = [file("fits", &[1; 600_000]), file("does not fit", &[2; 900_000]), file("after", b"x")].concat();
    let error = extract(&stream, small.path(), ExtractOptions::default()).unwrap_err();
    let ExtractError::Full { path, missing_bytes, .. } = &error else { panic!("{error:?}") };
    assert_eq!(path, b"does not fit");
    assert!((400_000..=900_000).contains(missing_bytes), "{missing_bytes}");
    assert!(error.to_string().contains("does not fit") && error.to_string().contains(&missing_bytes.to_string()));
    let names: Vec<_> = snapshot(small.path()).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["fits"], "what did not fit was taken away again");

    let few = Mounted::tmpfs("nr_inodes=10");
    let stream: Vec<u8> = (0..20).flat_map(|number| file(&format!("d/{number}"), b"")).collect();
    let error = extract(&stream, few.path(), ExtractOptions::default()).unwrap_err();
    assert!(matches!(error, ExtractError::Full { .. }), "{error:?}");
}

/// Runs `work` on a thread that is user and group 65534 and has no privileges left.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (gid, uid) = (rustix::fs::Gid::from_raw(65_534), rustix::fs::Uid::from_raw(65_534));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// A directory that everyone may write to.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

#[test]
fn without_privileges_everything_is_the_callers() {
    if !is_root() {
        skipped("only root can become nobody");
        return;
    }
    let directory = open_directory();
    let to = directory.path().join("to");
    let stream = [
        member("locked", EntryKind::Directory, 0o555, 7, "", b""),
        member("locked/inside", EntryKind::Directory, 0o500, 7, "", b""),
        member("locked/inside/file", EntryKind::File, 0o444, 7, "", b"content"),
        member("setuid", EntryKind::File, 0o6755, 0, "", b"#!"),
        member("link", EntryKind::Symlink, 0o777, 7, "setuid", b""),
        member("hard", EntryKind::HardLink, 0o755, 7, "locked/inside/file", b""),
        member("fifo", EntryKind::Fifo, 0o600, 7, "", b""),
        member("device", EntryKind::CharDevice, 0o600, 7, "", b""),
        member("of own group", EntryKind::Directory, 0o6775, 65_534, "", b""),
        member("of another", EntryKind::Directory, 0o6775, 7, "", b""),
        member("own program", EntryKind::File, 0o6755, 65_534, "", b"#!"),
    ]
    .concat();
    let report = as_nobody(|| extract(&stream, &to, ExtractOptions::default()).unwrap());
    let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ExtractProblemKind::Device], "{:?}", report.problems);
    let mode = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("setuid"), 0o755, "no setuid bit for another owner's program");
    // A directory that several people share lost the bit that keeps what they make in it their group's.
    assert_eq!((mode("of own group"), mode("of another"), mode("own program")), (0o2775, 0o775, 0o755));
    assert_eq!((mode("locked"), mode("locked/inside"), mode("locked/inside/file")), (0o555, 0o500, 0o444));
    let uids =
        ["locked", "locked/inside/file", "link", "fifo"].map(|name| fs::symlink_metadata(to.join(name)).unwrap().uid());
    assert_eq!(uids, [65_534; 4]);

    // Asked for owners all the same: reported for each, and the setuid bit still left out.
    let to = directory.path().join("asked");
    let options = ExtractOptions { owners: Owners::Restore, ..ExtractOptions::default() };
    let report = as_nobody(|| extract(&stream, &to, options).unwrap());
    assert!(
        report.problems.iter().any(|problem| problem.kind == ExtractProblemKind::Metadata && problem.path == b"setuid")
    );
    assert_eq!(fs::metadata(to.join("setuid")).unwrap().mode() & 0o7777, 0o755);
}

/// Whoever had the identity of a user of the cell could have a set-user-ID program of root written to a client.
#[test]
fn files_have_privileges_only_where_the_options_say_so() {
    if !is_root() {
        skipped("only root could give them");
        return;
    }
    let mut records = Vec::new();
    // VFS_CAP_REVISION_2 with cap_net_bind_service.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    put_attribute(&mut records, b"security.capability", &capability);
    let mut stream = member("setuid", EntryKind::File, 0o6755, 0, "", b"x");
    let (path, kind, content) = (&b"capable"[..], EntryKind::File, &b""[..]);
    let (mode, uid, gid, user, group) = (0o755, 0, 0, content, content);
    let (size, mtime_ns, link, device, extents, records) = (0, 0, content, (0, 0), None, &records[..]);
    encode(
        &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
        &mut stream,
    );
    stream.extend(member("shared", EntryKind::Directory, 0o2775, 0, "", b""));
    for (owners, mode, of_directory, has_capability, problems) in [
        (Owners::Caller, 0o755, 0o2775, false, 0),
        (Owners::WithoutPrivileges, 0o755, 0o2775, false, 2),
        (Owners::Restore, 0o6755, 0o2775, true, 0),
    ] {
        let to = tempfile::tempdir().unwrap();
        let options = ExtractOptions { owners, ..ExtractOptions::default() };
        let report = extract(&stream, to.path(), options).unwrap();
        assert_eq!(report.problems_count, problems, "{:?}", report.problems);
        assert!(report.problems.iter().all(|problem| problem.reason.contains("restore it there")));
        let mode_of = |name: &str| fs::metadata(to.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode_of("setuid"), mode_of("shared")), (mode, of_directory), "{owners:?}");
        let found = rustix::fs::getxattr(to.path().join("capable"), "security.capability", &mut [0u8; 64]);
        assert_eq!(found.is_ok(), has_capability, "{owners:?}");
    }
}

/// Where an access control list could not be set, its mask stayed behind in the mode: the group could write to what had
/// been given to one user.
#[test]
fn without_its_list_a_file_gives_its_group_no_more_than_that_had() {
    let with_list = |path: &str, kind, mode, list: &[u8]| {
        let mut records = Vec::new();
        put_record(&mut records, b"SCHILY.acl.access", list);
        let (mut stream, path, link, content) = (Vec::new(), path.as_bytes(), &b""[..], &b""[..]);
        let (uid, gid, user, group, records, extents, device) = (0, 0, content, content, &records[..], None, (0, 0));
        let (size, mtime_ns) = (0, 1_000);
        let member = Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents };
        encode(&member, &mut stream);
        stream
    };
    // A name without its number means nobody here, so no file system takes the list.
    let list = b"user::rw-,user:bob:rw-,group::r--,mask::rw-,other::---";
    let stream = [
        with_list("file", EntryKind::File, 0o660, list),
        with_list("directory", EntryKind::Directory, 0o770, b"user::rwx,user:bob:rwx,group::---,mask::rwx,other::---"),
    ]
    .concat();
    let to = tempfile::tempdir().unwrap();
    let report = extract(&stream, to.path(), ExtractOptions::default()).unwrap();
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
    let mode = |at: &Path, name: &str| fs::metadata(at.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode(to.path(), "file"), mode(to.path(), "directory")), (0o640, 0o700));

    if !is_root() {
        skipped("only root mounts a file system without lists");
        return;
    }
    let plain = Mounted::of("ramfs", "mode=0755");
    let list = b"user::rw-,user:1000:rw-,group::---,mask::rw-,other::---";
    let report = extract(&with_list("file", EntryKind::File, 0o660, list), plain.path(), ExtractOptions::default());
    assert_eq!(report.unwrap().problems.len(), 1);
    assert_eq!(mode(plain.path(), "file"), 0o600);
}

/// Group and list that a target's directories pass on belong to the target, not to what is restored.
#[test]
fn nothing_is_inherited_from_the_target() {
    let to = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).arg(to.path()).status();
        assert!(status.unwrap_or_else(|error| panic!("install {program}: {error}")).success());
    };
    run("setfacl", &["-d", "-m", "u:1234:rwx"]);
    if is_root() {
        run("chgrp", &["4321"]);
    }
    run("chmod", &["g+s"]);
    let stream = [
        member("f", EntryKind::File, 0o640, 0, "", b"x"),
        member("d", EntryKind::Directory, 0o750, 0, "", b""),
        member("d/f", EntryKind::File, 0o640, 0, "", b"x"),
        member("p", EntryKind::Fifo, 0o640, 0, "", b""),
    ]
    .concat();
    let report = extract(&stream, to.path(), ExtractOptions::default()).unwrap();
    assert_eq!(report.problems, []);
    for (name, mode) in [("f", 0o640), ("d", 0o750), ("d/f", 0o640), ("p", 0o640)] {
        let path = to.path().join(name);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, mode, "{name}");
        if is_root() {
            assert_eq!(metadata.gid(), 0, "{name}");
        }
        for list in ["system.posix_acl_access", "system.posix_acl_default"] {
            assert!(rustix::fs::getxattr(&path, list, &mut [0u8; 512]).is_err(), "{name} has {list}");
        }
    }
}

#[test]
fn without_permission_the_rest_goes_on() {
    if !is_root() {
        skipped("only root can become nobody");
        return;
    }
    let directory = open_directory();
    let to = directory.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(to.join("closed")).unwrap();
    let stream = [file("closed/file", b"x"), file("open", b"y")].concat();
    let report = as_nobody(|| extract(&stream, &to, ExtractOptions::default()).unwrap());
    assert_eq!(report.problems.len(), 1);
    assert_eq!(
        (report.problems[0].kind, &report.problems[0].path[..]),
        (ExtractProblemKind::NotWritten, &b"closed/file"[..])
    );
    assert_eq!(fs::read(to.join("open")).unwrap(), b"y");
}

/// A stream whose source fails at an offset.
struct FailsAt<'a>(&'a [u8]);

impl Read for FailsAt<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(out)?;
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for FailsAt<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.0.is_empty() {
            return Err(io::Error::other("volume A00001L9, block 17: damaged"));
        }
        Ok(&self.0[..self.0.len().min(1_000)])
    }

    fn consume(&mut self, len: usize) {
        self.0 = &self.0[len..];
    }
}

#[test]
fn a_damaged_block_costs_one_file_and_the_next_stream_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path();
    let (whole, damaged) = (file("whole", b"1"), file("damaged", &[2; 50_000]));
    let stream = [&whole[..], &damaged[..30_000]].concat();
    let target = RestoreTarget::new(to, ExtractOptions::default()).unwrap();
    let mut extractor = target.extractor();
    let error = extractor.extract(&mut FailsAt(&stream), &mut |_| MemberChoice::Take, &mut |_| ()).unwrap_err();
    let ExtractError::Stream(StreamError::Read { offset, source }) = error else { panic!("{error:?}") };
    assert_eq!((offset, source.to_string().as_str()), (stream.len() as u64, "volume A00001L9, block 17: damaged"));
    extractor.extract(&mut &file("next", b"3")[..], &mut |_| MemberChoice::Take, &mut |_| ()).unwrap();
    target.finish().unwrap();
    let names: Vec<_> = snapshot(to).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["next", "whole"]);
}

#[test]
fn a_file_that_is_replaced_stays_whole_until_the_new_one_is() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path();
    fs::write(to.join("file"), b"old and whole").unwrap();
    let stream = file("file", &[7; 50_000]);
    let options = ExtractOptions { overwrite: Overwrite::Always, ..ExtractOptions::default() };
    let target = RestoreTarget::new(to, options).unwrap();
    let result = target.extractor().extract(&mut FailsAt(&stream[..20_000]), &mut |_| MemberChoice::Take, &mut |_| ());
    result.unwrap_err();
    target.finish().unwrap();
    let content: Vec<_> = snapshot(to).into_iter().map(|(name, _, content)| (name, content)).collect();
    assert_eq!(content, [("file".to_owned(), b"old and whole".to_vec())]);
}

/// Another user's file stood where a link's own file should, and stayed: the link was made to it, and showed what that
/// user had written as if it had been backed up.
#[test]
fn a_hard_link_is_never_made_to_a_file_that_was_there() {
    let stream = [file("a", b"orig"), member("b", EntryKind::HardLink, 0o644, 0, "a", b"")].concat();
    let other = || {
        let to = tempfile::tempdir().unwrap();
        fs::write(to.path().join("a"), b"of another user").unwrap();
        to
    };
    let to = other();
    let report = extract(&stream, to.path(), ExtractOptions::default()).unwrap();
    let problems: Vec<_> = report.problems.iter().map(|problem| (problem.kind, &problem.path[..])).collect();
    assert_eq!(problems, [(ExtractProblemKind::LinkTarget, &b"b"[..])]);
    assert!(!to.path().join("b").exists(), "{report:?}");
    assert_eq!((report.kept, report.differing), (1, 1));

    // The file fails halfway, so that the older one stays; the link comes over another connection.
    let (to, options) = (other(), ExtractOptions { overwrite: Overwrite::Changed, ..ExtractOptions::default() });
    let target = RestoreTarget::new(to.path(), options).unwrap();
    let mut extractor = target.extractor();
    let content = stream.windows(4).position(|window| window == b"orig").unwrap();
    let mut take = |_: &[u8]| MemberChoice::Take;
    extractor.extract(&mut FailsAt(&stream[..content]), &mut take, &mut |_| ()).unwrap_err();
    extractor.extract(&mut &stream[content + 512..], &mut take, &mut |_| ()).unwrap();
    let report = target.finish().unwrap();
    assert_eq!((report.hard_links, report.problems.len()), (0, 1), "{report:?}");
    assert!(!to.path().join("b").exists());

    // What is the same by size and time may be linked to, though it is left as it is.
    let to = tempfile::tempdir().unwrap();
    extract(&stream, to.path(), ExtractOptions::default()).unwrap();
    fs::remove_file(to.path().join("b")).unwrap();
    let report = extract(&stream, to.path(), ExtractOptions::default()).unwrap();
    assert_eq!((report.hard_links, report.kept, report.differing, report.problems), (1, 1, 0, vec![]));
    let inode = |name: &str| fs::metadata(to.path().join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("b"));
}

/// Of a hard link into another file system it was said that a symbolic link stood on its way.
#[test]
fn a_hard_link_into_another_file_system_is_named_as_one() {
    if !is_root() {
        skipped("only root mounts another file system");
        return;
    }
    let to = Mounted::tmpfs("size=1m");
    fs::create_dir(to.path().join("m")).unwrap();
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(to.path().join("m")).status();
    assert!(status.unwrap().success(), "cannot mount a tmpfs");
    let stream = [file("a", b"orig"), member("m/b", EntryKind::HardLink, 0o644, 0, "a", b"")].concat();
    let report = extract(&stream, to.path(), ExtractOptions::default());
    let unmounted = Command::new("umount").arg(to.path().join("m")).status();
    assert!(unmounted.unwrap().success());
    let problems = report.unwrap().problems;
    assert_eq!((problems.len(), problems[0].kind), (1, ExtractProblemKind::LinkTarget));
    assert!(problems[0].reason.contains("another file system"), "{problems:?}");
}

/// Directories above a source are in no backup. They stayed closed to all but whoever restored, and nobody reached what
/// lay below them.
#[test]
fn directories_above_the_source_are_opened_at_last() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let mode = |path: &str| fs::metadata(to.join(path)).unwrap().mode() & 0o7777;
    let stream = [
        file("srv/data/www/lost/private", b"x"),
        member("srv/data/www", EntryKind::Directory, 0o750, 0, "", b""),
        file("srv/data/www/index", b"x"),
    ]
    .concat();
    let target = RestoreTarget::new(&to, ExtractOptions::default()).unwrap();
    let mut done = |_: &capstan_mover::extract::MemberDone<'_>| {
        assert_eq!((mode("srv"), mode("srv/data")), (0o700, 0o700), "while it runs");
    };
    target.extractor().extract(&mut &stream[..], &mut |_| MemberChoice::Take, &mut done).unwrap();
    let report = target.finish().unwrap();
    fs::create_dir(directory.path().join("new")).unwrap();
    let new = fs::metadata(directory.path().join("new")).unwrap().mode() & 0o7777;
    assert_eq!((mode("srv"), mode("srv/data"), mode("srv/data/www"), mode("")), (new, new, 0o750, 0o700));
    // Nobody knows who may look into a directory whose own entry is missing.
    let problems: Vec<_> = report.problems.iter().map(|problem| (problem.kind, &problem.path[..])).collect();
    assert_eq!(problems, [(ExtractProblemKind::Metadata, &b"srv/data/www/lost"[..])]);
    assert_eq!(mode("srv/data/www/lost"), 0o700);
}

/// A directory on the way is exchanged for a link out of the target, over and over, by another thread.
#[test]
fn another_process_that_exchanges_a_directory_for_a_link_gains_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (to, canary) = (directory.path().join("to"), directory.path().join("canary"));
    fs::create_dir_all(to.join("d")).unwrap();
    fs::create_dir(&canary).unwrap();
    symlink(&canary, to.join("door")).unwrap();
    let stop = AtomicBool::new(false);
    let mut opened = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (a, b) = (to.join("d"), to.join("door"));
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).unwrap();
            }
        });
        for round in 0..300 {
            // A new extractor each time, so that no directory is open yet.
            let stream = [file(&format!("d/deep/{round}"), b"x"), file(&format!("door/deep/{round}"), b"x")].concat();
            let target = RestoreTarget::new(&to, ExtractOptions::default()).unwrap();
            let mut done = |member: &capstan_mover::extract::MemberDone<'_>| opened += u32::from(member.crc.is_some());
            target.extractor().extract(&mut &stream[..], &mut |_| MemberChoice::Take, &mut done).unwrap();
            target.finish().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(snapshot(&canary), [], "something went through the link");
    assert!(opened > 0, "nothing was ever written, so nothing was tried");
}

/// A restore that was broken off leaves directories that only the user's files may not be written into any more; it
/// could not be gone on with.
#[test]
fn a_directory_that_bars_its_owner_is_gone_on_with() {
    let to = tempfile::tempdir().unwrap();
    let stream = [
        member("closed", EntryKind::Directory, 0o555, 0, "", b""),
        file("closed/first", b"first"),
        member("closed/further", EntryKind::Directory, 0o555, 0, "", b""),
        file("closed/further/second", b"second"),
    ]
    .concat();
    let options = || ExtractOptions { overwrite: Overwrite::Changed, ..ExtractOptions::default() };
    extract(&stream, to.path(), options()).unwrap();
    let to = to.path().join("closed");
    let again = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
        extract(&stream, to.parent().unwrap(), options()).unwrap()
    };
    fs::remove_file(to.join("further/second")).unwrap();
    let report = std::thread::scope(|scope| scope.spawn(again).join().unwrap());
    assert_eq!(report.problems, []);
    assert_eq!(fs::read(to.join("further/second")).unwrap(), b"second");
    for directory in [to.clone(), to.join("further")] {
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o7777, 0o555, "{directory:?}");
    }
}

const CHILD: &str = "CAPSTAN_TEST_EXTRACT_CHILD";
const SMALL_FILES: usize = 4_000;

fn small_file(number: usize) -> (String, Vec<u8>) {
    (format!("d{}/f{number}", number / 100), vec![number as u8; 1 + number * 37 % 9_000])
}

/// Not a test of its own: what the next one starts and kills.
#[test]
fn child_that_is_killed() {
    let Some(to) = std::env::var_os(CHILD) else { return };
    let stream: Vec<u8> = (0..SMALL_FILES)
        .flat_map(|number| {
            let (path, content) = small_file(number);
            file(&path, &content)
        })
        .collect();
    let target = RestoreTarget::new(
        Path::new(&to),
        ExtractOptions { overwrite: Overwrite::Changed, ..ExtractOptions::default() },
    );
    let target = target.unwrap();
    println!("begin");
    let mut stream = BufReader::with_capacity(700, &stream[..]);
    target.extractor().extract(&mut stream, &mut |_| MemberChoice::Take, &mut |_| ()).unwrap();
    target.finish().unwrap();
}

/// Killed at any moment, what has its mode is whole, and a second run with `Overwrite::Changed` completes the rest.
#[test]
fn a_kill_leaves_no_half_file_that_looks_whole() {
    let first = RandomState::new().hash_one(1);
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (seeds, kills) = match number("CAPSTAN_SEED") {
        Some(seed) => (seed, 1),
        None => (first, number("CAPSTAN_ROUNDS").unwrap_or(6)),
    };
    for seed in (0..kills).map(|kill| seeds.wrapping_add(kill)) {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("to");
        let start = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "extract_faults::child_that_is_killed", "--nocapture"])
                .env(CHILD, &to)
                .stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        let mut child = start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while lines.next().unwrap().unwrap() != "begin" {}
        std::thread::sleep(Duration::from_micros(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0x3_ffff));
        child.kill().unwrap();
        child.wait().unwrap();
        let (mut whole, mut unfinished) = (0, 0);
        for number in 0..SMALL_FILES {
            let (path, content) = small_file(number);
            let Ok(metadata) = fs::metadata(to.join(&path)) else { continue };
            if metadata.mode() & 0o7777 == 0o200 {
                unfinished += 1;
                continue;
            }
            assert_eq!(fs::read(to.join(&path)).unwrap(), content, "CAPSTAN_SEED={seed}: {path}");
            whole += 1;
        }
        assert!(unfinished <= 1, "CAPSTAN_SEED={seed}: one thread has one file open");
        println!("CAPSTAN_SEED={seed}: killed after {whole} whole and {unfinished} unfinished files");
        assert!(start().wait_with_output().unwrap().status.success());
        for number in 0..SMALL_FILES {
            let (path, content) = small_file(number);
            assert_eq!(fs::read(to.join(&path)).unwrap(), content, "CAPSTAN_SEED={seed}: {path}");
        }
    }
}

/// Case games need a file system that folds case and keeps it; exFAT is one.
#[test]
fn names_that_differ_only_by_case_do_not_replace_each_other() {
    let Some(folding) = FoldingFileSystem::new() else {
        skipped("needs root, mkfs.exfat and mount.exfat-fuse");
        return;
    };
    let stream = [
        file("Name", b"first"),
        file("name", b"second"),
        member("Directory", EntryKind::Directory, 0o755, 0, "", b""),
        file("Directory/File", b"first"),
        member("directory", EntryKind::Directory, 0o700, 0, "", b""),
        file("directory/file", b"second"),
        file("DIRECTORY/File", b"third"),
        file("New/implicit", b"first"),
        file("new/implicit", b"second"),
    ]
    .concat();
    for overwrite in [Overwrite::Always, Overwrite::Changed, Overwrite::Never] {
        let to = folding.path().join(format!("{overwrite:?}"));
        for round in ["new", "again"] {
            let report = extract(&stream, &to, ExtractOptions { overwrite, ..ExtractOptions::default() }).unwrap();
            for name in ["Name", "Directory/File", "New/implicit"] {
                assert_eq!(fs::read(to.join(name)).unwrap(), b"first", "{overwrite:?} {round} {name}");
            }
            let refused = report.problems.iter().filter(|problem| problem.kind == ExtractProblemKind::Refused);
            let refused: Vec<_> = refused.map(|problem| String::from_utf8_lossy(&problem.path)).collect();
            let expected = ["name", "directory", "directory/file", "DIRECTORY/File", "new/implicit"];
            assert_eq!(refused, expected, "{overwrite:?} {round}");
        }
    }
}

/// An exFAT file system in an image on a loop device.
struct FoldingFileSystem {
    directory: tempfile::TempDir,
    device: String,
}

impl FoldingFileSystem {
    fn new() -> Option<Self> {
        let done = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        let mount = directory.path().join("mount");
        fs::create_dir(&mount).unwrap();
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        if !is_root() {
            return None;
        }
        done("mkfs.exfat", &[image.to_str()?])?;
        let device = done("losetup", &["-f", "--show", image.to_str()?])?;
        let folding = Self { directory, device };
        done("mount.exfat-fuse", &[&folding.device, mount.to_str()?])?;
        Some(folding)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }
}

impl Drop for FoldingFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).stderr(Stdio::null()).status();
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}
