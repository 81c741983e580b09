//! The tree source and GNU tar.

use std::fs;
use std::os::unix::fs::symlink;

use capstan_mover::{Progress, TreeOptions, TreeSource};

use crate::collect::{Collect, archive, entries, extract, run};

#[test]
fn a_small_tree_comes_back_on_any_number_of_connections() {
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
    for connections in [1u16, 2, 5] {
        let tree = TreeSource::new(std::slice::from_ref(&root), &TreeOptions::default()).unwrap();
        let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, 65_536)).collect();
        let progress = Progress::new();
        let report = tree.run(&mut sinks, None, &progress).unwrap();
        assert_eq!((report.files, report.directories, report.problem_counts), (203, 5, [0, 0, 0]));
        assert_eq!((progress.files(), progress.directories(), progress.bytes()), (203, 5, report.bytes));
        let target = tempfile::tempdir().unwrap();
        extract(&archive(&sinks), target.path());
        let restored = target.path().join(root.strip_prefix("/").unwrap());
        let differences = run(
            "rsync",
            ["-aHAXnic".as_ref(), "--delete".as_ref(), root.join("").as_os_str(), restored.join("").as_os_str()],
        );
        assert_eq!(String::from_utf8_lossy(&differences), "");
        assert_eq!(entries(&sinks).len(), 208);
    }
}
