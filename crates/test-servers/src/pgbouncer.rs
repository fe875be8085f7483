//! PgBouncer in transaction mode, in front of a [`PostgresServer`]: every transaction may have another connection.
//!
//! Few connections on purpose, fewer than the stores of tests have places: whoever leaves something in a session, or
//! relies on something that was left there, meets another one soon.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::guarded::GuardedServer;
use crate::nobody;
use crate::postgres::PostgresServer;

/// Connections to the server for each database and role.
const POOL: usize = 3;
/// Where distributions put the program.
const PROGRAMS: [&str; 3] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];

/// A running pooler. It ends with the value.
#[derive(Debug)]
pub struct PgBouncer {
    server: Option<GuardedServer>,
    folder: PathBuf,
    port: u16,
    server_port: u16,
}

impl PgBouncer {
    /// Starts one in front of the server.
    pub fn start(postgres: &PostgresServer) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("gantry-pgbouncer-").tempdir()?.keep();
        nobody::give(&folder)?;
        let mut pooler = Self { server: None, folder, port: 0, server_port: postgres.port() };
        pooler.start_again()?;
        Ok(pooler)
    }

    /// Starts it on a port, the one it had if it had one.
    pub fn start_again(&mut self) -> Result<()> {
        let program = PROGRAMS.map(Path::new).into_iter().find(|program| program.is_file());
        let program = program.context("there is no `pgbouncer`: `cargo xtask services start` installs it")?;
        let spawn = |port| {
            let settings = self.write_settings(port)?;
            let mut words = nobody::words(program)?;
            words.push(settings.to_string_lossy().into_owned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // Its way to end at once.
            GuardedServer::start(&words, "TERM", Some(&self.folder), &self.log())
        };
        let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let started = GuardedServer::on_a_port(self.port, &self.log(), spawn, answers);
        let (server, port) = started.context("PgBouncer is not there")?;
        (self.server, self.port) = (Some(server), port);
        Ok(())
    }

    /// Ends it, which cuts every connection through it.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.as_ref().context("the pooler is stopped")?.signal(name)
    }

    /// The address of a database of the server, through the pooler.
    pub fn through(&self, url: &str) -> String {
        url.replacen(&format!(":{}/", self.server_port), &format!(":{}/", self.port), 1)
    }

    fn write_settings(&self, port: u16) -> Result<PathBuf> {
        // The server asks nobody for a password, so the pooler needs only know who may come.
        let users = self.folder.join("users.txt");
        std::fs::write(&users, "\"gantry\" \"\"\n\"postgres\" \"\"\n").context("cannot write the pooler's users")?;
        let mut text = String::new();
        writeln!(text, "[databases]\n* = host=127.0.0.1 port={}", self.server_port)?;
        writeln!(text, "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =")?;
        writeln!(text, "auth_type = trust\nauth_file = {}", users.display())?;
        writeln!(text, "pool_mode = transaction\ndefault_pool_size = {POOL}\nmax_client_conn = 1000")?;
        // A database of a test is soon of no use to anybody, and the server has not many places.
        writeln!(text, "server_idle_timeout = 2\nserver_lifetime = 60")?;
        let settings = self.folder.join("pgbouncer.ini");
        std::fs::write(&settings, text).context("cannot write the pooler's settings")?;
        for file in [&users, &settings] {
            nobody::give(file)?;
        }
        Ok(settings)
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.server.take());
        // What cannot be removed now is in the folder for temporary files anyway.
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(self.log());
    }
}
