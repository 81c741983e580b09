//! What users ask of a cell, and what they are answered. Commands print the rows as they are (`--json`), whether they
//! were computed here or came over the network.

use std::borrow::Cow;
use std::fmt;

use capstan_client::files::{FileVersions, FindFiles, ListFiles};
use capstan_client::orders::Replaces;
use capstan_client::restores::{AskRestore, OwnObject};
use capstan_keys::Name;
use capstan_keys::api::PeerKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A word of a list of words, as it is documented.
pub(super) type Word = Cow<'static, str>;

/// A policy: a line of `policies`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BackupPolicyRow {
    /// Its name.
    pub policy: String,
    /// When it is due, as a calendar event; null if it runs only when somebody enters it.
    pub schedule: Option<String>,
    /// Whether it comes due by its schedule.
    #[serde(default = "always")]
    pub enabled: bool,
    /// When its next run begins, nanoseconds since 1970; null if none comes within ten years.
    pub next_ns: Option<i64>,
    /// The zone of schedule and window, if it names one.
    pub zone: Option<String>,
    /// When runs may begin; null for always.
    pub window: Option<String>,
    /// Its place in the queue, from 0 to 100.
    pub priority: u8,
    /// What it backs up: paths, or the name of a stream.
    pub sources: Vec<String>,
    /// What it copies; left out where it makes backups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_of: Option<CopiedRow>,
    /// The storage unit that its slow clients' backups go to first; left out where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The pools whose volumes it looks after; left out where it makes backups or copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub care_of: Vec<String>,
    /// The names that `capstan put` stores under it; left out where it backs up sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub put_names: Vec<String>,
    /// Why it cannot be run on this machine; null if it can.
    pub fault: Option<String>,
    /// When it was changed last, nanoseconds since 1970.
    pub changed_ns: i64,
}

/// What a policy copies that makes no backups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CopiedRow {
    /// Whose backups: policies and jobs.
    pub policies: Vec<String>,
    /// The pool that the copies go to.
    pub pool: String,
    /// How many its next run would copy.
    pub owed: usize,
    /// How many more have not ended for as long as its delay.
    pub later: usize,
    /// How old a backup is when its own copies are forgotten once it is copied; left out where they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate_after: Option<String>,
    /// Whether it runs as soon as there is something to copy.
    #[serde(default)]
    pub when_owed: bool,
    /// How full, in percent, what it copies from is when it runs; left out where that is no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_above: Option<u8>,
}

/// What a server says that knows of no policies that are switched off.
fn always() -> bool {
    true
}

/// A setting that a policy has otherwise, or would have.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// Its name.
    pub key: String,
    /// Its value before, as TOML; null if it was not set.
    pub before: Option<String>,
    /// Its value from now on, as TOML; null if it is not set.
    pub after: Option<String>,
}

/// What `policies apply` and `policies remove` change: a line for each policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PolicyChangeRow {
    /// The policy.
    pub policy: String,
    /// `added`, `changed` or `removed`.
    pub change: Word,
    /// Whether it was only looked at (`--dry-run`).
    pub dry_run: bool,
    /// The settings that differ.
    pub settings: Vec<ChangedSetting>,
}

/// A run that comes: a line of `schedule`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ComingRunRow {
    /// When it begins at the earliest, nanoseconds since 1970: its spread is counted in.
    pub starts_ns: i64,
    /// When the schedule has it, nanoseconds since 1970.
    pub due_ns: i64,
    /// Its policy.
    pub policy: String,
    /// The client whose data is backed up.
    pub client: String,
}

