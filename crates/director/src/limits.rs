//! How much of a cartridge is kept for what ends a session, and how much may come before that is due.

/// Entry bytes after which a checkpoint is due: its catalog part must fit behind early warning.
pub(crate) const ENTRY_BYTES_MAX: usize = 8 << 20;

/// Share of a cartridge that is kept for trailers behind early warning: a catalog part and its checkpoint fit many
/// times.
const EARLY_WARNING_SHARE: u64 = 20;

/// Least that is kept for them, where the cartridge has twice that: the longest catalog part, and the block that met
/// it.
const EARLY_WARNING_MIN: u64 = ENTRY_BYTES_MAX as u64 + (4 << 20);

/// Most that is kept for them.
const EARLY_WARNING_MAX: u64 = 256 << 20;

/// Share of a cartridge that is kept for them at most, and of it the entries between two checkpoints may take half.
pub(crate) const EARLY_WARNING_SHARE_MAX: u64 = 4;

/// Bytes at the end of a virtual cartridge that take no data: what ends a session, the list of its files above all,
/// must fit there.
pub fn reserved_at_the_end(capacity_bytes: u64) -> u64 {
    (capacity_bytes / EARLY_WARNING_SHARE)
        .clamp(EARLY_WARNING_MIN, EARLY_WARNING_MAX)
        .min(capacity_bytes / EARLY_WARNING_SHARE_MAX)
}
