//! What the server answers to users of the cell.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use capstan_client::files::{FilesAnswer, words_text};
use capstan_client::may_restore_to;
use capstan_client::orders::{ORDERS_WAIT_SECONDS, OrderedRestore};
use capstan_client::restores::{AskRestore, RestorePlanned, RestoreQuery, RestoreSeen, RestoreStopping, StopRestore};
use capstan_director::Site;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::{Input, Refusal};
use tokio::time::Instant;

use super::access::{CellAccess, CellRoutes, CellService};
use super::blocking::{IsAwaited, blocking, blocking_awaited};
use super::error::refusal_of;
use super::files::Asking;
use super::users::media_words::{
    DrivesAnswer, InventoryRow, LibraryQuery, PoolsAnswer, VaultAnswer, VolumesAnswer, VolumesQuery,
};
use super::users::task_words::{LabelVolumes, MoveCartridges, StopTask, TaskBegun, TaskEnd, TaskQuery, TaskSeen};
use super::users::words::{
    ApplyPolicies, AskRestoreTo, AuditAnswer, AuditChecked, AuditQuery, CellObjectsAnswer, ChangeRuns, ChangeUser,
    DoneQuery, EnrolMember, EnrolUser, EnterRuns, ExportPolicies, FileVersionsOf, FindFilesOf, LabelMember,
    ListFilesOf, MemberChangeRow, MemberEnrolmentRow, MembersAnswer, MembersQuery, ObjectsQuery, PoliciesAnswer,
    PoliciesChanged, PoliciesFile, QueueAnswer, RemovePolicies, RerunRuns, RevokeMember, RevokeUser, RunsChanged,
    ScheduleAnswer, ScheduleQuery, StatusAnswer, StatusQuery, UsersAnswer, WhoAnswer,
};
use super::users::{CellAct, CellActs, VOLUMES_MAX};
use super::{CellError, NotConnected};
use crate::restore_run::{Asker, RestoreRun};

/// Who asks, as the check in front of the handlers has found out.
type Acts = Extension<Arc<CellActs>>;
type Answered<T> = Result<Json<T>, Refusal>;

/// Runs that are listed at most over the network, and records of the audit log.
const RUNS_LISTED_MAX: u32 = 10_000;
const RECORDS_MAX: u32 = 1_000;
/// Runs or policies that one request may change or enter.
const NAMED_MAX: usize = 100;

/// What users are served.
pub(super) fn user_routes() -> CellRoutes {
    CellRoutes::new()
        .get("/v1/user", (CellAccess::AnyUser, "ask who one is, and what one may do"), who)
        .get("/v1/status", CellAct::ReadStatus, status)
        .get("/v1/queue", CellAct::ListQueue, queue)
        .get("/v1/queue/done", (CellAccess::User(CellAct::ListQueue), "list the runs that have ended"), done_runs)
        .post("/v1/queue/enter", CellAct::EnterRuns, enter_runs)
        .post("/v1/queue/rerun", (CellAccess::User(CellAct::EnterRuns), "run ended runs again"), rerun)
        .post("/v1/queue/change", CellAct::ChangeRuns, change_runs)
        .get("/v1/schedule", (CellAccess::User(CellAct::ListQueue), "list the runs that come"), schedule)
        .get("/v1/policies", CellAct::ListPolicies, policies)
        .post(
            "/v1/policies/export",
            (CellAccess::User(CellAct::ListPolicies), "get policies as a file"),
            export_policies,
        )
        .post(
            "/v1/policies/apply",
            (CellAccess::User(CellAct::ChangePolicies), "look what a file of policies changes, or have it change that"),
            apply_policies,
        )
        .post(
            "/v1/policies/remove",
            (CellAccess::User(CellAct::ChangePolicies), "look what it changes to remove policies, or remove them"),
            remove_policies,
        )
        .get("/v1/members", CellAct::ListMembers, members)
        .post("/v1/members/enrol", (CellAccess::User(CellAct::ChangeMembers), "let a machine join once"), enrol_member)
        .post(
            "/v1/members/label",
            (CellAccess::User(CellAct::ChangeMembers), "give a client or a mover labels"),
            label_member,
        )
        .post(
            "/v1/members/revoke",
            (CellAccess::User(CellAct::ChangeMembers), "let a machine in no more"),
            revoke_member,
        )
        .get("/v1/users", CellAct::ListUsers, users)
        .post(
            "/v1/users/enrol",
            (CellAccess::User(CellAct::ChangeUsers), "let somebody join once as a user"),
            enrol_user,
        )
        .post("/v1/users/change", (CellAccess::User(CellAct::ChangeUsers), "give a user other roles"), change_user)
        .post("/v1/users/revoke", (CellAccess::User(CellAct::ChangeUsers), "let a user in no more"), revoke_user)
        .get("/v1/objects", CellAct::ListObjects, objects)
        .get("/v1/volumes", (CellAccess::User(CellAct::ListMedia), "list the volumes"), volumes)
        .get(
            "/v1/vault",
            (CellAccess::User(CellAct::ListMedia), "list volumes that are at vaults, or go or come"),
            vault,
        )
        .get("/v1/pools", (CellAccess::User(CellAct::ListMedia), "list the pools"), pools)
        .get("/v1/drives", (CellAccess::User(CellAct::ListMedia), "list the drives of all libraries"), drives)
        .get("/v1/library", (CellAccess::User(CellAct::ListMedia), "list what is in a library"), inventory)
        .post(
            "/v1/volumes/label",
            (CellAccess::User(CellAct::ChangeMedia), "label volumes that were never written"),
            label,
        )
        .post("/v1/library/move", (CellAccess::User(CellAct::ChangeMedia), "have cartridges moved"), move_cartridges)
        .get("/v1/tasks", (CellAccess::User(CellAct::ChangeMedia), "wait for a task of one's own to end"), task_seen)
        .post("/v1/tasks/stop", (CellAccess::User(CellAct::ChangeMedia), "stop a task of one's own"), stop_task)
        .post("/v1/files/find", (CellAccess::User(CellAct::FindFiles), "find files in what was backed up"), find_files)
        .post("/v1/files/list", (CellAccess::User(CellAct::FindFiles), "list a directory of an object"), list_files)
        .post(
            "/v1/files/versions",
            (CellAccess::User(CellAct::FindFiles), "list the versions of a file"),
            file_versions,
        )
        .post("/v1/restores", CellAct::Restore, restore)
        .get(
            "/v1/restores",
            (CellAccess::User(CellAct::Restore), "wait for a restore of one's own to end"),
            restore_ended,
        )
        .post("/v1/restores/stop", (CellAccess::User(CellAct::Restore), "stop a restore of one's own"), stop_restore)
        .get("/v1/audit", CellAct::ReadAudit, audit)
        .get("/v1/audit/check", (CellAccess::User(CellAct::ReadAudit), "check the audit log"), check_audit)
}

