//! On what a proposal is carried out.

use capstan_keys::Name;

use crate::authority::PendingId;
use crate::node::Node;
use crate::state::View;

/// On what a proposal is carried out.
#[derive(Clone, Copy)]
pub(super) struct Carrying<'a> {
    pub(super) view: View<'a>,
    pub(super) node: &'a Node,
    pub(super) id: PendingId,
    /// Who asked for it.
    pub(super) by: &'a Name,
    pub(super) now_ns: i64,
}
