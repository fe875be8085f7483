//! What is known of a server before it is started: how to reach it, and what it may touch.
//!
//! `reach` has the members of the `mcpServers` block that clients have; the others are Gantry's. What is not said is
//! the careful choice: no network, no files, one process for each tenant, questions to a person only.
//!
//! Not here: reading the block that people already have (`import`), and starting anything (`supervisor`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connection::ProtocolEra;
use crate::package::PackagePin;

/// Further addresses that one server may have (RES-019).
pub(crate) const FALLBACKS_MAX: usize = 2;

/// One server behind Gantry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// How it is reached.
    pub reach: ServerReach,
    /// Further addresses of the same server, asked in this order when the first cannot be. With the same headers and tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Where its tools stand in the registry; the server's own name, made to fit, if not said. Empty: without a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Kept and not started: none of its tools can be called.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// One process serves all tenants. Only for servers that keep nothing between calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shareable: bool,
    /// In which protocol it is met.
    #[serde(default, skip_serializing_if = "EraChoice::is_auto")]
    pub era: EraChoice,
    /// What of its questions is passed on to the caller.
    #[serde(default = "RelayedQuestions::careful", skip_serializing_if = "RelayedQuestions::is_careful")]
    pub relay: RelayedQuestions,
    /// Are its resources and prompts offered too?
    #[serde(default, skip_serializing_if = "is_false")]
    pub resources: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub prompts: bool,
    /// When it is stopped, asked and given up.
    #[serde(default, skip_serializing_if = "LifeBounds::is_default")]
    pub upkeep: LifeBounds,
    /// Who has described it. Never read from a description: it is kept beside it.
    #[serde(skip)]
    pub set_by: SetBy,
}

/// Who has described a server, which decides what may stand in the description ([`crate::admission`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SetBy {
    /// An administrator of the tenant whose server it is.
    #[default]
    Tenant,
    /// Whoever operates the installation.
    Operator,
}

/// In which protocol a server is met: with a handshake and sessions, or without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraChoice {
    /// In the one it speaks; one that speaks both is met in the one that its caller speaks.
    #[default]
    Auto,
    /// 2024-11-05 to 2025-11-25, whatever else it speaks.
    Legacy,
    /// 2026-07-28, or not at all.
    Modern,
}

impl EraChoice {
    /// The one, if it was chosen.
    pub fn only(self) -> Option<ProtocolEra> {
        match self {
            Self::Auto => None,
            Self::Legacy => Some(ProtocolEra::Legacy),
            Self::Modern => Some(ProtocolEra::Modern),
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerReach {
    /// A program that speaks over its standard streams, started in the sandbox.
    Stdio {
        command: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Where it starts, among what it may read; `/` if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// All the program sees of an environment, besides what every sandbox has.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, ServerSetting>,
        /// What it may touch, in the words of manifests: `filesystem:read:/x`, `network:https://host`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        permissions: Vec<String>,
        /// The package it is started from, which it sees for reading at [`PACKAGE_ROOT`](crate::package::PACKAGE_ROOT).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        package: Option<PackagePin>,
    },
    /// An address that speaks Streamable HTTP.
    Http {
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, ServerSetting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OauthClient>,
    },
    /// An address that speaks the HTTP+SSE of 2024-11-05.
    Sse {
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, ServerSetting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OauthClient>,
    },
}

/// A value, or where it is kept. Secrets are named here and stand in the secrets folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ServerSetting {
    Plain(String),
    Secret {
        /// The name of the credential.
        secret: String,
    },
}

/// How Gantry gets a token for a remote server. It never hands on a token that was meant for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthClient {
    pub token_url: String,
    pub client_id: String,
    /// The name of the credential that is the client's secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The name of the credential that is a refresh token, for servers a person has logged in to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
}

/// Which questions of a server reach the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayedQuestions {
    #[serde(default = "yes")]
    pub elicitation: bool,
    #[serde(default)]
    pub sampling: bool,
    #[serde(default)]
    pub roots: bool,
}

/// The bounds of a server's life (MCP-005, MCP-008, DESIGN §8.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifeBounds {
    /// Stopped after so long without a call; 0 keeps it.
    pub idle_stop_seconds: u64,
    /// Asked so often whether it is there.
    pub health_check_seconds: u64,
    /// Starts that may fail in a row before it counts as unavailable.
    pub max_restarts: u32,
    /// A process that ends sooner has failed to start.
    pub min_uptime_seconds: u64,
    /// Longest time from start to the first answer.
    pub start_timeout_seconds: u64,
    /// Longest time a call of one of its tools may take unless the call asks for less; at most [`CALL_TIMEOUT_SECONDS_MAX`].
    pub call_timeout_seconds: u32,
    /// Longest time that a call may ask for, or have as long as its tool reports progress; [`CALL_TIMEOUT_SECONDS_MAX`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_timeout_max_seconds: Option<u32>,
    /// Bytes of a result of one of its tools, as JSON; what the installation gives if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes_max: Option<u32>,
}

