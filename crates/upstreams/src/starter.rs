//! From a specification to a connection: secrets, sandbox or address, and the handshake.
//!
//! Invariants
//! - START-1: a server gets the environment its specification names and what every sandbox has, and nothing of ours.
//! - START-2: secrets are fetched for the tenant the server runs for, and no other.
//! - START-3: what is started or reached was judged just now ([`ServerAdmission`]), whatever was judged when it was put.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ::outbound::OriginClient;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use executors::process::scrub::SecretScrubber;
use executors::{SandboxProvider, ToolConfinement};
use fair_places::{FairPermit, FairPlaces};
use ports::clock::Clock;
use ports::permissions::DeclaredPermissions;
use ports::resolved_limits::ResolvedLimits;
use ports::secret_source::{SecretSource, SecretValue};
use sandbox::{BuildStep, MountAccess, SandboxMount, SpawnError};

use crate::admission::ServerAdmission;
use crate::connection::handshake::ClientIntroduction;
use crate::connection::legacy_sse::LegacySse;
use crate::connection::router::{MessageRouter, ServerListener};
use crate::connection::stdio::StdioChannel;
use crate::connection::streamable::{RemoteServer, StreamableChannel};
use crate::connection::{ExpectedEra, ProtocolEra, ServerChannel, ServerConnection, outbound};
use crate::fault::UpstreamFault;
use crate::oauth::TokenKeeper;
use crate::package::{PACKAGE_ROOT, PackagePin};
use crate::server_log::ServerLog;
use crate::spec::{OauthClient, ServerReach, ServerSetting, ServerSpec};

/// Makes connections.
#[derive(Debug)]
pub(crate) struct ServerStarter {
    /// Of servers that are programs, counted for the tenants that have defined them.
    pub(crate) programs: Arc<FairPlaces>,
    pub(crate) walls: SandboxProvider,
    pub(crate) confinement: ToolConfinement,
    pub(crate) secrets: Arc<dyn SecretSource>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Judges what tenants have described, once more.
    pub(crate) admission: Arc<ServerAdmission>,
    pub(crate) limits: ResolvedLimits,
    /// Where packages are installed.
    pub(crate) packages: PathBuf,
}

/// Who is to be reached, and who listens.
#[derive(Debug)]
pub(crate) struct StartTarget<'a> {
    pub(crate) name: &'a str,
    pub(crate) tenant: &'a TenantId,
    /// Who has defined it.
    pub(crate) owner: &'a TenantId,
    pub(crate) spec: &'a ServerSpec,
    /// What is known of the protocol it speaks.
    pub(crate) expected: ExpectedEra,
    pub(crate) hearing: Arc<dyn ServerListener>,
    pub(crate) log: &'a Arc<ServerLog>,
}

/// A connection, and what must not come out of it.
#[derive(Debug)]
pub(crate) struct StartedServer {
    pub(crate) connection: ServerConnection,
    pub(crate) scrubber: Arc<SecretScrubber>,
}

