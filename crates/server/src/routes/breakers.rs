//! `/v1/breakers`: how the services behind tools fare, and what is done about it by hand. Operators only; every move is
//! recorded. (RES-001, RES-011)
//!
//! ```text
//! GET /v1/breakers?tenant=&service=&after=&limit=      POST /v1/breakers/{breaker}/move
//! GET /v1/breakers/history?tenant=&breaker=&before=&limit=
//! ```

use std::sync::Arc;

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use ports::breaker_history::{HISTORY_PAGE_MAX, HistoryPlace, HistoryPlaceError, HistoryQuery};
use ports::clock::UnixMillis;
use ports::resilience::ManualMove;
use ports::shared_state::{BreakerKey, BreakerQuery, BreakerReport, BreakerTransition, INSPECTED_MAX, PastTransition};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_in, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Breakers on a page unless more are asked for.
const PAGE_DEFAULT: usize = 100;
/// Longest that a breaker is opened for by hand, in seconds: thirty days.
const OPEN_SECONDS_MAX: u64 = 30 * 86_400;

const BREAKER: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "breaker",
    about: "which one: `service`, `service@endpoint` or `tenant/service@endpoint`",
    schema: SchemaGenerator::subschema_for::<String>,
};
const SERVICE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "service",
    about: "only breakers of this service",
    schema: SchemaGenerator::subschema_for::<String>,
};
const AFTER: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "after",
    about: "those after this breaker: the `next` of the page before",
    schema: SchemaGenerator::subschema_for::<String>,
};
const LIMIT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "limit",
    about: "how many, at most 1000; default 100",
    schema: SchemaGenerator::subschema_for::<usize>,
};

const OF: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "breaker",
    about: "only of this one; `service` stands for all of its endpoints",
    schema: SchemaGenerator::subschema_for::<String>,
};
const BEFORE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "before",
    about: "those before this place: the `next` of the page before",
    schema: SchemaGenerator::subschema_for::<String>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/breakers",
        id: "listBreakers",
        tag: "operations",
        summary: "How the breakers of services stand",
        access: RouteAccess::Token,
        parameters: &[TENANT, SERVICE, AFTER, LIMIT],
        asks: RequestBody::Nothing,
        good: &[(200, "the breakers that were used, in the order of their names")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<BreakerPage>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/breakers/history",
        id: "listBreakerTransitions",
        tag: "operations",
        summary: "What became of breakers, the newest first",
        access: RouteAccess::Token,
        parameters: &[TENANT, OF, BEFORE, LIMIT],
        asks: RequestBody::Nothing,
        good: &[(200, "changes of state, as far back as `[resilience] history_days`")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<HistoryPage>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010],
        mount: |filter| to(filter, history),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/breakers/{breaker}/move",
        id: "moveBreaker",
        tag: "operations",
        summary: "Open, close or reset a breaker by hand",
        access: RouteAccess::Token,
        parameters: &[BREAKER],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<MoveBody>),
        good: &[(200, "the breaker as it is now")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<BreakerView>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3008,
            ErrorCode::E3010,
            ErrorCode::E3408,
            ErrorCode::E3801,
            ErrorCode::E3803,
        ],
        mount: |filter| to(filter, shift),
    },
];

/// What is to become of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MoveTo {
    /// Open, for `seconds` or until somebody says otherwise.
    Open,
    HalfOpen,
    Closed,
    /// Closed, with all counters at zero.
    Reset,
    /// Everything passes and nothing is counted.
    Disabled,
    /// Everything passes and is counted.
    MetricsOnly,
}

/// What to do.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MoveBody {
    to: MoveTo,
    /// Only with `open`: after so long it is tried again by itself. At most thirty days.
    #[serde(default)]
    seconds: Option<u64>,
}

