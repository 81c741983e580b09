//! What waits for a quorum. The last approval carries a request out, in one transaction with the record that it was.

use axum::Json;
use capstan_keys::api::{Decide, PendingListed, Requested, ShownOnce};
use capstan_keys::cluster::EnrolmentPassphrase;
use capstan_keys::random;
use capstan_service::enrolment::Enrolment;
use capstan_service::problem::{Input, Refusal};

use super::super::access::NodeRoutes;
use super::super::request_id::{digest_of, id_of};
use super::carrying::Carrying;
use super::proposal::{CarriedOut, Proposal, carry_out, enrolling_path};
use super::{Of, Person, broken, rule_of, time, user_path, users_of};
use crate::authority::{Act, Mandate, Pending, PendingId, Stage, Users, Vote};
use crate::desk::Decided;
use crate::path::Path;
use crate::state::View;

/// Removed in one transaction, with what waits for them.
const REMOVED_AT_ONCE: usize = 40;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/pending", Act::ListPending, list)
        .get("/v1/pending/{id}", Act::ListPending, show)
        .post("/v1/pending/{id}/approve", Act::ApprovePending, approve)
        .post("/v1/pending/{id}/reject", Act::RejectPending, reject)
        .post("/v1/pending/{id}/withdraw", Act::WithdrawPending, withdraw)
}

/// Asks the quorum.
pub(super) async fn request(
    person: &Person,
    proposal: Proposal,
    enrolment: Option<(Enrolment, EnrolmentPassphrase)>,
) -> Result<Requested, Refusal> {
    request_with(person, proposal, enrolment, None).await
}

/// The same, with what waits beside the request.
pub(super) async fn request_with(
    person: &Person,
    proposal: Proposal,
    enrolment: Option<(Enrolment, EnrolmentPassphrase)>,
    waiting: Option<Vec<u8>>,
) -> Result<Requested, Refusal> {
    let mut id = PendingId([0; 16]);
    random(&mut id.0).map_err(|error| broken(&error))?;
    let act = proposal.act();
    let (enrolment, passphrase) = enrolment.unzip();
    let arguments = proposal.arguments(enrolment.as_ref()).map_err(|error| Refusal::malformed(error.to_string()))?;
    let rule = person.node.view(rule_of)?;
    let pending = Pending::request(id, &person.user, act, arguments, &rule, person.node.now_ns())?;
    let noted = person.entry(act).of("pending", id).with("digest", pending.digest()).with("asked", "the quorum");
    let asking = person.change(|view| {
        let now_ns = person.node.now_ns();
        proposal.check(Carrying { view, node: &person.node, id, by: &person.user.name, now_ns })?;
        if act == Act::DestroyKeys {
            refuse_second(view, &pending, now_ns)?;
        }
        let mut puts = vec![(path(id), pending.encode())];
        let enrolment = enrolment.as_ref().map(|enrolment| enrolment.encode().to_vec());
        puts.extend(enrolment.or(waiting.clone()).map(|bytes| (enrolling_path(id), bytes)));
        Ok(Decided::records(puts, Vec::new()))
    });
    person.does(noted, asking).await?;
    Ok(Requested {
        id: id.to_string(),
        digest: pending.digest().to_string(),
        needed: pending.needed(),
        expires: time(pending.expires_ns()),
        passphrase: passphrase.map(ShownOnce),
        warnings: Vec::new(),
    })
}

/// Whoever asks again, or is not alone in asking, is told of the request that waits: two of them would be two
/// destructions for who approves.
fn refuse_second(view: View<'_>, asked: &Pending, now_ns: i64) -> Result<(), Refusal> {
    let users = users_of(view)?;
    let all = view.ledger().others("pending/").filter_map(|(_, bytes)| Pending::decode(bytes).ok());
    // The same key; what was told of it may have changed since.
    let key = asked.arguments().get("key");
    let mut same = all.filter(|other| other.act() == asked.act() && other.arguments().get("key") == key);
    match same.find(|other| matches!(other.stage(&users, now_ns), Stage::Waiting { .. } | Stage::Approved)) {
        None => Ok(()),
        Some(first) => Err(Refusal::conflict(format!(
            "Request {}, which {} asked for, waits for the same: `keyd pending show {0}` shows it.",
            first.id(),
            first.requested_by()
        ))),
    }
}

