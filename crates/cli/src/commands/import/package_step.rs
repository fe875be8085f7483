//! The step between reading a server and adding it: its package is installed, and it is started from there. (decision 0090)
//!
//! Whoever adds the server installs it, by this command and on this machine. So this is done only for the Gantry that runs on the
//! data directory of the command; a server elsewhere fetches its package itself, as it did before.

use clap::Args;
use upstreams::import::{ImportedServer, start_from};

use super::machine::ThisMachine;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::interruption::unless_interrupted;
use crate::package_cache::{AddingGuard, InstallProgress, PackageCache};
use crate::printer::{Printer, visible};

/// Whether and how packages are installed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct PackageFlags {
    /// Leave `npx` and `uvx` as they are: they fetch the package at each start, from inside the sandbox
    #[arg(long)]
    pub(crate) no_package: bool,
    /// Let packages run their install scripts, and be built, as you and outside of every sandbox
    #[arg(long, conflicts_with = "no_package")]
    pub(crate) allow_install_scripts: bool,
}

impl PackageFlags {
    /// A server at an address has no package.
    pub(crate) fn refuse_for_address(self) -> Result<(), CommandFailure> {
        let given = [(self.no_package, "--no-package"), (self.allow_install_scripts, "--allow-install-scripts")];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            None => Ok(()),
            Some((_, flag)) => Err(CommandFailure::usage(format!("`{flag}` does nothing for a server at an address"))
                .hint("leave it out: packages are of programs")),
        }
    }
}

/// Installs packages for servers.
#[derive(Debug)]
pub(crate) struct PackageStep<'a> {
    context: &'a CommandContext,
    cache: PackageCache,
    scripts: bool,
    _adding: AddingGuard,
}

/// Does the Gantry that is spoken with run on this data directory, so that what is installed there is of use to it?
pub(crate) fn is_here(context: &CommandContext) -> bool {
    match context.data_dir().running_server() {
        Some(running) => running.url.trim_end_matches('/') == context.server_url(),
        None => context.global.server.is_none(),
    }
}

/// The folder of packages of this data directory.
pub(crate) fn cache(context: &CommandContext) -> Result<PackageCache, CommandFailure> {
    Ok(PackageCache::at(context.config(Vec::new())?.upstreams.packages_dir(context.data_dir().path())))
}

impl<'a> PackageStep<'a> {
    /// For these servers; `None` if none of them has a package.
    pub(crate) fn new(
        context: &'a CommandContext,
        servers: &[ImportedServer],
        scripts: bool,
    ) -> Result<Option<Self>, CommandFailure> {
        if servers.iter().all(|server| server.package.is_none()) {
            return Ok(None);
        }
        let cache = cache(context)?;
        let _adding = cache.adding()?;
        Ok(Some(Self { context, cache, scripts, _adding }))
    }

    /// Installs the package of a server, if it has one, and starts it from there.
    pub(crate) async fn install(&self, server: &mut ImportedServer) -> Result<(), CommandFailure> {
        let Some(request) = &server.package else { return Ok(()) };
        let printer = &self.context.printer;
        let (name, packages) = (server.name.clone(), request.packages.join(", "));
        printer.note(&format!("{name}: installing {} …", visible(&packages)));
        let progress = InstallBar { printer, name: &name };
        let filled = unless_interrupted(self.cache.fill(request, self.scripts, &progress)).await?;
        printer.redraw("");
        let filled = filled.ok_or_else(|| CommandFailure::new("broken off: nothing of the package was kept"))??;
        let pin = &filled.installed.pin;
        printer.note(&format!("{name}: {} → {}", visible(&pin.written.join(" ")), pin.sentence()));
        for warning in &filled.warnings {
            printer.warn(&format!("{name}: {}", visible(warning)));
        }
        let machine = ThisMachine { environment: self.context.environment(), file: None, keeps_packages: true };
        let said = server.warnings.len();
        for grant in start_from(server, &filled.installed, &machine) {
            printer.note(&format!("{name}: may touch {} – {}", visible(&grant.permission), grant.why));
        }
        for warning in server.warnings.iter().skip(said) {
            printer.warn(&format!("{name}: {}", visible(warning)));
        }
        Ok(())
    }
}

/// Tells a person who waits.
pub(crate) struct InstallBar<'a> {
    pub(crate) printer: &'a Printer,
    /// What is installed for whom.
    pub(crate) name: &'a str,
}

impl InstallProgress for InstallBar<'_> {
    fn at(&self, bytes: u64, seconds: u64) {
        self.printer.redraw(&format!("{}: installing … {} MiB, {seconds} s", self.name, bytes >> 20));
    }
}
