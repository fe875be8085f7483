//! Addresses of resources of servers behind Gantry, as they are shown outside: `gantry://servers/{server}/{address}`, with the
//! server's own address percent-encoded as one segment.
//!
//! A template must stay one: its variables are filled in by the client, which encodes what it puts there, and the result
//! must be what it would be without us. So a template stands as it is behind `~/`, and so does everything made of it.
//!
//! A server without a namespace keeps its addresses.
//!
//! Invariant ADDR-1: what [`outward`] has made, and what a client has made of [`outward_template`], [`inward`] takes apart
//! into the same server and the server's own address.

use ports::offerings::OfferingServer;
use rmcp::model::{ContentBlock, ResourceContents};

use super::resources::{decoded, encoded};

/// Where they are.
const SERVERS: &str = "gantry://servers/";
/// Before an address that stands as it is. No encoded address has a `/`.
const VERBATIM: &str = "~/";
/// Longest address that is looked at.
pub(crate) const ADDRESS_BYTES_MAX: usize = 16_384;

/// The address under which a server's resource is read.
pub(crate) fn outward(server: &OfferingServer, uri: &str) -> String {
    if server.namespace.is_empty() {
        return uri.to_owned();
    }
    format!("{SERVERS}{}/{}", encoded(&server.name), encoded(uri))
}

/// The same for a template.
pub(crate) fn outward_template(server: &OfferingServer, template: &str) -> String {
    if server.namespace.is_empty() {
        return template.to_owned();
    }
    format!("{SERVERS}{}/{VERBATIM}{template}", encoded(&server.name))
}

/// A server and its own address. `None`: it is none of these.
pub(crate) fn inward(uri: &str) -> Option<(String, String)> {
    if uri.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    let (server, rest) = uri.strip_prefix(SERVERS)?.split_once('/')?;
    let own = match rest.strip_prefix(VERBATIM) {
        Some(own) => own.to_owned(),
        None => decoded(rest)?,
    };
    (!own.is_empty()).then_some((decoded(server)?, own))
}

/// Gives what a block says of resources the addresses under which they are read.
pub(crate) fn readdress(block: &mut ContentBlock, server: &OfferingServer) {
    match block {
        ContentBlock::ResourceLink(link) => link.uri = outward(server, &link.uri),
        ContentBlock::Resource(embedded) => readdress_contents(&mut embedded.resource, |uri| outward(server, uri)),
        _ => {}
    }
}

/// Gives contents another address.
pub(crate) fn readdress_contents(contents: &mut ResourceContents, outward: impl FnOnce(&str) -> String) {
    match contents {
        ResourceContents::TextResourceContents { uri, .. } | ResourceContents::BlobResourceContents { uri, .. } => {
            *uri = outward(uri);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, namespace: &str) -> OfferingServer {
        OfferingServer {
            name: name.to_owned(),
            owner: contract::ids::TenantId::home(),
            namespace: namespace.to_owned(),
            resources: true,
            prompts: true,
        }
    }

    #[test]
    fn every_address_leads_back() {
        let notes = server("my notes", "my_notes");
        for uri in
            ["test://a/b?c=d#e", "file:///a%20b", "urn:isbn:1", "note://ä", "~/x", "gantry://servers/x/y", "a b%"]
        {
            let shown = outward(&notes, uri);
            let segment = shown.strip_prefix("gantry://servers/my%20notes/").unwrap_or_else(|| panic!("{shown}"));
            assert!(!segment.contains(['/', '?', '#', ' ']), "{shown}");
            assert_eq!(inward(&shown), Some(("my notes".to_owned(), uri.to_owned())), "{shown}");
        }
        assert_eq!(outward(&server("plain", ""), "test://a"), "test://a");
    }

    #[test]
    fn what_a_client_makes_of_a_template_is_what_it_would_have_made_without_us() {
        let template = "test://notes/{id}/page{?number}";
        let shown = outward_template(&server("notes", "notes"), template);
        assert_eq!(shown, "gantry://servers/notes/~/test://notes/{id}/page{?number}");
        assert_eq!(inward(&shown), Some(("notes".to_owned(), template.to_owned())));
        // As RFC 6570 has it for `a b/c` and 2.
        let filled = |text: &str| text.replace("{id}", "a%20b%2Fc").replace("{?number}", "?number=2");
        assert_eq!(inward(&filled(&shown)), Some(("notes".to_owned(), filled(template))));
    }

    #[test]
    fn everything_else_is_no_address_of_a_server() {
        let long = format!("gantry://servers/notes/{}", "a".repeat(ADDRESS_BYTES_MAX));
        for none in
            ["", "gantry://servers/notes", "gantry://servers/notes/", "gantry://servers/notes/~/", "test://a", &long]
        {
            assert_eq!(inward(none), None, "{none}");
        }
        assert_eq!(inward("gantry://servers/notes/%zz"), None);
    }
}
