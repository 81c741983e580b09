//! The bare readers and the other programs, as they are run.
//!
//! Each peer does the least that its users would accept: restic and borg with compression at their fastest, Bacula
//! without. What goes to a file is synced, as capstan syncs its volumes; restic and borg do so by themselves.

use super::contest::Work::{Bacula, Line};
use super::contest::{Cache, Contestant, Count, Data, KEEP, Pace};

/// A reader that keeps nothing.
const NULL: Contestant = Contestant {
    id: "",
    name: "",
    data: Data::Small,
    cache: Cache::Warm,
    pace: Pace::EveryRound,
    before: "",
    work: Line(""),
    count: Count::Says("/bytes"),
    behind: "",
};
/// The same, with the data set on disk only.
const COLD: Contestant = Contestant { cache: Cache::Cold, ..NULL };
/// One that writes `out`.
const VOLUME: Contestant = Contestant { before: "rm -rf out", behind: "rm -rf out", ..NULL };
/// The same, from large files.
const TYPICAL: Contestant = Contestant { data: Data::Typical, ..VOLUME };

/// A fresh key for age.
const KEY: &str = "rm -rf out age.key; age-keygen -o age.key 2>/dev/null";

/// Everything that is not capstan.
pub(super) const CONTESTANTS: &[Contestant] = &[
    Contestant {
        id: "small-null/bare-1",
        name: "bare loop, 1 thread",
        work: Line("$XTASK bare-read --threads 1 $SMALL"),
        ..NULL
    },
    Contestant {
        id: "small-null/bare-2",
        name: "bare loop, 2 threads",
        work: Line("$XTASK bare-read --threads 2 $SMALL"),
        ..NULL
    },
    Contestant {
        id: "small-null/bare-described",
        name: "bare loop, 2 threads, with fstat and flistxattr",
        work: Line("$XTASK bare-read --threads 2 --describe $SMALL"),
        ..NULL
    },
    Contestant {
        id: "small-null/bare-ring",
        name: "bare io_uring, 2 rings of 64",
        work: Line("$XTASK bare-read --threads 2 --ring 64 $SMALL"),
        ..NULL
    },
    Contestant {
        id: "small-null/tar",
        name: "GNU tar",
        work: Line("tar -C $SMALL -cf - . | cat >/dev/null"),
        count: Count::CameOut("tar -C $SMALL -cf - . | wc -c"),
        ..NULL
    },
    Contestant {
        id: "small-null/tar-xattrs",
        name: "GNU tar with xattrs and ACLs",
        work: Line("tar --xattrs --acls -C $SMALL -cf - . | cat >/dev/null"),
        count: Count::CameOut("tar --xattrs --acls -C $SMALL -cf - . | wc -c"),
        ..NULL
    },
    Contestant {
        id: "small-null/bsdtar",
        name: "bsdtar",
        pace: Pace::Once,
        work: Line("bsdtar -C $SMALL -cf - . | cat >/dev/null"),
        count: Count::CameOut("bsdtar -C $SMALL -cf - . | wc -c"),
        ..NULL
    },
    Contestant {
        id: "small-cold/bare-1",
        name: "bare loop, 1 thread",
        pace: Pace::Once,
        work: Line("$XTASK bare-read --threads 1 $SMALL"),
        ..COLD
    },
    Contestant {
        id: "small-cold/bare-32",
        name: "bare loop, 32 threads",
        work: Line("$XTASK bare-read --threads 32 $SMALL"),
        ..COLD
    },
    Contestant {
        id: "small-cold/bare-ring-64",
        name: "bare io_uring, 2 rings of 64",
        pace: Pace::Once,
        work: Line("$XTASK bare-read --threads 2 --ring 64 $SMALL"),
        ..COLD
    },
    Contestant {
        id: "small-cold/bare-ring-128",
        name: "bare io_uring, 2 rings of 128",
        work: Line("$XTASK bare-read --threads 2 --ring 128 $SMALL"),
        ..COLD
    },
    Contestant {
        id: "small-cold/tar",
        name: "GNU tar",
        work: Line("tar -C $SMALL -cf - . | cat >/dev/null"),
        count: Count::CameOut("tar -C $SMALL -cf - . | wc -c"),
        ..COLD
    },
    Contestant {
        id: "small-volume/tar-zstd-age",
        name: "tar, zstd -1, age",
        before: KEY,
        work: Line("tar -C $SMALL -cf - . | zstd -1 -q | age -r $(age-keygen -y age.key) >out && sync out"),
        count: Count::CameOut("age -d -i age.key out | zstd -dc | wc -c"),
        ..VOLUME
    },
    Contestant {
        id: "typical-volume/tar-zstd-age",
        name: "tar, zstd -1, age",
        before: KEY,
        work: Line("tar -C $TYPICAL -cf - . | zstd -1 -q | age -r $(age-keygen -y age.key) >out && sync out"),
        count: Count::CameOut("age -d -i age.key out | zstd -dc | wc -c"),
        ..TYPICAL
    },
    Contestant {
        id: "small-volume/restic",
        name: "restic",
        pace: Pace::Once,
        before: "rm -rf out; restic -q -r out/repository --cache-dir out/cache init",
        work: Line("restic -r out/repository --cache-dir out/cache backup --json $SMALL"),
        count: Count::Says("/total_bytes_processed"),
        ..VOLUME
    },
    Contestant {
        id: "small-volume/borg",
        name: "borg",
        pace: Pace::Once,
        before: "rm -rf out; mkdir out; borg init --encryption repokey-blake2 out/repository",
        work: Line("borg create --json --compression zstd,1 out/repository::1 $SMALL"),
        count: Count::Says("/archive/stats/original_size"),
        ..VOLUME
    },
    Contestant { id: "small-volume/bacula", name: "Bacula", pace: Pace::Once, work: Bacula, ..VOLUME },
    Contestant {
        id: "typical-volume/cat",
        name: "cat to one file",
        work: Line("cat $TYPICAL/*/* >out && sync out"),
        count: Count::CameOut("stat -c %s out"),
        ..TYPICAL
    },
    Contestant {
        id: "restore/cp",
        name: "cp to the same disk",
        work: Line("cp -r $TYPICAL out && sync -f out"),
        count: Count::CameOut("cat out/*/* | wc -c"),
        ..TYPICAL
    },
    Contestant {
        id: "restore/cp-small",
        name: "cp to the same disk, small files",
        work: Line("cp -r $SMALL out && sync -f out"),
        count: Count::CameOut("find out -type f -printf '%s\\n' | awk '{ bytes += $1 } END { print bytes }'"),
        behind: KEEP,
        ..VOLUME
    },
    Contestant {
        id: "restore/tar-small",
        name: "GNU tar, small files from a file in memory",
        pace: Pace::Once,
        before: "rm -rf out; mkdir out; [ -e small.tar ] || tar -C $SMALL -cf small.tar .; cat small.tar >/dev/null",
        work: Line("tar -C out -xf small.tar && sync -f out"),
        count: Count::CameOut("find out -type f -printf '%s\\n' | awk '{ bytes += $1 } END { print bytes }'"),
        behind: KEEP,
        ..VOLUME
    },
];
