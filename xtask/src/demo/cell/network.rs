//! A network of the demonstration's own: each machine has a network namespace and an address, and a bridge joins them.
//! Where namespaces are forbidden, or `ip` is missing, all machines are on loopback.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Says that this process is in a namespace whose network has been made.
const IS_MADE: &str = "CAPSTAN_DEMO_NETWORK";
/// The first three numbers of every address.
const PREFIX: &str = "10.88.0";

/// Where the machines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// Each has a network namespace of its name.
    Namespaces,
    /// All of them are on loopback.
    Loopback,
}

impl Network {
    /// Where this process is. One that may have a network of its own starts anew inside it.
    pub(super) fn of_this_process(machines: &[&str]) -> Result<Self> {
        if env::var_os(IS_MADE).is_some() {
            return Ok(Self::Namespaces);
        }
        let unshared = |then: &str| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net", "--mount", "sh", "-c"]);
            command.arg(format!("{} && {then}", commands(machines)));
            command
        };
        let is_allowed = unshared(&format!("ip netns exec {} true", machines[0]))
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success());
        if !is_allowed {
            return Ok(Self::Loopback);
        }
        let program = env::current_exe()?;
        let failed =
            unshared("exec \"$0\" \"$@\"").arg(program).args(env::args_os().skip(1)).env(IS_MADE, "yes").exec();
        bail!("cannot start anew with a network of its own: {failed}")
    }

    /// What runs at a machine.
    pub(super) fn command(self, machine: &str, program: &Path) -> Command {
        match self {
            Self::Loopback => Command::new(program),
            Self::Namespaces => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", machine]).arg(program);
                command
            }
        }
    }

    /// Where a machine listens, by its place among all.
    pub(super) fn listens(self, machines: &[&str], machine: &str, port: u16) -> Result<String> {
        let at = machines.iter().position(|name| *name == machine).context("no such machine")?;
        Ok(match self {
            Self::Loopback => "127.0.0.1:0".to_owned(),
            Self::Namespaces => format!("{}:{port}", address(at)),
        })
    }

    /// Where the machines are, in words.
    pub(super) fn in_words(self, machines: &[&str]) -> String {
        match self {
            Self::Loopback => "All machines are on loopback: there are no network namespaces here.".to_owned(),
            Self::Namespaces => {
                let each: Vec<_> =
                    machines.iter().enumerate().map(|(at, name)| format!("{name} {}", address(at))).collect();
                format!("Each machine has a network namespace and an address: {}.", each.join(", "))
            }
        }
    }
}

fn address(at: usize) -> String {
    format!("{PREFIX}.{}", at + 1)
}

/// Makes the network, in a namespace of its own.
fn commands(machines: &[&str]) -> String {
    let begin = "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link add cell type bridge && ip link set cell up";
    let joins = machines.iter().enumerate().map(|(at, name)| {
        format!(
            "ip netns add {name} && ip link add to-{name} type veth peer name eth0 netns {name} && ip link set to-{name} \
             master cell up && ip -n {name} addr add {}/24 dev eth0 && ip -n {name} link set lo up && ip -n {name} link \
             set eth0 up",
            address(at)
        )
    });
    std::iter::once(begin.to_owned()).chain(joins).collect::<Vec<_>>().join(" && ")
}
