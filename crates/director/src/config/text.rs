//! The settings as text: a comment above each when the file is made, and the line of what is wrong when it is read.

use toml::de::{DeTable, DeValue};

/// What stands above the file.
const HEAD: &str = "\
# Settings of this state directory. Each setting is here, with the value that was chosen or its default. A setting that
# you remove has its default. Capstan refuses a setting that does not exist, is out of bounds or contradicts another one,
# and names its line.
# A change takes effect with the next command; a server that runs takes in jobs and scripts at once, and needs a restart
# for all else. docs/OPERATIONS.md has more on each.
";

/// What each section is, and what each setting does.
const COMMENTS: [(&str, &str); 41] = [
    (
        "client",
        "The machine that sources are of, as objects name it: for a host that was renamed. Empty for the host's name.",
    ),
    ("[library]", "The library: a folder of virtual cartridges, or a real one."),
    (
        "mover",
        "The mover whose library it is (capstan mover list); empty for this host's own. `changer` then says of which kind it is: \
         empty, \"by hand\", or \"robot\".",
    ),
    (
        "changer",
        "Device of a real library's changer (capstan drives scan); \"by hand\" for drives without one; empty for virtual cartridges.",
    ),
    ("devices", "Drives of a real library to use; none for all that this host finds."),
    (
        "path",
        "Where virtual cartridges lie; relative to the state directory. Put them on another disk than what is backed up.",
    ),
    (
        "folders",
        "Further folders for virtual cartridges, on other disks: a new one goes where most room is. Needs free_mib.",
    ),
    (
        "free_mib",
        "MiB that stay free on the disk of each folder: where there is less, nothing more is written there. 0: it fills.",
    ),
    (
        "high_percent",
        "Where more of a disk is taken than this, virtual cartridges that hold only what has expired are made blank; 0: \
         never.",
    ),
    ("low_percent", "... until no more than this is taken."),
    ("drives", "How many virtual drives; a backup needs one for each copy."),
    ("volume_mib", "Capacity of a new virtual cartridge, in MiB."),
    (
        "volumes_max",
        "How many cartridges are created automatically: the library uses at most this number times volume_mib. 0: \
         none.",
    ),
    ("pace", "Virtual drives are as slow as this drive (see capstan models); empty: as fast as the disk."),
    ("protect_blocks", "Real drives over sg check each block's checksum, where they offer it."),
    ("[data]", "The data path. `capstan lab advise` says what a change would give."),
    ("block_kib", "Payload of a block, in KiB: 4 to 2000."),
    ("buffer_mib", "Memory of the block pool, in MiB."),
    ("compression_level", "zstd level, from -7 (fastest) to 19; 0 stores blocks as they are read."),
    ("extent_worthwhile_mib", "How much a connection gathers before its next turn on the volume, in MiB."),
    ("extent_longest_mib", "The longest turn, in MiB."),
    (
        "drive_worthwhile_gib",
        "A job that may write to several drives uses one more for each so many GiB that it wrote the last time.",
    ),
    ("checkpoint_mib", "A checkpoint after this many MiB: the most that an interrupted backup has to repeat ..."),
    ("checkpoint_seconds", "... or after so many seconds."),
    ("[keys]", "Where keys come from: the sealed store of this machine, or a key cluster."),
    (
        "nodes",
        "Nodes of a key cluster, as in [\"kma1:7443\", \"kma2:7443\"]; none for the sealed store of this machine.",
    ),
    ("identity", "Who this machine is for the cluster: the file that `capstan keys enrol` made."),
    ("site", "The site whose nodes are asked first; empty for none."),
    (
        "[server]",
        "How the server of a cell works, and where it listens, as address and port; empty for nowhere. docs/CELL.md has more.",
    ),
    ("runs_per_drive", "Most runs of policies whose blocks take turns at one drive."),
    ("runs_per_client", "Most runs of one client at the same time; 0 for no bound."),
    ("listen", "For clients that have a certificate, such as \"0.0.0.0:5701\"."),
    ("enrolment", "For machines that join the cell; empty for the next port."),
    ("data", "For the data of clients; empty for the port after that."),
    ("metrics_listen", "For a collector of metrics, in plain HTTP, such as \"127.0.0.1:9445\"; empty for none."),
    (
        "expire",
        "When backups expire whose retention has ended, in the grammar of schedules; empty: only by `capstan expire`.",
    ),
    ("[attention]", "What `capstan status` calls to attention."),
    ("backup_hours", "A source whose last backup is older than so many hours; 0 for none."),
    (
        "export_days",
        "A volume that was labelled so many days ago and whose key is in no export (`capstan keys export`); 0 for none.",
    ),
    ("verify_days", "A volume that was not verified for so many days; 0 for none."),
    ("scratch_volumes", "A library of a cell with fewer volumes than this that a pool could take next; 0 for none."),
];

