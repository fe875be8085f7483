//! The `gantry` binary: commands, configuration, wiring.
//!
//! This file parses, picks a runtime and dispatches. Commands are in [`commands`], one file each; what they share is the
//! [`context`]. Nothing is decided here that the kernel decides: the CLI is one more client of it.

mod arguments;
mod audit_log;
mod backup_file;
mod catalogue;
mod client;
mod commands;
mod config;
mod context;
mod data_dir;
mod draft_registry;
mod failure;
#[cfg(debug_assertions)]
mod fault_points;
mod folder_watcher;
mod former_texts;
mod interruption;
mod key_vault;
mod lifespan;
mod machine;
mod manifest_file;
mod offline;
mod open_store;
mod outside;
mod package_cache;
mod plain_file;
mod policy_files;
mod printer;
mod progress_bar;
mod public_key_file;
mod reach;
mod redactor;
mod sealed_checkpoints;
mod sealed_deliveries;
mod sealed_jobs;
mod sealed_runs;
mod sealed_secrets;
mod sealed_servers;
mod secret_file;
mod secrets_folder;
mod server_trust;
mod shared_keys;
mod shell_word;
mod store_keys;
mod store_place;
mod store_seal;
#[cfg(test)]
mod test_kernel;
mod tls_files;
mod tool_folders;
mod tool_reference;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use arguments::GantryArguments;
use commands::CommandOutcome;
use context::CommandContext;
use failure::{CommandFailure, ExitStatus};

/// Calls are many small allocations; this allocator makes them cheaper than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The argument with which the server starts its own executable as the launcher of sandboxes.
pub(crate) const LAUNCHER_ARGUMENT: &str = "sandbox-launcher";

/// Ends as the parser of the command line wants it, with a document for whoever asked for one.
fn misused(error: &clap::Error) -> ! {
    let wants_json = std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if wants_json && let Some(document) = arguments::misuse_document(error) {
        printer::out(&printer::pretty(&document));
    }
    error.exit()
}

fn main() -> ExitCode {
    // Before anything else: the launcher must stay a process with one thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == LAUNCHER_ARGUMENT) {
        return sandbox::serve_launcher();
    }
    let matches = GantryArguments::command().try_get_matches().unwrap_or_else(|error| misused(&error));
    let arguments = GantryArguments::from_arg_matches(&matches).unwrap_or_else(|error| misused(&error));
    let context = CommandContext::new(arguments.global);
    if let Some((flag, command)) = arguments::idle_flag(&matches) {
        let failure =
            CommandFailure::usage(format!("`{flag}` does nothing for `gantry {command}`, which talks to no server"));
        context
            .printer
            .failure(&failure.hint("leave it out; `--data-dir` says which installation of this machine is meant"));
        return ExitCode::from(2);
    }
    let runtime = match arguments.command.runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            context.printer.failure(&CommandFailure::new(format!("the runtime cannot start: {error}")));
            return ExitCode::from(1);
        }
    };
    let outcome = runtime.block_on(arguments.command.run(&context));
    // Whatever still runs has had its time to drain; blocking threads are not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(CommandOutcome::Done) => ExitCode::SUCCESS,
        Ok(CommandOutcome::Unfit) => ExitCode::from(1),
        Err(failure) => {
            context.printer.failure(&failure);
            ExitCode::from(match failure.exit {
                ExitStatus::Failed => 1,
                ExitStatus::Usage => 2,
            })
        }
    }
}
