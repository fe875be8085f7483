//! The tables of a backup into an empty database.
//!
//! The file is read by a thread of its own, because its formats are read in one go; the rows come over a bounded channel.

use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use contract::canonical::Digest;
use store::transfer::{HeldJobs, MoveError, PostgresLoad, RowSum, StoreTable, read_line};
use tokio::sync::mpsc;

use super::super::backup::options;
use super::staged_files::Staging;
use super::{open, unusable};
use crate::backup_file::{BackupDigests, BackupHead};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::open_store::not_moved;
use crate::progress_bar::ProgressBar;

/// Parts that wait to be written; each is as much as was once fetched at once.
const PARTS_WAITING_MAX: usize = 2;

/// What the thread finds.
enum Part {
    Columns(String, Vec<String>),
    Lines(String, Vec<String>),
}

/// A table on its way.
struct Loading {
    table: StoreTable,
    /// Of all lines seen so far.
    sum: RowSum,
    /// So many of its rows are in the database.
    written: u64,
}

/// What keeps the tables of the backup out of the database, if they could not go there now.
pub(super) async fn in_the_way(head: &BackupHead, url: &str) -> Result<Option<MoveError>, CommandFailure> {
    match PostgresLoad::check(url, &options(), &mark(head)).await {
        Ok(()) => Ok(None),
        Err(error @ (MoveError::NotEmpty | MoveError::OtherCopy)) => Ok(Some(error)),
        Err(error) => Err(not_moved(url, &error)),
    }
}

/// Loads all tables, compares them with what the backup says they are, and makes a store of the database. Says how many jobs were
/// held.
pub(super) async fn load(
    context: &CommandContext,
    file: &Path,
    head: &BackupHead,
    url: &str,
    staging: &Arc<Staging>,
    held: Option<&HeldJobs>,
) -> Result<u64, CommandFailure> {
    let failed = |error: MoveError| not_moved(url, &error);
    let mut load = PostgresLoad::begin(url, &options(), Some(head.steps), &mark(head)).await.map_err(failed)?;
    let (sender, mut parts) = mpsc::channel(PARTS_WAITING_MAX);
    let (reader, files) = (open(file)?, Arc::clone(staging));
    let reading = tokio::task::spawn_blocking(move || {
        reader.each(|name, content| match in_table(name) {
            Some((table, part)) => send(&sender, table, part, content),
            None => files.take(name, content),
        })
    });
    let (mut bar, mut rows) = (ProgressBar::new(&context.printer), 0);
    let mut tables: Vec<Loading> = Vec::new();
    while let Some(part) = parts.recv().await {
        match part {
            Part::Columns(name, columns) => {
                let table = load.with_columns(&name, &columns).map_err(failed)?;
                let (written, _) = load.progress(&name).await.map_err(failed)?;
                tables.push(Loading { table, sum: RowSum::default(), written });
            }
            Part::Lines(name, lines) => {
                let loading = tables.last_mut().filter(|loading| loading.table.name == name);
                let loading = loading.ok_or_else(|| failed(MoveError::Damaged { table: name }))?;
                rows += u64::try_from(lines.len()).unwrap_or_default();
                loading.take(&mut load, &lines).await.map_err(failed)?;
                bar.at(&loading.table.name, rows, head.rows);
            }
        }
    }
    bar.end();
    let read =
        reading.await.map_err(|error| CommandFailure::new(format!("reading the backup was broken off: {error}")))?;
    let digests = read.map_err(|error| unusable(file, &error))?;
    compare(&load, &tables, &digests).await.map_err(failed)?;
    load.finish_holding(held).await.map_err(failed)
}

impl Loading {
    /// Writes those of the lines that are not written yet.
    async fn take(&mut self, load: &mut PostgresLoad, lines: &[String]) -> Result<(), MoveError> {
        let mut batch = Vec::with_capacity(lines.len());
        for line in lines {
            self.sum.add_line(line);
            if self.sum.rows() > self.written {
                let table = &self.table.name;
                let row =
                    read_line(line).ok_or_else(|| MoveError::Line { table: table.clone(), line: self.sum.rows() })?;
                batch.push(row);
            }
        }
        if !batch.is_empty() {
            self.written = self.sum.rows();
            load.write(&self.table, batch, self.written, &[]).await?;
        }
        Ok(())
    }
}

/// Every table must be there, be what the backup says, and be in the database as it is in the backup.
async fn compare(load: &PostgresLoad, tables: &[Loading], digests: &BackupDigests) -> Result<(), MoveError> {
    let lost = digests.tables.keys().find(|name| !tables.iter().any(|loading| loading.table.name == **name));
    if let Some(name) = lost {
        return Err(MoveError::Damaged { table: name.clone() });
    }
    for Loading { table, sum, .. } in tables {
        let said = digests.tables.get(&table.name);
        if !said.is_some_and(|said| said.rows == sum.rows() && said.digest == sum.digest()) {
            return Err(MoveError::Damaged { table: table.name.clone() });
        }
        let written = load.sum(table).await?;
        if written != *sum {
            return Err(MoveError::Differs { table: table.name.clone(), from: *sum, to: written });
        }
    }
    Ok(())
}

/// What tells this backup from others, so that a restoration that was broken off goes on with the same one only.
fn mark(head: &BackupHead) -> String {
    Digest::of_bytes(format!("{head:?}").as_bytes()).to_string()
}

/// The table and the part of it, if a name in the backup is of a table.
fn in_table(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("store/")?.split_once('/').filter(|(table, part)| !table.is_empty() && !part.contains('/'))
}

fn send(sender: &mpsc::Sender<Part>, table: &str, part: &str, content: &mut dyn Read) -> io::Result<()> {
    let part = if part == "columns.json" {
        let mut text = String::new();
        content.read_to_string(&mut text)?;
        Part::Columns(table.to_owned(), serde_json::from_str(&text)?)
    } else {
        Part::Lines(table.to_owned(), BufReader::new(content).lines().collect::<io::Result<_>>()?)
    };
    sender.blocking_send(part).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
}
