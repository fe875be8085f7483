//! The TOML of expectations, row by row, into [`PolicyCase`]s. Problems are collected over all rows.

use std::collections::BTreeSet;
use std::fmt;

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::value::Datetime;
use toml::{Spanned, Table};

use super::super::OutputSchema;
use super::super::calendar::midnight_ms;
use super::super::source::{SourcePosition, position};
use super::{CaseUpstream, ExpectedDecision, PolicyCase, PolicyExpectations};
use crate::role::Role;
use crate::scope::PermissionScope;

/// When a case names no time: a Wednesday at noon, far from every edge.
const NOON_MS: i64 = 1_767_787_200_000;
/// Most cases in one table.
const CASES_MAX: usize = 10_000;

/// One finding in a table of expectations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectationProblem {
    /// The case's name, or its number from 1.
    pub case: Option<String>,
    pub position: SourcePosition,
    pub message: String,
}

impl fmt::Display for ExpectationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.position.line, self.position.column)?;
        if let Some(case) = &self.case {
            write!(f, "case `{case}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExpectationProblem {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    policies: Option<OneOrMore>,
    #[serde(default)]
    case: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    tenant: Option<TenantId>,
    agent: Subject,
    user: Option<Subject>,
    session: Option<String>,
    roles: Option<Vec<Role>>,
    #[serde(default)]
    scopes: Vec<PermissionScope>,
    tool: ToolId,
    version: Option<Version>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    side_effects: Option<SideEffectPolicy>,
    #[serde(default)]
    required_permissions: Vec<String>,
    provider: Option<String>,
    permissions: Option<Vec<String>>,
    #[serde(default)]
    hosts: Vec<String>,
    upstream: Option<CaseUpstream>,
    output_schema: Option<OutputWord>,
    #[serde(default)]
    arguments: Table,
    time: Option<toml::Value>,
    environment: Option<String>,
    expect: Answer,
    policies: Option<Vec<String>>,
    obligations: Option<Vec<String>>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum OutputWord {
    Declared,
    Unconstrained,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Allow,
    Deny,
}

pub(super) fn parse(text: &str) -> Result<PolicyExpectations, Vec<ExpectationProblem>> {
    let file: File = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        vec![ExpectationProblem { case: None, position: position(text, offset), message: first_line(error.message()) }]
    })?;
    let whole = |message: String| ExpectationProblem { case: None, position: position(text, 0), message };
    if file.case.len() > CASES_MAX {
        return Err(vec![whole(format!("there are more than {CASES_MAX} cases"))]);
    }
    let (mut cases, mut problems, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    if file.case.is_empty() {
        problems.push(whole("there is no `[[case]]`: a table that expects nothing proves nothing".to_owned()));
    }
    for (index, row) in file.case.into_iter().enumerate() {
        let at = row.span().start;
        let table = row.into_inner();
        let name =
            table.get("name").and_then(toml::Value::as_str).map_or_else(|| (index + 1).to_string(), str::to_owned);
        let mut report = |message| {
            problems.push(ExpectationProblem { case: Some(name.clone()), position: position(text, at), message });
        };
        match case(table) {
            Ok(_) if !names.insert(name.clone()) => report("another case has the same name".to_owned()),
            Ok(case) => cases.push(case),
            Err(message) => report(message),
        }
    }
    let policies = match file.policies {
        None => Vec::new(),
        Some(OneOrMore::One(path)) => vec![path],
        Some(OneOrMore::More(paths)) => paths,
    };
    if problems.is_empty() { Ok(PolicyExpectations { policies, cases }) } else { Err(problems) }
}

fn case(table: Table) -> Result<PolicyCase, String> {
    let row =
        Row::deserialize(table.into_deserializer()).map_err(|error: toml::de::Error| first_line(error.message()))?;
    let allowed = row.expect == Answer::Allow;
    let obligations = row.obligations.map(|all| all.iter().map(|one| one.parse()).collect::<Result<BTreeSet<_>, _>>());
    let obligations = obligations.transpose().map_err(|error: crate::ObligationError| error.to_string())?;
    if !allowed && obligations.as_ref().is_some_and(|some| !some.is_empty()) {
        return Err("a denial has no obligations".to_owned());
    }
    Ok(PolicyCase {
        name: row.name,
        expected: ExpectedDecision {
            allowed,
            policies: row.policies.map(|names| names.into_iter().collect()),
            obligations,
        },
        tenant: row.tenant.map_or_else(|| "local".parse().map_err(|e: contract::ids::NameError| e.to_string()), Ok)?,
        agent: row.agent,
        user: row.user,
        session: row.session,
        roles: row.roles.unwrap_or_else(|| vec![Role::Agent]),
        scopes: row.scopes,
        tool: row.tool,
        version: row.version.unwrap_or_else(|| Version::new(1, 0, 0)),
        tags: row.tags,
        categories: row.categories,
        effects: row.side_effects.unwrap_or(SideEffectPolicy::Pure),
        // What a tool requires it may touch, so a case that names no more has that.
        permissions: row.permissions.unwrap_or_else(|| row.required_permissions.clone()),
        required_permissions: row.required_permissions,
        hosts: row.hosts,
        upstream: row.upstream,
        output_schema: match row.output_schema {
            None | Some(OutputWord::Declared) => OutputSchema::Declared,
            Some(OutputWord::Unconstrained) => OutputSchema::Unconstrained,
        },
        provider: row.provider.unwrap_or_else(|| "builtin".to_owned()),
        arguments: json(toml::Value::Table(row.arguments))?,
        now_ms: row.time.map_or(Ok(NOON_MS), |time| time_ms(&time))?,
        environment: row.environment.unwrap_or_else(|| "development".to_owned()),
    })
}

/// Arguments are JSON.
fn json(value: toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).ok_or("arguments cannot be infinite or not a number")?.into()
        }
        toml::Value::Boolean(flag) => flag.into(),
        // JSON has no dates; tools take them as text.
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(items) => serde_json::Value::Array(items.into_iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(members) => serde_json::Value::Object(
            members.into_iter().map(|(name, value)| Ok((name, json(value)?))).collect::<Result<_, String>>()?,
        ),
    })
}

/// RFC 3339, bare or as a string, always with an offset: a local time would mean another moment elsewhere.
fn time_ms(value: &toml::Value) -> Result<i64, String> {
    let wrong = || "`time` must be RFC 3339 with an offset, for example 2026-01-07T23:30:00Z".to_owned();
    let moment = match value {
        toml::Value::Datetime(moment) => *moment,
        toml::Value::String(text) => text.parse::<Datetime>().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    let (Some(date), Some(time), Some(offset)) = (moment.date, moment.time, moment.offset) else { return Err(wrong()) };
    let offset_minutes = match offset {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let minutes = i64::from(time.hour) * 60 + i64::from(time.minute) - offset_minutes;
    let seconds = minutes * 60 + i64::from(time.second.unwrap_or(0));
    let millis = i64::from(time.nanosecond.unwrap_or(0)) / 1_000_000;
    Ok(midnight_ms(date.year.into(), date.month.into(), date.day.into()) + seconds * 1000 + millis)
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}
