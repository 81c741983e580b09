//! Where commands about a cell ask: the state directory beside them, or the server of the cell that a user has joined.

use std::fmt::Write;

use capstan_client::restores::{RestorePlanned, RestoreSeen, RestoreStopping, StopRestore};
use capstan_client::{ClientError, MemberState, ServerQuestions};
use capstan_keys::api::PeerKind;
use capstan_server::cell::CellError;
use capstan_server::cell::users::CellActs;
use capstan_server::cell::users::media_words::{
    DrivesAnswer, InventoryRow, LibraryQuery, PoolsAnswer, VaultAnswer, VolumesAnswer, VolumesQuery,
};
use capstan_server::cell::users::task_words::{LabelVolumes, MoveCartridges, StopTask, TaskBegun, TaskQuery, TaskSeen};
use capstan_server::cell::users::words::{
    ApplyPolicies, AskRestoreTo, AuditAnswer, AuditChecked, AuditQuery, CellObjectsAnswer, ChangeRuns, ChangeUser,
    DoneQuery, EnrolMember, EnrolUser, EnterRuns, ExportPolicies, LabelMember, MachineKind, MemberChangeRow,
    MemberEnrolmentRow, MembersAnswer, ObjectsQuery, PoliciesAnswer, PoliciesChanged, PoliciesFile, QueueAnswer,
    RemovePolicies, RerunRuns, RevokeMember, RevokeUser, RunsChanged, ScheduleAnswer, ScheduleQuery, StatusAnswer,
    StatusQuery, UsersAnswer, WhoAnswer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, of_cell, of_member};
use crate::globals::Globals;
use crate::secrets::{now_ns, site, state_dir, user_state};

/// Where a command asks.
pub(crate) enum Door {
    /// The state directory of a server, here.
    Here(Box<CellActs>),
    /// The server, as a user of its cell.
    There(ServerQuestions),
}

/// The way to what a command asks: by the state directory.
pub(crate) fn door(cli: &Globals) -> Result<Door, Failure> {
    if let Some(there) = as_user_of(cli)? {
        return Ok(there);
    }
    let acts = CellActs::at_shell(&site(cli)?, rustix::process::getuid().as_raw()).map_err(of_cell)?;
    Ok(Door::Here(Box::new(acts)))
}

/// The way to the server, if the state directory is that of a user of its cell.
pub(crate) fn as_user_of(cli: &Globals) -> Result<Option<Door>, Failure> {
    let Some(state) = user_state(cli)? else { return Ok(None) };
    crate::rustix_sigpipe::ignore_of_network();
    Ok(Some(Door::There(ServerQuestions::of_user(&state, now_ns()).map_err(of_member)?)))
}

/// The way to the server as a user, who must be one.
pub(crate) fn as_user(cli: &Globals) -> Result<ServerQuestions, Failure> {
    let state = MemberState::new(&state_dir(cli)?, PeerKind::User);
    crate::rustix_sigpipe::ignore_of_network();
    ServerQuestions::of_user(&state, now_ns()).map_err(of_member)
}

impl Door {
    fn asks<A: DeserializeOwned>(
        &self,
        path: &str,
        here: impl FnOnce(&CellActs) -> Result<A, CellError>,
    ) -> Result<A, Failure> {
        match self {
            Self::Here(acts) => here(acts).map_err(of_cell),
            Self::There(server) => server.get(path).map_err(of_member),
        }
    }

