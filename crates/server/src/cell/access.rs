//! What handlers have, and who may ask for what.

use std::sync::Arc;

use axum::http::request::Parts;
use capstan_director::Site;
use capstan_keys::api::PeerKind;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome};
use capstan_service::identity::{Gate, Peer};
use capstan_service::listener::RemoteAddress;
use capstan_service::openapi::{AccessDoc, AccessRule, ApiRoutes, OperationDoc};
use capstan_service::problem::Refusal;
use capstan_service::roles::TableAct;
use capstan_service::shutdown::Shutdown;

use super::blocking::blocking;
use super::error::refusal_of;
use super::files::FileTurns;
use super::known::KnownPeers;
use super::registrar::CellHost;
use super::restores::Restores;
use super::tasks::Tasks;
use super::users::{CellAct, CellActs, Refusals, note};
use super::{CellError, Hub};

/// What handlers have.
pub(super) struct CellService {
    pub(super) hub: Hub,
    pub(super) site: Site,
    pub(super) known: Arc<KnownPeers>,
    pub(super) gate: Gate,
    pub(super) shutdown: Shutdown,
    /// The port for data.
    pub(super) data_port: u16,
    pub(super) restores: Restores,
    pub(super) refusals: Arc<Refusals>,
    pub(super) files: FileTurns,
    /// Turns of those who plan restores.
    pub(super) plans: FileTurns,
    pub(super) tasks: Tasks,
    pub(super) host: Arc<dyn CellHost>,
}

pub(super) type CellRoutes = ApiRoutes<Arc<CellService>, CellAccess>;

/// Who may ask for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellAccess {
    /// Clients and movers.
    Machine,
    /// Clients, of what is their own.
    Client,
    /// Users, whatever their roles.
    AnyUser,
    /// Users, by the table of roles.
    User(CellAct),
    /// Whoever has a certificate of the cell.
    Member,
    /// Whoever reaches the port for enrolments, without a certificate.
    Stranger,
}

impl From<CellAct> for OperationDoc<CellAccess> {
    fn from(act: CellAct) -> Self {
        (CellAccess::User(act), act.words()).into()
    }
}

impl AccessRule<Arc<CellService>> for CellAccess {
    fn doc(self) -> AccessDoc {
        let (tag, description) = match self {
            Self::Machine => ("machines", "For clients and movers of the cell.".to_owned()),
            Self::Client => ("clients", "For clients of the cell, of what is their own.".to_owned()),
            Self::AnyUser => ("users", "For users of the cell.".to_owned()),
            Self::User(act) => ("users", format!("For users with one of these roles: {}.", act.roles_in_words())),
            Self::Member => ("members", "For clients, movers and users of the cell.".to_owned()),
            Self::Stranger => ("strangers", "For whoever joins the cell; no certificate is asked for.".to_owned()),
        };
        let mut doc = AccessDoc { tag, description, is_public: self == Self::Stranger, ..AccessDoc::default() };
        if let Self::User(act) = self {
            doc.extensions.insert("x-act".to_owned(), act.name().into());
            doc.extensions.insert("x-roles".to_owned(), act.roles_in_json().into());
        }
        doc
    }

    async fn authorize(self, parts: &mut Parts, service: &Arc<CellService>) -> Result<(), Refusal> {
        if self == Self::Stranger {
            return Ok(());
        }
        let known = &parts.extensions;
        let (Some(peer), Some(&RemoteAddress(from))) = (known.get::<Peer>().cloned(), known.get::<RemoteAddress>())
        else {
            return Err(Refusal::failed());
        };
        let other = |whom: &str| Err(Refusal::forbidden(format!("This is for {whom}, and not for {}.", peer.id)));
        let act = match (self, peer.id.kind) {
            // What bears its name is the server's own.
            (Self::Client, PeerKind::Client) if peer.id.name.as_str() == service.site.client() => {
                return other("clients that do not bear the name of the server's own machine");
            }
            (Self::Member | Self::Machine, PeerKind::Client | PeerKind::Mover)
            | (Self::Member, PeerKind::User)
            | (Self::Client, PeerKind::Client) => return Ok(()),
            (Self::AnyUser, PeerKind::User) => None,
            (Self::User(act), PeerKind::User) => Some(act),
            (Self::AnyUser | Self::User(_), _) => {
                // Whoever tries this has the certificate of a machine in the wrong hands, or a fault.
                if service.refusals.is_noted(&peer.id.to_string()) {
                    let (site, act) =
                        (service.site.clone(), if let Self::User(act) = self { act.name() } else { "ask" });
                    let entry =
                        AuditEntry::new(AuditActor::of(&peer.id), AuditOrigin::Address(from), AuditAction::named(act));
                    let why = AuditFact::from("a machine is not a user");
                    let entry = entry.came_to(AuditOutcome::Refused { why });
                    blocking(move || note(&site, entry).map_err(|error| refusal_of(&error))).await?;
                }
                return other("users of the cell");
            }
            (Self::Client, _) => return other("clients of the cell"),
            (Self::Member | Self::Machine | Self::Stranger, _) => return other("clients and movers of the cell"),
        };
        let (site, name, serial) = (service.site.clone(), peer.id.name.clone(), peer.serial);
        let refusals = Arc::clone(&service.refusals);
        service.known.saw(serial, site.now_ns(), from);
        let acts = blocking(move || {
            let acts = CellActs::of_user(&site, &name, from, &refusals).map_err(|error| match error {
                // Whoever has a certificate and no rights, as after a rebuild without the old catalog.
                CellError::UnknownUser { name } => {
                    Refusal::forbidden(format!("User {name} has no rights in this cell: an administrator gives them."))
                }
                error => refusal_of(&error),
            })?;
            if let Some(act) = act {
                acts.permitted(act).map_err(|error| refusal_of(&error))?;
            }
            Ok(acts)
        });
        parts.extensions.insert(Arc::new(acts.await?));
        Ok(())
    }
}