/// A run of the queue: a line of `queue` and `queue done`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct QueueRow {
    /// Its number.
    pub run: i64,
    /// Its policy; empty for a restore.
    pub policy: String,
    /// The client whose data is backed up, or that what is restored is written at.
    pub client: String,
    /// What is restored, and to which client, for a restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<String>,
    /// Whether somebody asked for a full backup; left out if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// `waiting`, `running`, `stopping`, `interrupted` (no server runs); of one that has ended `done`, `problems`,
    /// `failed`, `cancelled` or `missed`.
    pub state: Word,
    /// When its schedule had it due, nanoseconds since 1970; null if somebody entered it.
    pub due_ns: Option<i64>,
    /// When it was entered, nanoseconds since 1970.
    pub entered_ns: i64,
    /// When it began last, nanoseconds since 1970; null if it never did.
    pub started_ns: Option<i64>,
    /// When it ended, nanoseconds since 1970; null if it has not.
    pub ended_ns: Option<i64>,
    /// Which attempt it is, or will be; 0 for one that never begins.
    pub attempt: u32,
    /// Its priority.
    pub priority: i64,
    /// What it waits for: `server`, `release`, `repair`, `time`, `window`, `source`, `volume`, `client`, `limit`,
    /// `library`, `drives` or `turn`; null if it does not wait.
    pub waits_for: Option<Word>,
    /// When that will probably be over, or a run at work be done, nanoseconds since 1970; null if that cannot be told.
    pub until_ns: Option<i64>,
    /// When the client that it waits for was last seen, nanoseconds since 1970.
    pub seen_ns: Option<i64>,
    /// What it waits for, or how it ended, in words; times are in the other fields.
    pub message: String,
    /// Why the last attempt of a run that waits did not do it, in words; left out if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// How far a run at work is; left out until it has read or restored something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgressRow>,
    /// Its entry in the history (`history RUN`), if it has one.
    pub history: Option<i64>,
    /// The session that a run at work writes into. Runs of one session take turns at the same drives.
    pub session: Option<i64>,
    /// The library whose drives that session has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// How many drives each copy of that session has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u32>,
}

/// How far a run at work is. The server notes it every few seconds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunProgressRow {
    /// Files or paths that are done.
    pub files: u64,
    /// Bytes of what is planned that are behind it, read or passed over.
    pub bytes: u64,
    /// Bytes that are planned; null while that is not known.
    pub bytes_planned: Option<u64>,
    /// Bytes a second in the last seconds.
    pub rate: u64,
    /// When it was noted, nanoseconds since 1970.
    pub noted_ns: i64,
}

/// What `queue add`, `rerun`, `cancel`, `hold` and `release` did with a run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct QueueChangeRow {
    /// Its number.
    pub run: i64,
    /// `entered`, `cancelled`, `stopping`, `held` or `released`; `waiting` if a run of the policy was in the queue
    /// already.
    pub change: Word,
    /// The policy of a run that was entered or was in the queue already; else null.
    pub policy: Option<String>,
    /// The client of such a run; else null.
    pub client: Option<String>,
}

/// A client, mover or user by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberName {
    /// The name of a client; left out of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The name of a mover; left out of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover: Option<String>,
    /// The name of a user; left out of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl MemberName {
    /// The name of a peer of this kind.
    #[must_use]
    pub fn new(kind: PeerKind, name: String) -> Self {
        let none = Self { client: None, mover: None, user: None };
        match kind {
            PeerKind::Mover => Self { mover: Some(name), ..none },
            PeerKind::User => Self { user: Some(name), ..none },
            _ => Self { client: Some(name), ..none },
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.client.as_ref().or(self.mover.as_ref()).or(self.user.as_ref()).map_or("", String::as_str)
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self { mover: Some(_), .. } => "mover",
            Self { user: Some(_), .. } => "user",
            _ => "client",
        };
        write!(f, "{kind} {}", self.name())
    }
}

/// What `client enrol`, `mover enrol` and `user enrol` open.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct MemberEnrolmentRow {
    /// Who can join.
    #[serde(flatten)]
    pub member: MemberName,
    /// The one-time passphrase; it is shown only here.
    pub passphrase: String,
    /// When it ends, nanoseconds since 1970.
    pub expires_ns: i64,
    /// Where the server listens for those that join; null if none runs and capstan.toml does not say it.
    pub address: Option<String>,
    /// What is to be typed where the member will be.
    pub command: String,
    /// Clients of a restorer that have not joined the cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_joined: Vec<String>,
}

