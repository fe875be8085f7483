//! `gantry token inspect`: what a token says, whether it is genuine, and how long it lives. Never needs a server.
//!
//! Judged by the keys at hand: the data directory's own, present and former, and those of the trusted issuer that are in
//! files. Key sets are not fetched, and whether a token was revoked only the server knows.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use contract::json::{self, JsonLimits};
use policy::{ArgumentLimit, KeySet, Role, TokenError, TokenIssuerKeys, TokenTrust};
use ports::clock::{Clock as _, UnixMillis};
use serde_json::{Value, json};

use crate::commands::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::machine::SystemClock;
use crate::printer::{pretty, visible};
use crate::{key_vault, lifespan, outside};

/// Show what a token says and whether it holds
///
/// Exit code 1 if it does not: expired, forged, or signed by a key that is not known here.
#[derive(Debug, Args)]
pub(crate) struct TokenInspectCommand {
    /// The token, or - for stdin (safer: other users may see command lines)
    #[arg(value_name = "TOKEN|-")]
    inspected: String,
}

impl TokenInspectCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let token = if self.inspected == "-" {
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .map_err(|error| CommandFailure::new(format!("stdin cannot be read: {error}")))?;
            line
        } else {
            self.inspected
        };
        let token = token.trim();
        if token.starts_with("gantry_admin_") {
            return admin(context, token);
        }
        let found = inspect(token, trust(context)?.as_ref(), SystemClock::start().now())?;
        context.printer.answer(&found.document, |_| found.text.clone());
        Ok(found.outcome)
    }
}

/// Whom the installation trusts, by the keys at hand; `None` if there are none.
fn trust(context: &CommandContext) -> Result<Option<TokenTrust>, CommandFailure> {
    let data_dir = context.data_dir();
    let Some(present) = data_dir.signing_key()? else { return Ok(None) };
    let identity = context.config(Vec::new())?.identity;
    let unusable = |error: policy::KeyError| CommandFailure::new(error.to_string());
    let own = KeySet::new(key_vault::own_keys(&data_dir, &present.value)?).map_err(unusable)?;
    let mut issuers = vec![TokenIssuerKeys { name: identity.issuer, keys: own, roles: Role::ALL.to_vec() }];
    if let Some(trusted) = identity.trusted {
        let keys = KeySet::new(outside::trusted_keys(&trusted)?).map_err(unusable)?;
        issuers.push(TokenIssuerKeys { name: trusted.name, keys, roles: trusted.roles });
    }
    Ok(Some(TokenTrust {
        audience: identity.audience,
        leeway_seconds: identity.clock_skew_seconds,
        issuers,
        delegation_depth_max: identity.delegation_depth,
    }))
}

/// The bootstrap secret says nothing about itself; only the data directory knows it.
fn admin(context: &CommandContext, token: &str) -> Result<CommandOutcome, CommandFailure> {
    let is_ours = context.data_dir().admin_token()?.is_some_and(|kept| kept.value == token);
    let whose = if is_ours { "of this data directory" } else { "of some other data directory" };
    let document = json!({ "kind": "admin_token", "is_of_this_data_directory": is_ours });
    context
        .printer
        .answer(&document, |_| format!("an admin token {whose}: it may do everything there and does not expire"));
    Ok(if is_ours { CommandOutcome::Done } else { CommandOutcome::Unfit })
}

#[derive(Debug)]
struct Inspected {
    document: Value,
    text: String,
    outcome: CommandOutcome,
}

fn inspect(token: &str, trust: Option<&TokenTrust>, now: UnixMillis) -> Result<Inspected, CommandFailure> {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), 1) =
        (parts.next().and_then(decoded), parts.next().and_then(decoded), parts.count())
    else {
        return Err(CommandFailure::new("this is not a token: three parts of base64url joined by dots were expected")
            .hint("copy the whole token, without quotes or `Bearer`"));
    };
    let (word, sentence) = match trust.map(|trust| policy::verify(token, trust, now.0)) {
        None => ("unchecked", "not checked: the data directory has no signing key".to_owned()),
        Some(Ok(_)) => ("valid", "genuine, signed by a key that is trusted here".to_owned()),
        Some(Err(TokenError::Expired)) => ("expired", "genuine, but expired".to_owned()),
        Some(Err(TokenError::ParentExpired)) => {
            ("expired", "genuine, but one it was delegated from has expired".to_owned())
        }
        Some(Err(TokenError::UnknownKey)) => ("unknown_key", "signed by a key that is not known here".to_owned()),
        Some(Err(TokenError::Signature)) => ("forged", "NOT genuine: the signature does not fit".to_owned()),
        Some(Err(error)) => ("refused", format!("refused: {error}")),
    };
    let seconds = |name: &str| claims.get(name).and_then(Value::as_i64);
    let expiry = seconds("exp").map_or_else(
        || "never says when".to_owned(),
        |end| {
            let left = end.saturating_sub(now.0.div_euclid(1000));
            let moment = UnixMillis(end.saturating_mul(1000));
            format!("{} ({moment})", lifespan::from_now(left))
        },
    );
    let mut text = format!("signature  {sentence}\nexpires    {expiry}\n");
    for (name, value) in particulars(&claims) {
        text.push_str(&format!("{name:<9}  {}\n", visible(&value)));
    }
    text.push_str(&visible(&pretty(&claims)));
    let document = json!({ "kind": "capability_token", "verification": word, "expires": expiry, "header": header, "claims": claims });
    // Without any key nothing can be said against it.
    let outcome = if matches!(word, "valid" | "unchecked") { CommandOutcome::Done } else { CommandOutcome::Unfit };
    Ok(Inspected { document, text, outcome })
}