/// Each is noted by itself, and all must be done while the user waits.
fn few<T>(named: &[T]) -> Result<(), CellError> {
    if named.len() > NAMED_MAX { Err(CellError::TooManyRuns) } else { Ok(()) }
}

/// Answers what may block, on a thread for that.
async fn answer<T: Send + 'static>(
    acts: Arc<CellActs>,
    act: impl FnOnce(&CellActs) -> Result<T, CellError> + Send + 'static,
) -> Answered<T> {
    blocking(move || act(&acts).map_err(|error| refusal_of(&error))).await.map(Json)
}

async fn who(Extension(acts): Acts) -> Answered<WhoAnswer> {
    Ok(Json(acts.who()))
}

async fn status(State(service): State<Arc<CellService>>, Query(asked): Query<StatusQuery>) -> Answered<StatusAnswer> {
    blocking(move || service.host.status(&asked).map_err(|reason| Refusal::unready(format!("{reason}."))))
        .await
        .map(Json)
}

async fn queue(Extension(acts): Acts) -> Answered<QueueAnswer> {
    answer(acts, CellActs::queue).await
}

async fn done_runs(Extension(acts): Acts, Query(DoneQuery { last }): Query<DoneQuery>) -> Answered<QueueAnswer> {
    answer(acts, move |acts| acts.done_runs(last.map(|last| last.min(RUNS_LISTED_MAX)))).await
}

async fn enter_runs(Extension(acts): Acts, Input(asked): Input<EnterRuns>) -> Answered<RunsChanged> {
    answer(acts, move |acts| few(&asked.policies).and_then(|()| acts.enter_runs(&asked))).await
}

async fn rerun(Extension(acts): Acts, Input(asked): Input<RerunRuns>) -> Answered<RunsChanged> {
    answer(acts, move |acts| few(&asked.runs).and_then(|()| acts.rerun(&asked))).await
}

async fn change_runs(Extension(acts): Acts, Input(asked): Input<ChangeRuns>) -> Answered<RunsChanged> {
    answer(acts, move |acts| few(&asked.runs).and_then(|()| acts.change_runs(&asked))).await
}

async fn schedule(Extension(acts): Acts, Query(asked): Query<ScheduleQuery>) -> Answered<ScheduleAnswer> {
    let asked = ScheduleQuery { most: asked.most.map(|most| most.min(RUNS_LISTED_MAX)), ..asked };
    answer(acts, move |acts| acts.schedule(&asked)).await
}