/// Bytes that the results of a server's tools can be given.
pub const RESULT_BYTES: std::ops::RangeInclusive<u32> = 1_024..=33_554_432;

/// The usual timeout class of tools of servers, `long_running`, allows five minutes.
pub const CALL_TIMEOUT_SECONDS_MAX: u32 = 300;

/// What progress and callers can make of it: the class `async` allows a day.
pub const CALL_TIMEOUT_MAX_SECONDS_MAX: u32 = 86_400;

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl ServerSpec {
    /// The addresses it can be reached at, the first one first: each as if it were the only one.
    pub(crate) fn at_each_address(self) -> Vec<Arc<Self>> {
        let first = Self { fallbacks: Vec::new(), ..self.clone() };
        let others = self.fallbacks.into_iter().map(|address| {
            let mut other = first.clone();
            match &mut other.reach {
                ServerReach::Http { url, .. } | ServerReach::Sse { url, .. } => *url = address,
                // Admission lets none of these have others.
                ServerReach::Stdio { .. } => {}
            }
            Arc::new(other)
        });
        let others: Vec<Arc<Self>> = others.collect();
        std::iter::once(Arc::new(first)).chain(others).collect()
    }

    /// Can one that speaks both protocols be met in both?
    pub(crate) fn may_be_met_twice(&self) -> bool {
        self.era == EraChoice::Auto && !matches!(self.reach, ServerReach::Sse { .. })
    }

    /// Does it take another process or connection than the former one has?
    pub(crate) fn needs_another(&self, former: &Self) -> bool {
        self.reach != former.reach
            || self.relay != former.relay
            || self.set_by != former.set_by
            || self.era != former.era
    }

    /// Is it the same server, with less than it had: a permission, a credential, a kind of question, an operator who answers
    /// for it? Such a change holds at
    /// once, even if nothing can be started by it. Another program, or another address, is an update and may wait for its
    /// successor to work.
    pub(crate) fn withdraws_from(&self, former: &Self) -> bool {
        let asks = |relay: RelayedQuestions| [relay.elicitation, relay.sampling, relay.roots];
        let questions = asks(former.relay).into_iter().zip(asks(self.relay)).any(|(then, now)| then && !now);
        let given = self.reach.given();
        let disowned = former.set_by == SetBy::Operator && self.set_by == SetBy::Tenant;
        self.reach.is_same(&former.reach)
            && (questions || disowned || former.reach.given().iter().any(|one| !given.contains(one)))
    }
}

impl ServerReach {
    /// The same program with the same arguments, or the same address.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio { command, args, .. }, Self::Stdio { command: its, args: of_it, .. }) => {
                command == its && args == of_it
            }
            (Self::Http { url, .. }, Self::Http { url: its, .. })
            | (Self::Sse { url, .. }, Self::Sse { url: its, .. }) => url == its,
            _ => false,
        }
    }

    /// Host and port, if it is an address.
    pub(crate) fn authority(&self) -> Option<String> {
        let (Self::Http { url, .. } | Self::Sse { url, .. }) = self else { return None };
        authority(url)
    }

    /// The names of the credentials it is given.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = &str> {
        let (settings, oauth, permissions) = match self {
            Self::Stdio { env, permissions, .. } => (env, None, permissions.as_slice()),
            Self::Http { headers, oauth, .. } | Self::Sse { headers, oauth, .. } => (headers, oauth.as_ref(), &[][..]),
        };
        let secrets = settings.values().filter_map(|setting| match setting {
            ServerSetting::Secret { secret } => Some(secret.as_str()),
            ServerSetting::Plain(_) => None,
        });
        let of_oauth = oauth.into_iter().flat_map(|client| [&client.client_secret, &client.refresh_token]);
        let declared = permissions.iter().filter_map(|word| word.strip_prefix("credentials:"));
        secrets.chain(of_oauth.filter_map(|name| name.as_deref())).chain(declared)
    }

    /// Everything it is given: permissions, and the names of credentials.
    fn given(&self) -> Vec<&str> {
        let (settings, permissions, oauth) = match self {
            Self::Stdio { env, permissions, .. } => (env, permissions.as_slice(), None),
            Self::Http { headers, oauth, .. } | Self::Sse { headers, oauth, .. } => (headers, &[][..], oauth.as_ref()),
        };
        let secrets = settings.values().filter_map(|setting| match setting {
            ServerSetting::Secret { secret } => Some(secret.as_str()),
            ServerSetting::Plain(_) => None,
        });
        let of_oauth = oauth.into_iter().flat_map(|client| [&client.client_secret, &client.refresh_token]);
        let scopes = oauth.into_iter().flat_map(|client| client.scopes.iter().map(String::as_str));
        let named = of_oauth.filter_map(|name| name.as_deref());
        permissions.iter().map(String::as_str).chain(secrets).chain(named).chain(scopes).collect()
    }
}

