//! `cargo xtask conformance`: the official MCP suites against Gantry, as server and as client, as one table.
//!
//! ```text
//! server suite ──▶ proxy (adds the token) ──▶ gantry ──▶ conformance-fixture (stdio)
//! client suite ──starts──▶ conformance-client ──▶ gantry ──▶ the scenario's own server (HTTP)
//! ```
//!
//! Server scenarios call tools, resources and prompts by fixed names; the fixture behind Gantry has them, so that what is
//! seen has passed the relay as well as the door. A client scenario is a server that watches; Gantry is its client, and
//! the driver makes Gantry do what the scenario's reference client would do.
//!
//! What does not pass is in `conformance/exceptions.toml` with its reason. The list is strict: a scenario that fails
//! without being listed fails the command, and so does one that is listed and passes.
//!
//! Not here: the suites themselves (`services::peers`), and tests of our own (`/tests/mcp`).

mod comparison;
mod driver;
mod exceptions;
pub(crate) mod fixture;
mod gateway;
mod page;
mod proxy;
#[path = "../../../tests/mcp/raw_client.rs"]
mod raw_client;
mod reference;
mod scenarios;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use test_servers::mcp::http;

pub(crate) use self::driver::run as drive;
use self::exceptions::Exceptions;
pub(crate) use self::gateway::GatewayServer;
use self::proxy::Proxy;
use self::reference::Reference;
use self::scenarios::Scenario;
use self::verdict::Row;
use crate::{services, workspace};

/// The versions of the suite: one for the revisions with sessions, one that knows the newest as well.
const VERSIONS: [&str; 2] = ["0.1.16", "0.2.0-alpha.12"];

/// Which side of the protocol Gantry is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Server,
    Client,
}

/// What the command line asks for.
#[derive(Default)]
struct Options {
    side: Option<Side>,
    version: Option<&'static str>,
    /// Only scenarios whose name contains this.
    only: Option<String>,
    json: bool,
    write: bool,
    /// The fixture by itself, without Gantry: what fails here is the fixture's fault or the transport's.
    alone: bool,
    /// Reference servers, as they are and behind Gantry.
    compare: bool,
    /// Which; the Go SDK's own if none is named.
    references: Vec<Reference>,
    gantry: Option<PathBuf>,
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let options = Options::read(arguments)?;
    let exceptions = Exceptions::read()?;
    services::peers::provide()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    if options.alone {
        println!("{}", page::table(&runtime.block_on(alone(&options, &exceptions))?));
        return Ok(ExitCode::SUCCESS);
    }
    let gantry = match &options.gantry {
        Some(path) => path.canonicalize().context("there is no binary at the path of --gantry")?,
        None => built()?,
    };
    let is_whole = options.side.is_none() && options.version.is_none() && options.only.is_none();
    ensure!(!options.write || is_whole, "--write keeps whole runs only: leave out --suite, --version and --only");
    if options.compare {
        let lost = runtime.block_on(comparison::compare(&gantry, &options, &exceptions))?;
        eprintln!("{lost} scenarios are lost behind Gantry");
        return Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let rows = runtime.block_on(all(&gantry, &options, &exceptions))?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!("{}", page::table(&rows));
    }
    if options.write {
        let kept = workspace::read(page::PAGE)?.as_deref().and_then(comparison::kept);
        workspace::write(page::PAGE, &page::page(&rows, kept.as_deref()))?;
    }
    let bad = rows.iter().filter(|row| !row.is_expected()).count();
    eprintln!("{} scenarios, {bad} of them not as expected", rows.len());
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The scenarios that were asked for.
fn wanted(options: &Options) -> Result<Vec<Scenario>> {
    let mut wanted: Vec<Scenario> = Vec::new();
    for version in VERSIONS.into_iter().filter(|version| options.version.is_none_or(|only| only == *version)) {
        wanted.extend(scenarios::list(version)?);
    }
    wanted.retain(|scenario| options.side.is_none_or(|side| side == scenario.side));
    wanted.retain(|scenario| options.only.as_ref().is_none_or(|part| scenario.name.contains(part.as_str())));
    ensure!(!wanted.is_empty(), "no scenario matches");
    Ok(wanted)
}

async fn all(gantry: &Path, options: &Options, exceptions: &Exceptions) -> Result<Vec<Row>> {
    let wanted = wanted(options)?;
    let gateway = GatewayServer::start(gantry).await?;
    gateway.add_fixture().await?;
    let proxy = Proxy::start(gateway.address, &gateway.agent).await?;
    let output = tempfile::tempdir().context("no temporary folder")?;
    let (mut rows, applicable) = split(wanted, exceptions);
    for group in applicable.chunk_by(together) {
        group.iter().for_each(progress);
        let judged = match group.first().map(|scenario| scenario.side) {
            Some(Side::Client) => {
                let mut judged = Vec::new();
                for scenario in group {
                    judged.push(scenarios::run_client(scenario, &gateway, output.path()).await?);
                }
                judged
            }
            _ => scenarios::run_servers(group, &proxy.url(), output.path()).await?,
        };
        for (scenario, checks) in group.iter().zip(judged) {
            rows.push(Row::judged(scenario.clone(), checks, exceptions.of(scenario)));
        }
    }
    rows.sort_by_key(|row| row.scenario.order());
    gateway.stop();
    Ok(rows)
}

/// The rows of what is not run, and the scenarios that are, with those next to each other that are run together.
fn split(wanted: Vec<Scenario>, exceptions: &Exceptions) -> (Vec<Row>, Vec<Scenario>) {
    let (mut rows, mut applicable) = (Vec::new(), Vec::new());
    for scenario in wanted {
        match exceptions.of(&scenario).filter(|exception| exception.is_not_applicable()) {
            Some(exception) => rows.push(Row::not_applicable(scenario, exception)),
            None => applicable.push(scenario),
        }
    }
    applicable.sort_by_key(Scenario::order);
    (rows, applicable)
}

/// Whether one run of the suite serves both. What belongs to no revision is run one by one: no suite has just that.
fn together(one: &Scenario, other: &Scenario) -> bool {
    let is_of_a_revision = one.revision.starts_with("20");
    is_of_a_revision && (one.side, one.version, &one.revision) == (other.side, other.version, &other.revision)
}

async fn alone(options: &Options, exceptions: &Exceptions) -> Result<Vec<Row>> {
    let (listener, address) = http::listen().await?;
    let server = tokio::spawn(http::serve(listener, Arc::new(fixture::FixtureServer::new())));
    let url = format!("http://localhost:{}/mcp", address.port());
    let output = tempfile::tempdir().context("no temporary folder")?;
    let (mut rows, applicable) = split(wanted(options)?, exceptions);
    for group in applicable.chunk_by(together).filter(|group| group.iter().all(|it| it.side == Side::Server)) {
        let judged = scenarios::run_servers(group, &url, output.path()).await?;
        rows.extend(group.iter().zip(judged).map(|(scenario, checks)| Row::judged(scenario.clone(), checks, None)));
    }
    server.abort();
    Ok(rows)
}

/// The debug build, made now.
fn built() -> Result<PathBuf> {
    let status = workspace::cargo().args(["build", "--package", "gantry"]).status().context("cannot run cargo")?;
    ensure!(status.success(), "the build failed");
    Ok(workspace::target_folder()?.join("debug/gantry"))
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match argument {
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--alone" => options.alone = true,
                "--suite" => {
                    options.side = Some(match arguments.next() {
                        Some("server") => Side::Server,
                        Some("client") => Side::Client,
                        _ => bail!("--suite wants `server` or `client`"),
                    });
                }
                "--version" => {
                    let named = arguments.next().unwrap_or_default();
                    let known = VERSIONS.into_iter().find(|version| *version == named);
                    options.version =
                        Some(known.with_context(|| format!("--version wants {}", VERSIONS.join(" or ")))?);
                }
                "--compare" => options.compare = true,
                "--reference" => {
                    options.references.extend(Reference::read(arguments.next().unwrap_or_default())?);
                }
                "--only" => options.only = arguments.next().map(str::to_owned),
                "--gantry" => options.gantry = arguments.next().map(PathBuf::from),
                unknown => bail!(
                    "conformance has no option `{unknown}`: it has --suite, --version, --only, --alone, --compare, --reference, --json, --write and --gantry"
                ),
            }
        }
        Ok(options)
    }
}

