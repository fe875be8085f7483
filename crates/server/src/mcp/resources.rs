//! What can be read over MCP: who has which tools (VIS-010…013), and results that were too large to be given at once.
//!
//! `gantry://tools/tenant/{id}/available`, `gantry://tools/agent/{id}/enabled`, `gantry://tools/agent/{id}/unavailable`; the
//! same with `focal://`; and `gantry://results/{id}`. Everything is read-only, and what a caller may not look at does not
//! exist for it.

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use kernel::{Kernel, Principal};
use policy::Caller;
use ports::tool_version::ToolVersion;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde::Serialize;
use serde_json::{Value, json};

use super::call_status::CALLS;
use super::results::{ParkedBody, ParkedPart, ParkedResults, RESULTS, TextPiece};
use super::{names, seal};
use crate::incoming_request::CallerCredential;
use crate::visibility_view::{AvailableTool, EnabledTool, UnavailableTool};

/// Both spellings of the scheme.
const SCHEMES: [&str; 2] = ["gantry://", "focal://"];
/// Longest address that is looked at.
const URI_BYTES_MAX: usize = 2_048;

/// What an address means.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Available(TenantId),
    Enabled(Subject),
    Unavailable(Subject),
    /// The whole of it, or a piece.
    Result {
        id: String,
        offset: Option<usize>,
    },
}

/// What the caller will want to read.
pub(crate) fn list(caller: &Caller) -> Vec<Resource> {
    let (tenant, agent) = (encoded(caller.tenant().as_str()), encoded(caller.subject().as_str()));
    let resource = |uri: String, name: &str, about: &str| {
        Resource::new(uri, name).with_description(about).with_mime_type("application/json")
    };
    vec![
        resource(
            format!("gantry://tools/tenant/{tenant}/available"),
            "tenant-tools",
            "Every tool that the tenant of this caller has.",
        ),
        resource(
            format!("gantry://tools/agent/{agent}/enabled"),
            "enabled-tools",
            "Every tool that this caller may use.",
        ),
        resource(
            format!("gantry://tools/agent/{agent}/unavailable"),
            "unavailable-tools",
            "Every tool of the tenant that this caller may not use at the moment, each with the reason.",
        ),
    ]
}

/// How addresses are made.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, about: &str, mime: &str| {
        ResourceTemplate::new(uri, name).with_description(about).with_mime_type(mime)
    };
    vec![
        template(
            "gantry://tools/tenant/{tenant}/available",
            "tenant-tools",
            "Every tool that a tenant has.",
            "application/json",
        ),
        template(
            "gantry://tools/agent/{agent}/enabled",
            "enabled-tools",
            "Every tool that an agent may use.",
            "application/json",
        ),
        template(
            "gantry://tools/agent/{agent}/unavailable",
            "unavailable-tools",
            "Every tool that an agent may not use, with the reason.",
            "application/json",
        ),
        template(
            "gantry://results/{id}{?offset}",
            "result",
            "A part of a result that was too large to be given at once: the whole of it, a text also in pieces.",
            "application/octet-stream",
        ),
        template(
            "gantry://calls/{id}",
            "call",
            "A call that went on in the background: where it stands, and its result once it has one.",
            "application/json",
        ),
    ]
}

/// Is it under a scheme of ours? No server is ever asked for such an address.
pub(crate) fn is_ours(uri: &str) -> bool {
    SCHEMES.iter().any(|scheme| uri.starts_with(scheme))
}

/// Is it one of Gantry's own addresses?
pub(crate) fn is_own(uri: &str) -> bool {
    uri.starts_with(CALLS) || place(uri).is_some()
}

/// Is it one of Gantry's own that changes? Results do not.
pub(crate) fn changes(uri: &str) -> bool {
    place(uri).is_some_and(|place| !matches!(place, Place::Result { .. }))
}

/// May the caller watch it, being one of Gantry's own that changes? What it may not read does not exist for it here either.
pub(crate) fn may_watch(kernel: &Kernel, caller: &Principal, uri: &str) -> Result<(), Refusal> {
    match place(uri).ok_or_else(|| nothing(uri))? {
        Place::Available(tenant) => kernel.may_see_tenant(caller, &tenant),
        Place::Enabled(agent) | Place::Unavailable(agent) => kernel.may_see_agent(caller, &agent),
        Place::Result { .. } => Err(nothing(uri)),
    }
}

/// Reads one.
pub(crate) async fn read(
    kernel: &Kernel,
    results: &ParkedResults,
    who: &CallerCredential,
    reader: &Principal,
    uri: &str,
) -> Result<ResourceContents, Refusal> {
    let value = match place(uri).ok_or_else(|| nothing(uri))? {
        Place::Available(tenant) => {
            let tools = kernel.tenant_tools(who.actor(), &tenant).await?;
            let tools = lines(&tools, |one| line(&one.current, &AvailableTool::of(one)))?;
            json!({ "tenant_id": tenant, "tools": tools })
        }
        Place::Enabled(agent) => {
            let tools = kernel.agent_tools(who.actor(), &agent).await?;
            let tools = lines(&tools, |one| line(&one.current, &EnabledTool::of(one)))?;
            json!({ "agent_did": agent, "tools": tools })
        }
        Place::Unavailable(agent) => {
            let tools = kernel.unavailable_tools(who.actor(), &agent).await?;
            let tools = lines(&tools, |one| line(&one.current, &UnavailableTool::of(one)))?;
            json!({ "agent_did": agent, "tools": tools })
        }
        Place::Result { id, offset } => {
            let now_ms = kernel.clock().now().0;
            let found = results.find(&id, &seal::principal(reader.caller()), now_ms).ok_or_else(|| nothing(uri))?;
            return parked(kernel, reader, found, (uri, &id, offset)).await;
        }
    };
    Ok(ResourceContents::text(value.to_string(), uri).with_mime_type("application/json"))
}

