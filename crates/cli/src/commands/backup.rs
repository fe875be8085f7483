//! `gantry backup`: store and audit log into one file, while the server runs.
//!
//! The store is taken first and the audit log after it, so that whatever the store says happened has its record.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ports::clock::Clock as _;
use serde_json::json;
use store::postgres::PostgresOptions;
use store::transfer::{ClearColumn, MoveError, PostgresDump, RowCell, RowSum, back_up, forget_clear_texts, write_line};

use crate::backup_file::{BackupHead, BackupWriter, DATABASE, FORMAT, StoreKind, TableDigest};
use crate::context::CommandContext;
use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::former_texts::clear_columns;
use crate::machine::SystemClock;
use crate::open_store::not_moved;
use crate::progress_bar::ProgressBar;
use crate::store_place::StorePlace;

/// How long one statement may take while a store is moved.
pub(super) const STATEMENT_MAX: Duration = Duration::from_mins(10);
/// Where a running server signs what came last.
const CHECKPOINT: &str = "/v1/audit/checkpoint";
/// How often the size of a growing file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Copy the store and the audit log into one file; the server may go on running
///
/// gantry backup --to /mnt/backups/monday.tar.gz
///
/// The audit log is copied as far as its newest checkpoint covers it; a running server is asked to sign one first, so that every
/// record of what was answered before is in it. Secrets (signing keys, admin token) are left out unless
/// --with-keys is given: whoever has them can speak for this server. So is what should be sealed in the store and is not:
/// parameters of background calls, what workflows are asked and answer, what webhooks are told, secrets in MCP servers.
#[derive(Debug, Args)]
pub(crate) struct BackupCommand {
    /// The file to make [default: gantry-backup-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Another store than that of the configuration: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL", env = "GANTRY_BACKUP_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Put the secrets of the data directory into it
    #[arg(long)]
    with_keys: bool,
}

impl BackupCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let place = StorePlace::of(context, self.store.as_deref())?;
        let data_dir = context.data_dir();
        let audit_dir = context.config(Vec::new())?.audit.dir(data_dir.path());
        let now = SystemClock::start().now().to_string();
        let to = self.to.unwrap_or_else(|| PathBuf::from(format!("gantry-backup-{}.tar.gz", stamp(&now))));
        let cannot = |error: &io::Error| CommandFailure::new(format!("`{}` cannot be written: {error}", to.display()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to).map_err(|error| {
            cannot(&error).hint(match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "name another file with --to; a backup is never written over another one"
                }
                io::ErrorKind::NotFound => "make its folder first, or name another file with --to",
                _ => "name a file with --to whose folder this user may write to",
            })
        })?;
        let making = Making { context, data_dir: &data_dir, audit_dir: &audit_dir, with_keys: self.with_keys, now };
        let made = match &place {
            StorePlace::Sqlite(path) => making.of_sqlite(path, &to, file).await,
            StorePlace::Postgres(url) => making.of_postgres(url, file).await,
        };
        let made = match made {
            Ok(made) => made,
            Err(failure) => {
                // Half a backup would be refused, but should not lie about either.
                let _ = std::fs::remove_file(&to);
                return Err(failure);
            }
        };
        let bytes = std::fs::metadata(&to).map_err(|error| cannot(&error))?.len();
        let document = json!({
            "file": to, "bytes": bytes, "audit_records": made.audit_records, "rows": made.rows,
            "has_keys": self.with_keys, "parameters_left_out": made.left_out,
        });
        context.printer.answer(&document, |_| {
            let rows = made.rows.map(|rows| format!("{rows} rows, ")).unwrap_or_default();
            format!("{}: {bytes} bytes, {rows}{} audit records", to.display(), made.audit_records)
        });
        if made.left_out > 0 {
            context.printer.note(&format!(
                "{} things are readable in the store that should be sealed (parameters of background calls, what workflows and \
                 webhooks are told, secrets in MCP servers), so they are not in the backup: what needs them cannot be done \
                 where it is restored. Give the store a key (`[store] seal_key_file`), or use --with-keys",
                made.left_out
            ));
        }
        if !self.with_keys {
            context.printer.note("the keys of the data directory are not in it: keep them apart, or use --with-keys");
        }
        Ok(())
    }
}