impl ServerStarter {
    /// Reaches the server and meets it. Whoever calls bounds the wait; dropping the future leaves nothing.
    pub(crate) async fn start(&self, wanted: StartTarget<'_>) -> Result<StartedServer, UpstreamFault> {
        let (router, answers) = MessageRouter::new(Arc::clone(&wanted.hearing), wanted.spec.relay);
        let mut secrets = Vec::new();
        let channel: Arc<dyn ServerChannel> = match &wanted.spec.reach {
            ServerReach::Stdio { command, args, cwd, env, permissions, package } => {
                self.admission.program(wanted.owner, wanted.spec)?;
                let place = self.program_place(wanted.owner)?;
                let env = self.settings(wanted.tenant, env, &mut secrets).await?;
                let declared =
                    DeclaredPermissions::of_words(permissions).map_err(|findings| unusable_permissions(&findings))?;
                let mut credentials = Vec::new();
                for name in &declared.credentials {
                    credentials.push((&**name, self.secret(wanted.tenant, name, &mut secrets).await?));
                }
                let command: Vec<String> = std::iter::once(command).chain(args).cloned().collect();
                let env = env.into_iter().map(|(name, value)| text(name, value)).collect::<Result<_, _>>()?;
                let (confinement, limits) = (&self.confinement, &self.limits);
                let mut room = confinement.server_room(wanted.name, command, env, &declared, limits, &credentials)?;
                if let Some(package) = package {
                    room.spec.mounts.push(self.package(package).await?);
                }
                if let Some(cwd) = cwd {
                    room.spec.cwd = cwd.into();
                }
                wanted.log.hide(scrubber(&secrets));
                let child = self.walls.sandbox().spawn(room.spec).await.map_err(|error| not_started(&error))?;
                let log = Arc::clone(wanted.log);
                Arc::new(StdioChannel::with(child, Some(room.gate), place, &router, log, Arc::clone(&self.clock))?)
            }
            ServerReach::Http { url, headers, oauth } => {
                let remote = self.remote(&wanted, url, headers, oauth.as_ref(), &mut secrets).await?;
                Arc::new(StreamableChannel::new(remote))
            }
            ServerReach::Sse { url, headers, oauth } => {
                let remote = self.remote(&wanted, url, headers, oauth.as_ref(), &mut secrets).await?;
                Arc::new(LegacySse::open(remote, &router).await?)
            }
        };
        // The stream of 2024-11-05 has one revision.
        let is_sse = matches!(wanted.spec.reach, ServerReach::Sse { .. });
        let expected = if is_sse { ExpectedEra::Only(ProtocolEra::Legacy) } else { wanted.expected };
        let introduction = ClientIntroduction::new(wanted.spec.relay);
        let connection =
            ServerConnection::meet((router, answers), channel, Arc::clone(&self.clock), expected, &introduction)
                .await?;
        Ok(StartedServer { connection, scrubber: scrubber(&secrets) })
    }

    /// A place for one more program; it is held until the program is gone.
    fn program_place(&self, owner: &TenantId) -> Result<FairPermit, Refusal> {
        self.programs.take(owner, owner.as_str()).ok_or_else(|| {
            Refusal::new(ErrorCode::E3701, "as many programs of MCP servers run as may at once, or as one tenant may have")
                .hint("one that nobody calls ends after its `idle_stop_seconds`; `gantry server list` shows which run, and `[sandbox] sandboxes` is the bound")
                .retryable(true)
        })
    }

    /// The folder of a package, for reading (PKG-2).
    async fn package(&self, pin: &PackagePin) -> Result<SandboxMount, Refusal> {
        // Declared paths are opened without following links, and the folder of packages may be behind one.
        let root = tokio::fs::canonicalize(&self.packages).await.ok();
        let folder = root.zip(pin.folder()).map(|(root, folder)| root.join(folder));
        let is_there = match &folder {
            Some(folder) => tokio::fs::symlink_metadata(folder).await.is_ok_and(|found| found.is_dir()),
            None => false,
        };
        match folder.filter(|_| is_there) {
            Some(source) => Ok(SandboxMount { source, target: PACKAGE_ROOT.into(), access: MountAccess::Read }),
            None => {
                let message = format!("the server's package {} {} is not installed here", pin.name, pin.version);
                Err(Refusal::new(ErrorCode::E3405, message)
                    .hint("let the operator install it where this instance runs: `gantry server update NAME`")
                    .retryable(false))
            }
        }
    }

    async fn remote(
        &self,
        wanted: &StartTarget<'_>,
        url: &str,
        headers: &BTreeMap<String, ServerSetting>,
        oauth: Option<&OauthClient>,
        secrets: &mut Vec<(String, SecretValue)>,
    ) -> Result<RemoteServer, UpstreamFault> {
        let http = self.client(wanted, "url", url)?;
        let shown = self.settings(wanted.tenant, headers, secrets).await?;
        let headers = outbound::headers(shown.iter().map(|(name, value)| (*name, value.clone())))?;
        let url = outbound::address(url, oauth.is_some() || !secrets.is_empty())?;
        wanted.log.hide(scrubber(secrets));
        let tokens = match oauth {
            Some(client) => {
                let http = self.client(wanted, "oauth.token_url", &client.token_url)?;
                let (secrets, clock) = (Arc::clone(&self.secrets), Arc::clone(&self.clock));
                Some(Arc::new(TokenKeeper::new(client.clone(), wanted.tenant.clone(), http, secrets, clock)))
            }
            None => None,
        };
        Ok(RemoteServer { http, url, headers, tokens, clock: Arc::clone(&self.clock) })
    }

