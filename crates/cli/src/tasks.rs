//! Tasks that a user of a cell has its server do: what they say, until they end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use capstan_server::cell::users::task_words::{TaskBegun, TaskEnd};

use crate::door::Door;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::progress::{stop_all_on_interrupt, waiting_for_server};

/// How long a server may be away of which a task is waited for, and how often it is asked meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(60);
const ASKS_AGAIN: Duration = Duration::from_secs(2);

/// Waits for a task, and says what it says. Whoever stops the command stops the task, as soon as it waits for a drive
/// or a person.
///
/// # Errors
/// It was not done, or the server stays away.
pub(crate) fn until_ended(cli: &Globals, server: &Door, task: TaskBegun) -> Result<TaskEnd, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    stop_all_on_interrupt(&stop);
    let tell_server = || {
        if let Err(failure) = server.stop_task(task) {
            eprintln!("capstan: the task goes on: {failure}");
        }
    };
    waiting_for_server(&stop, tell_server, || heard_to_its_end(cli, server, task))
}

fn heard_to_its_end(cli: &Globals, server: &Door, task: TaskBegun) -> Result<TaskEnd, Failure> {
    let (mut heard, mut away_since) = (0, None);
    loop {
        let seen = match server.task_seen(task, heard)? {
            Ok(seen) => seen,
            Err(reason) => {
                let since = *away_since.get_or_insert_with(Instant::now);
                if since.elapsed() > AWAY_MAX {
                    return Err(Failure::Other(format!(
                        "the server is away ({reason}), and may have done it all the same: look before you ask again"
                    )));
                }
                sleep(ASKS_AGAIN);
                continue;
            }
        };
        away_since = None;
        heard += seen.messages.len();
        for message in seen.messages.iter().filter(|_| !cli.quiet && !cli.json) {
            eprintln!("{message}");
        }
        match seen.ended {
            None => {}
            Some(TaskEnd { failure: Some(failure), .. }) => return Err(Failure::Other(failure)),
            Some(end) => return Ok(end),
        }
    }
}