/// A client or mover of the cell: a line of `client list` or `mover list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemberRow {
    /// Who.
    #[serde(flatten)]
    pub member: MemberName,
    /// `enrolled`, `waiting` (for a machine that joins), `revoked`, or `expired` (its certificate or its enrolment).
    pub state: Word,
    /// Whether it waits for orders of a server that runs; users never do.
    #[serde(default)]
    pub connected: bool,
    /// When it was last seen, nanoseconds since 1970, as written at most once a minute; null if it never was.
    pub seen_ns: Option<i64>,
    /// The address that it came from last.
    pub address: Option<String>,
    /// The version of its program, as it said when it connected last; null if it never did.
    #[serde(default)]
    pub version: Option<String>,
    /// Until when its certificate holds, or its passphrase if it waits, nanoseconds since 1970.
    pub until_ns: Option<i64>,
    /// Labels, by which policies name clients, and storage units movers.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// What `client label`, `mover label`, `client revoke`, `mover revoke`, `user revoke` and `user change` did.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemberChangeRow {
    /// Who.
    #[serde(flatten)]
    pub member: MemberName,
    /// `revoked`, `changed` or `labelled`.
    pub change: Word,
    /// Clients of a restorer that have not joined the cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_joined: Vec<String>,
}

/// A user of the cell: a line of `user list`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CellUserRow {
    /// The name.
    pub user: String,
    /// `administrator`, `operator`, `restorer` or `auditor`.
    pub roles: Vec<String>,
    /// The clients that a restorer is named for.
    pub clients: Vec<String>,
    /// `enrolled`, `waiting` (for the user to join), `revoked`, or `expired` (the certificate or the enrolment).
    pub state: Word,
    /// When the user was last seen, nanoseconds since 1970, as written at most once a minute; null if never.
    pub seen_ns: Option<i64>,
    /// The address that the user came from last.
    pub address: Option<String>,
    /// Until when the certificate holds, or the passphrase of one who waits, nanoseconds since 1970.
    pub until_ns: Option<i64>,
}

/// An object of a client: a line of `objects` where a user asks a server.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CellObjectRow {
    /// Whose data it is.
    pub client: String,
    /// The object.
    #[serde(flatten)]
    pub own: OwnObject,
}

/// `GET /v1/user`: who asks, and what that user may do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WhoAnswer {
    /// The name.
    pub user: String,
    /// The roles.
    pub roles: Vec<String>,
    /// The clients that a restorer is named for.
    pub clients: Vec<String>,
    /// What these roles may do, by the names that the audit log has for it.
    pub acts: Vec<String>,
}

/// What of the status is asked for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct StatusQuery {
    /// A source is called to attention if its last backup is older than this, in nanoseconds; what the settings say if
    /// it is left out.
    pub max_age_ns: Option<i64>,
    /// Whether the text has every source, and all that needs attention, however many there are.
    #[serde(default)]
    pub all: bool,
}

/// `GET /v1/status`: what `capstan status` says beside the server.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StatusAnswer {
    /// Whether a person should look.
    pub attention: bool,
    /// The page as people read it, in the zone of the server.
    pub text: String,
    /// The same as `capstan status --json` prints it.
    pub status: Value,
}

/// `GET /v1/queue` and `GET /v1/queue/done`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct QueueAnswer {
    /// Whether a server moves runs through the queue.
    pub is_served: bool,
    /// The runs.
    pub runs: Vec<QueueRow>,
}

/// How many ended runs are listed, the latest first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct DoneQuery {
    /// How many at most, to 10,000; 20 if it is left out.
    pub last: Option<u32>,
}

/// How many records of the audit log are given, the latest ones.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct AuditQuery {
    /// How many at most, to 1,000; 100 if it is left out.
    pub last: Option<u32>,
}

/// `POST /v1/queue/enter`: runs of policies.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnterRuns {
    /// The policies.
    pub policies: Vec<String>,
    /// A client that they name; all if none is named.
    pub client: Option<String>,
    /// Whether full backups are made, whatever the policies say.
    #[serde(default)]
    pub full: bool,
    /// Whether they begin outside the windows of the policies, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
}

/// What becomes of runs that are in the queue, or were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunChange {
    /// They end: one that waits is removed, one that is at work stops.
    Cancel,
    /// They do not begin until they are released.
    Hold,
    /// They may begin.
    Release,
}