fn progress(scenario: &Scenario) {
    eprintln!("conformance: {} ({} {})", scenario.name, scenario.version, scenario.revision);
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use test_servers::mcp::wire;

    use super::raw_client::{RawClient, agreeable};
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let read = |words: &[&str]| Options::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let options = read(&["--suite", "client", "--version", "0.1.16", "--json"]).unwrap();
        assert_eq!((options.side, options.version, options.json), (Some(Side::Client), Some("0.1.16"), true));
        for wrong in [&["--suite", "both"][..], &["--version", "1"], &["--fast"], &["--reference", "x"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    /// The client of the driver and the server of the suites, without a gateway between them.
    #[tokio::test]
    async fn driver_and_fixture_understand_each_other_in_both_eras() {
        let (listener, address) = http::listen().await.unwrap();
        let server = tokio::spawn(http::serve(listener, Arc::new(fixture::FixtureServer::new())));
        let url = format!("http://{address}/mcp");
        let old = RawClient::old(&url, "", wire::OLD, agreeable).await.unwrap();
        for client in [old, RawClient::new(&url, "", agreeable)] {
            let tools = client.list("tools").await.unwrap();
            assert!(tools.iter().any(|tool| tool["name"] == "test_elicitation"), "{tools:?}");
            let reply = client.call("test_elicitation_sep1034_defaults", &json!({})).await.unwrap();
            assert!(reply.text().contains("John Doe") && reply.text().contains("95.5"), "{}", reply.text());
            let reply = client.call("test_input_required_result_multi_round", &json!({})).await.unwrap();
            assert!(reply.text().starts_with("Both rounds are done"), "{}", reply.text());
            assert_eq!(client.asked().len(), 3, "{:?}", client.asked());
            let progress = json!({ "name": "test_tool_with_progress", "_meta": { "progressToken": "p" } });
            let reply = client.request("tools/call", progress).await.unwrap();
            assert_eq!(reply.notifications.len(), 3, "{:?}", reply.notifications);
        }
        server.abort();
    }
}
