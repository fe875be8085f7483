//! `cargo xtask conformance --compare`: reference servers of others, judged by the suites as they are and behind Gantry.
//!
//! What passes directly and not behind Gantry was lost on the way, and fails the command. The servers are the one of the
//! official Go SDK, with sessions and without, and whatever is named by `--reference NAME=URL`, such as the one in the suites'
//! own repository, which no registry has.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use super::exceptions::Exceptions;
use super::gateway::GatewayServer;
use super::page::in_a_cell;
use super::proxy::Proxy;
use super::reference::{Reference, Running};
use super::scenarios::{self, Check, Scenario, Status};
use super::{Options, Side, page, progress, together, wanted};
use crate::workspace;

const BEGIN: &str = "<!-- comparison: written by `cargo xtask conformance --compare --write` -->";
const END: &str = "<!-- end of the comparison -->";

/// Scenarios that a server of others gives no answer to, which no relay can give in its place: server, scenario, and why.
const NOT_COMPARABLE: [(&str, &str, &str); 1] = [(
    "Go SDK",
    "server-sse-polling",
    "it ends the stream of a call without the answer and without an event id to go on from, so nobody gets the answer; directly the \
     suite makes no check of it",
)];

/// A scenario against one server, both ways.
pub(super) struct Pair {
    server: String,
    scenario: Scenario,
    direct: Vec<Check>,
    behind: Vec<Check>,
}

/// Every server, and every scenario of it; says how many scenarios were lost.
pub(super) async fn compare(gantry: &Path, options: &Options, exceptions: &Exceptions) -> Result<usize> {
    let mut wanted = wanted(options)?;
    // What is no part of a revision is an extension of Gantry's own fixture.
    wanted.retain(|scenario| scenario.side == Side::Server && scenario.revision.starts_with("20"));
    wanted.retain(|scenario| !exceptions.of(scenario).is_some_and(super::exceptions::Exception::is_not_applicable));
    wanted.sort_by_key(Scenario::order);
    let references = if options.references.is_empty() { &Reference::GO_SDK[..] } else { &options.references };
    let mut pairs = Vec::new();
    for reference in references {
        let running = reference.start().await?;
        pairs.extend(both_ways(gantry, &running, &wanted).await?);
    }
    println!("{}", table(&pairs));
    if options.write {
        write(&pairs)?;
    }
    Ok(pairs.iter().filter(|pair| pair.is_lost()).count())
}

async fn both_ways(gantry: &Path, server: &Running, wanted: &[Scenario]) -> Result<Vec<Pair>> {
    let gateway = GatewayServer::start(gantry).await?;
    gateway.rest.add_server("reference", "", &json!({ "type": "http", "url": server.url })).await?;
    let proxy = Proxy::start(gateway.address, &gateway.agent).await?;
    let output = tempfile::tempdir().context("no temporary folder")?;
    let mut pairs = Vec::new();
    for group in wanted.chunk_by(together) {
        group.iter().take(1).for_each(progress);
        let direct = scenarios::run_servers(group, &server.url, &output.path().join("direct")).await?;
        let behind = scenarios::run_servers(group, &proxy.url(), &output.path().join("behind")).await?;
        for ((scenario, direct), behind) in group.iter().zip(direct).zip(behind) {
            pairs.push(Pair { server: server.name.clone(), scenario: scenario.clone(), direct, behind });
        }
    }
    gateway.stop();
    Ok(pairs)
}

impl Pair {
    /// It passes directly, and not behind.
    fn is_lost(&self) -> bool {
        failed(&self.direct) == 0 && failed(&self.behind) > 0 && self.why_not_comparable().is_none()
    }

    fn why_not_comparable(&self) -> Option<&'static str> {
        let known = NOT_COMPARABLE
            .iter()
            .find(|(server, scenario, _)| self.server.starts_with(server) && self.scenario.name == *scenario);
        known.map(|(.., why)| *why)
    }

    fn result(&self) -> &'static str {
        match (failed(&self.direct), failed(&self.behind)) {
            (0, 0) => "same",
            (0, _) if self.why_not_comparable().is_some() => "not comparable",
            (0, _) => "**LOST**",
            (_, 0) => "gained",
            (..) => "fails in both",
        }
    }
}

/// Checks that pass directly and are not made behind: Gantry's door gives no occasion for them.
fn unmade(pair: &Pair) -> Vec<&str> {
    let made = |id: &str| pair.behind.iter().any(|check| check.id == id && check.status != Status::Info);
    let passed = pair.direct.iter().filter(|check| check.status == Status::Success);
    let mut ids: Vec<&str> = passed.map(|check| check.id.as_str()).filter(|id| !made(id)).collect();
    ids.dedup();
    ids
}

fn passed(checks: &[Check]) -> usize {
    checks.iter().filter(|check| check.status == Status::Success).count()
}

fn failed(checks: &[Check]) -> usize {
    checks.iter().filter(|check| check.status == Status::Failure).count()
}