/// What the parser says of a type, in the words that the comments have.
pub(crate) fn in_plain_words(fault: &str) -> String {
    let words = [
        ("a sequence", "a list, as in [\"/etc\", \"/home\"]"),
        ("invalid type: sequence", "invalid type: a list"),
        ("invalid type: map", "invalid type: a table"),
        ("a boolean", "true or false"),
        ("invalid type: boolean", "invalid type: true or false,"),
        ("expected u8", "expected a whole number from 0 to 255"),
    ];
    words.iter().fold(fault.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// What stands at the end of the file, for whoever writes the first job.
const EXAMPLE: &str = "
# Jobs: backups that have a name. `capstan backup nightly` runs this one, `capstan jobs` lists all.
#
# [jobs.nightly]
# sources = [\"/etc\", \"/home\"]            # absolute paths; or stdin = \"shop.sql\" and stdin_command = [\"pg_dump\", \"shop\"]
# exclude = [\"*.tmp\", \"**/.cache\"]       # as --exclude; on the command line more can be added
# exclude_caches = true                  # keep only their CACHEDIR.TAG; exclude_from = [\"/etc/capstan/exclude\"] for a file of patterns
# one_file_system = true                 # stay on the file system of each source
# may_be_empty = true                    # a source without any file is backed up as it is, even if it had some
# snapshot = \"prefer\"                    # read from a snapshot where one can be made; \"require\": or not at all
# pool = \"default\"
# unit = \"main\"                         # the storage unit or library it writes to, where there are several
# copies = 2                             # written at once; each needs a drive
# drives = 2                             # that each copy is written to at once, if they are free and there is enough to write
# connections = 4                        # streams that read at the same time
# full_every = \"4w\"                      # incrementals, and a full backup if the last one is as old as that;
#                                        # or level = \"full\"; or \"incremental\", and consolidate_after = 14: made of others
# keep = { last = 3, daily = 7, weekly = 4, monthly = 12, yearly = 5 } # or retention = \"90d\"; lock = true: for good
# wait = true                            # for a volume, and for another job that has the source
# before = [\"/usr/local/bin/quiesce\"]    # if it fails, nothing is backed up
# after = [\"/usr/local/bin/tell\"]        # always runs; has CAPSTAN_JOB, CAPSTAN_OUTCOME, CAPSTAN_EXIT_CODE, CAPSTAN_OBJECTS
#
# Further libraries, of this host or of movers, with the settings of [library]; that one is called main. And storage
# units: libraries whose drives a backup may use, whichever is free (docs/CELL.md).
#
# [libraries.west]
# mover = \"west\"
#
# [units.tape]
# libraries = [\"main\", \"west\"]
# mover_labels = [\"cellar\"]              # and those of movers with one of these labels (`capstan mover label`)
# models = [\"LTO-9\"]                     # only with drives of these models (`capstan drives`)
# drives = 4                             # most that runs of a server write to at a time
# runs_per_drive = 8                     # instead of that of [server]
#
# Scripts: programs that policies may run on this machine, by name (docs/CELL.md).
#
# [scripts]
# quiesce = [\"/usr/local/bin/quiesce\"]
#
# Whom the server tells what went wrong, by rule (docs/CELL.md). `capstan server tell --test oncall` tries a rule.
#
# [tell.oncall]
# events = [\"failed\", \"missed\", \"overdue\", \"mover-away\", \"drive\", \"volume\", \"scratch\", \"client-away\", \"trouble\",
#           \"problems\"]
# policies = []                          # only of these, for events that are about a policy; none for all
# again = \"24h\"                          # the same thing is told again after this long; or \"never\"
# mail = [\"ops@example.org\"]             # needs [mail]
# webhook = \"https://hooks.example.org/capstan\"   # JSON is posted there
# command = [\"/usr/local/bin/page\"]      # has JSON on its standard input, and CAPSTAN_EVENT, CAPSTAN_SUBJECT
#
# [mail]
# server = \"smtp.example.org:587\"
# security = \"starttls\"                  # or \"tls\", \"none\"
# from = \"capstan@example.org\"
# user = \"capstan\"                       # with password_file, both or none
# password_file = \"/etc/capstan/mail-password\"
";

/// The text with a comment above each section and setting, and an example of a job behind it.
pub(super) fn commented(plain: &str) -> String {
    let mut text = HEAD.to_owned();
    for line in plain.lines() {
        let name = line.split(" =").next().unwrap_or_default();
        if let Some((_, comment)) = COMMENTS.iter().find(|(known, _)| *known == name && !name.is_empty()) {
            text.push_str(&format!("# {comment}\n"));
        }
        text.push_str(line);
        text.push('\n');
    }
    text + EXAMPLE
}

/// What is wrong with a job or a policy, with the line that says it: `named` has the table that it stands in, and its
/// name.
pub(crate) fn fault_of(text: &str, named: (&str, &str), key: Option<&str>, reason: &str) -> String {
    let (table, name) = named;
    let place = match key {
        Some(key) => format!("{table}.{name}.{key}"),
        None => format!("{table}.{name}"),
    };
    match line_of(text, named, key) {
        Some(line) => format!("line {line}: {place}: {reason}"),
        None => format!("{place}: {reason}"),
    }
}

/// The line of a setting, or of the job or policy where it does not have that.
fn line_of(text: &str, (table, name): (&str, &str), key: Option<&str>) -> Option<usize> {
    let parsed = DeTable::parse(text).ok()?;
    let (_, all) = entry(parsed.get_ref(), table)?;
    let (mut at, job) = entry(all, name)?;
    if let Some((key_at, _)) = key.and_then(|key| place(job, key)) {
        at = key_at;
    }
    Some(text[..at].matches('\n').count() + 1)
}

/// Where a key stands in a table, and its value.
fn place<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t DeValue<'i>)> {
    let found = table.iter().find(|(name, _)| name.get_ref() == key);
    found.map(|(name, value)| (name.span().start, value.get_ref()))
}

/// Where a table stands in another one, and the table.
fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t DeTable<'i>)> {
    match place(table, key)? {
        (at, DeValue::Table(inner)) => Some((at, inner)),
        _ => None,
    }
}
