//! Trees of many shapes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use capstan_format::{EntryFlags, EntryKind, FileEntry};
use capstan_mover::{
    CacheDirectories, Mounts, ProblemKind, Progress, Severity, SourceError, Stopped, Totals, TreeOptions, TreeSource,
};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::collect::{
    Collect, archive, below, check_entries, differences, entries, extract, feed, is_root, read_tree, run,
};

fn read_with(roots: &[&Path], options: &TreeOptions, connections: u16) -> (Vec<Collect>, capstan_mover::SourceReport) {
    let roots: Vec<_> = roots.iter().map(|root| root.to_path_buf()).collect();
    let tree = TreeSource::new(&roots, options).unwrap();
    let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, 65_536)).collect();
    let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
    (sinks, report)
}

fn names(sinks: &[Collect], root: &Path) -> BTreeSet<String> {
    let prefix = root.strip_prefix("/").unwrap().as_os_str().as_bytes();
    let name = |entry: FileEntry| String::from_utf8(entry.path.strip_prefix(prefix).unwrap().to_vec()).unwrap();
    entries(sinks).into_iter().map(name).collect()
}

#[test]
fn a_tree_comes_back_on_any_number_of_connections_and_any_length_of_chunk() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for number in 0..200u32 {
        fs::write(root.join(format!("a/b/file-{number}")), vec![number as u8; number as usize * 97]).unwrap();
    }
    fs::write(root.join("large"), (0..3_000_000u32).map(|n| (n / 7) as u8).collect::<Vec<_>>()).unwrap();
    fs::hard_link(root.join("large"), root.join("a/link")).unwrap();
    symlink("../large", root.join("a/symlink")).unwrap();
    for (connections, chunk_len) in [(1, 65_536), (2, 262_088), (5, 4_000), (3, 513), (1, 1 << 23)] {
        let tree = TreeSource::new(std::slice::from_ref(&root), &TreeOptions::default()).unwrap();
        let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, chunk_len)).collect();
        let progress = Progress::new();
        let report = tree.run(&mut sinks, None, &progress).unwrap();
        assert_eq!((report.files + report.others, report.directories, report.problem_counts), (203, 5, [0, 0, 0]));
        assert_eq!((progress.files(), progress.directories(), progress.bytes()), (203, 5, report.bytes));
        check_entries(&sinks);
        let target = tempfile::tempdir().unwrap();
        extract(&archive(&sinks), target.path());
        assert_eq!(differences(&root, &below(target.path(), &root)), "", "{connections} connections of {chunk_len}");
        assert_eq!(entries(&sinks).len(), 208);
    }
}

#[test]
fn one_connection_writes_depth_first_and_directories_before_what_is_in_them() {
    let source = tempfile::tempdir().unwrap();
    for directory in ["a/x", "a/y/z", "b"] {
        fs::create_dir_all(source.path().join(directory)).unwrap();
        for number in 0..100 {
            fs::write(source.path().join(directory).join(format!("f{number}")), "x").unwrap();
        }
    }
    let (sinks, _) = read_tree(source.path(), 1, 65_536);
    let mut seen = BTreeSet::new();
    let mut last_of: Vec<Vec<u8>> = Vec::new();
    for entry in &sinks[0].entries {
        let parent =
            Path::new(std::ffi::OsStr::from_bytes(&entry.path)).parent().unwrap().as_os_str().as_bytes().to_vec();
        assert!(seen.is_empty() || seen.contains(&parent), "its directory comes first");
        if entry.kind == EntryKind::Directory {
            seen.insert(entry.path.clone());
        } else if last_of.last() != Some(&parent) {
            assert!(!last_of.contains(&parent), "the files of a directory lie together");
            last_of.push(parent);
        }
    }
    assert_eq!(last_of.len(), 3);
}

#[test]
fn targets_lie_before_their_links_in_the_streams_end_to_end() {
    let source = tempfile::tempdir().unwrap();
    for directory in 0..40 {
        let path = source.path().join(format!("d{directory}"));
        fs::create_dir(&path).unwrap();
        for number in 0..20 {
            let name = format!("f{number}");
            if directory == 0 {
                fs::write(path.join(&name), name.repeat(300)).unwrap();
            } else {
                fs::hard_link(source.path().join("d0").join(&name), path.join(&name)).unwrap();
            }
        }
    }
    for connections in [1, 4] {
        let (sinks, _) = read_tree(source.path(), connections, 65_536);
        let mut stored = BTreeSet::new();
        let mut links = 0;
        for entry in sinks.iter().flat_map(|sink| &sink.entries) {
            match entry.kind {
                EntryKind::File => assert!(stored.insert(entry.path.clone())),
                EntryKind::HardLink => {
                    assert!(stored.contains(&entry.link));
                    let target = Path::new("/").join(std::ffi::OsStr::from_bytes(&entry.link));
                    assert_eq!(entry.size, fs::metadata(target).unwrap().len(), "a link has the size of its file");
                    links += 1;
                }
                _ => {}
            }
        }
        assert_eq!((stored.len(), links), (20, 780));
        let target = tempfile::tempdir().unwrap();
        extract(&archive(&sinks), target.path());
        assert_eq!(differences(source.path(), &below(target.path(), source.path())), "");
    }
}

