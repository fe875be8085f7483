//! Secrets that stand in a description of a server in clear: refused at the door, taken out of what leaves the store.
//!
//! A description names credentials and holds none: it is shown to whoever may see servers, and copied with the store. There is
//! one rule for all who ask (`import::secrets`), and two questions. A value is *refused* if it is a secret for sure: a tenant
//! may have no other way to set `AUTHOR`. Whether it may *leave* is asked as an import does, for which it is one in doubt.
//!
//! Not here: making credentials of the values in a file of somebody's client (`import`).

use contract::error::{ErrorCode, Refusal};
use ports::redactor::Redactor;
use serde_json::{Map, Value, json};

use crate::catalogue::shown;
use crate::import::secrets::{SecretJudge, SettingPlace, credential_name, is_secret};
use crate::spec::{ServerReach, ServerSetting, ServerSpec};

/// What stands in place of an argument.
const TAKEN_OUT: &str = "[REDACTED]";

/// Refuses a description that holds a secret.
pub(crate) fn refuse(spec: &ServerSpec, redactor: &dyn Redactor) -> Result<(), Refusal> {
    let judged =
        |place, name: &str, value: &str| is_secret(place, name, value, |name, value| redactor.is_secret(name, value));
    let (member, place, settings, urls) = match &spec.reach {
        ServerReach::Stdio { env, .. } => ("env", SettingPlace::Variable, env, Vec::new()),
        ServerReach::Http { url, headers, oauth } | ServerReach::Sse { url, headers, oauth } => {
            let token = oauth.iter().map(|client| client.token_url.as_str());
            let urls = std::iter::once(url.as_str()).chain(spec.fallbacks.iter().map(String::as_str)).chain(token);
            ("headers", SettingPlace::Header, headers, urls.collect())
        }
    };
    let secret = settings.iter().find(|(name, setting)| match setting {
        ServerSetting::Plain(value) => judged(place, name, value),
        ServerSetting::Secret { .. } => false,
    });
    if let Some((name, _)) = secret {
        let message = format!("`{}` in `{member}` is a secret, and stands there in clear", shown(name));
        return Err(Refusal::new(ErrorCode::E3004, message).hint(format!(
            "keep its value as a credential of the tenant and name it there: {}; `gantry server add` and `gantry import mcp` \
             do both (docs/upstream-servers.md)",
            json!({ "secret": "NAME" })
        )));
    }
    let in_query = |url: &&str| {
        let parsed = url::Url::parse(url).ok();
        parsed.is_some_and(|url| url.query_pairs().any(|(name, value)| judged(SettingPlace::Query, &name, &value)))
    };
    if urls.iter().any(in_query) {
        return Err(Refusal::new(ErrorCode::E3004, "an address has a secret in its query, where it would be logged")
            .hint("keep it as a credential of the tenant and send it in `headers`"));
    }
    Ok(())
}

/// Takes out of a kept description what looks like a secret, and names a credential in its place. False if there was nothing.
pub fn take_out(spec: &mut Value) -> bool {
    let Some(reach) = spec.get_mut("reach").and_then(Value::as_object_mut) else { return false };
    let judge = SecretJudge::new();
    let mut taken = take_out_settings(reach, "env", SettingPlace::Variable, &judge)
        | take_out_settings(reach, "headers", SettingPlace::Header, &judge);
    if let Some(args) = reach.get_mut("args").and_then(Value::as_array_mut) {
        taken |= take_out_args(args, &judge);
    }
    if let Some(url) = reach.get_mut("url") {
        taken |= take_out_text(url, |url| without_secret_query(url, &judge));
    }
    if let Some(url) = reach.get_mut("oauth").and_then(|client| client.get_mut("token_url")) {
        taken |= take_out_text(url, |url| without_secret_query(url, &judge));
    }
    for url in spec.get_mut("fallbacks").and_then(Value::as_array_mut).into_iter().flatten() {
        taken |= take_out_text(url, |url| without_secret_query(url, &judge));
    }
    taken
}

fn take_out_settings(reach: &mut Map<String, Value>, member: &str, place: SettingPlace, judge: &SecretJudge) -> bool {
    let mut taken = false;
    for (name, setting) in reach.get_mut(member).and_then(Value::as_object_mut).into_iter().flatten() {
        if setting.as_str().is_some_and(|value| judge.may_be_secret(place, name, value)) {
            *setting = json!({ "secret": credential_name("", name).trim_start_matches('_') });
            taken = true;
        }
    }
    taken
}

/// The arguments, of which an import warns (`SecretJudge::secret_arguments`).
fn take_out_args(args: &mut [Value], judge: &SecretJudge) -> bool {
    let words: Vec<String> = args.iter().map(|arg| arg.as_str().unwrap_or_default().to_owned()).collect();
    let secret = judge.secret_arguments(&words);
    let mut taken = false;
    for at in secret {
        let Some(arg) = args.get_mut(at).filter(|arg| *arg != TAKEN_OUT) else { continue };
        *arg = TAKEN_OUT.into();
        taken = true;
    }
    taken
}

