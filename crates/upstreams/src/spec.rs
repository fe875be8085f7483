//! What is known of a server before it is started: how to reach it, and what it may touch.
//!
//! `reach` has the members of the `mcpServers` block that clients have; the others are Gantry's. What is not said is
//! the careful choice: no network, no files, one process for each tenant, questions to a person only.
//!
//! Not here: reading the block that people already have (`import`), and starting anything (`supervisor`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One server behind Gantry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// How it is reached.
    pub reach: ServerReach,
    /// Where its tools stand in the registry; the server's own name, made to fit, if not said. Empty: without a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// One process serves all tenants. Only for servers that keep nothing between calls.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shareable: bool,
    /// What of its questions is passed on to the caller.
    #[serde(default = "Relay::careful", skip_serializing_if = "Relay::is_careful")]
    pub relay: Relay,
    /// Are its resources and prompts offered too?
    #[serde(default, skip_serializing_if = "is_false")]
    pub resources: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub prompts: bool,
    /// When it is stopped, asked and given up.
    #[serde(default, skip_serializing_if = "Upkeep::is_default")]
    pub upkeep: Upkeep,
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
        /// All the program sees of an environment, besides what every sandbox has.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, Setting>,
        /// What it may touch, in the words of manifests: `filesystem:read:/x`, `network:https://host`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        permissions: Vec<String>,
    },
    /// An address that speaks Streamable HTTP.
    Http {
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, Setting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OauthClient>,
    },
    /// An address that speaks the HTTP+SSE of 2024-11-05.
    Sse {
        url: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, Setting>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<OauthClient>,
    },
}

/// A value, or where it is kept. Secrets are named here and stand in the secrets folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
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
pub struct Relay {
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
pub struct Upkeep {
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
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Relay {
    /// Questions to a person, and no others.
    pub fn careful() -> Self {
        Self { elicitation: true, sampling: false, roots: false }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_careful(&self) -> bool {
        *self == Self::careful()
    }
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            idle_stop_seconds: 600,
            health_check_seconds: 60,
            max_restarts: 10,
            min_uptime_seconds: 10,
            start_timeout_seconds: 30,
        }
    }
}

impl Upkeep {
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
    use super::*;

    #[test]
    fn what_is_not_said_is_the_careful_choice_and_is_not_written() {
        let text = r#"{"reach":{"type":"stdio","command":"node","args":["server.js"]}}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.relay, Relay::careful());
        assert!(!spec.shareable && !spec.resources);
        assert_eq!(spec.upkeep.max_restarts, 10);
        assert_eq!(serde_json::to_value(&spec).unwrap(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn secrets_are_named_not_told() {
        let text = r#"{"reach":{"type":"http","url":"https://mcp.example.com",
            "headers":{"authorization":{"secret":"example_key"},"x-team":"a"}}}"#;
        let spec: ServerSpec = serde_json::from_str(text).unwrap();
        let ServerReach::Http { headers, .. } = &spec.reach else { panic!("{spec:?}") };
        assert_eq!(headers.get("authorization"), Some(&Setting::Secret { secret: "example_key".into() }));
    }
}
