//! Users, and how many of them make a quorum: by quorum, except that power is taken away at once.

use axum::Json;
use capstan_keys::Name;
use capstan_keys::api::{PeerId, PeerKind, QuorumSaid, Requested, UserListed, UserRoles};
use capstan_service::problem::{Input, Refusal};

use super::super::access::NodeRoutes;
use super::super::registrar::enrolment_path;
use super::peers::new_enrolment;
use super::proposal::{Proposal, users_changed};
use super::{Of, Person, queue, rule_of, user_path, users_of};
use crate::authority::{Act, Role, Roles, User, UserStatus};
use crate::desk::Decided;
use crate::state::View;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/users", Act::ListUsers, list)
        .post("/v1/users", Act::ChangeUsers, add)
        .post("/v1/users/{name}/roles", Act::ChangeUsers, change_roles)
        .post("/v1/users/{name}/enrol", Act::ChangeUsers, enrol)
        .post("/v1/users/{name}/enable", Act::ChangeUsers, enable)
        .post("/v1/users/{name}/disable", Act::DisableUser, disable)
        .get("/v1/quorum", Act::ListPending, quorum)
        .post("/v1/quorum", Act::ChangeQuorum, change_quorum)
}

async fn list(person: Person) -> Result<Json<Vec<UserListed>>, Refusal> {
    person.looks(Act::ListUsers, |view, _| Ok(Json(users_of(view)?.iter().map(listed).collect()))).await
}

async fn quorum(person: Person) -> Result<Json<QuorumSaid>, Refusal> {
    let look = |view: View<'_>, _| {
        let (rule, users) = (rule_of(view)?, users_of(view)?);
        let members = users.iter().filter(|user| user.is(Role::QuorumMember)).count();
        Ok(Json(QuorumSaid { needed: rule.needed(), waits_seconds: Some(rule.waits_seconds()), members }))
    };
    person.looks(Act::ListPending, look).await
}

async fn change_quorum(person: Person, Input(asked): Input<QuorumSaid>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeQuorum).await?;
    let waits_seconds = match asked.waits_seconds {
        Some(seconds) => seconds,
        None => person.node.view(rule_of)?.waits_seconds(),
    };
    queue::request(&person, Proposal::ChangeQuorum { needed: asked.needed, waits_seconds }, None).await.map(Json)
}

fn listed(user: &User) -> UserListed {
    let standing = match user.standing {
        UserStatus::Enabled => "enabled",
        UserStatus::Disabled => "disabled",
    };
    UserListed {
        name: user.name.clone(),
        roles: user.roles.iter().map(|role| role.name().to_owned()).collect(),
        standing: standing.to_owned(),
        certificates: user.certificates.len(),
    }
}

fn roles(names: &[String]) -> Result<Roles, Refusal> {
    let role = |name: &String| Role::named(name).ok_or_else(|| Refusal::malformed(format!("{name:?} is no role.")));
    names.iter().map(role).collect()
}

fn of_user(name: &Name) -> PeerId {
    PeerId { kind: PeerKind::User, name: name.clone() }
}

async fn add(person: Person, Input(asked): Input<UserRoles>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeUsers).await?;
    let (name, roles) = (asked.name, roles(&asked.roles)?);
    let enrolment = new_enrolment(&person, of_user(&name), Vec::new())?;
    queue::request(&person, Proposal::AddUser { name, roles }, Some(enrolment)).await.map(Json)
}

async fn change_roles(
    person: Person,
    Of(name): Of<Name>,
    Input(asked): Input<UserRoles>,
) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeUsers).await?;
    if name != asked.name {
        return Err(Refusal::malformed("The path and the request name two users."));
    }
    let roles = roles(&asked.roles)?;
    queue::request(&person, Proposal::ChangeRoles { name, roles }, None).await.map(Json)
}

async fn enrol(person: Person, Of(name): Of<Name>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeUsers).await?;
    let enrolment = new_enrolment(&person, of_user(&name), Vec::new())?;
    queue::request(&person, Proposal::EnrolUser { name }, Some(enrolment)).await.map(Json)
}

async fn enable(person: Person, Of(name): Of<Name>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::ChangeUsers).await?;
    queue::request(&person, Proposal::EnableUser { name }, None).await.map(Json)
}

async fn disable(person: Person, Of(name): Of<Name>) -> Result<Json<UserListed>, Refusal> {
    person.permitted(Act::DisableUser).await?;
    let noted = person.entry(Act::DisableUser).of("user", &name);
    let mut disabled = None;
    person
        .does(
            noted,
            person.change(|view| {
                let mut users = users_of(view)?;
                let unknown = || Refusal::not_found(format!("There is no user {name}."));
                let user = User { standing: UserStatus::Disabled, ..users.get(&name).ok_or_else(unknown)?.clone() };
                users.put(user.clone());
                users.check(&rule_of(view)?)?;
                disabled = Some(listed(&user));
                let enrolment = enrolment_path(&of_user(&name));
                let removes = view.ledger().other(&enrolment.to_string()).map(|_| enrolment).into_iter().collect();
                let puts = vec![(user_path(&name), user.encode()), users_changed(person.request.0)];
                Ok(Decided::records(puts, removes))
            }),
        )
        .await?;
    person.service.anchor_soon();
    disabled.map(Json).ok_or_else(Refusal::failed)
}
