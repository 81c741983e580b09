//! The main job, shown on real trees.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: &std::path::Path, _: &Arguments) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("soon")
}