fn table(pairs: &[Pair]) -> String {
    let mut text = String::from(
        "| server | suite | revision | scenarios | checks passed directly | checks passed behind | scenarios lost | scenarios gained |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let group = |pair: &Pair| (pair.server.clone(), pair.scenario.version, pair.scenario.revision.clone());
    for members in pairs.chunk_by(|one, other| group(one) == group(other)) {
        let Some(first) = members.first() else { continue };
        let sum = |count: fn(&Pair) -> usize| members.iter().map(count).sum::<usize>();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            first.server,
            first.scenario.version,
            first.scenario.revision,
            members.len(),
            sum(|pair| passed(&pair.direct)),
            sum(|pair| passed(&pair.behind)),
            sum(|pair| usize::from(pair.is_lost())),
            sum(|pair| usize::from(pair.result() == "gained")),
        );
    }
    text.push_str("\n| scenario | server | suite | revision | directly | behind | result | behind: first that fails, or what is not tried |\n|---|---|---|---|---|---|---|---|\n");
    for pair in pairs {
        let count = |checks: &[Check]| format!("{} of {}", passed(checks), passed(checks) + failed(checks));
        let why = pair.behind.iter().find(|check| check.status == Status::Failure);
        let why = why.map(|check| format!("{}: {}", check.id, check.error.as_deref().unwrap_or_default()));
        let why = pair.why_not_comparable().map(str::to_owned).filter(|_| failed(&pair.behind) > 0).or(why);
        let unmade = unmade(pair);
        let why = why.or_else(|| (!unmade.is_empty()).then(|| format!("not tried: {}", unmade.join(", "))));
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            pair.scenario.name,
            pair.server,
            pair.scenario.version,
            pair.scenario.revision,
            count(&pair.direct),
            count(&pair.behind),
            pair.result(),
            in_a_cell(&why.unwrap_or_default()),
        );
    }
    text
}

/// Replaces this part of the page, and leaves the rest.
fn write(pairs: &[Pair]) -> Result<()> {
    let page = workspace::read(page::PAGE)?.unwrap_or_default();
    workspace::write(page::PAGE, &with(&page, &section(pairs)))?;
    Ok(())
}

fn section(pairs: &[Pair]) -> String {
    format!(
        "{BEGIN}\n\n## Reference servers, directly and behind Gantry\n\nThe suites against servers of others over Streamable HTTP, as \
         they are and behind Gantry, with the same scenarios. What passes directly passes behind; a scenario that fails directly may \
         pass behind, where Gantry's door answers for itself. The fixture of the suites is in their own repository and in no registry: it is started \
         by hand and named by `--reference NAME=URL`. The Go SDK's (`--reference go-sdk`) is built by Go's own tool.\n\n{}\n{END}\n",
        table(pairs)
    )
}

/// A page with this section in the place of the one it has, or at its end.
fn with(page: &str, section: &str) -> String {
    let (before, after) = around(page);
    format!("{}\n\n{section}{}", before.trim_end(), after.trim_start_matches('\n'))
}

/// What stands on a page around the section.
fn around(page: &str) -> (&str, &str) {
    let Some((before, rest)) = page.split_once(BEGIN) else { return (page, "") };
    (before, rest.split_once(END).map_or("", |(_, after)| after))
}

/// The section of a page, if it has one: whoever writes the rest anew keeps it.
pub(super) fn kept(page: &str) -> Option<String> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (inner, _) = rest.split_once(END)?;
    Some(format!("{BEGIN}{inner}{END}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Status) -> Check {
        Check { id: "c".into(), status, error: Some("no | yes".into()) }
    }

    fn pair(direct: Status, behind: Status) -> Pair {
        let scenario = Scenario {
            name: "ping".into(),
            side: Side::Server,
            version: "0.1.16",
            revision: "2025-11-25".into(),
            place: 0,
        };
        Pair { server: "s".into(), scenario, direct: vec![check(direct)], behind: vec![check(behind)] }
    }

    #[test]
    fn only_what_passes_directly_can_be_lost() {
        for (direct, behind, lost) in [
            (Status::Success, Status::Success, false),
            (Status::Success, Status::Failure, true),
            (Status::Failure, Status::Failure, false),
            (Status::Failure, Status::Success, false),
            (Status::Skipped, Status::Failure, true),
        ] {
            assert_eq!(pair(direct, behind).is_lost(), lost, "{direct:?} {behind:?}");
        }
        let text = table(&[pair(Status::Success, Status::Failure), pair(Status::Success, Status::Success)]);
        assert!(text.contains("| s | 0.1.16 | 2025-11-25 | 2 | 2 | 1 | 1 | 0 |"), "{text}");
        assert!(text.contains("| 1 of 1 | 0 of 1 | **LOST** | c: no \\| yes |"), "{text}");
    }

    #[test]
    fn a_page_keeps_its_other_parts() {
        let first = with("# A page\n\ntext\n", &section(&[pair(Status::Success, Status::Success)]));
        assert!(first.starts_with("# A page\n\ntext\n\n<!-- comparison"), "{first}");
        let again = with(&first, &section(&[]));
        assert!(again.starts_with("# A page\n\ntext\n\n") && !again.contains("ping"), "{again}");
        assert_eq!(again.matches(BEGIN).count(), 1);
        assert_eq!(kept(&again), Some(section(&[])));
        assert_eq!(kept("# A page"), None);
    }
}
