//! What policies are told of a server behind Gantry: who it is, where it is, and what it may touch. (AUTH-006)
//!
//! Nothing in which secrets stand is told: of a program its name without arguments, of an address scheme, host, port and path.
//! What cannot be read counts as everything, so that a policy is never told less than the server may touch.

use executors::origin::add_address;
use ports::permissions::DeclaredPermissions;
use ports::tool_origin::{OriginParts, ToolOrigin};
use url::Url;

use crate::spec::{ServerReach, ServerSpec};

/// The origin of the tools of a server that has these addresses, or is this program.
pub(crate) fn origin<'s>(server: &str, specs: impl Iterator<Item = &'s ServerSpec>) -> ToolOrigin {
    let mut parts = OriginParts { server: Some(server.to_owned()), ..OriginParts::default() };
    for spec in specs {
        add(&mut parts, &spec.reach);
    }
    for list in [&mut parts.permissions, &mut parts.hosts] {
        list.sort_unstable();
        list.dedup();
    }
    ToolOrigin::new(parts)
}

fn add(parts: &mut OriginParts, reach: &ServerReach) {
    parts.permissions.extend(reach.credentials().map(|name| format!("credentials:{name}")));
    match reach {
        ServerReach::Stdio { command, permissions, .. } => {
            parts.transport = "stdio";
            parts.command = Some(command.clone());
            parts.permissions.extend(permissions.iter().cloned());
            match DeclaredPermissions::of_words(permissions) {
                Ok(read) => parts.hosts.extend(read.network.iter().map(|place| place.host.to_string())),
                Err(_) => parts.hosts.push("*".to_owned()),
            }
        }
        ServerReach::Http { url, oauth, .. } | ServerReach::Sse { url, oauth, .. } => {
            parts.transport = if matches!(reach, ServerReach::Sse { .. }) { "sse" } else { "http" };
            parts.addresses.extend(shown(url));
            add_address(parts, url);
            if let Some(client) = oauth {
                add_address(parts, &client.token_url);
            }
        }
    }
}

/// An address without what may be secret in it.
fn shown(address: &str) -> Option<String> {
    let mut url = Url::parse(address).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(spec: Value) -> (ToolOrigin, Vec<String>, Vec<String>) {
        let spec: ServerSpec = serde_json::from_value(spec).unwrap();
        let each = spec.at_each_address();
        let origin = origin("files", each.iter().map(|spec| &**spec));
        let (permissions, hosts) = (origin.permissions().to_vec(), origin.hosts().to_vec());
        (origin, permissions, hosts)
    }

    #[test]
    fn a_program_is_told_with_its_permissions_and_hosts_and_without_arguments() {
        let (origin, permissions, hosts) = told(json!({ "reach": { "type": "stdio", "command": "files-server",
            "args": ["--key", "s3cret"], "env": { "KEY": { "secret": "files_key" } },
            "permissions": ["filesystem:read:/srv", "network:https://api.example.com:8443", "network:https://*.cdn.example"] } }));
        assert_eq!(hosts, ["*.cdn.example", "api.example.com"]);
        assert_eq!(
            permissions,
            [
                "credentials:files_key",
                "filesystem:read:/srv",
                "network:https://*.cdn.example",
                "network:https://api.example.com:8443"
            ]
        );
        assert!(!format!("{origin:?}").contains("s3cret"));
    }

    #[test]
    fn an_address_is_told_with_its_fallbacks_and_token_server_and_without_query() {
        let (origin, permissions, hosts) =
            told(json!({ "reach": { "type": "http", "url": "https://a.example/mcp?key=s3cret",
            "oauth": { "token_url": "https://login.example/token", "client_id": "c", "client_secret": "app_key" } },
            "fallbacks": ["https://b.example:8443/mcp"] }));
        assert_eq!(hosts, ["a.example", "b.example", "login.example"]);
        assert_eq!(
            permissions,
            [
                "credentials:app_key",
                "network:https://a.example",
                "network:https://b.example:8443",
                "network:https://login.example"
            ]
        );
        let shown = format!("{origin:?}");
        assert!(shown.contains("https://b.example:8443/mcp") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn what_cannot_be_read_counts_as_everything() {
        let (_, permissions, hosts) = told(json!({ "reach": { "type": "sse", "url": "nonsense" } }));
        assert_eq!((hosts, permissions), (vec!["*".to_owned()], vec!["network:*".to_owned()]));
        let (_, _, hosts) =
            told(json!({ "reach": { "type": "stdio", "command": "x", "permissions": ["filesystem:eat:/"] } }));
        assert_eq!(hosts, ["*"]);
    }

    #[test]
    fn every_change_of_what_a_server_may_touch_makes_another_origin() {
        let of = |permissions: Value| {
            told(json!({ "reach": { "type": "stdio", "command": "x", "permissions": permissions } })).0
        };
        assert_eq!(of(json!([])), of(json!([])));
        assert_ne!(of(json!([])), of(json!(["filesystem:read:/srv"])));
    }
}
