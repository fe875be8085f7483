//! What tests need that is not built here: real servers, which must be up, programs of the system, which must be installed
//! ([`programs`]), and the MCP servers, clients and suites of others ([`peers`]). One thing only is for a command of its own
//! ([`tansu`]).
//!
//! The embedded backends need none, so the list is empty and says so. A service is one row here: its name, how it is
//! started, and the question whose answer proves it is ready. `cargo xtask test` starts every row and fails when one
//! does not come up: a test that wants a server never passes for want of it.

use anyhow::{Result, bail};

pub(crate) mod peers;
mod programs;
pub(crate) mod tansu;

/// A server of the tests.
pub(crate) struct TestService {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Result<()>,
    pub(crate) stop: fn() -> Result<()>,
    pub(crate) is_ready: fn() -> Result<bool>,
}

/// All of them.
pub(crate) const SERVICES: &[TestService] = &[];

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("start") => start_all()?,
        Some("stop") => SERVICES.iter().try_for_each(|service| (service.stop)())?,
        Some("status") | None => {}
        Some(other) => bail!("there is no `services {other}`: use start, stop or status"),
    }
    if SERVICES.is_empty() {
        println!("services: none to start, the tests use the embedded backends only");
    }
    for service in SERVICES {
        println!("{}: {}", service.name, if (service.is_ready)()? { "ready" } else { "not running" });
    }
    programs::status().iter().chain(&peers::status()).for_each(|line| println!("{line}"));
    Ok(())
}

/// Installs every program, starts every service, and insists that each is ready.
pub(crate) fn start_all() -> Result<()> {
    programs::provide()?;
    peers::provide()?;
    for service in SERVICES {
        (service.start)()?;
        if !(service.is_ready)()? {
            bail!("the service `{}` did not become ready; the tests that need it cannot be run", service.name);
        }
    }
    Ok(())
}
