//! What the order of reading is worth, which no paper has numbers of.

use std::fmt::Write;

use capstan_tape::model::{Afterwards, Restore, StartPosition, TapeExtent, front_to_back, plan_restore};

use super::drive;
use super::table::Page;

/// Where a file stands, as a share of the capacity: the same each time, and like drawn at random (SplitMix64).
fn share(file: u64) -> f64 {
    let mut mixed = file.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Files anywhere on a full tape, in the order of their blocks and in the planned one.
pub(super) fn restore_order(page: &mut Page) {
    page.say("## The order of a restore (no paper)");
    page.say(
        "Each row restores that many files of 10 MB, anywhere on a full tape, from load to unload. Blocks with distant numbers\n\
         may lie side by side on other wraps. A plan is never slower than front to back, and for up to ten places no order is\n\
         quicker. For more places, the plan is the quickest of several that were found, and it is not known how far it is from\n\
         the best. `restore` reads in this order if the drive recommends none of its own. With many locates, most of the time is\n\
         the 2 s that each locate takes to stop, step across and start. That is an estimate, and the first figure to measure on a\n\
         physical drive.",
    );
    page.text.push_str(
        "| drive | files | front to back, minutes | planned, minutes | locates | times as fast |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for name in ["LTO-5", "LTO-9", "T10000D"] {
        let model = drive(name);
        let capacity_bytes = model.capacity_gb.value * 1e9;
        for files in [10_u64, 100, 1000] {
            let extents: Vec<TapeExtent> = (1..=files)
                .map(|at| TapeExtent { begin: (share(at) * capacity_bytes) as u64, len: 10_000_000 })
                .collect();
            let (standing, afterwards) = (StartPosition::Unloaded, Afterwards::Unload);
            let restore = Restore { extents: &extents, ratio: 1.0, target_mb_per_s: None, standing, afterwards };
            let (by_number, planned) = (front_to_back(&model, &restore), plan_restore(&model, &restore));
            let _ = writeln!(
                page.text,
                "| {name} | {files} | {:.1} | {:.1} | {} | {:.1} |",
                by_number.total_s() / 60.0,
                planned.total_s() / 60.0,
                planned.locates(),
                by_number.total_s() / planned.total_s()
            );
        }
    }
    page.text.push('\n');
}
