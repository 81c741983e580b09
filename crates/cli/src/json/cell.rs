//! What a server, a client and a mover do. Rows that a server gives over the network, too, are in `capstan_server`.

use capstan_server::cell::users::words::MemberName;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

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
    /// A run of a policy of copies waits that nobody entered, and no schedule.
    Entered {
        /// Its number.
        run: i64,
        /// Its policy.
        policy: String,
        /// Why now.
        reason: String,
    },
    /// Metrics are served.
    Watched {
        /// Where, as address and port.
        metrics: String,
    },
    /// Backups whose retention has ended were forgotten.
    Expired {
        /// How many objects.
        objects: usize,
        /// How many copies of objects that stay.
        copies: usize,
        /// Volumes that are scratch by it.
        volumes: Vec<String>,
        /// What a person should know of it.
        notices: Vec<String>,
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

/// What `user join` came to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct UserJoinedRow {
    /// Who joined.
    pub(crate) user: String,
    /// The cell, by its id.
    pub(crate) cell: String,
    /// Where the server is asked.
    pub(crate) servers: Vec<String>,
    /// Until when the certificate holds, nanoseconds since 1970; commands renew it before.
    pub(crate) until_ns: i64,
    /// The roles; none if the server could not be asked.
    pub(crate) roles: Vec<String>,
    /// The clients that a restorer is named for.
    pub(crate) clients: Vec<String>,
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
        /// Whether that was the mover of the same process, so that no data crossed the network.
        lan_free: bool,
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
    /// Words that were given to it when it was made.
    pub(crate) tags: Vec<String>,
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
    /// It is in the queue.
    Queued {
        /// Its number there.
        run: i64,
        /// What it waits for, in words; null if it begins at once.
        waits_for: Option<String>,
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
