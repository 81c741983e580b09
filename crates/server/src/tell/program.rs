//! A message as JSON on the standard input of a program.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::TellError;
use super::message::TellMessage;

/// How often it is looked whether the program has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// So much of what the program says is kept for the message that it failed.
const SAID_MAX: usize = 300;
/// How long it is waited for what the program said before it ended.
const SAID_WITHIN: Duration = Duration::from_millis(200);

/// Runs the program to its end; it and all that it began are killed after the time, or when it is to stop.
pub(super) fn run(
    command: &[String],
    host: &str,
    message: &TellMessage,
    secrets: &[String],
    (patience, stop): (Duration, &AtomicBool),
) -> Result<(), TellError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let failed = |reason: String| TellError::Command { program: program.clone(), reason };
    let mut started = Command::new(program);
    started.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    started.env("CAPSTAN_EVENT", message.events()).env("CAPSTAN_SUBJECT", message.subject(host));
    for secret in secrets {
        started.env_remove(secret);
    }
    let mut child = started.spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
    let text = format!("{}\n", message.json(host));
    let (say, said) = mpsc::channel();
    // Neither a program that does not read nor one that says much holds this thread.
    if let Err(error) = mind(&mut child, text, say) {
        kill(&mut child);
        return Err(failed(format!("its input and output cannot be minded: {error}")));
    }
    let until = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if stop.load(Ordering::Relaxed) => {
                kill(&mut child);
                return Err(TellError::Stopped);
            }
            Ok(None) if Instant::now() >= until => {
                kill(&mut child);
                return Err(failed(format!("it did not end within {} s, and was killed", patience.as_secs_f32())));
            }
            Ok(None) => thread::sleep(LOOKS),
            Err(error) => {
                kill(&mut child);
                return Err(failed(format!("it cannot be waited for: {error}")));
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = said.recv_timeout(SAID_WITHIN).unwrap_or_default();
    let said = if said.is_empty() { said } else { format!(": {said}") };
    Err(failed(format!("it ended with {status}{said}")))
}

/// Writes the program's input, and reads what it says, each in a thread of its own.
fn mind(child: &mut Child, text: String, say: Sender<String>) -> std::io::Result<()> {
    if let Some(mut input) = child.stdin.take() {
        let write = move || {
            // It need not read what it does not need.
            let _ = input.write_all(text.as_bytes());
        };
        thread::Builder::new().name("tell input".to_owned()).spawn(write)?;
    }
    if let Some(output) = child.stderr.take() {
        let read = move || drop(say.send(read_all(output)));
        thread::Builder::new().name("tell output".to_owned()).spawn(read)?;
    }
    Ok(())
}

/// Reads to the end, and keeps the beginning in a line.
fn read_all(mut from: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let room = SAID_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..len.min(room)]);
    }
    String::from_utf8_lossy(&kept).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Kills the program with all that it began, which may hold its output open.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
