//! `gantry migrate …`: the shape of the store's tables. (STORE-007)
//!
//! A server migrates its store when it starts, so nobody has to run this. It is for whoever wants to do that apart from a
//! rollout, or with a role that may create tables while the server's own may not.

mod copy;

use clap::Subcommand;
use serde_json::json;
use store::SchemaSteps;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::open_store::{OpenStore, unusable};

/// Look at the shape of the store, bring it up to date, or copy it into a database
#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Say which steps are missing; exit code 1 if any is, or if a copy into the database was not finished
    Status,
    /// Take the missing steps, all or none
    ///
    /// Steps only add, so instances of the release before go on working meanwhile.
    Up,
    Copy(copy::MigrateCopyCommand),
}

impl MigrateCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        if let Self::Copy(command) = self {
            command.run(context).await?;
            return Ok(CommandOutcome::Done);
        }
        if matches!(self, Self::Up) {
            let (config, data_dir) = (context.config(Vec::new())?, context.data_dir());
            data_dir.create()?;
            OpenStore::open(&config.store, data_dir.path()).await?.close().await;
        }
        let (place, steps) = look(context).await?;
        let answer = json!({
            "store": place,
            "steps_taken": steps.taken,
            "steps_known": steps.known,
            "up_to_date": steps.missing() == 0,
        });
        context.printer.answer(&answer, |_| match (steps.missing(), steps.unknown()) {
            (0, 0) => format!("{place}: up to date, {} steps", steps.taken),
            (0, unknown) => format!(
                "{place}: {} steps, of which {unknown} are of a newer release that this one can work beside",
                steps.taken
            ),
            (missing, _) => format!("{place}: {missing} of {} steps are missing", steps.known),
        });
        Ok(if steps.missing() == 0 { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}

async fn look(context: &CommandContext) -> Result<(String, SchemaSteps), CommandFailure> {
    let config = context.config(Vec::new())?;
    match config.store.database() {
        Some(database) => {
            let steps = PostgresStore::steps(&database.url, &database.options()).await;
            Ok((database.shown(), steps.map_err(|error| unusable(&database.url, &error))?))
        }
        None => {
            let file = config.store.file(context.data_dir().path());
            let steps = SqliteStore::steps(&file).map_err(|error| CommandFailure::new(error.to_string()))?;
            Ok((format!("sqlite:{}", file.display()), steps))
        }
    }
}