/// A command line as it is shown, without what looks like a secret in it.
pub fn shown_args(args: &[String]) -> Vec<String> {
    SecretJudge::new().shown_arguments(args)
}

/// An address without its query, if there is a secret in it.
fn without_secret_query(address: &str, judge: &SecretJudge) -> Option<String> {
    let mut url = url::Url::parse(address).ok()?;
    let secret = url.query_pairs().any(|(name, value)| judge.may_be_secret(SettingPlace::Query, &name, &value));
    secret.then(|| {
        url.set_query(None);
        url.to_string()
    })
}

fn take_out_text(text: &mut Value, instead: impl Fn(&str) -> Option<String>) -> bool {
    let Some(instead) = text.as_str().and_then(instead) else { return false };
    *text = Value::String(instead);
    true
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use contract::schema::PartMarks;
    use ports::redactor::RedactError;

    use super::*;

    /// Knows one word, and one name.
    #[derive(Debug)]
    struct Knowing;

    impl Redactor for Knowing {
        fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
            Ok(value.clone())
        }
        fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
            Ok(None)
        }
        fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
            text.into()
        }
        fn is_secret(&self, name: &str, text: &str) -> bool {
            name == "PASSWORD" || text.contains("hunter2")
        }
        fn members(&self, _: &mut Value, _: &[Box<str>]) {}
    }

    fn refused(spec: Value) -> Option<Refusal> {
        let spec: ServerSpec = serde_json::from_value(spec).unwrap();
        refuse(&spec, &Knowing).err()
    }

    #[test]
    fn what_is_a_secret_is_refused_with_the_way_to_do_it_right() {
        let stdio = |env: Value| json!({ "reach": { "type": "stdio", "command": "x", "env": env } });
        let http =
            |headers: Value| json!({ "reach": { "type": "http", "url": "https://a.example", "headers": headers } });
        for spec in [
            stdio(json!({ "WORD": "my hunter2" })),
            stdio(json!({ "PASSWORD": "swordfish" })),
            stdio(json!({ "WORD": "ghp_abcdefghijklmnop" })),
            stdio(json!({ "DATABASE": "postgres://u:p@h/d" })),
            http(json!({ "authorization": "Bearer sk-live-planted" })),
            http(json!({ "Cookie": "a=b" })),
            http(json!({ "x-note": "hunter2" })),
            json!({ "reach": { "type": "sse", "url": "https://a.example/sse?word=hunter2" } }),
            json!({ "reach": { "type": "http", "url": "https://a.example" }, "fallbacks": ["https://b.example?word=hunter2"] }),
        ] {
            let refusal = refused(spec.clone()).unwrap_or_else(|| panic!("{spec} is taken"));
            let said = format!("{} {}", refusal.message, refusal.hint.unwrap_or_default());
            assert!(said.contains("credential") && !said.contains("hunter2") && !said.contains("planted"), "{said}");
        }
        for spec in [
            stdio(json!({ "AUTHOR": "Jane", "PASSWORD": "", "MODE": "fast", "KEY": { "secret": "a_key" } })),
            stdio(json!({ "PASSWORD": "/run/secrets/password" })),
            http(json!({ "x-team": "a", "Authorization": { "secret": "a_key" } })),
            json!({ "reach": { "type": "http", "url": "https://a.example?page=2" } }),
        ] {
            assert_eq!(refused(spec.clone()).map(|refusal| refusal.message), None, "{spec}");
        }
    }

    #[test]
    fn what_looks_like_a_secret_is_taken_out_wherever_it_stands() {
        let mut spec = json!({ "fallbacks": ["https://b.example/mcp?api_key=planted"], "reach": {
            "url": "https://a.example/mcp?api_key=planted", "args": ["-y", "--token=ghp_plantedplanted", "--api-key=planted", "--password", "planted"],
            "env": { "API_KEY": "planted", "MODE": "fast", "KEPT": { "secret": "a_key" } },
            "headers": { "Authorization": "Bearer planted" }, "oauth": { "token_url": "https://a.example/?token=planted" },
        } });
        assert!(take_out(&mut spec));
        assert!(!spec.to_string().contains("planted"), "{spec}");
        let expected = json!({ "API_KEY": { "secret": "api_key" }, "MODE": "fast", "KEPT": { "secret": "a_key" } });
        assert_eq!(spec["reach"]["env"], expected);
        assert!(!take_out(&mut spec), "once is enough");
        let args = ["--api-key=planted", "--password", "planted", "--mode", "fast"].map(str::to_owned);
        assert_eq!(shown_args(&args), ["(hidden)", "--password", "(hidden)", "--mode", "fast"]);
    }
}
