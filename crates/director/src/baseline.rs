//! What an incremental compares with: the state of an object, as the catalog has it.

use capstan_mover::{Baseline, BaselineBuilder, BaselineTable, ListedBaseline, Metadata, Verdict};

/// Calls a function with each path of the state and its metadata, in the same order each time.
type Rows = Box<dyn Fn(&mut dyn FnMut(&[u8], &Metadata)) -> Result<(), String> + Sync + Send>;

/// A baseline over a catalog's state.
pub(crate) struct StateBaseline {
    /// None where the comparing is done elsewhere.
    table: Option<BaselineTable>,
    rows: Rows,
}

impl StateBaseline {
    /// A baseline of these rows; the builder has seen them all, unless they are compared elsewhere.
    pub(crate) fn new(builder: Option<BaselineBuilder>, rows: Rows) -> Self {
        Self { table: builder.map(BaselineBuilder::finish), rows }
    }
}

impl Baseline for StateBaseline {
    fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict {
        // Without a table nothing is known, and everything is read.
        self.table.as_ref().map_or(Verdict::New, |table| table.compare(path, metadata))
    }

    fn for_each_missing(&self, found: &mut dyn FnMut(&[u8])) {
        let Some(table) = &self.table else { return };
        let mut row = 0;
        // The rows were read to their end before.
        let _ = (self.rows)(&mut |path, _| {
            if !table.seen().contains(row) {
                found(path);
            }
            row += 1;
        });
    }
}

impl ListedBaseline for StateBaseline {
    fn for_each_row(&self, found: &mut dyn FnMut(&[u8], &Metadata)) -> Result<(), String> {
        (self.rows)(found)
    }

    fn as_baseline(&self) -> &dyn Baseline {
        self
    }
}
