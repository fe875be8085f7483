//! What every command is given: flags, environment, printer, and the way to data directory, configuration and server.
//!
//! The environment is read here, once; everything below takes values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::arguments::GlobalFlags;
use crate::client::ServerClient;
use crate::config::{FlagValue, GantryConfig};
use crate::data_dir::DataDir;
use crate::failure::CommandFailure;
use crate::printer::{Printer, PrinterOptions};
use crate::secret_file;
use crate::server_trust::ServerTrust;

/// Where a server is unless something says otherwise.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7300";

/// The surroundings of a command.
#[derive(Debug)]
pub(crate) struct CommandContext {
    pub(crate) global: GlobalFlags,
    pub(crate) printer: Printer,
    environment: BTreeMap<String, String>,
}

impl CommandContext {
    /// From flags and the process's environment.
    pub(crate) fn new(global: GlobalFlags) -> Self {
        // Variables that are not text are none of ours; a `GANTRY_…` one among them would have to be a mistake.
        let environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
            .collect();
        // no-color.org: present and not empty.
        let no_color = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = environment.get("TERM").is_some_and(|value| value == "dumb");
        let wishes =
            PrinterOptions { json: global.json, quiet: global.quiet, no_color: global.no_color || no_color || dumb };
        Self { printer: Printer::new(wishes), environment, global }
    }

    /// The surroundings of a server for development: on this data directory, and without any setting that was made for others.
    pub(crate) fn of_development(&self, data_dir: PathBuf) -> Self {
        let global = GlobalFlags {
            config: None,
            no_config: true,
            data_dir,
            server: None,
            token: None,
            token_file: None,
            ..self.global.clone()
        };
        let mut environment = self.environment.clone();
        environment.retain(|name, _| !name.starts_with("GANTRY_"));
        Self { global, printer: self.printer.clone(), environment }
    }

    /// The variables this process was given.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> DataDir {
        DataDir::at(&self.global.data_dir)
    }

    /// The configuration in force, with what the command's own flags say.
    pub(crate) fn config(&self, flags: Vec<FlagValue>) -> Result<GantryConfig, CommandFailure> {
        let config = match self.global.no_config {
            true => GantryConfig::without_file(&self.environment, flags)?,
            false => GantryConfig::load(self.global.config.as_deref(), &self.environment, flags)?,
        };
        for suspicion in &config.settings.suspicions {
            self.printer.warn(suspicion);
        }
        Ok(config)
    }

    /// Where this user's files are.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.environment.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
    }

    /// Are colours unwanted, whatever the terminal?
    pub(crate) fn wants_colour(&self) -> bool {
        !self.global.no_color && self.environment.get("NO_COLOR").is_none_or(String::is_empty)
    }

    /// The server's address: as told, else as the running server said, else the default.
    pub(crate) fn server_url(&self) -> String {
        let told = self.global.server.clone();
        let url = told.or_else(|| self.data_dir().running_server().map(|running| running.url));
        url.map_or_else(|| DEFAULT_SERVER.to_owned(), |url| url.trim_end_matches('/').to_owned())
    }

    /// May a command fall back to the data directory when no server answers? Not when one was asked for by name.
    pub(crate) fn may_go_offline(&self) -> bool {
        // Whoever shows a token wants what that token may, which only a server can say.
        self.global.server.is_none() && matches!(self.given_token(), Ok(None))
    }

    /// A client that shows the token.
    pub(crate) fn client(&self) -> Result<ServerClient, CommandFailure> {
        let url = self.server_url();
        ServerClient::new(&url, self.token()?, self.trust_in(&url))
    }

    /// A client that shows none.
    pub(crate) fn anonymous_client(&self) -> Result<ServerClient, CommandFailure> {
        let url = self.server_url();
        ServerClient::new(&url, None, self.trust_in(&url))
    }

    /// By what the server at this address is recognised.
    fn trust_in(&self, url: &str) -> ServerTrust {
        let runs_here = self.data_dir().running_server().is_some_and(|running| running.url == url);
        ServerTrust {
            own: runs_here.then(|| (self.data_dir(), url.to_owned())),
            authorities: self.global.ca.clone(),
            identity: self.global.client_cert.clone().zip(self.global.client_key.clone()),
        }
    }

    /// The token that was given by flag, variable or file; never the admin token by itself.
    pub(crate) fn given_token(&self) -> Result<Option<String>, CommandFailure> {
        if let Some(token) = self.global.token.as_deref().map(str::trim) {
            // An unset variable in a script must not turn into the administrator.
            if token.is_empty() {
                return Err(CommandFailure::usage(
                    "the token is empty: --token and GANTRY_TOKEN need one, or must be left out",
                ));
            }
            return Ok(Some(token.to_owned()));
        }
        self.global.token_file.as_deref().map(token_in).transpose()
    }

    fn token(&self) -> Result<Option<String>, CommandFailure> {
        match self.given_token()? {
            Some(token) => Ok(Some(token)),
            // The admin token is for the server of its own data directory, or for one that was named.
            None if self.global.server.is_none() && self.data_dir().running_server().is_none() => Ok(None),
            None => Ok(self.data_dir().admin_token()?.map(|kept| kept.value)),
        }
    }
}

/// The token in a file.
pub(crate) fn token_in(path: &Path) -> Result<String, CommandFailure> {
    match secret_file::read(path) {
        Ok(Some(secret)) => Ok(secret.text.trim().to_owned()),
        Ok(None) => Err(CommandFailure::new(format!("there is no token file `{}`", path.display()))
            .hint("check --token-file; `gantry token mint` makes tokens")),
        Err(error) => Err(CommandFailure::new(error.to_string()).hint(error.remedy())),
    }
}
