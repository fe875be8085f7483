//! `gantry tool build`: installs the packages that a tool's folder names into the folder. (decision 0107)

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::commands::import::package_step::InstallBar;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::interruption::unless_interrupted;
use crate::manifest_file;
use crate::package_cache::tool_packages::{self, BuiltPackages};

/// Install the packages that a tool's folder names: requirements.txt, pyproject.toml, package.json
///
/// They go into the folder itself, with a lock file and a digest, and come with it wherever it goes. Python needs uv,
/// Node.js npm.
#[derive(Debug, Args)]
pub(crate) struct ToolBuildCommand {
    /// The tool's folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Let packages run their install scripts, and be built, as you and outside of every sandbox
    #[arg(long)]
    allow_install_scripts: bool,
}

impl ToolBuildCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let manifest = manifest_file::read(&self.dir)?;
        let id = manifest.id().map_err(|error| CommandFailure::new(error.to_string()))?;
        let (printer, name) = (&context.printer, id.to_string());
        let progress = InstallBar { printer, name: &name };
        let building = tool_packages::build(&self.dir, &manifest, self.allow_install_scripts, &progress);
        let built = unless_interrupted(building).await?;
        printer.redraw("");
        let built = built.ok_or_else(|| {
            CommandFailure::new("broken off: the packages of the tool are not whole")
                .hint("build it again before it is called")
        })??;
        let Some(BuiltPackages { record, warnings }) = built else {
            let text = format!("{id} names no packages: nothing had to be installed");
            printer.answer(&json!({ "tool_id": id, "built": false }), |_| text);
            return Ok(());
        };
        let files: Vec<&str> = record.sources.iter().map(|source| source.file.as_str()).collect();
        let document = json!({ "tool_id": id, "built": true, "digest": record.digest, "sources": files,
            "bytes": record.bytes, "scripts": record.scripts });
        printer.answer(&document, |_| {
            format!(
                "{id}: what {} names is installed, {} KiB, {}",
                files.join(" and "),
                record.bytes >> 10,
                record.digest
            )
        });
        warnings.iter().for_each(|warning| printer.warn(warning));
        Ok(())
    }
}