async fn policies(Extension(acts): Acts) -> Answered<PoliciesAnswer> {
    answer(acts, CellActs::policies).await
}

async fn export_policies(Extension(acts): Acts, Input(asked): Input<ExportPolicies>) -> Answered<PoliciesFile> {
    answer(acts, move |acts| acts.export_policies(&asked)).await
}

async fn apply_policies(Extension(acts): Acts, Input(asked): Input<ApplyPolicies>) -> Answered<PoliciesChanged> {
    answer(acts, move |acts| acts.apply_policies(&asked)).await
}

async fn remove_policies(Extension(acts): Acts, Input(asked): Input<RemovePolicies>) -> Answered<PoliciesChanged> {
    answer(acts, move |acts| acts.remove_policies(&asked)).await
}

async fn members(Extension(acts): Acts, Query(MembersQuery { kind }): Query<MembersQuery>) -> Answered<MembersAnswer> {
    answer(acts, move |acts| acts.members(kind)).await
}

async fn enrol_member(Extension(acts): Acts, Input(asked): Input<EnrolMember>) -> Answered<MemberEnrolmentRow> {
    answer(acts, move |acts| acts.enrol_member(&asked)).await
}

async fn label_member(Extension(acts): Acts, Input(asked): Input<LabelMember>) -> Answered<MemberChangeRow> {
    answer(acts, move |acts| acts.label_member(&asked)).await
}

async fn revoke_member(Extension(acts): Acts, Input(asked): Input<RevokeMember>) -> Answered<MemberChangeRow> {
    answer(acts, move |acts| acts.revoke_member(&asked)).await
}

async fn users(Extension(acts): Acts) -> Answered<UsersAnswer> {
    answer(acts, CellActs::users).await
}

async fn enrol_user(Extension(acts): Acts, Input(asked): Input<EnrolUser>) -> Answered<MemberEnrolmentRow> {
    answer(acts, move |acts| acts.enrol_user(&asked)).await
}

async fn change_user(Extension(acts): Acts, Input(asked): Input<ChangeUser>) -> Answered<MemberChangeRow> {
    answer(acts, move |acts| acts.change_user(&asked)).await
}

async fn revoke_user(Extension(acts): Acts, Input(asked): Input<RevokeUser>) -> Answered<MemberChangeRow> {
    answer(acts, move |acts| acts.revoke_user(&asked)).await
}

async fn objects(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Query(asked): Query<ObjectsQuery>,
) -> Answered<CellObjectsAnswer> {
    let turn = service.files.turn(&format!("user/{}", acts.name())).await?;
    answer(acts, move |acts| {
        let _turn = turn;
        acts.objects(&asked)
    })
    .await
}

async fn volumes(Extension(acts): Acts, Query(asked): Query<VolumesQuery>) -> Answered<VolumesAnswer> {
    answer(acts, move |acts| acts.volumes(&asked)).await
}

async fn vault(Extension(acts): Acts) -> Answered<VaultAnswer> {
    answer(acts, CellActs::vault).await
}

async fn pools(Extension(acts): Acts) -> Answered<PoolsAnswer> {
    answer(acts, CellActs::pools).await
}

async fn drives(Extension(acts): Acts) -> Answered<DrivesAnswer> {
    answer(acts, CellActs::drives).await
}

async fn inventory(Extension(acts): Acts, Query(asked): Query<LibraryQuery>) -> Answered<InventoryRow> {
    answer(acts, move |acts| acts.inventory(&asked)).await
}

/// Begins a task.
async fn begun(
    (service, acts): (Arc<CellService>, Arc<CellActs>),
    volumes: usize,
    work: impl FnOnce(&CellActs, &Site) -> Result<TaskEnd, CellError> + Send + 'static,
) -> Answered<TaskBegun> {
    if volumes > VOLUMES_MAX {
        return Err(Refusal::malformed(format!("That is too much for one task: name at most {VOLUMES_MAX} volumes.")));
    }
    let begin = move || {
        let name = acts.name().to_owned();
        service.tasks.begin(&service.site, &name, move |site| work(&acts, site))
    };
    blocking(begin).await.map(Json)
}

async fn label(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(asked): Input<LabelVolumes>,
) -> Answered<TaskBegun> {
    if asked.volumes.is_empty() {
        return Err(Refusal::malformed("Name at least one volume."));
    }
    begun((service, acts), asked.volumes.len(), move |acts, site| acts.label(site, &asked)).await
}

async fn move_cartridges(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(asked): Input<MoveCartridges>,
) -> Answered<TaskBegun> {
    let volumes = asked.what.volumes().len();
    begun((service, acts), volumes, move |acts, site| acts.move_cartridges(site, &asked)).await
}

