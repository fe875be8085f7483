//! What an address outside means to policies: a host, and the permission to reach it. (AUTH-006)

use ports::tool_origin::OriginParts;
use reqwest::Url;

/// Adds an address that is asked to what policies hear. One that cannot be read may be anywhere.
pub fn add_address(parts: &mut OriginParts, address: &str) {
    let url = Url::parse(address).ok();
    let Some((url, host)) = url.as_ref().and_then(|url| Some((url, url.host_str()?))) else {
        parts.hosts.push("*".to_owned());
        return parts.permissions.push("network:*".to_owned());
    };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    parts.permissions.push(format!("network:{}://{host}{port}", url.scheme()));
    // As manifests write hosts: IPv6 addresses without brackets.
    parts.hosts.push(host.trim_matches(['[', ']']).to_owned());
}
