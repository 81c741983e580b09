//! Policies, the queue, and what a server does.

use std::fmt;

use capstan_keys::api::PeerKind;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// A policy: a line of `policies`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct BackupPolicyRow {
    /// Its name.
    pub(crate) policy: String,
    /// When it is due, as a calendar event; null if it runs only when somebody enters it.
    pub(crate) schedule: Option<String>,
    /// When its next run begins, nanoseconds since 1970; null if none comes within ten years.
    pub(crate) next_ns: Option<i64>,
    /// The zone of schedule and window, if it names one.
    pub(crate) zone: Option<String>,
    /// When runs may begin; null for always.
    pub(crate) window: Option<String>,
    /// Its place in the queue, from 0 to 100.
    pub(crate) priority: u8,
    /// What it backs up: paths, or the name of a stream.
    pub(crate) sources: Vec<String>,
    /// Why it cannot be run on this machine; null if it can.
    pub(crate) fault: Option<String>,
    /// When it was changed last, nanoseconds since 1970.
    pub(crate) changed_ns: i64,
}

/// A setting that a policy has otherwise, or would have.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ChangedSetting {
    /// Its name.
    pub(crate) key: String,
    /// Its value before, as TOML; null if it was not set.
    pub(crate) before: Option<String>,
    /// Its value from now on, as TOML; null if it is not set.
    pub(crate) after: Option<String>,
}

/// What `policies apply` and `policies remove` change: a line for each policy.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PolicyChangeRow {
    /// The policy.
    pub(crate) policy: String,
    /// `added`, `changed` or `removed`.
    pub(crate) change: &'static str,
    /// Whether it was only looked at (`--dry-run`).
    pub(crate) dry_run: bool,
    /// The settings that differ.
    pub(crate) settings: Vec<ChangedSetting>,
}

/// A run that comes: a line of `schedule`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ComingRunRow {
    /// When it begins at the earliest, nanoseconds since 1970: its spread is counted in.
    pub(crate) starts_ns: i64,
    /// When the schedule has it, nanoseconds since 1970.
    pub(crate) due_ns: i64,
    /// Its policy.
    pub(crate) policy: String,
    /// The client whose data is backed up.
    pub(crate) client: String,
}

/// A run of the queue: a line of `queue` and `queue done`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct QueueRow {
    /// Its number.
    pub(crate) run: i64,
    /// Its policy.
    pub(crate) policy: String,
    /// The client whose data is backed up.
    pub(crate) client: String,
    /// `waiting`, `running`, `stopping`, `interrupted` (no server runs); of one that has ended `done`, `problems`,
    /// `failed`, `cancelled` or `missed`.
    pub(crate) state: &'static str,
    /// When its schedule had it due, nanoseconds since 1970; null if somebody entered it.
    pub(crate) due_ns: Option<i64>,
    /// When it was entered, nanoseconds since 1970.
    pub(crate) entered_ns: i64,
    /// When it began last, nanoseconds since 1970; null if it never did.
    pub(crate) started_ns: Option<i64>,
    /// When it ended, nanoseconds since 1970; null if it has not.
    pub(crate) ended_ns: Option<i64>,
    /// Which attempt it is, or will be; 0 for one that never begins.
    pub(crate) attempt: u32,
    /// Its priority.
    pub(crate) priority: i64,
    /// What it waits for: `server`, `release`, `repair`, `time`, `window`, `source`, `client`, `limit`,
    /// `library`, `drives` or `turn`; null if it does not wait.
    pub(crate) waits_for: Option<&'static str>,
    /// When that will probably be over, nanoseconds since 1970; null if that cannot be told.
    pub(crate) until_ns: Option<i64>,
    /// What it waits for, or how it ended, in words.
    pub(crate) message: String,
    /// Its entry in the history (`history RUN`), if it has one.
    pub(crate) history: Option<i64>,
    /// The session that a run at work writes into. Runs of one session take turns at the same drives.
    pub(crate) session: Option<i64>,
}

/// What `queue add`, `rerun`, `cancel`, `hold` and `release` did with a run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct QueueChangeRow {
    /// Its number.
    pub(crate) run: i64,
    /// `entered`, `cancelled`, `stopping`, `held` or `released`; `waiting` if a run of the policy was in the queue
    /// already.
    pub(crate) change: &'static str,
}

