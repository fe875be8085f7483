//! One page per error code, `docs/errors/E3301.md`, and the list of all of them.
//!
//! Everything on a page comes from the row of the error table, except the cause and the steps of codes that this release
//! can answer with: those are prose, in [`super::error_prose`]. A problem answer's `type` leads to the page.

use std::fmt::Write as _;

use contract::error::{Capability, ErrorRow, GrpcStatus, Retryability, TABLE};

use super::Artefact;
use super::error_prose::prose;

/// Where the pages are.
pub(super) const FOLDER: &str = "docs/errors/";

/// Every page and the list.
pub(super) fn pages() -> Vec<Artefact> {
    let page = |row: &&ErrorRow| Artefact { path: format!("{FOLDER}{}.md", row.code), text: page(row) };
    let list = Artefact { path: format!("{FOLDER}README.md"), text: list() };
    TABLE.iter().map(page).chain([list]).collect()
}

fn page(row: &ErrorRow) -> String {
    let mut text = format!(
        "<!-- Generated from the error table by `cargo xtask generate`. -->\n# {} – {}\n\n",
        row.code, row.meaning
    );
    // Writing to a string cannot fail; the results below are dropped for that reason.
    let _ = write!(
        text,
        "| | |\n|---|---|\n| name | `{}` |\n| kind | `{}` |\n| HTTP status | {} |\n| JSON-RPC code | {} |\n| gRPC status | `{}` |\n| retryable | {} |\n",
        row.name,
        word(&row.kind),
        http(row),
        row.code.json_rpc(),
        grpc(row.code.grpc()),
        if row.retry.retryable() { "yes" } else { "no" },
    );
    if !row.executor_names.is_empty() {
        let _ = writeln!(text, "| also known as | `{}` |", row.executor_names.join("`, `"));
    }
    if row.capability.is_answered() {
        let (cause, steps) = prose(row.code).unwrap_or((row.meaning, &[]));
        let _ = write!(text, "\n## Cause\n\n{cause}\n\n## What to do\n\n");
        if steps.is_empty() {
            let _ = writeln!(text, "{}.", row.resolution);
        }
        for step in steps {
            let _ = writeln!(text, "- {step}");
        }
    } else {
        let _ = write!(
            text,
            "\n**Reserved.** This release never answers with {}: {}. The number, the name and the mappings above are fixed already, \
             so that clients can prepare for them.\n\n## What to do\n\n{}.\n",
            row.code,
            why_reserved(row.capability),
            row.resolution
        );
    }
    let _ = write!(text, "\n## Sending it again\n\n{}\n\n[All codes](README.md)\n", retry_advice(row.retry));
    text
}

fn list() -> String {
    let mut text = String::from(
        "<!-- Generated from the error table by `cargo xtask generate`. -->\n# Error codes\n\nEvery refusal carries one of these codes, at every door. The code is what programs should look at; the message is for people \
         and may be reworded.\n\n| code | meaning | HTTP | JSON-RPC | gRPC | retryable | |\n|---|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let _ = writeln!(
            text,
            "| [{code}]({code}.md) | {} | {} | {} | `{}` | {} | {} |",
            row.meaning,
            row.http,
            row.code.json_rpc(),
            grpc(row.code.grpc()),
            if row.retry.retryable() { "yes" } else { "no" },
            if row.capability.is_answered() { "" } else { "reserved" },
            code = row.code,
        );
    }
    text.push_str("\n`reserved` codes are fixed, but this release does not answer with them; each page says why.\n");
    text
}

/// The word an enum has on the wire.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn grpc(status: GrpcStatus) -> String {
    word(&status)
}

/// 499 is a convention of proxies, not a status of HTTP; REST answers 409 instead (ERR-003).
fn http(row: &ErrorRow) -> String {
    if row.http == 499 { "499 (REST answers 409)".into() } else { row.http.to_string() }
}

fn retry_advice(retry: Retryability) -> &'static str {
    match retry {
        Retryability::No => "Do not: the same call will be refused in the same way.",
        Retryability::Yes => {
            "Yes, after a pause: `retry_after_ms` in the error, or else exponential back-off with jitter. Give up after a few attempts."
        }
        Retryability::WriteRules => {
            "Only if the tool is `pure` or `idempotent`, or the call carried an `idempotency_key`: it is not known how far the call \
             got. Use exponential back-off with jitter."
        }
        Retryability::AfterChange => {
            "Not unchanged. Once the thing named above has changed, the call may be sent again."
        }
    }
}

/// Why no release answers with the codes of a part yet; nothing where this one does.
fn why_reserved(capability: Capability) -> &'static str {
    match capability {
        Capability::Embeddings => "search by meaning is not built yet",
        Capability::SealedSecrets => "secrets in a vault or in an enciphered file are not built yet",
        Capability::AuditForm => "every audit record can be written in the form that records have",
        Capability::Documents => "documents and their servers are not built yet",
        Capability::Approvals => "asking an approver is not built yet, and calls that need one are refused with E3208",
        Capability::Composites => "composite tools are not built yet",
        Capability::Core | Capability::Identity | Capability::Sandbox | Capability::Jobs | Capability::Checkpoints => {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_a_line_in_the_list() {
        let pages = pages();
        let list = &pages.last().unwrap().text;
        assert_eq!(pages.len(), TABLE.len() + 1);
        for row in TABLE {
            let page = &pages.iter().find(|page| page.path == format!("docs/errors/{}.md", row.code)).unwrap().text;
            assert!(
                page.contains(row.meaning) && page.contains(row.name) && page.contains("## What to do"),
                "{}",
                row.code
            );
            assert!(list.contains(&format!("[{0}]({0}.md)", row.code)), "{}", row.code);
            assert_eq!(page.contains("**Reserved.**"), !row.capability.is_answered(), "{}", row.code);
            assert_eq!(why_reserved(row.capability).is_empty(), row.capability.is_answered(), "{}", row.code);
        }
    }

    #[test]
    fn every_code_this_release_answers_with_has_prose_of_its_own_and_no_other_has() {
        for row in TABLE {
            assert_eq!(prose(row.code).is_some(), row.capability.is_answered(), "{}", row.code);
        }
    }

    #[test]
    fn pages_show_the_words_of_the_wire() {
        let pages = pages();
        let page = |code: &str| &pages.iter().find(|page| page.path.contains(code)).unwrap().text;
        assert!(page("E3301").contains("| kind | `INVALID_INPUT` |") && page("E3301").contains("`INVALID_ARGUMENT`"));
        assert!(page("E3301").contains("-32602") && page("E3703").contains("REST answers 409"));
    }
}
