//! `gantry migrate copy`: everything from the file of one machine into the database of many.

use clap::Args;
use serde_json::{Map, Value, json};
use store::transfer::{MoveError, TransferProgress, copy_to_postgres};

use crate::commands::backup::options;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::interruption::unless_interrupted;
use crate::open_store::not_moved;
use crate::progress_bar::ProgressBar;
use crate::store_place::StorePlace;

/// Copy everything from SQLite into an empty PostgreSQL database, and compare the two; no server may be running
///
/// gantry migrate copy --from sqlite:.gantry/gantry.db --to postgres://gantry:PASSWORD@db/gantry
///
/// A copy that was broken off goes on where it was when the same command is given again. The SQLite file is only read.
#[derive(Debug, Args)]
pub(crate) struct MigrateCopyCommand {
    /// The store to read: sqlite:PATH [default: that of the configuration]
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// The empty database: postgres://USER:PASSWORD@HOST:PORT/DATABASE
    #[arg(long, value_name = "URL", env = "GANTRY_COPY_TO", hide_env_values = true)]
    to: String,
}

impl MigrateCopyCommand {
    pub(super) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let from = match &self.from {
            Some(url) => StorePlace::parse("--from", url)?,
            None => StorePlace::of(context, None)?,
        };
        // The address itself may hold a password, and is not repeated.
        let Ok(StorePlace::Postgres(to)) = StorePlace::parse("--to", &self.to) else {
            return Err(elsewhere("--to must be postgres://USER:PASSWORD@HOST:PORT/DATABASE"));
        };
        let StorePlace::Sqlite(from) = from else {
            return Err(elsewhere("a copy goes from sqlite:PATH to postgres://…"));
        };
        let mut bar = ProgressBar::new(&context.printer);
        let mut show = |at: TransferProgress<'_>| bar.at(at.doing, at.rows, at.rows_total);
        let copied = unless_interrupted(copy_to_postgres(&from, &to, &options(), &mut show)).await;
        bar.end();
        let copied = copied?.ok_or_else(|| {
            CommandFailure::new("the copy was broken off").hint(
                "give the same command again and it goes on where it was; until then no server opens the database",
            )
        })?;
        let copied = copied.map_err(|error| failure(&to, &error))?;
        let rows: u64 = copied.tables.iter().map(|of| of.sum.rows()).sum();
        let tables: Map<String, Value> = copied
            .tables
            .iter()
            .map(|of| (of.table.clone(), json!({ "rows": of.sum.rows(), "digest": of.sum.digest() })))
            .collect();
        context.printer.answer(&json!({ "rows": rows, "resumed": copied.resumed, "tables": tables }), |printer| {
            let lines = copied.tables.iter().filter(|of| of.sum.rows() > 0);
            let table = printer.table(
                ["table", "rows", "digest"],
                lines.map(|of| [of.table.clone(), of.sum.rows().to_string(), of.sum.digest()]),
            );
            format!("{table}\n{rows} rows copied and compared")
        });
        context
            .printer
            .note("now set `[store] url` to the database and start the server; keep the file until you are sure");
        Ok(())
    }
}

fn elsewhere(message: &str) -> CommandFailure {
    CommandFailure::usage(message)
        .hint("`gantry backup` and `gantry restore` move a store to another file or database of its kind")
}

fn failure(to: &str, error: &MoveError) -> CommandFailure {
    let failure = not_moved(to, error);
    match error {
        MoveError::Sqlite(_) | MoveError::Statement { .. } => {
            failure.hint("the SQLite file was only read: once this is mended, the same command goes on where it was")
        }
        _ => failure,
    }
}