/// A part of a result, as far as the reader may see it now.
async fn parked(
    kernel: &Kernel,
    reader: &Principal,
    part: ParkedPart,
    (uri, id, offset): (&str, &str, Option<usize>),
) -> Result<ResourceContents, Refusal> {
    let ParkedPart { tool_id, mime_type, body } = part;
    match body {
        ParkedBody::Text(text) => {
            let shown = kernel.shown_to_reader(reader, &tool_id, text).await;
            match offset {
                None => Ok(ResourceContents::text(&*shown, uri).with_mime_type(&*mime_type)),
                Some(offset) => Ok(TextPiece::at(&shown, offset).ok_or_else(|| nothing(uri))?.contents(uri, id)),
            }
        }
        // A piece of a picture is none.
        ParkedBody::Blob(_) if offset.is_some() => Err(nothing(uri)),
        ParkedBody::Blob(base64) => {
            let shown = kernel.binary_shown_to_reader(reader, &tool_id, base64).await;
            Ok(match shown {
                Ok(base64) => ResourceContents::blob(&*base64, uri).with_mime_type(&*mime_type),
                Err(words) => ResourceContents::text(words, uri),
            })
        }
    }
}

/// What REST says of a tool, and the name by which MCP calls it.
fn line(version: &ToolVersion, said: &impl Serialize) -> Result<Value, Refusal> {
    let mut line = serde_json::to_value(said)
        .map_err(|error| Refusal::new(ErrorCode::E3000, format!("a tool cannot be written as JSON: {error}")))?;
    if let Some(members) = line.as_object_mut() {
        members.insert("mcp_name".to_owned(), json!(names::exported(&version.id)));
    }
    Ok(line)
}

fn lines<T>(tools: &[T], line: impl Fn(&T) -> Result<Value, Refusal>) -> Result<Vec<Value>, Refusal> {
    tools.iter().map(line).collect()
}

/// The same words for "does not exist" and "not for you".
pub(crate) fn nothing(uri: &str) -> Refusal {
    let shown: String = uri.chars().filter(|c| !c.is_control()).take(120).collect();
    Refusal::new(ErrorCode::E3008, format!("there is no resource `{shown}`"))
        .hint("resources/list and resources/templates/list say what there is; large results are kept for a while only")
}

// ------------------------------------------------------------------------------------------------------------ addresses

fn place(uri: &str) -> Option<Place> {
    if uri.len() > URI_BYTES_MAX {
        return None;
    }
    if let Some(rest) = uri.strip_prefix(RESULTS) {
        let (id, query) = rest.split_once('?').map_or((rest, None), |(id, query)| (id, Some(query)));
        let offset = match query {
            None => None,
            Some(query) => Some(query.strip_prefix("offset=")?.parse().ok()?),
        };
        return (!id.is_empty() && !id.contains('/')).then(|| Place::Result { id: id.to_owned(), offset });
    }
    let rest = SCHEMES.iter().find_map(|scheme| uri.strip_prefix(scheme))?.strip_prefix("tools/")?;
    let (kind, rest) = rest.split_once('/')?;
    // A DID may have slashes of its own, so the last word is taken from the end.
    let (id, what) = rest.rsplit_once('/')?;
    let id = decoded(id)?;
    match (kind, what) {
        ("tenant", "available") => id.parse().ok().map(Place::Available),
        ("agent", "enabled") => id.parse().ok().map(Place::Enabled),
        ("agent", "unavailable") => id.parse().ok().map(Place::Unavailable),
        _ => None,
    }
}

/// As it stands in an address (RFC 3986): everything but the unreserved characters and `:` is escaped.
pub(super) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_understood_and_everything_else_is_nothing() {
        let agent: Subject = "did:web:example.com".parse().unwrap();
        for (uri, expected) in [
            ("gantry://tools/tenant/acme/available", Some(Place::Available("acme".parse().unwrap()))),
            ("focal://tools/tenant/acme/available", Some(Place::Available("acme".parse().unwrap()))),
            ("gantry://tools/agent/did:web:example.com/enabled", Some(Place::Enabled(agent.clone()))),
            ("focal://tools/agent/did%3Aweb%3Aexample.com/unavailable", Some(Place::Unavailable(agent))),
            ("gantry://results/abc", Some(Place::Result { id: "abc".into(), offset: None })),
            ("gantry://results/abc?offset=12", Some(Place::Result { id: "abc".into(), offset: Some(12) })),
            ("gantry://results/abc?offset=-1", None),
            ("gantry://results/abc?size=1", None),
            ("gantry://results/", None),
            ("focal://results/abc", None),
            ("gantry://tools/tenant/acme/enabled", None),
            ("gantry://tools/agent//enabled", None),
            ("gantry://tools/agent/%zz/enabled", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(place(uri), expected, "{uri}");
        }
        assert_eq!(decoded(&encoded("a b/ä")).as_deref(), Some("a b/ä"));
    }
}
