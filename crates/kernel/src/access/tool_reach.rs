//! Everything a call of a tool may touch, as policies are told of it: the tool's own words, what its network policy opens, and
//! what the server behind it was given. (AUTH-006)
//!
//! INVARIANT: whatever the executor opens for the call is in it. The words are those that the token's scopes are compared with
//! (`permissions`, PRM-2); an imported tool has those of its server besides (`ports::tool_origin`).

use contract::error::Refusal;
use policy::ToolReach;
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;

/// The words and hosts of one tool, each list sorted and without repetition.
#[derive(Debug)]
pub(super) struct ReachFacts<'a> {
    permissions: Vec<String>,
    hosts: Vec<String>,
    origin: Option<&'a ToolOrigin>,
}

impl<'a> ReachFacts<'a> {
    pub(super) fn of(tool: &ToolVersion, origin: Option<&'a ToolOrigin>) -> Result<Self, Refusal> {
        let (manifest, declared) = (&tool.manifest, tool.permissions()?);
        let own = manifest.required_permissions.iter().chain(&manifest.requires_permission).cloned();
        let opened = declared.needs().map(str::to_owned);
        let of_server = origin.map(ToolOrigin::permissions).unwrap_or_default();
        let own_hosts = declared.network.iter().map(|place| place.host.to_string());
        let hosts_of_server = origin.map(ToolOrigin::hosts).unwrap_or_default();
        Ok(Self {
            permissions: sorted(own.chain(opened).chain(of_server.iter().cloned())),
            hosts: sorted(own_hosts.chain(hosts_of_server.iter().cloned())),
            origin,
        })
    }

    pub(super) fn reach(&self) -> ToolReach<'_> {
        ToolReach {
            permissions: &self.permissions,
            hosts: &self.hosts,
            upstream: self.origin.and_then(ToolOrigin::upstream),
        }
    }
}

fn sorted(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut words: Vec<String> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
}