#[test]
fn a_directory_longer_than_a_piece_is_listed_whole() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..7_000 {
        fs::write(source.path().join(format!("{number:0200}")), []).unwrap();
    }
    for connections in [1, 3] {
        let (sinks, report) = read_tree(source.path(), connections, 65_536);
        assert_eq!((report.files, report.directories), (7_000, 1));
        let paths: BTreeSet<_> = entries(&sinks).into_iter().map(|entry| entry.path).collect();
        assert_eq!(paths.len(), 7_001);
    }
}

/// Names of 255 bytes, nested until paths are longer than any system call takes them.
#[test]
fn paths_beyond_4096_bytes_are_read() {
    let source = tempfile::tempdir().unwrap();
    let mut fd = openat(CWD, source.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for level in 0..20u8 {
        let name = format!("{}{level:03}", "d".repeat(252));
        mkdirat(&fd, &*name, Mode::RWXU).unwrap();
        fd = openat(&fd, &*name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let file = openat(&fd, "f".repeat(255), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        rustix::io::write(&file, &[level; 100]).unwrap();
        rustix::fs::symlinkat("s".repeat(4_000), &fd, "link").unwrap();
    }
    let (sinks, report) = read_tree(source.path(), 2, 65_536);
    assert_eq!((report.files + report.others, report.directories, report.problem_counts), (40, 21, [0, 0, 0]));
    check_entries(&sinks);
    assert!(entries(&sinks).iter().any(|entry| entry.path.len() > 5_000 && entry.crc != 0));
    // No tar extracts such paths, each names a file by its whole path; but all list them.
    let mut expected: Vec<String> = entries(&sinks)
        .iter()
        .map(|entry| {
            let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
            format!("{}{slash}", entry.path.escape_ascii())
        })
        .collect();
    expected.sort();
    for program in ["tar", "bsdtar"] {
        let listed = String::from_utf8(feed(program, ["-tf", "-"], &archive(&sinks))).unwrap();
        let mut listed: Vec<_> = listed.lines().collect();
        listed.sort_unstable();
        assert!(listed == expected, "{program}");
    }
}

/// A user who nested directories deep enough made every backup fail: the catalog refused the paths, and the volume was
/// set aside.
#[test]
fn what_lies_too_deep_is_named_and_the_rest_is_stored() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("innocent"), "content").unwrap();
    let mut fd = openat(CWD, source.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..1_100 {
        mkdirat(&fd, "d".repeat(255), Mode::RWXU).unwrap();
        fd = openat(&fd, "d".repeat(255), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let (sinks, report) = read_tree(source.path(), 2, 65_536);
    assert_eq!((report.files, report.count(Severity::Loss)), (1, 1), "{:?}", report.problem_counts);
    assert!(matches!(report.problems[0].kind, ProblemKind::Unlisted(_)), "{:?}", report.problems[0].kind);
    let longest = entries(&sinks).iter().map(|entry| entry.path.len()).max().unwrap();
    assert!((250_000..=capstan_format::PATH_LEN_STORED_MAX).contains(&longest), "{longest}");
    check_entries(&sinks);
}

#[test]
fn excluded_paths_are_left_out_with_what_is_below_them() {
    let source = tempfile::tempdir().unwrap();
    for path in ["keep/a.o", "keep/b.c", "cache/deep/x", "keep/cache/y", "other/z"] {
        fs::create_dir_all(source.path().join(path).parent().unwrap()).unwrap();
        fs::write(source.path().join(path), path).unwrap();
    }
    let excludes = vec!["*.o".to_owned(), format!("{}/cache", source.path().display()), "other/".to_owned()];
    let options = TreeOptions { excludes, ..TreeOptions::default() };
    let (sinks, _) = read_with(&[source.path()], &options, 2);
    let expected = ["", "/keep", "/keep/b.c", "/keep/cache", "/keep/cache/y"];
    assert_eq!(names(&sinks, source.path()), expected.iter().map(|&name| name.to_owned()).collect());
}

/// Patterns with a slash had to be given from the root, else they matched nothing, and nobody said so.
#[test]
fn excludes_may_be_given_from_the_source_and_say_if_they_matched_nothing() {
    let source = tempfile::tempdir().unwrap();
    for path in ["a/node_modules/x", "a/keep", "b/a/node_modules/y"] {
        fs::create_dir_all(source.path().join(path).parent().unwrap()).unwrap();
        fs::write(source.path().join(path), path).unwrap();
    }
    let own = source.path().file_name().unwrap().to_str().unwrap();
    for pattern in ["a/node_modules".to_owned(), format!("{own}/a/node_modules")] {
        let options = TreeOptions { excludes: vec![pattern, "c/d".to_owned()], ..TreeOptions::default() };
        let (sinks, report) = read_with(&[source.path()], &options, 2);
        let expected = ["", "/a", "/a/keep", "/b", "/b/a", "/b/a/node_modules", "/b/a/node_modules/y"];
        assert_eq!(names(&sinks, source.path()), expected.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(report.excludes_unused, Some(vec!["c/d".to_owned()]));
    }
}

#[test]
fn of_a_cache_the_directory_and_its_tag_are_stored_if_the_signature_is_right() {
    const SIGNATURE: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# a comment\n";
    let source = tempfile::tempdir().unwrap();
    for (directory, tag) in [("cache", SIGNATURE), ("other", "Signature: 0\n"), ("short", "Sig")] {
        fs::create_dir_all(source.path().join(directory).join("deep")).unwrap();
        fs::write(source.path().join(directory).join("CACHEDIR.TAG"), tag).unwrap();
        fs::write(source.path().join(directory).join("deep/file"), "x").unwrap();
    }
    let whole =
        |directory: &str| ["", "/CACHEDIR.TAG", "/deep", "/deep/file"].map(|name| format!("/{directory}{name}"));
    let mut expected = vec![String::new(), "/cache".to_owned(), "/cache/CACHEDIR.TAG".to_owned()];
    expected.extend(whole("other"));
    expected.extend(whole("short"));
    let options = TreeOptions { caches: CacheDirectories::LeaveOut, ..TreeOptions::default() };
    let (sinks, report) = read_with(&[source.path()], &options, 2);
    assert_eq!(names(&sinks, source.path()), expected.iter().cloned().collect());
    let tree = TreeSource::new(&[source.path().to_owned()], &options).unwrap();
    let totals = Totals::new();
    tree.count(&totals);
    assert_eq!((totals.files(), totals.directories()), (report.files, report.directories));
    // A source is asked for by its name, whatever is in it.
    let (sinks, _) = read_with(&[&source.path().join("cache")], &options, 1);
    let named = whole("cache").map(|name| name["/cache".len()..].to_owned());
    assert_eq!(names(&sinks, &source.path().join("cache")), named.into_iter().collect());
    // Where it is not asked for, a tag is a file as any other.
    let (sinks, _) = read_with(&[source.path()], &TreeOptions::default(), 1);
    expected.extend(whole("cache"));
    assert_eq!(names(&sinks, source.path()), expected.into_iter().collect());
}

#[test]
fn counting_finds_what_the_walk_passes() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..60 {
        let directory = source.path().join(format!("d{}/e{number}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..number * 3 {
            fs::write(directory.join(format!("f{file}.{}", file % 3)), "x").unwrap();
        }
        symlink("x", directory.join("s")).unwrap();
    }
    for excludes in [vec![], vec!["*.1".to_owned(), "e5*".to_owned()]] {
        let options = TreeOptions { excludes, ..TreeOptions::default() };
        let tree = TreeSource::new(&[source.path().to_owned()], &options).unwrap();
        let totals = Totals::new();
        tree.count(&totals);
        let (_, report) = read_with(&[source.path()], &options, 2);
        assert!(totals.is_complete());
        assert_eq!((totals.files(), totals.directories()), (report.files + report.others, report.directories));
    }
    let totals = Totals::new();
    totals.stop();
    TreeSource::new(&[source.path().to_owned()], &TreeOptions::default()).unwrap().count(&totals);
    assert!(!totals.is_complete());
}

#[test]
fn sources_may_be_files_and_links_and_lie_in_each_other() {
    let source = tempfile::tempdir().unwrap();
    let (file, directory, link) = (source.path().join("file"), source.path().join("dir"), source.path().join("link"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("inner"), "inner").unwrap();
    symlink("dir", &link).unwrap();
    let (sinks, report) = read_with(&[&file, &directory, &directory.join("inner"), &link], &TreeOptions::default(), 2);
    let expected = ["/dir", "/dir/inner", "/file", "/link"];
    assert_eq!(names(&sinks, source.path()), expected.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(report.problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), [ProblemKind::SourceIsLink]);
    // A slash behind it names what the link points to.
    let (sinks, report) = read_with(&[&link.join("")], &TreeOptions::default(), 1);
    assert_eq!(names(&sinks, source.path()), ["/link", "/link/inner"].iter().map(|&name| name.to_owned()).collect());
    assert!(report.problems.is_empty());
    assert!(matches!(
        TreeSource::new(&[directory.join("../dir")], &TreeOptions::default()),
        Err(SourceError::Path { .. })
    ));
    assert!(matches!(TreeSource::new(&[], &TreeOptions::default()), Err(SourceError::Nothing)));
}

#[test]
fn a_source_that_is_not_there_is_a_loss_and_the_others_are_read() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), "content").unwrap();
    let missing = source.path().join("missing");
    let (sinks, report) = read_with(&[&source.path().join("file"), &missing], &TreeOptions::default(), 2);
    let flags: Vec<_> = entries(&sinks).iter().map(|entry| entry.flags).collect();
    assert_eq!(flags, [EntryFlags::default(), EntryFlags::UNREADABLE]);
    assert_eq!((report.count(Severity::Loss), report.problems.len()), (1, 1));
    assert!(report.problems[0].to_string().contains("No such file"), "{}", report.problems[0]);
}

/// A mounted file system that is taken away again, however the test ends.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        run("umount", [self.0]);
    }
}

#[test]
fn mount_points_are_crossed_or_not_and_made_up_ones_never_unless_named() {
    if !is_root() {
        return eprintln!("not root: mounts are not tested");
    }
    let source = tempfile::tempdir().unwrap();
    let (memory, process) = (source.path().join("memory"), source.path().join("proc"));
    fs::create_dir(&memory).unwrap();
    fs::create_dir(&process).unwrap();
    run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), memory.as_os_str()]);
    let _memory = Mounted(&memory);
    run("mount", ["-t".as_ref(), "proc".as_ref(), "none".as_ref(), process.as_os_str()]);
    let _process = Mounted(&process);
    fs::write(memory.join("file"), "content").unwrap();
    let (sinks, report) = read_with(&[source.path()], &TreeOptions::default(), 2);
    assert_eq!(names(&sinks, source.path()), ["", "/memory", "/memory/file", "/proc"].map(str::to_owned).into());
    assert_eq!(report.problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), [ProblemKind::PseudoFilesystem]);
    let stay = TreeOptions { mounts: Mounts::Stay, ..TreeOptions::default() };
    let (sinks, _) = read_with(&[source.path()], &stay, 2);
    assert_eq!(names(&sinks, source.path()), ["", "/memory", "/proc"].map(str::to_owned).into());
    let (sinks, _) = read_with(&[&process.join("sys/kernel/random")], &TreeOptions::default(), 1);
    assert!(names(&sinks, &process).contains("/sys/kernel/random/boot_id"));
}

