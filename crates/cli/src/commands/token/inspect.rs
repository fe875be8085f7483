//! `gantry token inspect`: what a token says, whether it is genuine, and how long it lives. Never needs a server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use contract::json::{self, JsonLimits};
use kernel::ports::clock::{Clock as _, UnixMillis};
use policy::{TokenError, VerifyingKey};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::lifespan;
use crate::machine::SystemClock;
use crate::printer::{pretty, visible};

/// Show what a token says and whether it holds
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The token, or - for stdin (safer: other users may see command lines)
    #[arg(value_name = "TOKEN|-")]
    inspected: String,
}

impl Inspect {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        let token = if self.inspected == "-" {
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .map_err(|error| Failure::new(format!("stdin cannot be read: {error}")))?;
            line
        } else {
            self.inspected
        };
        let token = token.trim();
        if token.starts_with("gantry_admin_") {
            return admin(context, token);
        }
        let key = context.data_dir().signing_key()?.map(|kept| kept.value.verifying_key());
        let found = inspect(token, key.as_ref(), SystemClock::start().now())?;
        context.printer.answer(&found.document, |_| found.text.clone());
        Ok(())
    }
}

/// The bootstrap secret says nothing about itself; only the data directory knows it.
fn admin(context: &Context, token: &str) -> Result<(), Failure> {
    let is_ours = context.data_dir().admin_token()?.is_some_and(|kept| kept.value == token);
    let whose = if is_ours { "of this data directory" } else { "of some other data directory" };
    let document = json!({ "kind": "admin_token", "is_of_this_data_directory": is_ours });
    context
        .printer
        .answer(&document, |_| format!("an admin token {whose}: it may do everything there and does not expire"));
    Ok(())
}

#[derive(Debug)]
struct Inspected {
    document: Value,
    text: String,
}

fn inspect(token: &str, key: Option<&VerifyingKey>, now: UnixMillis) -> Result<Inspected, Failure> {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), 1) =
        (parts.next().and_then(decoded), parts.next().and_then(decoded), parts.count())
    else {
        return Err(Failure::new("this is not a token: three parts of base64url joined by dots were expected")
            .hint("copy the whole token, without quotes or `Bearer`"));
    };
    let (word, sentence) = match key.map(|key| policy::verify(token, std::slice::from_ref(key), now.0)) {
        None => ("unchecked", "not checked: the data directory has no signing key".to_owned()),
        Some(Ok(_)) => ("valid", "genuine, signed by this data directory's key".to_owned()),
        Some(Err(TokenError::Expired)) => ("expired", "genuine, but expired".to_owned()),
        Some(Err(TokenError::UnknownKey)) => {
            ("unknown_key", "signed by a key this data directory does not have".to_owned())
        }
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
    let text = format!("signature  {sentence}\nexpires    {expiry}\n{}", visible(&pretty(&claims)));
    let document = json!({ "kind": "capability_token", "verification": word, "expires": expiry, "header": header, "claims": claims });
    Ok(Inspected { document, text })
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

    fn token(key: &SigningKey) -> String {
        let request = MintRequest {
            sub: "agent-1".parse().unwrap(),
            tenant: "local".parse().unwrap(),
            roles: vec![],
            tools: vec![],
            scopes: vec![],
            user_did: None,
            session_id: None,
            ttl_seconds: 3600,
        };
        policy::mint(&request, key, "jti-1".into(), NOW.0).unwrap().0
    }

    #[test]
    fn a_token_is_judged_by_the_key_at_hand() {
        let (key, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let (ours, theirs) = (key.verifying_key(), other.verifying_key());
        let token = token(&key);
        let later = UnixMillis(NOW.0 + 7_200_000);
        for (key, now, expected) in [
            (Some(&ours), NOW, "valid"),
            (Some(&ours), later, "expired"),
            (Some(&theirs), NOW, "unknown_key"),
            (None, NOW, "unchecked"),
        ] {
            assert_eq!(inspect(&token, key, now).unwrap().document["verification"], expected);
        }
        let found = inspect(&token, Some(&ours), NOW).unwrap();
        assert!(found.text.contains("in 60 minutes"), "{}", found.text);
        assert_eq!(found.document["claims"]["sub"], "agent-1");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for bad in ["", "x", "a.b.c", "e30.e30", "e30.e30.x.y", "W10.e30.x"] {
            assert!(inspect(bad, None, NOW).is_err(), "{bad}");
        }
    }
}