    fn does<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        question: &Q,
        here: impl FnOnce(&CellActs, &Q) -> Result<A, CellError>,
    ) -> Result<A, Failure> {
        match self {
            Self::Here(acts) => here(acts, question).map_err(of_cell),
            Self::There(server) => server.post(path, question).map_err(of_member),
        }
    }

    /// Who asks.
    pub(crate) fn who(&self) -> Result<WhoAnswer, Failure> {
        self.asks("/v1/user", |acts| Ok(acts.who()))
    }

    pub(crate) fn status(&self, asked: &StatusQuery) -> Result<StatusAnswer, Failure> {
        self.server()?.get(&path("/v1/status", asked)?).map_err(of_member)
    }

    pub(crate) fn queue(&self) -> Result<QueueAnswer, Failure> {
        self.asks("/v1/queue", CellActs::queue)
    }

    pub(crate) fn done_runs(&self, last: u32) -> Result<QueueAnswer, Failure> {
        self.asks(&path("/v1/queue/done", &DoneQuery { last: Some(last) })?, |acts| acts.done_runs(Some(last)))
    }

    pub(crate) fn enter_runs(&self, asked: &EnterRuns) -> Result<RunsChanged, Failure> {
        self.does("/v1/queue/enter", asked, CellActs::enter_runs)
    }

    pub(crate) fn rerun(&self, asked: &RerunRuns) -> Result<RunsChanged, Failure> {
        self.does("/v1/queue/rerun", asked, CellActs::rerun)
    }

    pub(crate) fn change_runs(&self, asked: &ChangeRuns) -> Result<RunsChanged, Failure> {
        self.does("/v1/queue/change", asked, CellActs::change_runs)
    }

    pub(crate) fn schedule(&self, asked: &ScheduleQuery) -> Result<ScheduleAnswer, Failure> {
        self.asks(&path("/v1/schedule", asked)?, |acts| acts.schedule(asked))
    }

    pub(crate) fn policies(&self) -> Result<PoliciesAnswer, Failure> {
        self.asks("/v1/policies", CellActs::policies)
    }

    pub(crate) fn export_policies(&self, asked: &ExportPolicies) -> Result<PoliciesFile, Failure> {
        self.does("/v1/policies/export", asked, CellActs::export_policies)
    }

    pub(crate) fn apply_policies(&self, asked: &ApplyPolicies) -> Result<PoliciesChanged, Failure> {
        self.does("/v1/policies/apply", asked, CellActs::apply_policies)
    }

    pub(crate) fn remove_policies(&self, asked: &RemovePolicies) -> Result<PoliciesChanged, Failure> {
        self.does("/v1/policies/remove", asked, CellActs::remove_policies)
    }

    pub(crate) fn members(&self, kind: MachineKind) -> Result<MembersAnswer, Failure> {
        self.asks(&format!("/v1/members?kind={}", PeerKind::from(kind)), |acts| acts.members(kind))
    }

    pub(crate) fn enrol_member(&self, asked: &EnrolMember) -> Result<MemberEnrolmentRow, Failure> {
        self.does("/v1/members/enrol", asked, CellActs::enrol_member)
    }

    pub(crate) fn label_member(&self, asked: &LabelMember) -> Result<MemberChangeRow, Failure> {
        self.does("/v1/members/label", asked, CellActs::label_member)
    }

    pub(crate) fn revoke_member(&self, asked: &RevokeMember) -> Result<MemberChangeRow, Failure> {
        self.does("/v1/members/revoke", asked, CellActs::revoke_member)
    }

    pub(crate) fn users(&self) -> Result<UsersAnswer, Failure> {
        self.asks("/v1/users", CellActs::users)
    }

    pub(crate) fn enrol_user(&self, asked: &EnrolUser) -> Result<MemberEnrolmentRow, Failure> {
        self.does("/v1/users/enrol", asked, CellActs::enrol_user)
    }

    pub(crate) fn change_user(&self, asked: &ChangeUser) -> Result<MemberChangeRow, Failure> {
        self.does("/v1/users/change", asked, CellActs::change_user)
    }

    pub(crate) fn revoke_user(&self, asked: &RevokeUser) -> Result<MemberChangeRow, Failure> {
        self.does("/v1/users/revoke", asked, CellActs::revoke_user)
    }

    pub(crate) fn objects(&self, asked: &ObjectsQuery) -> Result<CellObjectsAnswer, Failure> {
        self.asks(&path("/v1/objects", asked)?, |acts| acts.objects(asked))
    }

    pub(crate) fn vault(&self) -> Result<VaultAnswer, Failure> {
        self.asks("/v1/vault", CellActs::vault)
    }

    pub(crate) fn volumes(&self, asked: &VolumesQuery) -> Result<VolumesAnswer, Failure> {
        self.asks(&path("/v1/volumes", asked)?, |acts| acts.volumes(asked))
    }

    pub(crate) fn pools(&self) -> Result<PoolsAnswer, Failure> {
        self.asks("/v1/pools", CellActs::pools)
    }

    pub(crate) fn drives(&self) -> Result<DrivesAnswer, Failure> {
        self.asks("/v1/drives", CellActs::drives)
    }

    pub(crate) fn label(&self, asked: &LabelVolumes) -> Result<TaskBegun, Failure> {
        self.server()?.post("/v1/volumes/label", asked).map_err(of_member)
    }

    pub(crate) fn move_cartridges(&self, asked: &MoveCartridges) -> Result<TaskBegun, Failure> {
        self.server()?.post("/v1/library/move", asked).map_err(of_member)
    }

    pub(crate) fn stop_task(&self, TaskBegun { task }: TaskBegun) -> Result<TaskBegun, Failure> {
        self.server()?.post("/v1/tasks/stop", &StopTask { task }).map_err(of_member)
    }

    /// What is new of a task, once something is; why the server cannot be asked, if it is away.
    pub(crate) fn task_seen(
        &self,
        TaskBegun { task }: TaskBegun,
        heard: usize,
    ) -> Result<Result<TaskSeen, String>, Failure> {
        match self.server()?.get(&path("/v1/tasks", &TaskQuery { task, heard })?) {
            Err(ClientError::Away { reason, .. }) => Ok(Err(reason)),
            seen => seen.map(Ok).map_err(of_member),
        }
    }

    pub(crate) fn inventory(&self, asked: &LibraryQuery) -> Result<InventoryRow, Failure> {
        self.asks(&path("/v1/library", asked)?, |acts| acts.inventory(asked))
    }

    pub(crate) fn restore(&self, asked: &AskRestoreTo) -> Result<RestorePlanned, Failure> {
        self.server()?.post("/v1/restores", asked).map_err(of_member)
    }

    /// How a restore ended, if it has, or what it waits for; why the server cannot be asked, if it is away.
    pub(crate) fn restore_seen(&self, run: i64) -> Result<Result<RestoreSeen, String>, Failure> {
        match self.server()?.get(&format!("/v1/restores?run={run}")) {
            Err(ClientError::Away { reason, .. }) => Ok(Err(reason)),
            seen => seen.map(Ok).map_err(of_member),
        }
    }

    pub(crate) fn stop_restore(&self, run: i64) -> Result<RestoreStopping, Failure> {
        self.server()?.post("/v1/restores/stop", &StopRestore { run }).map_err(of_member)
    }

    /// What only a server that runs can do.
    fn server(&self) -> Result<&ServerQuestions, Failure> {
        match self {
            Self::There(server) => Ok(server),
            Self::Here(_) => {
                Err(Failure::Usage("this is asked of a server that runs, as a user of its cell".to_owned()))
            }
        }
    }

    pub(crate) fn audit(&self, last: u32) -> Result<AuditAnswer, Failure> {
        self.asks(&path("/v1/audit", &AuditQuery { last: Some(last) })?, |acts| acts.audit(Some(last)))
    }

    pub(crate) fn check_audit(&self) -> Result<AuditChecked, Failure> {
        self.asks("/v1/audit/check", CellActs::check_audit)
    }
}

/// A path with a question behind it; what is left out of the question is left out.
fn path(path: &str, question: &impl Serialize) -> Result<String, Failure> {
    let fields = serde_json::to_value(question).map_err(|error| Failure::because(&error))?;
    let mut text = path.to_owned();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        text.push(if text.len() == path.len() { '?' } else { '&' });
        text += name;
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => text.push(byte.into()),
                // Writing into a string does not fail.
                _ => drop(write!(text, "%{byte:02X}")),
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn questions_stand_behind_their_path() {
        let asked = ScheduleQuery { policies: Some("web a&b".to_owned()), days: None, most: Some(5) };
        assert_eq!(path("/v1/schedule", &asked).unwrap(), "/v1/schedule?most=5&policies=web%20a%26b");
        assert_eq!(path("/v1/queue", &DoneQuery { last: None }).unwrap(), "/v1/queue");
    }
}