    /// A client for one address, which is judged now and at each connection.
    fn client(&self, wanted: &StartTarget<'_>, member: &str, url: &str) -> Result<OriginClient, Refusal> {
        let target = self.admission.target(wanted.owner, wanted.spec, member, url)?;
        let guard = self.admission.guard(wanted.owner, wanted.spec);
        guard.client(&target, outbound::CLIENT).map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "servers elsewhere cannot be reached: there is no HTTP client"
            );
            Refusal::new(ErrorCode::E3502, "this server cannot make HTTP requests").retryable(false).caused_by(error)
        })
    }

    async fn settings<'s>(
        &self,
        tenant: &TenantId,
        settings: &'s BTreeMap<String, ServerSetting>,
        secrets: &mut Vec<(String, SecretValue)>,
    ) -> Result<Vec<(&'s str, Vec<u8>)>, UpstreamFault> {
        let mut values = Vec::new();
        for (name, setting) in settings {
            let value = match setting {
                ServerSetting::Plain(text) => text.clone().into_bytes(),
                ServerSetting::Secret { secret } => {
                    let value = self.secret(tenant, secret, secrets).await?;
                    // A line end at the end of a file is how it was written, not part of the secret.
                    value.expose().trim_ascii_end().to_vec()
                }
            };
            values.push((name.as_str(), value));
        }
        Ok(values)
    }

    /// START-2.
    async fn secret(
        &self,
        tenant: &TenantId,
        name: &str,
        found: &mut Vec<(String, SecretValue)>,
    ) -> Result<SecretValue, UpstreamFault> {
        let secret = self.secrets.secret(tenant, name).await.map_err(|error| {
            tracing::warn!(credential = %name, error = &error as &dyn std::error::Error, "a server's credential cannot be had");
            error.refusal(name)
        })?;
        found.push((name.to_owned(), secret.clone()));
        Ok(secret)
    }
}

fn text(name: &str, value: Vec<u8>) -> Result<(String, String), Refusal> {
    let value = String::from_utf8(value).map_err(|_| {
        Refusal::new(ErrorCode::E3405, format!("the setting `{name}` of the server is no text")).retryable(false)
    })?;
    Ok((name.to_owned(), value))
}

fn scrubber(secrets: &[(String, SecretValue)]) -> Arc<SecretScrubber> {
    let texts = secrets.iter().filter_map(|(name, secret)| Some((&**name, std::str::from_utf8(secret.expose()).ok()?)));
    Arc::new(SecretScrubber::new(&texts.map(|(name, text)| (name, text.trim_end())).collect::<Vec<_>>()))
}

fn unusable_permissions(findings: &[contract::manifest::AdmissionFinding]) -> Refusal {
    let first = findings.first().map(|finding| finding.message.clone()).unwrap_or_default();
    Refusal::new(ErrorCode::E3405, format!("the permissions of the server cannot be granted: {first}"))
        .hint("let the operator correct `permissions` of this server")
        .retryable(false)
}

/// The program of a server did not start. What failed is for the log; the caller cannot mend it.
fn not_started(error: &SpawnError) -> Refusal {
    match error {
        SpawnError::Step(failure) => {
            tracing::warn!(%error, detail = %failure.detail, "a server was not started");
            let refusal = match failure.step {
                BuildStep::Program => Refusal::new(
                    ErrorCode::E3405,
                    format!("the server's program could not be started: {}", failure.reason()),
                )
                .hint("let the operator check `command`: a program in /usr, or under a path that `permissions` lets it read"),
                BuildStep::Mount => {
                    Refusal::new(ErrorCode::E3405, format!("a path the server declares cannot be given to it: {}", failure.reason()))
                        .hint("let the operator make the path available on this server")
                }
                _ => Refusal::new(
                    ErrorCode::E3405,
                    format!("the server's sandbox could not be made: {} failed: {}", failure.step.what(), failure.reason()),
                )
                .hint("`gantry doctor` says what this machine offers and what is missing"),
            };
            refusal.retryable(false)
        }
        SpawnError::Unusable(_)
        | SpawnError::LauncherDied
        | SpawnError::NoLauncher(_)
        | SpawnError::NotOrdered(_)
        | SpawnError::System(_) => {
            tracing::error!(error = ?error, "a server was not started");
            Refusal::new(ErrorCode::E3405, "the server's sandbox could not be made")
                .hint("`gantry doctor` says what this machine offers and what is missing")
        }
    }
}