/// Host and port of an address.
pub(crate) fn authority(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

impl RelayedQuestions {
    /// Questions to a person, and no others.
    pub fn careful() -> Self {
        Self { elicitation: true, sampling: false, roots: false }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_careful(&self) -> bool {
        *self == Self::careful()
    }
}

impl Default for LifeBounds {
    fn default() -> Self {
        Self {
            idle_stop_seconds: 600,
            health_check_seconds: 60,
            max_restarts: 10,
            min_uptime_seconds: 10,
            start_timeout_seconds: 30,
            call_timeout_seconds: CALL_TIMEOUT_SECONDS_MAX,
            call_timeout_max_seconds: None,
            result_bytes_max: None,
        }
    }
}

impl LifeBounds {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Stopped after so long without a call, if ever.
    pub fn idle_stop(&self) -> Option<Duration> {
        (self.idle_stop_seconds > 0).then(|| Duration::from_secs(self.idle_stop_seconds))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_server_with_less_than_before_is_a_withdrawal() {
        let spec = |value: serde_json::Value| serde_json::from_value::<ServerSpec>(value).unwrap();
        let program = |command: &str, permissions: &[&str], secret: &str| {
            spec(json!({ "reach": { "type": "stdio", "command": command, "permissions": permissions,
                "env": { "KEY": { "secret": secret }, "MODE": "x" } } }))
        };
        let elsewhere = |url: &str, scopes: &[&str]| {
            spec(json!({ "reach": { "type": "http", "url": url,
                "oauth": { "token_url": "https://t", "client_id": "c", "client_secret": "s", "scopes": scopes } } }))
        };
        let former = program("a", &["p", "q"], "key");
        for (changed, withdraws) in [
            (program("a", &["p", "q"], "key"), false),
            (program("a", &["q", "p", "r"], "key"), false),
            (program("a", &["p"], "key"), true),
            (program("a", &["p", "q"], "other"), true),
            (program("b", &["p"], "key"), false),
            (elsewhere("https://x", &[]), false),
            (
                ServerSpec {
                    relay: RelayedQuestions { elicitation: false, ..RelayedQuestions::careful() },
                    ..former.clone()
                },
                true,
            ),
            (
                ServerSpec {
                    relay: RelayedQuestions { sampling: true, ..RelayedQuestions::careful() },
                    ..former.clone()
                },
                false,
            ),
        ] {
            assert_eq!(changed.withdraws_from(&former), withdraws, "{changed:?}");
        }
        let former = elsewhere("https://x", &["read", "write"]);
        assert!(elsewhere("https://x", &["read"]).withdraws_from(&former));
        assert!(!elsewhere("https://y", &["read"]).withdraws_from(&former));
    }

    #[test]
    fn what_is_not_said_is_the_careful_choice_and_is_not_written() {
        let text = r#"{"reach":{"type":"stdio","command":"node","args":["server.js"]}}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.relay, RelayedQuestions::careful());
        assert!(!spec.shareable && !spec.resources);
        assert_eq!(spec.upkeep.max_restarts, 10);
        assert_eq!(serde_json::to_value(&spec).unwrap(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn each_address_is_a_server_of_its_own_with_everything_else_the_same() {
        let text = r#"{"reach":{"type":"http","url":"https://a.example/mcp","headers":{"x-team":"a"}},
            "fallbacks":["https://b.example:8443/mcp"],"shareable":true}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        let each = spec.at_each_address();
        let names: Vec<_> = each.iter().filter_map(|spec| spec.reach.authority()).collect();
        assert_eq!(names, ["a.example:443", "b.example:8443"]);
        assert!(each.iter().all(|spec| spec.shareable && spec.fallbacks.is_empty()));
    }

    #[test]
    fn secrets_are_named_not_told() {
        let text = r#"{"reach":{"type":"http","url":"https://mcp.example.com",
            "headers":{"authorization":{"secret":"example_key"},"x-team":"a"}}}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        let ServerReach::Http { headers, .. } = &spec.reach else { panic!("{spec:?}") };
        assert_eq!(headers.get("authorization"), Some(&ServerSetting::Secret { secret: "example_key".into() }));
    }
}