async fn task_seen(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Query(query): Query<TaskQuery>,
) -> Answered<TaskSeen> {
    let until = Instant::now() + Duration::from_secs(ORDERS_WAIT_SECONDS);
    service.tasks.wait(acts.name(), query, until).await.map(Json)
}

async fn stop_task(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(StopTask { task }): Input<StopTask>,
) -> Answered<TaskBegun> {
    service.tasks.stop(acts.name(), task).map(Json)
}

async fn find_files(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(FindFilesOf { of, find }): Input<FindFilesOf>,
) -> Answered<FilesAnswer> {
    let asking = Asking::User { acts, of };
    asking.answered((&service.files, &service.site), find).await.map(Json)
}

async fn list_files(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(ListFilesOf { of, list }): Input<ListFilesOf>,
) -> Answered<FilesAnswer> {
    let asking = Asking::User { acts, of };
    asking.answered((&service.files, &service.site), list).await.map(Json)
}

async fn file_versions(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(FileVersionsOf { of, versions }): Input<FileVersionsOf>,
) -> Answered<FilesAnswer> {
    let asking = Asking::User { acts, of };
    asking.answered((&service.files, &service.site), versions).await.map(Json)
}

async fn restore(
    State(service): State<Arc<CellService>>,
    (Extension(acts), Extension(RemoteAddress(from))): (Acts, Extension<RemoteAddress>),
    Input(asked): Input<AskRestoreTo>,
) -> Answered<RestorePlanned> {
    let turn = service.plans.turn(&format!("user/{}", acts.name())).await?;
    let begin = move |is_awaited: &IsAwaited<'_>| {
        let _turn = turn;
        let to = asked.to.as_deref().unwrap_or(&asked.of);
        let noted = acts.restores(&asked.of, to).map_err(|error| refusal_of(&error))?;
        if let Some(directory) = &asked.directory {
            let folders = service
                .hub
                .restores_to(to)
                .ok_or_else(|| Refusal::conflict(NotConnected { client: to.to_owned() }.to_string() + "."))?;
            if directory.chars().any(char::is_control) {
                return Err(Refusal::malformed(
                    "The name of the directory has control characters: choose another one.",
                ));
            }
            if !may_restore_to(&folders, Path::new(directory)) {
                acts.refused(noted, "the client does not allow it").map_err(|error| refusal_of(&error))?;
                return Err(Refusal::forbidden(not_allowed(to, directory, &folders)));
            }
        }
        let plan_only = asked.ask.plan_only || asked.directory.is_none();
        let ask = AskRestore { plan_only, ..asked.ask.clone() };
        let (replaces, strip) = (asked.replaces, asked.ask.strip);
        let into = asked.directory.as_deref().map(|directory| OrderedRestore {
            // Without slashes that say nothing: the audit log names it.
            directory: Path::new(directory).components().collect::<PathBuf>().to_string_lossy().into_owned(),
            replaces,
            strip,
        });
        let (of, asker) = (asked.of.clone(), Asker::User(acts.name().to_owned()));
        let run = RestoreRun { of, asker, from, ask, into, places: Vec::new(), volumes: Vec::new(), estimate_ns: 0 };
        service.restores.begin(&service.site, to, run, is_awaited)
    };
    blocking_awaited(begin).await.map(Json)
}

fn not_allowed(client: &str, directory: &str, folders: &[String]) -> String {
    let allowed = match folders {
        [] => "nothing".to_owned(),
        folders => format!("only what is below {}", words_text(&folders.join(", "))),
    };
    format!(
        "Client {client} does not let users restore to {directory}: it allows {allowed}. Whoever owns the machine can change \
         restore_to in its client.toml, and start `capstan client run` again."
    )
}

async fn restore_ended(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Query(query): Query<RestoreQuery>,
) -> Answered<RestoreSeen> {
    let until = Instant::now() + Duration::from_secs(ORDERS_WAIT_SECONDS);
    let asker = Asker::User(acts.name().to_owned());
    service.restores.wait(&service.site, &asker, &query, until).await.map(Json)
}

async fn stop_restore(
    State(service): State<Arc<CellService>>,
    Extension(acts): Acts,
    Input(StopRestore { run }): Input<StopRestore>,
) -> Answered<RestoreStopping> {
    let stop = move || service.restores.stop_one(&service.site, &Asker::User(acts.name().to_owned()), run);
    blocking(stop).await.map(|()| Json(RestoreStopping { run }))
}

async fn audit(Extension(acts): Acts, Query(AuditQuery { last }): Query<AuditQuery>) -> Answered<AuditAnswer> {
    answer(acts, move |acts| acts.audit(last.map(|last| last.min(RECORDS_MAX)))).await
}

async fn check_audit(Extension(acts): Acts) -> Answered<AuditChecked> {
    answer(acts, CellActs::check_audit).await
}
