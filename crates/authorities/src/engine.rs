//! Policy engines outside this process, asked by HTTP in one of three shapes (AUTH-006, AUTH-007, X-12).
//!
//! - [`AuthorizeEngine`]: `POST {url}/v1/authorize`, subject, action, resource, context;
//! - [`CheckPermissionEngine`]: `POST {url}/api/v1/abac/check-permission`, agent, tool, what the tool wants to touch,
//!   and the same context;
//! - [`OpaEngine`]: `POST {url}/v1/data/{path}`, the whole question as OPA's `input`.
//!
//! Each file knows its request and where in the answer the decision stands; the way there and back is here, reasons and
//! obligations are in `answer`.
//!
//! Invariants
//! - ENG-1: a call is allowed only by status 200, in time, within the size, with JSON that has exactly one reading, and a
//!   decision of the right type. Everything else is an [`EngineError`], or a denial if the engine said so.
//! - ENG-2: an obligation that is not known turns permission into denial.
//! - ENG-3: the engine's token stands in its header and nowhere else.
//!
//! Not here: caching of decisions, and the embedded engine, which is asked first.

use std::time::Duration;

use contract::json::{JsonLimits, read};
use policy::PolicyUpstream;
use ports::policy_engine::EngineError;
use reqwest::Url;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::address::{self, AddressError};
use crate::bearer_token::BearerToken;
use crate::outbound::{AnswerBounds, AuthorityClient};

mod answer;
mod authorize;
mod call_context;
mod check_permission;
mod opa;

pub use authorize::AuthorizeEngine;
pub use check_permission::CheckPermissionEngine;
pub use opa::OpaEngine;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Longest wait that can be configured.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Where an engine is and how it is asked.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The address before the path of the shape: `https://abac.example.com` or `http://127.0.0.1:8181`.
    pub url: String,
    /// How long a decision may take, up to 10 s.
    pub timeout: Duration,
    /// Sent as bearer token.
    pub token: Option<BearerToken>,
    /// Allows plain http to other machines, for networks where somebody else encrypts.
    pub insecure_plaintext: bool,
}

impl EngineSettings {
    /// An address with the defaults: 500 ms, no token, https except on this machine.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), timeout: Duration::from_millis(500), token: None, insecure_plaintext: false }
    }
}

/// Why an engine cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineSetupError {
    /// The address is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The wait is nothing or too long.
    #[error("the time-out of a policy engine must be from 1 ms to {} ms", TIMEOUT_MAX.as_millis())]
    Timeout,
    /// Not the path of a rule or package.
    #[error("`{given}` is not a path of OPA's data: write a package and a rule, for example `gantry/authz`")]
    Path { given: String },
}

/// The way to one endpoint and back.
#[derive(Debug)]
struct Endpoint {
    out: AuthorityClient,
    url: Url,
    bounds: AnswerBounds,
    token: Option<BearerToken>,
}

impl Endpoint {
    fn new<'a>(
        out: &AuthorityClient,
        settings: &EngineSettings,
        path: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, EngineSetupError> {
        let mut url = address::checked(&settings.url, settings.insecure_plaintext)?;
        if url.query().is_some() {
            return Err(AddressError::Parts.into());
        }
        url.path_segments_mut().map_err(|()| AddressError::NotAUrl)?.pop_if_empty().extend(path);
        if settings.timeout < Duration::from_millis(1) || settings.timeout > TIMEOUT_MAX {
            return Err(EngineSetupError::Timeout);
        }
        let bounds = AnswerBounds { time: settings.timeout, bytes_max: ANSWER_BYTES_MAX };
        Ok(Self { out: out.clone(), url, bounds, token: settings.token.clone() })
    }

    /// Sends a question and reads the answer, which is always an object (ENG-1).
    async fn ask(&self, question: &impl Serialize) -> Result<Map<String, Value>, EngineError> {
        let question = serde_json::to_vec(question).map_err(|_| no("the question cannot be written as JSON"))?;
        let answer = self.out.post(&self.url, self.token.as_ref(), question, self.bounds).await;
        let answer = answer.map_err(|error| EngineError(error.to_string()))?;
        let limits = JsonLimits { bytes_max: ANSWER_BYTES_MAX, ..JsonLimits::default() };
        match read(&answer, &limits) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err(no("the answer is not a JSON object")),
            // What the reader has to say can quote the answer.
            Err(_) => Err(no("the answer is not JSON with one reading")),
        }
    }
}

/// The server behind an imported tool, as every shape tells of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct UpstreamServer<'a> {
    server: &'a str,
    transport: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    addresses: &'a [String],
}

impl<'a> From<PolicyUpstream<'a>> for UpstreamServer<'a> {
    fn from(upstream: PolicyUpstream<'a>) -> Self {
        let PolicyUpstream { server, transport, command, addresses } = upstream;
        Self { server, transport, command, addresses }
    }
}

fn no(why: &str) -> EngineError {
    EngineError(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(settings: &EngineSettings) -> Result<String, EngineSetupError> {
        Endpoint::new(&AuthorityClient::new().unwrap(), settings, ["v1", "authorize"])
            .map(|endpoint| endpoint.url.into())
    }

    #[test]
    fn the_path_of_the_shape_follows_the_address() {
        for (url, expected) in [
            ("https://abac.example.com", "https://abac.example.com/v1/authorize"),
            ("https://abac.example.com/", "https://abac.example.com/v1/authorize"),
            ("https://abac.example.com/policy/", "https://abac.example.com/policy/v1/authorize"),
            ("http://127.0.0.1:8181", "http://127.0.0.1:8181/v1/authorize"),
        ] {
            assert_eq!(endpoint(&EngineSettings::new(url)).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let with = |change: fn(&mut EngineSettings)| {
            let mut settings = EngineSettings::new("https://abac.example.com");
            change(&mut settings);
            endpoint(&settings).map(drop)
        };
        assert_eq!(with(|s| s.timeout = Duration::ZERO), Err(EngineSetupError::Timeout));
        assert_eq!(with(|s| s.timeout = Duration::from_millis(10_001)), Err(EngineSetupError::Timeout));
        assert_eq!(with(|s| s.timeout = Duration::from_secs(10)), Ok(()));
        assert_eq!(with(|s| s.url = "http://opa:8181".into()), Err(AddressError::Plaintext.into()));
        assert_eq!(with(|s| (s.url, s.insecure_plaintext) = ("http://opa:8181".into(), true)), Ok(()));
        assert_eq!(with(|s| s.url.push_str("/?key=1")), Err(AddressError::Parts.into()));
        assert_eq!(with(|s| s.url = "https://u:p@abac.example.com".into()), Err(AddressError::Parts.into()));
    }

    #[test]
    fn settings_do_not_show_their_token() {
        let mut settings = EngineSettings::new("https://abac.example.com");
        settings.token = Some(BearerToken::new("s3cret").unwrap());
        let engine = AuthorizeEngine::new(&AuthorityClient::new().unwrap(), &settings).unwrap();
        assert!(!format!("{settings:?}{engine:?}").contains("s3cret"));
    }
}
