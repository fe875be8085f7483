//! `gantry restore`: what a backup holds, back in its place.
//!
//! Everything is put beside its place first and checked; only then does it move. What was there before goes aside and is
//! not deleted. Into PostgreSQL rows are written at once, but the database is not a store before all of them were compared.

mod staged_files;
mod tables;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use contract::error::{ErrorCode, Refusal};
use ports::clock::Clock as _;
use ports::entropy::new_trace_id;
use serde_json::json;
use store::transfer::HeldJobs;

use super::backup::stamp;
use crate::backup_file::{BackupReader, StoreKind};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::machine::{OsEntropy, SystemClock};
use crate::plain_file;
use crate::store_place::StorePlace;
use staged_files::Staging;

/// Bring a backup back; no server may be running
///
/// gantry restore /mnt/backups/monday.tar.gz
///
/// A backup of SQLite becomes the store's file, one of PostgreSQL fills an empty database. Nothing that is there is written
/// over; with --force it is moved aside. Jobs that waited when the backup was made, and must not be done twice, come back as
/// `indeterminate`: `gantry jobs unknown` lists them.
#[derive(Debug, Args)]
pub(crate) struct RestoreCommand {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Another store than that of the configuration: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL", env = "GANTRY_BACKUP_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Move aside what is there
    #[arg(long)]
    force: bool,
    /// Let jobs run that waited when the backup was made, also those whose effects would happen twice if they were done since
    #[arg(long)]
    run_jobs: bool,
}

impl RestoreCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let head = open(&self.file)?.head().map_err(|error| unusable(&self.file, &error))?;
        let place = StorePlace::of(context, self.store.as_deref())?;
        let data_dir = context.data_dir();
        if let Some(running) = data_dir.running_server() {
            return Err(CommandFailure::new(format!("a server is running on this data directory ({})", running.url))
                .hint("stop it first; nothing was changed"));
        }
        let audit_dir = context.config(Vec::new())?.audit.dir(data_dir.path());
        let stamp = stamp(&SystemClock::start().now().to_string());
        let held = if self.run_jobs { None } else { Some(held_jobs()?) };
        let mut jobs_held = 0;
        let staging = Arc::new(Staging::new(&data_dir, &audit_dir, &place, self.force, &stamp));
        match (&place, head.store) {
            (StorePlace::Sqlite(_), StoreKind::Sqlite) => {
                staging.refuse_what_is_there(&head, None)?;
                staging.unpack(&self.file)?;
                if let Some(held) = &held {
                    jobs_held = staging.hold_jobs(held)?;
                }
            }
            (StorePlace::Postgres(url), StoreKind::Postgres) => {
                staging.refuse_what_is_there(&head, tables::in_the_way(&head, url).await?)?;
                jobs_held = tables::load(context, &self.file, &head, url, &staging, held.as_ref()).await?;
            }
            (StorePlace::Postgres(_), StoreKind::Sqlite) => {
                return Err(CommandFailure::usage("this is a backup of SQLite, and the store is PostgreSQL")
                    .hint("restore it with --store sqlite:PATH, then `gantry migrate copy` brings it over"));
            }
            (StorePlace::Sqlite(_), StoreKind::Postgres) => {
                return Err(CommandFailure::usage("this is a backup of PostgreSQL, and the store is SQLite")
                    .hint("name an empty database with --store postgres://…"));
            }
        }
        let aside = staging.put_in_place()?;
        let document = json!({
            "restored": self.file, "made_at": head.made_at, "audit_records": head.audit_records, "moved_aside": aside,
            "jobs_held": jobs_held,
        });
        context.printer.answer(&document, |_| {
            format!("restored as of {}, with {} audit records", head.made_at, head.audit_records)
        });
        for path in &aside {
            context.printer.note(&format!("what was there is now `{}`", path.display()));
        }
        if jobs_held > 0 {
            context.printer.warn(&format!(
                "{jobs_held} jobs waited or ran when the backup was made and may have been done since, so they are not begun: \
                 `gantry jobs unknown` lists them, `gantry jobs resolve ID` says what became of one, and `gantry jobs retry ID` \
                 begins it again; restore with --run-jobs if nothing was done since"
            ));
        }
        if self.run_jobs {
            context.printer.note("jobs that waited when the backup was made are begun as soon as a server starts");
        }
        if !head.has_keys {
            context.printer.note("no keys were in the backup: those of the data directory are used, or new ones made");
            if head.audit_records > 0 && !data_dir.signing_key_file().try_exists().unwrap_or(false) {
                context.printer.note(
                    "the restored audit log goes on only with its own keys: put them into `keys`, or move the folder \
                     `audit` away (`gantry audit verify --dir` still checks it), and the server begins a new log",
                );
            }
        }
        Ok(())
    }
}

/// How jobs end that must not be begun again by who restores them. (decision 0112)
fn held_jobs() -> Result<HeldJobs, CommandFailure> {
    let refusal = Refusal::new(
        ErrorCode::E3413,
        "the job waited when the backup was made from which this server was restored; nobody knows whether it was done since",
    )
    .hint(format!(
        "find out whether the effect happened, then say so: `gantry jobs resolve {} --happened` or `--did-not-happen`",
        HeldJobs::ANY_ID
    ))
    .details(json!({ "cause": "restored" }))
    .retryable(false);
    let mut envelope = json!(refusal.envelope(new_trace_id(&OsEntropy::open()?), None));
    if let Some(members) = envelope.as_object_mut() {
        members.insert("invocation_id".to_owned(), HeldJobs::ANY_ID.into());
    }
    Ok(HeldJobs { error: envelope.to_string(), now: SystemClock::start().now() })
}

/// The backup from its beginning.
fn open(path: &Path) -> Result<BackupReader<BufReader<File>>, CommandFailure> {
    let file = plain_file::open(path).map_err(|error| unusable(path, &error))?;
    Ok(BackupReader::new(BufReader::new(file)))
}

fn unusable(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be restored: {error}", path.display())).hint("nothing was changed")
}
