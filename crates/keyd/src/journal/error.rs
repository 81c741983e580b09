//! Why the journal did not do what it was asked.

use std::io;
use std::path::PathBuf;

use capstan_keys::Name;
use thiserror::Error;

/// Why the journal does not take an entry, or is not believed. Whoever gets one gives no key out.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Host: nothing was noted.
    #[error(
        "the journal {} could not take the entry, so nothing is assigned: make room on its disk, or bring the node back to the \
         others", path.display()
    )]
    NotNoted {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Host: nobody knows what the disk holds.
    #[error(
        "the journal {} could not be flushed, and is not written any more: see what the system says of the disk, then start the node \
         again", path.display()
    )]
    Broken {
        /// The journal.
        path: PathBuf,
    },
    /// Host: it holds as much as it may.
    #[error(
        "the journal {} is full of what is not reconciled: nothing more can be assigned until the node reaches the others",
        path.display()
    )]
    Full {
        /// The journal.
        path: PathBuf,
    },
    /// Attacker or medium: the file is not as this program left it.
    #[error(
        "the journal {} was altered: {what}. Nothing of it is believed and nothing is assigned. Move the file away and start the node \
         where it reaches another one, which gives it its copy", path.display()
    )]
    Altered {
        /// The journal.
        path: PathBuf,
        /// Where, and how that shows.
        what: String,
    },
    /// Peer: it sent something else than what follows.
    #[error(
        "record {sequence} of the journal of {kma} does not continue what is known of it: that node was brought back from an old copy, or \
         somebody else speaks for it. See what it has assigned before it is let in again"
    )]
    Forked {
        /// Whose journal.
        kma: Name,
        /// The first record that does not fit.
        sequence: u64,
    },
    /// Operator: this node's disk is older than its peers' memory.
    #[error(
        "the journal of {kma} ends with record {own}, and a peer has a copy up to record {peer}: this node was brought back from an old copy. \
         Take the journal back from that peer before anything is assigned"
    )]
    PeerKnowsMore {
        /// Whose journal.
        kma: Name,
        /// Where it ends.
        own: u64,
        /// Where the copy ends.
        peer: u64,
    },
    /// Peer: bytes that are no segment.
    #[error("what was sent as the journal of {kma} is none: {what}")]
    Malformed {
        /// Whose journal it was to be.
        kma: Name,
        /// What is wrong.
        what: String,
    },
    /// Caller: larger than an entry is.
    #[error("an entry with a path of {path_len} bytes and {sealed_len} sealed bytes is too large for the journal")]
    TooLarge {
        /// Length of its path.
        path_len: usize,
        /// Length of what is sealed.
        sealed_len: usize,
    },
    /// Operator: another process writes it.
    #[error("the journal {} is in use: another node runs with this state; stop it, or give this one a state of its own", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// Host: the file cannot be opened or read.
    #[error("the journal {} cannot be opened: see that the node may read and write there", path.display())]
    Unusable {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