/// One page.
#[derive(Debug, Serialize, JsonSchema)]
struct BreakerPage {
    breakers: Vec<BreakerView>,
    /// `false`: the state that servers share could not be asked, and this is what is in force on the server that answers.
    current: bool,
    /// Give it as `after` for what follows; absent: this is the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One page of the history.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BreakerHistoryPage")]
struct HistoryPage {
    transitions: Vec<PastView>,
    /// Give it as `before` for what came earlier; absent: this is the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A change of state of some breaker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeptBreakerTransition")]
struct PastView {
    /// Which one: `service`, `service@endpoint` or `tenant/service@endpoint`.
    breaker: String,
    #[serde(flatten)]
    change: TransitionView,
}

/// A breaker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Breaker")]
struct BreakerView {
    /// Its name: `service`, `service@endpoint` or `tenant/service@endpoint`.
    breaker: String,
    tenant: String,
    service: String,
    /// Empty: all of the service.
    endpoint: String,
    /// `closed`, `open`, `half_open`, `forced_open`, `disabled` or `metrics_only`.
    state: &'static str,
    since: String,
    /// When an open one lets calls through again, to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_until: Option<String>,
    /// Why it opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    opened_by: Option<String>,
    /// Calls in its window; of a half-open one, those since it is.
    calls: u32,
    failures: u32,
    slow_calls: u32,
    /// Absent under the least number of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_percent: Option<f64>,
    average_ms: u64,
    /// Calls it has refused.
    refused: u64,
    /// Probes under way while it is half-open.
    probes: u32,
    /// The share of calls that it lets through while it is half-open, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    canary_percent: Option<u32>,
    /// Newest first.
    history: Vec<TransitionView>,
}

/// A change of state.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BreakerTransition")]
struct TransitionView {
    at: String,
    from: &'static str,
    to: &'static str,
    reason: String,
}

impl BreakerView {
    fn of(report: &BreakerReport) -> Self {
        let BreakerReport { key, snapshot, history, .. } = report;
        Self {
            breaker: key.to_string(),
            tenant: key.tenant().to_string(),
            service: key.service().to_owned(),
            endpoint: key.endpoint().to_owned(),
            state: snapshot.mode.as_str(),
            since: instant(snapshot.since_ms),
            open_until: snapshot.until_ms.map(instant),
            opened_by: snapshot.opened_by.map(|reason| reason.to_string()),
            calls: snapshot.totals.calls,
            failures: snapshot.totals.failed,
            slow_calls: snapshot.totals.slow,
            failure_percent: snapshot.failure_percent,
            slow_percent: snapshot.slow_percent,
            average_ms: snapshot.totals.average_ms(),
            refused: snapshot.refused,
            probes: snapshot.probes,
            canary_percent: snapshot.canary_percent,
            history: history.iter().map(TransitionView::of).collect(),
        }
    }
}

impl TransitionView {
    fn of(past: &PastTransition) -> Self {
        Self {
            at: instant(past.at_ms),
            from: past.from.as_str(),
            to: past.to.as_str(),
            reason: past.reason.to_string(),
        }
    }
}

fn instant(millis: u64) -> String {
    UnixMillis(i64::saturating_from(millis)).to_string()
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["tenant", "service", "after", "limit"])?;
    let tenant = tenant_in(&query)?;
    let limit = query.number("limit", 1..=INSPECTED_MAX, PAGE_DEFAULT)?;
    let after = query.one("after")?.map(breaker).transpose()?;
    let service = query.one("service")?.map(str::to_owned);
    let wanted = BreakerQuery { tenant: None, service, after, limit };
    let reports = door.kernel().breakers(who.actor(), tenant.as_ref(), wanted).await?;
    let next = reports.last().filter(|_| reports.len() == limit).map(|report| report.key.to_string());
    // Asked after the breakers, so that what they were found to be without is known.
    let current = match door.shared_state() {
        Some(shared) => shared.health().await.trouble.is_none(),
        None => true,
    };
    HttpAnswer::json(&BreakerPage { breakers: reports.iter().map(BreakerView::of).collect(), current, next })
}

async fn history(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["tenant", "breaker", "before", "limit"])?;
    let tenant = tenant_in(&query)?;
    let limit = query.number("limit", 1..=HISTORY_PAGE_MAX, PAGE_DEFAULT)?;
    let of = query.one("breaker")?.map(breaker).transpose()?;
    let before = query.one("before")?.map(str::parse::<HistoryPlace>).transpose();
    let before = before.map_err(|error: HistoryPlaceError| {
        Refusal::new(ErrorCode::E3004, format!("`before` is {error}")).hint("leave it out to begin with the newest")
    })?;
    let wanted = HistoryQuery { tenant: None, of, before, limit };
    let kept = door.kernel().breaker_history(who.actor(), tenant.as_ref(), wanted).await?;
    let next = kept.last().filter(|_| kept.len() == limit).map(|last| HistoryPlace::of(last).to_string());
    let view = |BreakerTransition { key, change }: &BreakerTransition| PastView {
        breaker: key.to_string(),
        change: TransitionView::of(change),
    };
    HttpAnswer::json(&HistoryPage { transitions: kept.iter().map(view).collect(), next })
}

async fn shift(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let MoveBody { to, seconds } = incoming.json(&door, &who).await?.typed()?;
    door.kernel().recognise(who.actor()).await?;
    let [name] = incoming.path_values().await?;
    let key = breaker(&name)?;
    let by_hand = by_hand(to, seconds)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let report = kernel.move_breaker(who.actor(), &key, by_hand).await?;
        HttpAnswer::json(&BreakerView::of(&report))
    })
    .await
}

fn breaker(name: &str) -> Result<BreakerKey, Refusal> {
    name.parse().map_err(|error: ports::shared_state::BreakerKeyError| {
        Refusal::new(ErrorCode::E3004, error.to_string()).hint("GET /v1/breakers lists those there are")
    })
}

fn by_hand(to: MoveTo, seconds: Option<u64>) -> Result<ManualMove, Refusal> {
    match (to, seconds) {
        (MoveTo::Open, Some(seconds)) if (1..=OPEN_SECONDS_MAX).contains(&seconds) => {
            Ok(ManualMove::Open { for_ms: Some(seconds.saturating_mul(1000)) })
        }
        (MoveTo::Open, Some(_)) => {
            Err(Refusal::new(ErrorCode::E3004, format!("`seconds` must be from 1 to {OPEN_SECONDS_MAX}")))
        }
        (_, Some(_)) => Err(Refusal::new(ErrorCode::E3004, "`seconds` goes with `open` only").hint("leave it out")),
        (MoveTo::Open, None) => Ok(ManualMove::ForceOpen),
        (MoveTo::HalfOpen, None) => Ok(ManualMove::HalfOpen),
        (MoveTo::Closed, None) => Ok(ManualMove::Close),
        (MoveTo::Reset, None) => Ok(ManualMove::Reset),
        (MoveTo::Disabled, None) => Ok(ManualMove::Disable),
        (MoveTo::MetricsOnly, None) => Ok(ManualMove::MetricsOnly),
    }
}