/// What all backups have in common.
struct Making<'a> {
    context: &'a CommandContext,
    data_dir: &'a DataDir,
    audit_dir: &'a Path,
    with_keys: bool,
    now: String,
}

struct Made {
    audit_records: u64,
    /// Where they were counted.
    rows: Option<u64>,
    /// What was readable in the store, should not be, and is not in the backup.
    left_out: usize,
}

impl Making<'_> {
    async fn of_sqlite(&self, path: &Path, to: &Path, file: File) -> Result<Made, CommandFailure> {
        let mut copy = to.to_owned().into_os_string();
        copy.push(".store");
        let copy = Temporary(PathBuf::from(copy));
        let total = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut bar = ProgressBar::new(&self.context.printer);
        let mut copying = tokio::task::spawn_blocking({
            let (from, to, with_keys) = (path.to_owned(), copy.0.clone(), self.with_keys);
            move || {
                back_up(&from, &to)?;
                if with_keys { Ok(0) } else { forget_clear_texts(&to, &clear_columns()) }
            }
        });
        let copied = loop {
            tokio::select! {
                done = &mut copying => break done,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    bar.at("copying the store", std::fs::metadata(&copy.0).map_or(0, |metadata| metadata.len()), total);
                }
            }
        };
        bar.end();
        let left_out = copied
            .map_err(|error| CommandFailure::new(format!("the copy of the store was broken off: {error}")))?
            .map_err(|error| CommandFailure::new(error.to_string()))?;
        let covered = self.covered().await?;
        let mut writer = self.begin(file, StoreKind::Sqlite, (0, 0), covered.records)?;
        add_file(&mut writer, DATABASE, &copy.0, None)?;
        self.end(writer, &covered)?;
        Ok(Made { audit_records: covered.records, rows: None, left_out })
    }

    async fn of_postgres(&self, url: &str, file: File) -> Result<Made, CommandFailure> {
        let failed = |error: MoveError| not_moved(url, &error);
        let mut dump = PostgresDump::begin(url, &options()).await.map_err(failed)?;
        let total = dump.count().await.map_err(failed)?;
        // The log goes on while the tables are read, but its copy is of what was signed by then: not less than the tables.
        let covered = self.covered().await?;
        let mut writer = self.begin(file, StoreKind::Postgres, (dump.steps(), total), covered.records)?;
        let (mut bar, mut rows, mut left_out) = (ProgressBar::new(&self.context.printer), 0, 0);
        for table in dump.tables().to_vec() {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let place = |of: ClearColumn| {
                let place = columns.iter().position(|name| *name == of.column)?;
                (table.name == of.table).then_some((place, of))
            };
            let sealed: Vec<(usize, ClearColumn)> = clear_columns().into_iter().filter_map(place).collect();
            let of_table = |name: &str| format!("store/{}/{name}", table.name);
            let text = serde_json::to_string(&columns).map_err(|error| CommandFailure::new(error.to_string()))?;
            writer.add_text(&of_table("columns.json"), &text).map_err(|error| unwritable(&error))?;
            let (mut sum, mut number) = (RowSum::default(), 0_u32);
            dump.open(&table).await.map_err(failed)?;
            loop {
                let mut fetched = dump.fetch(&table).await.map_err(failed)?;
                if fetched.is_empty() {
                    break;
                }
                for (place, of) in sealed.iter().filter(|_| !self.with_keys) {
                    let cells = fetched.iter_mut().filter_map(|row| row.get_mut(*place));
                    left_out += cells.filter_map(|cell| forget_if_clear(cell, of)).count();
                }
                let mut lines = String::new();
                for row in &fetched {
                    let line = write_line(row);
                    sum.add_line(&line);
                    lines.push_str(&line);
                    lines.push('\n');
                }
                number += 1;
                writer
                    .add_text(&of_table(&format!("{number:06}.jsonl")), &lines)
                    .map_err(|error| unwritable(&error))?;
                rows += u64::try_from(fetched.len()).unwrap_or_default();
                bar.at(&table.name, rows, total);
            }
            writer.table(&table.name, TableDigest { rows: sum.rows(), digest: sum.digest() });
        }
        bar.end();
        dump.end().await;
        self.end(writer, &covered)?;
        Ok(Made { audit_records: covered.records, rows: Some(rows), left_out })
    }

    /// What of the audit log is signed, after the server was asked to sign all of it.
    async fn covered(&self) -> Result<audit::CoveredExtent, CommandFailure> {
        let signed = match self.data_dir.running_server() {
            Some(_) => match self.context.client() {
                Ok(client) => client.get(CHECKPOINT).await.map(|_| true).map_err(CommandFailure::from),
                Err(failure) => Err(failure),
            },
            None => Ok(false),
        };
        let covered = audit::covered(self.audit_dir).map_err(|error| unreadable(self.audit_dir, &error))?;
        let missing = audit::records_in(self.audit_dir).unwrap_or(0).saturating_sub(covered.records);
        match signed {
            // What came since is of after the backup began.
            Ok(true) => {}
            Ok(false) if missing == 0 => {}
            Ok(false) => self.context.printer.warn(&format!(
                "{missing} audit records that no checkpoint covers are not in it; the server signs them when it starts"
            )),
            Err(failure) => self.context.printer.warn(&format!(
                "the running server signed no checkpoint ({}); {missing} audit records are not in the backup",
                failure.message
            )),
        }
        Ok(covered)
    }

    fn begin(
        &self,
        file: File,
        store: StoreKind,
        (steps, rows): (i32, u64),
        audit_records: u64,
    ) -> Result<BackupWriter<BufWriter<File>>, CommandFailure> {
        let head = BackupHead {
            format: FORMAT,
            gantry: env!("CARGO_PKG_VERSION").to_owned(),
            made_at: self.now.clone(),
            store,
            steps,
            audit_records,
            rows,
            has_keys: self.with_keys,
        };
        BackupWriter::begin(BufWriter::new(file), &head).map_err(|error| unwritable(&error))
    }

    /// What comes after the store, and the end.
    fn end(
        &self,
        mut writer: BackupWriter<BufWriter<File>>,
        covered: &audit::CoveredExtent,
    ) -> Result<(), CommandFailure> {
        for extent in &covered.files {
            add_file(&mut writer, &format!("audit/{}", extent.name), &extent.path, Some(extent.bytes))?;
        }
        if self.with_keys {
            for name in secrets(self.data_dir).map_err(|error| unreadable(self.data_dir.path(), &error))? {
                add_file(&mut writer, &format!("data/{name}"), &self.data_dir.path().join(&name), None)?;
            }
        }
        let file = writer.finish().map_err(|error| unwritable(&error))?;
        let file = file.into_inner().map_err(|error| unwritable(error.error()))?;
        file.sync_all().map_err(|error| unwritable(&error))
    }
}

