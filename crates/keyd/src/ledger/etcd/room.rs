//! How much room members have: each says how large its file is, and whether it has met its quota.
//!
//! etcd refuses what would take the file of a member past its quota, however much of that file is free; it then raises
//! an alarm, and takes nothing any more before somebody has made room and has disarmed it. So what counts is the
//! largest file.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::EtcdTiming;
use super::members::{Members, nobody};
use crate::ledger::{LedgerError, Room};

/// How an alarm for want of room is named among the errors of a member's status.
const NO_SPACE: &str = "NOSPACE";

pub(super) async fn room(
    members: &Members,
    timing: &EtcdTiming,
    quota_bytes: u64,
) -> Result<Option<Room>, LedgerError> {
    let deadline = Instant::now() + timing.answer;
    let asked = members.all().map(async |member| {
        let mut client = member.client().maintenance_client();
        member.ask(deadline, client.status()).await
    });
    let (mut room, mut refused) = (None, None);
    for status in join_all(asked).await {
        match status {
            Ok(status) => {
                let positive = |bytes: i64| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0);
                let of_member = Room {
                    used_bytes: positive(status.db_size()).unwrap_or(0),
                    quota_bytes: positive(status.db_size_quota()).unwrap_or(quota_bytes),
                    is_full: status.errors().iter().any(|error| error.contains(NO_SPACE)),
                };
                room = Some(room.map_or(of_member, |room: Room| Room {
                    used_bytes: room.used_bytes.max(of_member.used_bytes),
                    quota_bytes: room.quota_bytes.min(of_member.quota_bytes),
                    is_full: room.is_full || of_member.is_full,
                }));
            }
            Err(failure) => refused = Some(failure.of_read()),
        }
    }
    room.map(Some).ok_or_else(|| refused.unwrap_or_else(nobody))
}
