//! The models beside the numbers that were published: what docs/MODEL.md says.

mod data_protector;
mod grids;
mod interleaving;
mod restore_order;
mod t10000;
mod table;

use capstan_tape::model::{DriveModel, built_in};

pub use self::grids::{PublishedGrid, built_in_host, published_grids};
use self::table::Page;
use super::grid::GridError;

/// The page, in Markdown.
///
/// # Errors
/// A table or a model that comes with the program is damaged.
pub fn page() -> Result<String, GridError> {
    let mut page = Page { text: String::new() };
    page.say("# The models, held against published numbers");
    page.say(
        "`capstan lab published` writes this page, and a test compares the page with its output. The sources are the vendors'\n\
         papers that each heading names. No answer is typed in: drives are figures with their origin (`crates/tape/models`),\n\
         hosts are the eight figures of a calibration (`crates/lab/hosts`), and the same engine and the same formulas give every\n\
         number.",
    );
    grids::grids(&mut page)?;
    t10000::speed_matching(&mut page);
    t10000::syncs(&mut page);
    interleaving::interleaving(&mut page);
    data_protector::streams(&mut page);
    data_protector::restores(&mut page);
    data_protector::staging(&mut page);
    restore_order::restore_order(&mut page);
    page.say("## What could not be reproduced");
    page.text.push_str(
        "- **T10000A, files of 1 MB.** The table has 24 to 103 MB/s for them, less with more buffers, and most with the fewest\n\
         \x20 and largest buffers. These rates are not monotonous in anything that the model has. They are counted anyway.\n\
         - **20 million small files restored from tape, given up after 30 hours.** It was not published what it costs a target to\n\
         \x20 create a file, and 30 hours are when somebody gave up. So the model gives only a lower bound.\n\
         - **26 MB/s to a file library with depots of 10 GB in blocks of 256 KB.** The same depots take 30 in blocks of 64 KB.\n\
         \x20 Nothing in the model makes the longer block slower.\n\
         - **LTO-6 with a sync behind each file of 1 GB: 75 MB/s at most.** The model gives 125. If a sync cost enough to explain\n\
         \x20 75 MB/s, files of 13 MB would be four times slower than in the same paper.\n\
         - **ExHPDM's T9840D and T10000 with one ratio.** 50 MB/s on a drive of 30 MB/s needs data that compress at least 1.7:1.\n\
         \x20 120 MB/s on a T10000 would then be far from its limit. A channel of 120 MB/s in front of both explains the two, and is\n\
         \x20 assumed.\n",
    );
    Ok(page.text)
}

fn drive(name: &str) -> DriveModel {
    built_in(name).unwrap_or_else(|error| unreachable!("{error}"))
}
