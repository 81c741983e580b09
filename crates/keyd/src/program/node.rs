//! `keyd run`: the node itself.

use std::io::Write;
use std::os::unix::process::CommandExt;

use crate::root::keep_memory_private;
use crate::service::{self, Ended, StateDirectory};
use anyhow::Context;
use capstan_keys::Argon2Cost;
use capstan_service::shutdown::ShutdownTrigger;
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::Run;
use super::log;

pub(super) fn run(asked: &Run, cost: Argon2Cost) -> anyhow::Result<()> {
    let (_, settings) = StateDirectory::open(&asked.state)?;
    log::begin(asked.log, &settings.name);
    if let Err(error) = keep_memory_private() {
        tracing::warn!(%error, "memory may reach the swap: encrypt the swap, or set LimitMEMLOCK=infinity in the unit");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the system gives no threads")?;
    let ended = runtime.block_on(async {
        let (trigger, shutdown) = ShutdownTrigger::new();
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("ending");
            trigger.begin();
        });
        // Whoever waited for it may have gone since.
        let ready = |service: &service::Service| {
            let _ = writeln!(std::io::stdout(), "keyd: node {} is ready", service.name());
        };
        service::run(&asked.state, cost, ready, shutdown).await
    });
    match ended? {
        Ended::Told => Ok(()),
        Ended::ToBeLocked => anew(),
    }
}

/// Puts the same program in the place of this one: nothing of what it had in memory is left.
fn anew() -> anyhow::Result<()> {
    let own = std::env::current_exe().ok().filter(|own| own.exists());
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "keyd".into());
    let own = own.unwrap_or_else(|| "/proc/self/exe".into());
    let error = std::process::Command::new(own).arg0(name).args(arguments).exec();
    Err(error).context("the node is locked and cannot begin anew by itself: start it again")
}