/// What happens while `server run` serves.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum ServerEvent {
    /// The server runs.
    Serving {
        /// Its term: higher than that of every server before.
        term: u64,
        /// Policies it knows.
        policies: usize,
    },
    /// The server listens for the clients and movers of its cell.
    Listening {
        /// Where for machines that have joined: address and port.
        members: String,
        /// Where for machines that join: address and port.
        enrolment: String,
        /// Where for the data of clients: address and port.
        data: String,
    },
    /// A machine has joined the cell.
    Joined {
        #[serde(flatten)]
        member: MemberName,
        /// The address that it came from.
        from: String,
    },
    /// Somebody tried to join the cell under a name and did not know the passphrase.
    JoinRefused {
        #[serde(flatten)]
        member: MemberName,
        /// The address that they came from.
        from: String,
    },
    /// Runs of a server before this one wait again.
    Returned {
        /// How many.
        runs: usize,
    },
    /// A run is due, and waits.
    Due {
        /// Its number.
        run: i64,
        /// Its policy.
        policy: String,
    },
    /// Runs never begin.
    Missed {
        /// Their policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// A run begins.
    RunBegun {
        /// Its number.
        run: i64,
        /// Its policy.
        policy: String,
        /// How often it was begun, this time included.
        attempt: u32,
    },
    /// A run has ended.
    RunEnded {
        /// Its number.
        run: i64,
        /// Its policy.
        policy: String,
        /// `done`, `problems`, `failed` or `cancelled`.
        outcome: &'static str,
        /// How, in words.
        message: String,
    },
    /// A run failed, and is tried again.
    RunRetried {
        /// Its number.
        run: i64,
        /// Its policy.
        policy: String,
        /// Why it failed.
        message: String,
        /// When it begins at the earliest, nanoseconds since 1970.
        not_before_ns: i64,
    },
    /// Something keeps the server from its work, or from a part of it.
    Trouble {
        /// Why.
        reason: String,
    },
    /// The server has stopped.
    Stopped,
}

/// A way by which a rule tells people: a line of `server tell`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TellRow {
    /// The rule, by its name in capstan.toml.
    pub(crate) rule: String,
    /// `mail`, `webhook` or `command`.
    pub(crate) way: &'static str,
    /// Addresses, the receiver's host, or the program and its arguments.
    pub(crate) to: Vec<String>,
    /// The events that are told; none for all.
    pub(crate) events: Vec<&'static str>,
    /// The policies, for events that are about one; none for all.
    pub(crate) policies: Vec<String>,
    /// How long until the same thing is told again, or `never`.
    pub(crate) again: String,
    /// What the last message was about; null if there was none.
    pub(crate) last: Option<String>,
    /// When that was sent or tried, nanoseconds since 1970.
    pub(crate) tried_ns: Option<i64>,
    /// When a message arrived last, nanoseconds since 1970; null if none did.
    pub(crate) arrived_ns: Option<i64>,
    /// Why the last message did not arrive; null if it did.
    pub(crate) problem: Option<String>,
}

/// What came of a test message: a line of `server tell --test`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct TellTrialRow {
    /// The rule.
    pub(crate) rule: String,
    /// `mail`, `webhook` or `command`.
    pub(crate) way: &'static str,
    /// Whether the receiver took it.
    pub(crate) arrived: bool,
    /// Why not; null if it did.
    pub(crate) problem: Option<String>,
}

/// A client or a mover by its name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MemberName {
    /// The name of a client; left out of a mover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// The name of a mover; left out of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mover: Option<String>,
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { mover: Some(name), .. } => write!(f, "mover {name}"),
            Self { client, .. } => write!(f, "client {}", client.as_deref().unwrap_or_default()),
        }
    }
}

impl MemberName {
    pub(crate) fn new(kind: PeerKind, name: String) -> Self {
        match kind {
            PeerKind::Mover => Self { client: None, mover: Some(name) },
            _ => Self { client: Some(name), mover: None },
        }
    }
}

/// What `client enrol` and `mover enrol` open.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MemberEnrolmentRow {
    #[serde(flatten)]
    pub(crate) member: MemberName,
    /// The one-time passphrase; it is shown only here.
    pub(crate) passphrase: String,
    /// When it ends, nanoseconds since 1970.
    pub(crate) expires_ns: i64,
    /// Where the server listens for machines that join; null if none runs and capstan.toml does not say it.
    pub(crate) address: Option<String>,
    /// What is to be typed at the machine.
    pub(crate) command: String,
}