async fn list(person: Person) -> Result<Json<Vec<PendingListed>>, Refusal> {
    let look = |view: View<'_>, now_ns| {
        let users = users_of(view)?;
        let records = view.ledger().others("pending/").map(|(_, bytes)| Pending::decode(bytes));
        let records = records.collect::<Result<Vec<_>, _>>().map_err(|error| broken(&error))?;
        Ok(Json(records.iter().map(|pending| listed(pending, &users, now_ns)).collect()))
    };
    person.looks(Act::ListPending, look).await
}

async fn show(person: Person, Of(id): Of<String>) -> Result<Json<PendingListed>, Refusal> {
    let id = id_of(&id)?;
    let look = |view: View<'_>, now_ns| Ok(Json(listed(&read(view, id)?, &users_of(view)?, now_ns)));
    person.looks(Act::ListPending, look).await
}

async fn approve(
    person: Person,
    Of(id): Of<String>,
    Input(asked): Input<Decide>,
) -> Result<Json<PendingListed>, Refusal> {
    person.permitted(Act::ApprovePending).await?;
    let (id, digest) = (id_of(&id)?, digest_of(&asked.digest)?);
    let noted = person.entry(Act::ApprovePending).of("pending", id).with("digest", digest);
    let mut carried_out = None;
    let approving = person.change(|view| {
        carried_out = None;
        let (now_ns, users) = (person.node.now_ns(), users_of(view)?);
        let approved = read(view, id)?.approve(&person.user, digest, now_ns)?;
        let mut decided = Decided::records(vec![(path(id), approved.encode())], Vec::new());
        let at_once = Proposal::carried_out(approved.act()) == CarriedOut::AtOnce;
        if at_once && approved.stage(&users, now_ns) == Stage::Approved {
            // In the name of whoever asked: who approves need not be one who may.
            let gone = || Refusal::conflict("Whoever asked for it is no user any more: reject it.");
            let requester = users.get(approved.requested_by()).ok_or_else(gone)?;
            let (act, arguments) = (approved.act(), approved.arguments());
            let (executed, mandate) = approved.execute(&users, requester, act, arguments, now_ns)?;
            let on = Carrying { view, node: &person.node, id, by: &requester.name, now_ns };
            let done = carry_out(&mandate, on)?;
            decided = Decided::records(vec![(path(id), executed.encode())], Vec::new());
            decided.puts.extend(done.puts);
            decided.removes.extend(done.removes);
            decided.rests_on.extend(done.rests_on);
            carried_out = Some(act);
        }
        decided.rests_on.extend(counted(&approved));
        Ok(decided)
    });
    person.does(noted, approving).await?;
    if let Some(act) = carried_out {
        person.service.note(person.entry(act).of("pending", id).with("approved-by", "the quorum")).await?;
        person.service.anchor_soon();
    }
    shown(&person, id)
}

async fn reject(
    person: Person,
    Of(id): Of<String>,
    Input(asked): Input<Decide>,
) -> Result<Json<PendingListed>, Refusal> {
    person.permitted(Act::RejectPending).await?;
    let (id, digest) = (id_of(&id)?, digest_of(&asked.digest)?);
    let noted = person.entry(Act::RejectPending).of("pending", id).with("digest", digest);
    let rejecting = person.change(|view| {
        let rejected = read(view, id)?.reject(&person.user, digest, person.node.now_ns())?;
        Ok(ended(view, &rejected))
    });
    person.does(noted, rejecting).await?;
    shown(&person, id)
}

