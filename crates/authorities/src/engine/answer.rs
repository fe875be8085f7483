//! From an engine's answer to a verdict: reasons are trimmed, obligations understood or refused.
//!
//! Obligations come as `redact=email` or as `{"type": "redact", "value": "email"}`. One that is not understood completely
//! is not understood: an object with further members, or a list of members behind one `redact=`, would otherwise be half
//! obeyed.

use policy::{Obligation, PolicyVerdict};
use ports::policy_engine::EngineError;
use serde_json::{Map, Value};

use super::no;

/// Longest text that is taken over from outside.
const REASON_CHARS_MAX: usize = 200;

/// The verdict of an answer whose decision has been read already; `members` may have `reason` and `obligations`.
pub(super) fn verdict(allowed: bool, members: &Map<String, Value>) -> Result<PolicyVerdict, EngineError> {
    let given = match members.get("reason") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => printable(text),
        Some(_) => return Err(no("`reason` is not a text")),
    };
    if !allowed {
        return Ok(denied(if given.is_empty() { "the policy engine denies this".into() } else { given }));
    }
    let list = match members.get("obligations") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(_) => return Err(no("`obligations` is not a list")),
    };
    let mut obligations = Vec::with_capacity(list.len());
    for item in list {
        let Some(text) = written(item)? else { return Ok(unknown(&item.to_string())) };
        let Ok(obligation) = text.parse() else { return Ok(unknown(&text)) };
        obligations.push(obligation);
    }
    obligations.sort();
    obligations.dedup();
    let reason = if given.is_empty() { "the policy engine allows this".into() } else { given };
    Ok(PolicyVerdict { allowed: true, determining: Vec::new(), obligations, reason })
}

/// An explicit denial.
pub(super) fn denied(reason: String) -> PolicyVerdict {
    PolicyVerdict { allowed: false, determining: Vec::new(), obligations: Vec::<Obligation>::new(), reason }
}

/// ENG-2.
fn unknown(given: &str) -> PolicyVerdict {
    denied(printable(&format!("the policy engine demands the unknown obligation `{}`", cut(given, 80))))
}

/// An obligation as `name` or `name=value`, `None` if it is an object that says something else.
fn written(item: &Value) -> Result<Option<String>, EngineError> {
    let text = match item {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let Some(Value::String(name)) = members.get("type") else { return Ok(None) };
            if name.contains('=') || members.keys().any(|key| key != "type" && key != "value") {
                return Ok(None);
            }
            match members.get("value") {
                None | Some(Value::Null) => name.clone(),
                Some(Value::String(value)) => format!("{name}={value}"),
                Some(Value::Number(value)) => format!("{name}={value}"),
                Some(_) => return Ok(None),
            }
        }
        _ => return Err(no("an obligation is neither a text nor an object")),
    };
    // `redact=email,phone` would be a member of that name, and nothing would be redacted.
    let one = !text.chars().any(|c| c == ',' || c.is_control());
    Ok(one.then_some(text))
}

/// Text from outside, fit for logs, envelopes and terminals.
fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    let shown: String = shown.filter(|c| !c.is_control() && !is_invisible(*c)).collect();
    cut(shown.trim(), REASON_CHARS_MAX)
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// Characters that take no room or turn the direction of what follows: a text with them reads as something it is not.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(answer: &Value) -> Result<PolicyVerdict, EngineError> {
        verdict(true, answer.as_object().unwrap())
    }

    #[test]
    fn obligations_are_understood_in_both_spellings_and_come_sorted_and_once() {
        let list = json!([
            "timeout_seconds=5",
            {"type": "redact", "value": "email"},
            "redact=email",
            {"type": "result_bytes", "value": 1000},
            {"type": "require_approval"},
            {"type": "require_confirmation", "value": null},
        ]);
        let verdict = of(&json!({ "obligations": list })).unwrap();
        assert!(verdict.allowed);
        assert_eq!(
            verdict.obligations,
            [
                Obligation::Redact("email".into()),
                Obligation::RequireApproval,
                Obligation::RequireConfirmation,
                Obligation::TimeoutSeconds(5),
                Obligation::ResultBytes(1000),
            ]
        );
        for none in [json!({}), json!({"obligations": []}), json!({"obligations": null})] {
            let verdict = of(&none).unwrap();
            assert!(verdict.allowed && verdict.obligations.is_empty());
        }
    }

    #[test]
    fn an_obligation_that_is_not_wholly_understood_denies() {
        for (item, shown) in [
            (json!("notify=security"), "notify=security"),
            (json!(""), "``"),
            (json!("redact"), "redact"),
            (json!("redact=email,phone"), "redact=email,phone"),
            (json!("timeout_seconds=0"), "timeout_seconds=0"),
            (json!("require_approval=alice"), "require_approval=alice"),
            (json!({"type": "notify", "value": "security"}), "notify=security"),
            (json!({"type": "redact"}), "redact"),
            (json!({"type": "redact=x", "value": "y"}), "redact=x"),
            (json!({"type": "redact", "value": "email", "unless": "admin"}), "unless"),
            (json!({"type": "redact", "value": ["email"]}), "email"),
            (json!({"type": "timeout_seconds", "value": 1.5}), "timeout_seconds=1.5"),
            (json!({"type": "timeout_seconds", "value": -1}), "timeout_seconds=-1"),
            (json!({"kind": "redact"}), "kind"),
            (json!({}), "{}"),
        ] {
            let verdict = of(&json!({"obligations": ["redact=email", item]})).unwrap();
            assert!(!verdict.allowed && verdict.obligations.is_empty(), "{item}");
            assert!(verdict.reason.contains("unknown obligation") && verdict.reason.contains(shown), "{verdict:?}");
        }
    }

    #[test]
    fn wrong_types_are_no_decision() {
        for answer in [
            json!({"reason": 5}),
            json!({"reason": ["a"]}),
            json!({"obligations": "redact=email"}),
            json!({"obligations": {"redact": "email"}}),
            json!({"obligations": [5]}),
            json!({"obligations": [null]}),
            json!({"obligations": [["redact=email"]]}),
        ] {
            assert!(of(&answer).is_err(), "{answer}");
        }
    }

    #[test]
    fn reasons_are_cut_to_two_hundred_printable_characters() {
        let long = "ä".repeat(500);
        for (given, expected) in [
            ("no\u{1b}[31m\r\nway\u{202e}\u{200b}", "no[31m  way"),
            (long.as_str(), &"ä".repeat(200)),
            ("", "the policy engine allows this"),
            (" \u{7} ", "the policy engine allows this"),
        ] {
            assert_eq!(of(&json!({ "reason": given })).unwrap().reason, expected);
        }
        let huge = of(&json!({"obligations": ["x".repeat(5000)]})).unwrap().reason;
        assert!(huge.chars().count() <= 200, "{huge}");
    }

    #[test]
    fn a_denial_stands_whatever_its_obligations_are() {
        let answer = json!({"reason": "closed", "obligations": 7});
        let verdict = verdict(false, answer.as_object().unwrap()).unwrap();
        assert_eq!(verdict, denied("closed".into()));
    }
}