/// `POST /v1/queue/change`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRuns {
    /// What becomes of them.
    pub change: RunChange,
    /// Their numbers, 100 at most.
    pub runs: Vec<i64>,
}

/// `POST /v1/queue/rerun`: runs that have ended, once more.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunRuns {
    /// Their numbers.
    pub runs: Vec<i64>,
}

/// What became of runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunsChanged {
    /// Whether a server moves runs through the queue.
    pub is_served: bool,
    /// What was done.
    pub changes: Vec<QueueChangeRow>,
    /// Runs with which it could not be done.
    pub failed: Vec<RunNotChanged>,
}

/// A run, or a policy, with which something could not be done.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunNotChanged {
    /// The number of the run; null for a policy.
    pub run: Option<i64>,
    /// The policy of which no run could be entered; null for a run.
    pub policy: Option<String>,
    /// Why, and what to do.
    pub reason: String,
}

/// What of the schedule is asked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleQuery {
    /// Names of policies, with blanks between them; all if it is left out.
    pub policies: Option<String>,
    /// How many days ahead; 7 if it is left out.
    pub days: Option<u16>,
    /// How many runs at most; 100 if it is left out.
    pub most: Option<u32>,
}

/// `GET /v1/schedule`: the runs that come, the next one first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleAnswer {
    /// The runs.
    pub runs: Vec<ComingRunRow>,
    /// Policies that were asked for and have no schedule: they run when somebody enters them.
    pub unscheduled: Vec<String>,
    /// Policies that were asked for and are switched off.
    #[serde(default)]
    pub switched_off: Vec<String>,
}

/// `GET /v1/policies`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoliciesAnswer {
    /// The policies, by name.
    pub policies: Vec<BackupPolicyRow>,
}

/// `POST /v1/policies/export`: policies as a file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportPolicies {
    /// The policies; all if none is named.
    pub policies: Vec<String>,
}

/// A file of policies.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoliciesFile {
    /// Its text, in TOML.
    pub text: String,
}

/// `POST /v1/policies/apply`: what a file of policies changes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPolicies {
    /// What the file is called, for messages about it.
    pub file: String,
    /// Its text, in TOML.
    pub text: String,
    /// Whether policies that it does not name are removed.
    pub only: bool,
    /// What [`PoliciesChanged::basis`] said when the change was looked at; it is made if the policies are still the
    /// same. Null only to look.
    pub basis: Option<String>,
}

/// `POST /v1/policies/remove`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovePolicies {
    /// The policies.
    pub policies: Vec<String>,
    /// As in [`ApplyPolicies::basis`].
    pub basis: Option<String>,
}

/// What changes, or would.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoliciesChanged {
    /// The policies that change.
    pub changes: Vec<PolicyChangeRow>,
    /// How many of the file's policies are as they were.
    pub unchanged: usize,
    /// Removed policies that have a keep rule: what they backed up stays without one.
    pub ruled: Vec<String>,
    /// What the policies were that this was compared with.
    pub basis: String,
    /// Changed policies that the server's machine cannot run, and why; of a question, those that it could not.
    pub faults: Vec<PolicyFaultRow>,
    /// What makes changed policies do less than their words say.
    #[serde(default)]
    pub notices: Vec<PolicyNoticeRow>,
}

/// What makes a policy do less than its words say.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PolicyNoticeRow {
    /// The policy.
    pub policy: String,
    /// What it is.
    pub notice: String,
}

/// A policy that cannot be run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PolicyFaultRow {
    /// The policy.
    pub policy: String,
    /// Why.
    pub fault: String,
}

/// The kinds of machines in a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// A machine whose data is backed up.
    #[default]
    Client,
    /// A host with drives.
    Mover,
}

impl From<MachineKind> for PeerKind {
    fn from(kind: MachineKind) -> Self {
        match kind {
            MachineKind::Client => Self::Client,
            MachineKind::Mover => Self::Mover,
        }
    }
}

/// Which machines are asked for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct MembersQuery {
    /// Their kind.
    pub kind: MachineKind,
}

/// `GET /v1/members`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MembersAnswer {
    /// The clients or movers, by name.
    pub members: Vec<MemberRow>,
}

