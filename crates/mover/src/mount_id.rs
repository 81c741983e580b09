//! What a mount is called between whoever decides and a mover.

use serde::{Deserialize, Serialize};

/// One mount of a volume; no other mount of the same mover has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MountId(pub u64);
