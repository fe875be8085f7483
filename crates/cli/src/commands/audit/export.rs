//! `gantry audit export`: records that can be checked elsewhere, or CloudEvents.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use audit::{LogReader, RecordRange};
use clap::{Args, ValueEnum};

use super::{dir, unreadable};
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Records read at once.
const AT_ONCE: usize = 1_000;

/// Write records as JSON lines, with the proof that they are all there and unchanged
///
/// gantry audit export --from 1000 --to 2000 --out march.jsonl
#[derive(Debug, Args)]
pub(crate) struct AuditExportCommand {
    /// The number of the first record
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The number after that of the last record [default: as far as a checkpoint covers]
    #[arg(long)]
    to: Option<u64>,
    /// What to write
    #[arg(long, value_enum, default_value = "proven")]
    format: Format,
    /// The file to write; must not be there yet [default: standard output]
    #[arg(long)]
    out: Option<PathBuf>,
    /// The directory of the log [default: that of the configuration]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// The exact lines after a line with checkpoint and proof, for `gantry audit verify --export`
    Proven,
    /// CloudEvents 1.0, one per line, without proof
    Cloudevents,
}

impl AuditExportCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let dir = dir(context, self.dir.clone())?;
        let there = audit::records_in(&dir).map_err(|error| unreadable(&dir, &error))?;
        // An empty export would be taken for an answer.
        if self.from >= there || self.to.is_some_and(|to| to <= self.from) {
            let wanted = self.to.map_or_else(|| "the end".to_owned(), |to| to.to_string());
            return Err(CommandFailure::new(format!("there are no records from {} to before {wanted}", self.from))
                .hint(format!("the log has {there}, from 0")));
        }
        let failed = |error: io::Error| match &self.out {
            Some(out) if error.kind() == io::ErrorKind::AlreadyExists => {
                CommandFailure::new(format!("`{}` is there already", out.display())).hint("name another file")
            }
            _ => unreadable(&dir, &error),
        };
        let count = match &self.out {
            Some(out) => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(out).map_err(failed)?;
                self.write(&dir, &mut BufWriter::new(file)).map_err(failed)?
            }
            None => self.write(&dir, &mut BufWriter::new(io::stdout().lock())).map_err(failed)?,
        };
        context.printer.note(&format!("{count} records"));
        Ok(())
    }

    fn write(&self, dir: &Path, out: &mut impl Write) -> io::Result<u64> {
        match self.format {
            Format::Proven => audit::export(dir, RecordRange { from: self.from, to: self.to }, out),
            Format::Cloudevents => self.write_events(dir, out),
        }
    }

    fn write_events(&self, dir: &Path, out: &mut impl Write) -> io::Result<u64> {
        let reader = LogReader::open(dir)?;
        let mut next = self.from;
        loop {
            let left = self.to.map_or(AT_ONCE, |to| usize::try_from(to.saturating_sub(next)).unwrap_or(AT_ONCE));
            let entries = reader.read(next, left.min(AT_ONCE))?;
            if entries.is_empty() {
                out.flush()?;
                return Ok(next.saturating_sub(self.from));
            }
            next += entries.len() as u64;
            for entry in entries {
                let event = audit::cloud_event(&entry.line);
                let event = event.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                serde_json::to_writer(&mut *out, &event)?;
                out.write_all(b"\n")?;
            }
        }
    }
}
