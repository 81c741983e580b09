//! `keyd run`: the node itself.

use anyhow::Context;
use capstan_keyd::door::ShutdownTrigger;
use capstan_keyd::root::keep_memory_private;
use capstan_keyd::service::{self, StateDirectory};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::Run;
use super::log;

pub(super) fn run(asked: &Run) -> anyhow::Result<()> {
    let (_, settings) = StateDirectory::open(&asked.state)?;
    log::begin(asked.log, &settings.name);
    if let Err(error) = keep_memory_private() {
        tracing::warn!(%error, "memory may reach the swap: encrypt the swap, or set LimitMEMLOCK=infinity in the unit");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the system gives no threads")?;
    runtime.block_on(async {
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
        let ready = |service: &service::Service| println!("keyd: node {} is ready", service.name());
        service::run(&asked.state, ready, shutdown).await
    })
}