async fn withdraw(person: Person, Of(id): Of<String>) -> Result<Json<PendingListed>, Refusal> {
    person.permitted(Act::WithdrawPending).await?;
    let id = id_of(&id)?;
    let noted = person.entry(Act::WithdrawPending).of("pending", id);
    let withdrawing =
        person.change(|view| Ok(ended(view, &read(view, id)?.withdraw(&person.user, person.node.now_ns())?)));
    person.does(noted, withdrawing).await?;
    shown(&person, id)
}

/// Nobody who counts here may have been disabled meanwhile.
fn counted(pending: &Pending) -> impl Iterator<Item = Path> + '_ {
    pending.decisions().iter().map(|decision| &decision.who).chain([pending.requested_by()]).map(user_path)
}

/// Ends a request that was approved and is carried out by whoever asked for it: the mandate, and what is to be
/// committed once it is done.
pub(super) fn execute_own(
    person: &Person,
    view: View<'_>,
    id: PendingId,
    act: Act,
) -> Result<(Mandate, Decided), Refusal> {
    let (users, pending) = (users_of(view)?, read(view, id)?);
    if *pending.requested_by() != person.user.name {
        let by = pending.requested_by();
        return Err(Refusal::forbidden(format!("Request {id} is {by}'s: it is carried out by whoever asked for it.")));
    }
    let arguments = pending.arguments();
    let (executed, mandate) = pending.execute(&users, &person.user, act, arguments, person.node.now_ns())?;
    let mut decided = Decided::records(vec![(path(id), executed.encode())], Vec::new());
    decided.rests_on.extend(counted(&pending));
    Ok((mandate, decided))
}

/// A request that ends without being carried out: what waited for it goes.
fn ended(view: View<'_>, pending: &Pending) -> Decided {
    Decided::records(vec![(path(pending.id()), pending.encode())], waiting_for(view, pending.id()))
}

fn waiting_for(view: View<'_>, id: PendingId) -> Vec<Path> {
    let waiting = enrolling_path(id);
    view.ledger().other(&waiting.to_string()).map(|_| waiting).into_iter().collect()
}

/// Requests that could not be carried out any more, whatever state of them somebody puts back: they are removed.
pub(super) fn removable(view: View<'_>, now_ns: i64) -> Vec<Path> {
    let all = view.ledger().others("pending/").filter_map(|(_, bytes)| Pending::decode(bytes).ok());
    let over = all.filter(|pending| pending.is_removable(now_ns)).take(REMOVED_AT_ONCE);
    over.flat_map(|pending| waiting_for(view, pending.id()).into_iter().chain([path(pending.id())])).collect()
}

fn path(id: PendingId) -> Path {
    Path::Other(format!("pending/{id}"))
}

fn read(view: View<'_>, id: PendingId) -> Result<Pending, Refusal> {
    let unknown =
        || Refusal::not_found(format!("No request {id} waits here: `keyd pending list` names those that do."));
    let bytes = view.ledger().other(&path(id).to_string()).ok_or_else(unknown)?;
    Pending::decode(bytes).map_err(|error| broken(&error))
}

fn shown(person: &Person, id: PendingId) -> Result<Json<PendingListed>, Refusal> {
    let now_ns = person.node.now_ns();
    person.node.view(|view| Ok(Json(listed(&read(view, id)?, &users_of(view)?, now_ns))))
}

fn listed(pending: &Pending, users: &Users, now_ns: i64) -> PendingListed {
    let stage = match pending.stage(users, now_ns) {
        Stage::Waiting { .. } => "waiting",
        Stage::Approved => "approved",
        Stage::Expired => "expired",
        Stage::Rejected { .. } => "rejected",
        Stage::Withdrawn => "withdrawn",
        Stage::Executed { .. } => "executed",
    };
    let approvals = pending.decisions().iter().filter(|decision| decision.vote == Vote::Approved).count();
    PendingListed {
        id: pending.id().to_string(),
        act: pending.act().name().to_owned(),
        requested_by: pending.requested_by().clone(),
        expires: time(pending.expires_ns()),
        stage: stage.to_owned(),
        approvals,
        needed: pending.needed(),
        words: pending.to_string(),
        digest: pending.digest().to_string(),
    }
}
