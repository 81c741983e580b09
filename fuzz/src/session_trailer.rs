//! What a session leaves for a rebuild: its header, its checkpoints, its catalog parts.

use capstan_format::{CatalogPart, Checkpoint, EntryDecoder, EntryEncoder, FileEntry, SessionRecord};

/// Session header, checkpoint, catalog part and packed entries of any bytes: decoded, encoded and decoded again, they
/// are the same.
pub fn session_trailer(data: &[u8]) {
    if let Ok(record) = SessionRecord::decode(data) {
        assert_eq!(SessionRecord::decode(&record.encode()), Ok(record), "session header");
    }
    if let Ok(checkpoint) = Checkpoint::decode(data) {
        assert_eq!(Checkpoint::decode(&checkpoint.encode()), Ok(checkpoint), "checkpoint");
    }
    if let Ok(part) = CatalogPart::decode(data) {
        assert_eq!(CatalogPart::decode(&part.encode()).as_ref(), Ok(&part), "catalog part");
        for (_, run) in &part.entries {
            entries(run);
        }
    }
    entries(data);
}

fn entries(run: &[u8]) {
    // A path shares its front with the one before, so a run can stand for much more than its own bytes.
    const ENTRIES_MAX: usize = 4096;
    let decoded: Vec<FileEntry> = EntryDecoder::new(run).take(ENTRIES_MAX).map_while(Result::ok).collect();
    let mut encoder = EntryEncoder::new();
    decoded.iter().for_each(|entry| encoder.push(entry));
    assert_eq!(encoder.count(), decoded.len() as u64);
    let again: Result<Vec<FileEntry>, _> = EntryDecoder::new(&encoder.finish()).collect();
    assert_eq!(again, Ok(decoded), "entries");
}
