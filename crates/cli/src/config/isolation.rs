//! `[isolation]`: how isolated calls must be, beyond what manifests ask for. (EXEC-015, decision 0020)
//!
//! A demand is a line of words, `gvisor tag=untrusted tenant=acme`: short enough for a variable, and everything it names
//! must hold for it to match.

use contract::manifest::Isolation;
use kernel::{IsolationDemand, IsolationPolicy};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// How isolated calls must be, beyond what manifests ask for.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct IsolationKeys {
    /// The least isolation of calls: a level (`process`, `gvisor` or `microvm`) and, behind it, what the call must have for
    /// the demand to be about it: `tool=demo.*` (an id, `namespace.*` or `*`), `tag=untrusted` (a tag of the manifest),
    /// `tenant=acme` (of the caller). For example `["gvisor tool=demo.*", "gvisor tag=untrusted tenant=acme"]`. The highest
    /// level anybody asks for counts; a call that cannot have it is refused: E3405. A demand for every tool also refuses
    /// built-in tools, which run inside the server. In the environment separated by commas.
    pub(super) demands: Vec<String>,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct IsolationSection {
    demands: Vec<IsolationDemand>,
}

impl ConfigSection for IsolationKeys {
    const NAME: &'static str = "isolation";
    type Checked = IsolationSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> IsolationSection {
        IsolationSection { demands: problems.each_with("demands", &self.demands, demand) }
    }
}

impl IsolationSection {
    pub(crate) fn policy(&self) -> IsolationPolicy {
        IsolationPolicy::new(self.demands.clone())
    }

    /// Is a level demanded for anything?
    pub(crate) fn demands(&self, level: Isolation) -> bool {
        self.demands.iter().any(|demand| demand.level == level)
    }
}

fn demand(text: &str) -> Result<IsolationDemand, String> {
    let mut words = text.split_whitespace();
    let level = match words.next() {
        Some("process") => Isolation::Process,
        Some("gvisor") => Isolation::Gvisor,
        Some("microvm") => Isolation::Microvm,
        Some("wasm") => return Err("`wasm` is no level: WASM components count as `process`".to_owned()),
        Some("builtin") => return Err("`builtin` demands nothing".to_owned()),
        Some(word) => return Err(format!("a demand begins with process, gvisor or microvm, not with `{word}`")),
        None => return Err("a demand begins with process, gvisor or microvm".to_owned()),
    };
    let mut demand = IsolationDemand { level, tool: None, tag: None, tenant: None };
    for word in words {
        let twice = || format!("`{}` stands twice; write two demands", word.split('=').next().unwrap_or(word));
        match word.split_once('=') {
            Some((name, "")) => return Err(format!("`{name}=` has no value")),
            Some(("tool", pattern)) => {
                let pattern = pattern.parse().map_err(|error| format!("`{word}`: {error}"))?;
                demand.tool.replace(pattern).map_or(Ok(()), |_| Err(twice()))?;
            }
            Some(("tag", tag)) => demand.tag.replace(tag.to_owned()).map_or(Ok(()), |_| Err(twice()))?,
            Some(("tenant", tenant)) => {
                let tenant = tenant.parse().map_err(|error| format!("`{word}`: {error}"))?;
                demand.tenant.replace(tenant).map_or(Ok(()), |_| Err(twice()))?;
            }
            _ => return Err(format!("`{word}` is none of tool=…, tag=…, tenant=…")),
        }
    }
    Ok(demand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_is_a_level_and_what_it_is_about() {
        let read = demand("gvisor tool=demo.* tag=untrusted tenant=acme").unwrap();
        assert_eq!((read.level, read.tag.as_deref()), (Isolation::Gvisor, Some("untrusted")));
        assert_eq!((read.tool, read.tenant), ("demo.*".parse().ok(), "acme".parse().ok()));
        let bare = demand(" process ").unwrap();
        assert_eq!(bare, IsolationDemand { level: Isolation::Process, tool: None, tag: None, tenant: None });
    }

    #[test]
    fn what_is_wrong_with_a_demand_is_named() {
        for (text, word) in [
            ("", "begins with process, gvisor or microvm"),
            ("strong", "not with `strong`"),
            ("tool=demo.*", "not with `tool=demo.*`"),
            ("wasm", "count as `process`"),
            ("builtin", "demands nothing"),
            ("gvisor demo.*", "`demo.*` is none of"),
            ("gvisor tool=", "`tool=` has no value"),
            ("gvisor tool=Demo", "`tool=Demo`: "),
            ("gvisor tenant=a\u{200b}b", "must be 1 to"),
            ("gvisor tag=a tag=b", "`tag` stands twice"),
            ("gvisor colour=red", "is none of tool=…"),
        ] {
            let wrong = demand(text).unwrap_err();
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
    }
}