fn add_file(
    writer: &mut BackupWriter<BufWriter<File>>,
    name: &str,
    path: &Path,
    bytes: Option<u64>,
) -> Result<(), CommandFailure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let whole = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    writer.add(name, file, bytes.unwrap_or(whole)).map_err(|error| unwritable(&error))
}

/// Takes a text out of a copy, if it could be read there.
fn forget_if_clear(cell: &mut RowCell, of: &ClearColumn) -> Option<()> {
    let RowCell::Text(text) = cell else { return None };
    *text = of.forgotten(text)?;
    Some(())
}

/// The files of a data directory that are secret, by their names in it.
fn secrets(data_dir: &DataDir) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = ["admin.token", "webhook.key"].map(str::to_owned).to_vec();
    names.retain(|name| data_dir.path().join(name).is_file());
    for folder in ["keys", "keys/retired"] {
        let entries = match std::fs::read_dir(data_dir.path().join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if let (true, Some(name)) = (entry.file_type()?.is_file(), entry.file_name().to_str()) {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

/// What PostgreSQL is asked with while a store is moved.
pub(super) fn options() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.connections_max = 2;
    options.statement_max = STATEMENT_MAX;
    options
}

/// A moment as part of a file's name.
pub(super) fn stamp(moment: &str) -> String {
    let seconds = moment.split_once('.').map_or(moment, |(seconds, _)| seconds);
    seconds.chars().filter(|sign| sign.is_ascii_alphanumeric()).collect()
}

fn unreadable(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be read: {error}", path.display()))
}

fn unwritable(error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("the backup cannot be written: {error}")).hint("check that the disk has free space")
}

/// A file that goes when it is not needed any more.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_becomes_part_of_a_name() {
        assert_eq!(stamp("2026-11-16T17:59:28.123Z"), "20261116T175928");
    }
}
