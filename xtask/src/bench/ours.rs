//! Capstan, as it is run against its peers.
//!
//! `CAPSTAN_STATE` and `CAPSTAN_KEY_FILE` lie in `out`, so that each run begins with a library of its own; what
//! restores read lies in `kept`.

use super::contest::Work::Line;
use super::contest::{Cache, Contestant, Count, Data, KEEP, Pace};

/// Bytes of files, as the last event of a backup says them.
const SAID: Count = Count::Says("/sources/0/bytes");

const SMALL: Contestant = Contestant {
    id: "",
    name: "",
    data: Data::Small,
    cache: Cache::Warm,
    pace: Pace::EveryRound,
    before: "rm -rf out; mkdir out; capstan -q init; capstan -q pools add plain --plain",
    work: Line(""),
    count: Count::CameOut("capstan cat $SMALL | wc -c"),
    behind: "rm -rf out",
};
const TYPICAL: Contestant =
    Contestant { data: Data::Typical, count: Count::CameOut("capstan cat $TYPICAL | wc -c"), ..SMALL };
const RESTORE: Contestant = Contestant {
    before: "export CAPSTAN_STATE=$WORK/kept/state CAPSTAN_KEY_FILE=$WORK/kept/key; rm -rf out; mkdir out
[ -e kept/done ] || { rm -rf kept; mkdir kept; capstan -q init; capstan -q backup $SMALL; capstan -q backup $TYPICAL; touch kept/done; }",
    ..SMALL
};

/// Everything of capstan that is measured.
pub(super) const CONTESTANTS: &[Contestant] = &[
    Contestant {
        id: "small-null/capstan",
        name: "**capstan**",
        work: Line("capstan -q --json backup $SMALL --device null"),
        count: SAID,
        ..SMALL
    },
    Contestant {
        id: "small-cold/capstan",
        name: "**capstan**",
        cache: Cache::Cold,
        work: Line("capstan -q --json backup $SMALL --device null"),
        count: SAID,
        ..SMALL
    },
    Contestant { id: "small-volume/capstan", name: "**capstan**", work: Line("capstan -q backup $SMALL"), ..SMALL },
    Contestant {
        id: "small-volume/capstan-twin",
        name: "**capstan**, two copies",
        work: Line("capstan -q backup $SMALL --copies 2"),
        ..SMALL
    },
    Contestant {
        id: "typical-volume/capstan",
        name: "**capstan**, compressed, encrypted",
        work: Line("capstan -q backup $TYPICAL"),
        ..TYPICAL
    },
    Contestant {
        id: "typical-volume/capstan-1",
        name: "**capstan**, the same, 1 connection",
        work: Line("capstan -q backup $TYPICAL --connections 1"),
        ..TYPICAL
    },
    Contestant {
        id: "typical-volume/capstan-32",
        name: "**capstan**, the same, 32 connections",
        work: Line("capstan -q backup $TYPICAL --connections 32"),
        ..TYPICAL
    },
    Contestant {
        id: "typical-volume/capstan-encrypted",
        name: "**capstan**, encrypted only",
        work: Line("capstan -q backup $TYPICAL --compression 0"),
        ..TYPICAL
    },
    Contestant {
        id: "typical-volume/capstan-plain",
        name: "**capstan**, plain",
        work: Line("capstan -q backup $TYPICAL --compression 0 --pool plain"),
        ..TYPICAL
    },
    Contestant {
        id: "restore/capstan",
        name: "**capstan**, typical files",
        data: Data::Typical,
        work: Line(
            "CAPSTAN_STATE=kept/state CAPSTAN_KEY_FILE=kept/key capstan -q restore $TYPICAL --to out && sync -f out",
        ),
        count: Count::Proves("diff -r $TYPICAL out$TYPICAL"),
        ..RESTORE
    },
    Contestant {
        id: "restore/capstan-small",
        name: "**capstan**, small files",
        work: Line(
            "CAPSTAN_STATE=kept/state CAPSTAN_KEY_FILE=kept/key capstan -q restore $SMALL --to out && sync -f out",
        ),
        count: Count::Proves("diff -r $SMALL out$SMALL"),
        behind: KEEP,
        ..RESTORE
    },
    Contestant {
        id: "one-file/capstan",
        name: "**capstan**",
        work: Line("CAPSTAN_STATE=kept/state CAPSTAN_KEY_FILE=kept/key capstan cat $SMALL:$ONE >out/one"),
        count: Count::Proves("cmp out/one $ONE"),
        ..RESTORE
    },
];

/// Prints the bytes that the file index of this machine's own /usr takes for each entry.
pub(super) const VERSION_BYTES: &str =
    "rm -rf out; mkdir out; capstan -q init >&2; capstan -q backup /usr >&2 || [ $? -eq 3 ]
bytes=$(find out -name '*.parquet' -printf '%s')
entries=$(capstan --json objects | python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())[\"entries\"])')
echo $bytes $entries | awk '{ print $1 / $2 }'; rm -rf out";