/// What people overlook in a page of claims: how far the token is bound, and who has handed it on.
fn particulars(claims: &Value) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let limits = claims.get("limits").and_then(Value::as_array).into_iter().flatten();
    lines.extend(limits.map(|limit| ("limit", limit_in_words(limit))));
    if let Some(calls) = claims.pointer("/budget/calls").and_then(Value::as_u64) {
        lines.push(("budget", format!("{calls} calls, together with everything delegated from it")));
    }
    let mut holders = Vec::new();
    let mut link = claims.get("act");
    // The strict reader has bounded how deep this can go.
    while let Some(delegator) = link {
        holders.extend(delegator.get("sub").and_then(Value::as_str));
        link = delegator.get("act");
    }
    if !holders.is_empty() {
        holders.reverse();
        let holder = claims.get("sub").and_then(Value::as_str).unwrap_or("?");
        lines.push(("chain", format!("{} → {holder}", holders.join(" → "))));
    }
    lines
}

fn limit_in_words(limit: &Value) -> String {
    let Ok(limit) = serde_json::from_value::<ArgumentLimit>(limit.clone()) else { return limit.to_string() };
    let bounds = [
        limit.min.map(|min| format!("at least {min}")),
        limit.max.map(|max| format!("at most {max}")),
        limit.one_of.map(|values| format!("one of {}", Value::Array(values))),
        limit.max_length.map(|most| format!("at most {most} characters")),
        limit.under.map(|under| format!("at or below {under}")),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    format!("{} {}: {}", limit.tool_id, limit.argument, bounds.join(", "))
}

fn decoded(part: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    json::read(&bytes, &JsonLimits::default()).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{MintRequest, SigningKey};

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn request() -> MintRequest {
        MintRequest {
            sub: "agent-1".parse().unwrap(),
            tenant: "local".parse().unwrap(),
            roles: vec![],
            tools: vec![],
            scopes: vec![],
            limits: vec![],
            budget: None,
            user_did: None,
            session_id: None,
            ttl_seconds: 3600,
            act: None,
        }
    }

    fn token(request: &MintRequest, key: &SigningKey) -> String {
        policy::mint(request, key, "jti-1".into(), NOW.0).unwrap().0
    }

    fn trust(key: &SigningKey) -> TokenTrust {
        TokenTrust::own(KeySet::new(vec![key.verifying_key()]).unwrap())
    }

    #[test]
    fn a_token_is_judged_by_the_keys_at_hand_and_the_exit_code_says_so() {
        let (key, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let token = token(&request(), &key);
        let (ours, theirs) = (trust(&key), trust(&other));
        let later = UnixMillis(NOW.0 + 7_200_000);
        let forged = format!("{}{}", token.rsplit_once('.').unwrap().0, ".AAAA");
        for (token, trust, now, expected, outcome) in [
            (&token, Some(&ours), NOW, "valid", CommandOutcome::Done),
            (&token, Some(&ours), later, "expired", CommandOutcome::Unfit),
            (&token, Some(&theirs), NOW, "unknown_key", CommandOutcome::Unfit),
            (&forged, Some(&ours), NOW, "forged", CommandOutcome::Unfit),
            (&token, None, NOW, "unchecked", CommandOutcome::Done),
        ] {
            let found = inspect(token, trust, now).unwrap();
            assert_eq!((found.document["verification"].as_str(), found.outcome), (Some(expected), outcome));
        }
        let found = inspect(&token, Some(&ours), NOW).unwrap();
        assert!(found.text.contains("in 60 minutes"), "{}", found.text);
        assert_eq!(found.document["claims"]["sub"], "agent-1");
    }

    #[test]
    fn limits_budget_and_chain_are_told_in_words() {
        let link = |sub: &str, act: Value| json!({ "sub": sub, "act": act });
        let act = link("agent-0", link("user-1", Value::Null));
        let narrow = MintRequest {
            limits: serde_json::from_value(json!([{ "tool_id": "pay.refund", "argument": "/amount", "max": 100 }]))
                .unwrap(),
            budget: Some(policy::CallBudget { calls: Some(3) }),
            act: serde_json::from_value(act).unwrap(),
            ..request()
        };
        let text = inspect(&token(&narrow, &SigningKey::from_seed(&[1; 32])), None, NOW).unwrap().text;
        for line in [
            "limit      pay.refund /amount: at most 100",
            "budget     3 calls",
            "chain      user-1 → agent-0 → agent-1",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for bad in ["", "x", "a.b.c", "e30.e30", "e30.e30.x.y", "W10.e30.x"] {
            assert!(inspect(bad, None, NOW).is_err(), "{bad}");
        }
    }
}
