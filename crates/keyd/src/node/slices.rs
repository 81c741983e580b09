//! Looking at everything that the node knows without keeping anybody waiting.
//!
//! A look at a million keys takes seconds, and as long as somebody looks nothing can be filed, and behind what waits to
//! be filed everybody waits. So whoever looks at everything does it in slices, picks out of each what it needs, and
//! works with that while the state is free. What is seen is then not of one moment: what changes meanwhile is seen as
//! it was or as it is, and what stays is seen once.

use capstan_keys::DataUnit;

use super::Node;
use crate::record::IssuedRecord;
use crate::state::View;

/// Keys, or volumes, that are looked at while the state is held once: some tens of microseconds.
pub const LOOKED_AT_ONCE: usize = 256;

impl Node {
    /// Picks something out of every key that was issued, by tag, and works with each slice of that while the state is
    /// free.
    pub fn walk_keys<T>(&self, pick: impl Fn(View<'_>, &IssuedRecord) -> T, mut work: impl FnMut(Vec<T>)) {
        let mut last = None;
        loop {
            let slice = self.view(|view| {
                let mut slice = Vec::with_capacity(LOOKED_AT_ONCE);
                for record in view.ledger().keys_after(last.as_ref()).take(LOOKED_AT_ONCE) {
                    slice.push((record.stored.record.tag, pick(view, record)));
                }
                slice
            });
            let Some((tag, _)) = slice.last() else { return };
            last = Some(*tag);
            work(slice.into_iter().map(|(_, picked)| picked).collect());
        }
    }

    /// The same of every volume, by barcode.
    pub fn walk_units<T>(&self, pick: impl Fn(View<'_>, &DataUnit) -> T, mut work: impl FnMut(Vec<T>)) {
        let mut last = None;
        loop {
            let slice = self.view(|view| {
                let mut slice = Vec::with_capacity(LOOKED_AT_ONCE);
                for unit in view.ledger().realm().units_after(last.as_ref()).take(LOOKED_AT_ONCE) {
                    slice.push((unit.volser.clone(), pick(view, unit)));
                }
                slice
            });
            let Some((volser, _)) = slice.last() else { return };
            last = Some(volser.clone());
            work(slice.into_iter().map(|(_, picked)| picked).collect());
        }
    }
}