#[test]
fn a_stopped_run_ends_on_all_connections() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..400 {
        fs::create_dir(source.path().join(format!("d{number}"))).unwrap();
        fs::write(source.path().join(format!("d{number}/f")), vec![1; 10_000]).unwrap();
    }
    for stopping in 0..3u16 {
        let stop = move |position| if position > 50_000 { Err(Stopped) } else { Ok(()) };
        let mut sinks: Vec<_> = (0..3)
            .map(|number| match number {
                _ if number == stopping => Collect::with_hook(number, 4_096, stop),
                _ => Collect::new(number, 4_096),
            })
            .collect();
        let tree = TreeSource::new(&[source.path().to_owned()], &TreeOptions::default()).unwrap();
        // The connection that is to stop may get less than that to write.
        match tree.run(&mut sinks, None, &Progress::new()) {
            Err(SourceError::Stopped(Stopped)) => {}
            Ok(report) => assert!(sinks[usize::from(stopping)].bytes.len() <= 60_000, "{report:?}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_root_directory_is_a_dot() {
    let excludes = vec!["/**/*".to_owned(), "/*".to_owned()];
    let options = TreeOptions { excludes, ..TreeOptions::default() };
    let (sinks, _) = read_with(&[Path::new("/")], &options, 1);
    assert_eq!(entries(&sinks).iter().map(|entry| &entry.path[..]).collect::<Vec<_>>(), [b"."]);
    let listed = feed("tar", ["-tf", "-"], &archive(&sinks));
    assert_eq!(listed, b"./\n");
}