/// `POST /v1/members/enrol`: a machine may join once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolMember {
    /// What it will be.
    pub kind: MachineKind,
    /// Its name.
    pub name: Name,
    /// How long the passphrase is valid, in seconds.
    pub valid_seconds: u64,
}

/// `POST /v1/members/label`: a client has these labels from now on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelMember {
    /// What it is; a client, if that is not said.
    #[serde(default)]
    pub kind: MachineKind,
    /// Its name.
    pub name: Name,
    /// Its labels; none to take all away.
    pub labels: Vec<Name>,
}

/// `POST /v1/members/revoke`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeMember {
    /// What it is.
    pub kind: MachineKind,
    /// Its name.
    pub name: Name,
}

/// `GET /v1/users`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsersAnswer {
    /// The users, by name.
    pub users: Vec<CellUserRow>,
}

/// `POST /v1/users/enrol`: somebody may join once as a user.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolUser {
    /// The name.
    pub name: Name,
    /// The roles.
    pub roles: Vec<String>,
    /// The clients that a restorer is named for.
    pub clients: Vec<Name>,
    /// How long the passphrase is valid, in seconds.
    pub valid_seconds: u64,
}

/// `POST /v1/users/change`: a user has these roles from now on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeUser {
    /// The name.
    pub name: Name,
    /// The roles.
    pub roles: Vec<String>,
    /// The clients that a restorer is named for.
    pub clients: Vec<Name>,
}

/// `POST /v1/users/revoke`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeUser {
    /// The name.
    pub name: Name,
}

/// Which objects are asked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ObjectsQuery {
    /// Of this client; of all that the user may see if it is left out.
    pub client: Option<String>,
    /// Of this policy.
    #[serde(default)]
    pub policy: Option<String>,
    /// Of this source.
    #[serde(default)]
    pub source: Option<String>,
    /// Begun then or later, nanoseconds since 1970.
    #[serde(default)]
    pub since_ns: Option<i64>,
}

/// `GET /v1/objects`: the latest first, at most 10,000.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CellObjectsAnswer {
    /// The objects.
    pub objects: Vec<CellObjectRow>,
}

/// `POST /v1/restores`: what of a client is to be restored to it, or to another one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AskRestoreTo {
    /// Whose data.
    pub of: String,
    /// The client that writes it; the same one if it is left out. It must wait for orders, and its `restore_to` allow
    /// it.
    pub to: Option<String>,
    /// The directory at that client, below which it is written; none only to look.
    pub directory: Option<String>,
    /// When a file that exists is replaced.
    #[serde(default)]
    pub replaces: Replaces,
    /// What.
    #[serde(flatten)]
    pub ask: AskRestore,
}

/// `POST /v1/files/find`: files that are looked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct FindFilesOf {
    /// Only those of this client; of all that the user may see if it is left out.
    #[serde(default)]
    pub of: Option<String>,
    /// Which.
    #[serde(flatten)]
    pub find: FindFiles,
}

/// `POST /v1/files/list`: what stands in a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListFilesOf {
    /// The client; it must be named if several have the source.
    #[serde(default)]
    pub of: Option<String>,
    /// Which directory.
    #[serde(flatten)]
    pub list: ListFiles,
}

/// `POST /v1/files/versions`: which objects have a path.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct FileVersionsOf {
    /// Only those of this client; of all that the user may see if it is left out.
    #[serde(default)]
    pub of: Option<String>,
    /// Which path.
    #[serde(flatten)]
    pub versions: FileVersions,
}

/// `GET /v1/audit`: the last records of the audit log, the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AuditAnswer {
    /// The records, as they stand in the log.
    pub records: Vec<Value>,
}

/// `GET /v1/audit/check`: the log checked against itself, and against where the catalog says it stood.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AuditChecked {
    /// The first record that is there: 1, or a later one if files were put away or removed; 0 if there is none.
    pub first: u64,
    /// The last record that is good; 0 if there is none.
    pub last: u64,
    /// Up to which record the catalog vouches; 0 for none.
    pub anchored_to: u64,
    /// What is wrong; null if nothing is.
    pub finding: Option<String>,
}
