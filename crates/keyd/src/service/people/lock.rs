//! Locking a node, at once: what a security officer does who takes its machine, or those around it, to be in wrong
//! hands.
//!
//! From the answer on nothing is opened or given out, whatever is under way. Then the process begins anew in its own
//! place, so that nothing of what it had in memory is left; and it waits for its holders, also where it would unlock
//! itself ([`super::super::autonomous`]): only they end what a person has begun here.

use axum::Json;
use capstan_keys::api::{NodeLocked, Problem};
use capstan_service::problem::Refusal;

use super::super::access::NodeRoutes;
use super::Person;
use crate::authority::Act;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new().post("/v1/lock", Act::LockKma, lock)
}

async fn lock(person: Person) -> Result<Json<NodeLocked>, Refusal> {
    person.at_once(Act::LockKma).await?;
    let kma = person.service.name().clone();
    let noted = person.entry(Act::LockKma).of("kma", &kma);
    person.service.lock_at_once(&person.user.name, noted).await.map_err(|error| {
        let detail = format!(
            "{kma} is locked now, and its disk takes no note of it ({error}): where it may unlock itself it would do so at its next start. \
             Stop it on its machine (`systemctl stop keyd`), or take back that it may (`keyd kmas autonomous-unlock {kma} off`)."
        );
        Refusal::from(Problem::new(500, "locked-for-now", "Locked, and not for good", detail))
    })?;
    Ok(Json(NodeLocked { kma }))
}