/// What `client join` came to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ClientJoinedRow {
    /// Who the machine is for the cell.
    pub(crate) client: String,
    /// The cell, by its id.
    pub(crate) cell: String,
    /// Where orders are asked for.
    pub(crate) servers: Vec<String>,
    /// Until when the certificate holds, nanoseconds since 1970; `client run` renews it before.
    pub(crate) until_ns: i64,
    /// The folders that may be backed up; none if there is no bound.
    pub(crate) paths: Vec<String>,
    /// The names of the programs that policies may have run there.
    pub(crate) scripts: Vec<String>,
}

/// What `mover join` came to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MoverJoinedRow {
    /// Who the machine is for the cell.
    pub(crate) mover: String,
    /// The cell, by its id.
    pub(crate) cell: String,
    /// Where the server is.
    pub(crate) servers: Vec<String>,
    /// Until when the certificate holds, nanoseconds since 1970; `mover run` renews it before.
    pub(crate) until_ns: i64,
    /// Where clients will bring their data: address and port.
    pub(crate) listen: String,
    /// Host and port that clients are told; empty for the address that the mover comes from, with the port of `listen`.
    pub(crate) announce: String,
}

/// A client or mover of the cell: a line of `client list` or `mover list`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MemberRow {
    #[serde(flatten)]
    pub(crate) member: MemberName,
    /// `enrolled`, `waiting` (for a machine that joins), `revoked`, or `expired` (its certificate or its enrolment).
    pub(crate) state: &'static str,
    /// When it was last seen, nanoseconds since 1970, as written at most once a minute; null if it never was.
    pub(crate) seen_ns: Option<i64>,
    /// The address that it came from last.
    pub(crate) address: Option<String>,
    /// Until when its certificate holds, or its passphrase if it waits, nanoseconds since 1970.
    pub(crate) until_ns: Option<i64>,
}

/// What `client revoke` and `mover revoke` did.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MemberChangeRow {
    #[serde(flatten)]
    pub(crate) member: MemberName,
    /// `revoked`.
    pub(crate) change: &'static str,
}

/// What happens while `client run` or `mover run` runs.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) enum MemberEvent {
    /// The machine looks for its server.
    Started {
        #[serde(flatten)]
        member: MemberName,
    },
    /// The server answers.
    Connected {
        /// Where.
        address: String,
    },
    /// The server does not answer any more; it is looked for again and again.
    Lost {
        /// Why.
        reason: String,
    },
    /// The certificate was renewed.
    Renewed {
        /// Until when it holds, nanoseconds since 1970.
        until_ns: i64,
    },
    /// The server has a job for this client.
    JobBegun {
        /// Its number, of 32 hexadecimal digits.
        job: String,
    },
    /// The mover has ended the job: how it went is for the server to say.
    JobServed {
        /// Its number.
        job: String,
    },
    /// The job, or the client, was told to stop.
    JobStopped {
        /// Its number.
        job: String,
    },
    /// Something does not work.
    Trouble {
        /// What.
        reason: String,
    },
    /// The client or mover has stopped.
    Stopped,
}

/// An object of this machine, as its server has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClientObjectRow {
    /// Its id.
    pub(crate) object: String,
    /// What was backed up.
    pub(crate) source: String,
    /// The policy that asked for it.
    pub(crate) policy: String,
    /// Whether it holds everything, and not only what changed.
    pub(crate) is_full: bool,
    /// Whether it was backed up to its end.
    pub(crate) is_complete: bool,
    /// When it was begun, nanoseconds since 1970.
    pub(crate) started_ns: i64,
    /// Files in it; null while that is not known.
    pub(crate) files: Option<u64>,
    /// Bytes of these files; null while that is not known.
    pub(crate) bytes: Option<u64>,
}

/// A line of `client restore`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum ClientRestoreEvent {
    /// What will be read.
    Planned {
        /// Paths that will be written.
        members: u64,
        /// Bytes of files that will be written.
        bytes: u64,
        /// Barcodes of the volumes that are read, in this order.
        volumes: Vec<String>,
        /// How long it is thought to take, in nanoseconds.
        estimate_ns: u64,
        /// What a person should know.
        notices: Vec<String>,
    },
    /// How it ended.
    Ended {
        /// Why it was not carried out to its end; null if it was.
        failure: Option<String>,
        /// Paths that were given back.
        members: u64,
        /// Bytes of their content.
        bytes: u64,
        /// The first files that were not given back as they were, each with why.
        failed: Vec<String>,
        /// How many there were.
        failed_count: u64,
        /// Paths that were left as they were.
        kept: u64,
        /// The first things that could not be written as they were.
        problems: Vec<String>,
        /// How many there were.
        problems_count: u64,
    },
}
