//! Tokens for servers elsewhere: client credentials, or a refresh token that a person has left (RFC 6749 §4.4 and §6).
//!
//! Invariants
//! - OAUTH-1: a token is fetched once for all who wait for one, and kept in memory until shortly before it ends.
//! - OAUTH-2: a token that a server has turned away is not shown to it again; it is replaced once for each refusal.
//! - OAUTH-3: what was shown to Gantry by a caller is never sent from here (UCONN-2).

use std::sync::Arc;
use std::time::Duration;

use ::outbound::{OriginClient, denial};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use http::HeaderValue;
use ports::clock::Clock;
use ports::secret_source::SecretSource;
use reqwest::Method;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::admission::denied_on_the_way;
use crate::connection::outbound;
use crate::connection::within;
use crate::spec::OauthClient;

/// How long the place that gives tokens may take.
const TOKEN_PATIENCE: Duration = Duration::from_secs(10);
/// Before its end a token is not used any more.
const MARGIN: Duration = Duration::from_secs(30);
/// Life of a token whose end is not told.
const LIFE_UNTOLD: Duration = Duration::from_secs(300);
/// Longest answer with a token in it.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The tokens of one server for one tenant.
#[derive(Debug)]
pub(crate) struct TokenKeeper {
    client: OauthClient,
    tenant: TenantId,
    http: OriginClient,
    secrets: Arc<dyn SecretSource>,
    clock: Arc<dyn Clock>,
    kept: Mutex<KeptToken>,
}

#[derive(Default)]
struct KeptToken {
    token: Option<Token>,
    /// The place that gives tokens may replace the refresh token with each use.
    refresh_token: Option<String>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    /// On the monotonic clock.
    until: Duration,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<String>,
}

impl TokenKeeper {
    pub(crate) fn new(
        client: OauthClient,
        tenant: TenantId,
        http: OriginClient,
        secrets: Arc<dyn SecretSource>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { client, tenant, http, secrets, clock, kept: Mutex::default() }
    }

    /// The value of an `authorization` header. `turned_away` is one that the server did not accept.
    pub(crate) async fn header(&self, turned_away: Option<&HeaderValue>) -> Result<HeaderValue, Refusal> {
        // OAUTH-1: whoever comes second waits here and finds what the first has fetched.
        let mut kept = self.kept.lock().await;
        if let Some(token) = &kept.token
            && self.clock.monotonic() < token.until
            && Some(&token.header) != turned_away
        {
            return Ok(token.header.clone());
        }
        kept.token = None;
        let answer = within(&*self.clock, TOKEN_PATIENCE, self.fetch(kept.refresh_token.as_deref()))
            .await
            .unwrap_or_else(|| Err(not_had("no answer in time")))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", answer.access_token))
            .map_err(|_| not_had("the token is none"))?;
        header.set_sensitive(true);
        let life = answer.expires_in.map_or(LIFE_UNTOLD, Duration::from_secs);
        // A token that lives shorter than the margin is used for half its life.
        let used = life.saturating_sub(MARGIN).max(life / 2);
        kept.token = Some(Token { header: header.clone(), until: self.clock.monotonic().saturating_add(used) });
        if answer.refresh_token.is_some() {
            kept.refresh_token = answer.refresh_token;
        }
        Ok(header)
    }

    async fn fetch(&self, replaced: Option<&str>) -> Result<Answer, Refusal> {
        let url = outbound::address(&self.client.token_url, true)?;
        let refresh_token = match (replaced, &self.client.refresh_token) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(name)) => Some(self.secret(name).await?),
            (None, None) => None,
        };
        let client_secret = match &self.client.client_secret {
            Some(name) => Some(self.secret(name).await?),
            None => None,
        };
        let form = self.form(refresh_token.as_deref(), client_secret.as_deref());
        let request = self
            .http
            .request(Method::POST, &url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(http::header::ACCEPT, "application/json")
            .body(form);
        let mut response = request.send().await.map_err(|error| {
            let denied = denial(&error).and_then(denied_on_the_way);
            denied.unwrap_or_else(|| not_had("it cannot be reached").caused_by(error.without_url()))
        })?;
        if !response.status().is_success() {
            return Err(not_had("it refused").retryable(response.status().is_server_error()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broke_off)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(not_had("its answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|_| not_had("its answer has no token"))
    }

    fn form(&self, refresh_token: Option<&str>, client_secret: Option<&str>) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        match refresh_token {
            Some(token) => form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", token),
            None => form.append_pair("grant_type", "client_credentials"),
        };
        form.append_pair("client_id", &self.client.client_id);
        if let Some(secret) = client_secret {
            form.append_pair("client_secret", secret);
        }
        if !self.client.scopes.is_empty() {
            form.append_pair("scope", &self.client.scopes.join(" "));
        }
        form.finish()
    }

    async fn secret(&self, name: &str) -> Result<String, Refusal> {
        let secret = self.secrets.secret(&self.tenant, name).await.map_err(|error| error.refusal(name))?;
        let text = std::str::from_utf8(secret.expose()).map_err(|_| not_had("the credential is no text"))?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn broke_off(error: reqwest::Error) -> Refusal {
    not_had("its answer broke off").caused_by(error.without_url())
}

fn not_had(why: &str) -> Refusal {
    Refusal::new(ErrorCode::E3601, format!("no token could be had for the server: {why}"))
        .hint("let the operator look at `oauth` of this server and at the place that gives its tokens")
}

impl std::fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}
