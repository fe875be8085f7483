//! The list of probes, as `escape/probes.toml` has it: what each is called, what may come of it, where it is run.
//!
//! A table file instead of code, because a person who adds a probe should touch two files: the probe and its row. What a
//! row leaves out has one default, given here. Reading is strict: a misspelt member would silently weaken a probe.
//!
//! Not here: what a probe does (`escape/probes/`), how an outcome is judged ([`super::verdict`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// Where a probe is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProbeIsolation {
    Process,
    Gvisor,
    Wasm,
}

impl ProbeIsolation {
    pub(crate) const ALL: [Self; 3] = [Self::Process, Self::Gvisor, Self::Wasm];

    /// The word on the command line and in manifests.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Gvisor => "gvisor",
            Self::Wasm => "wasm",
        }
    }
}

/// What is done with a probe outside any sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BareProbe {
    /// It is run, and must say that it got what it wanted.
    #[default]
    Reports,
    /// It is run, and must leave a process behind.
    Leaves,
    /// It is run, but a kernel may be built without what it is after.
    IfThere,
    /// Bombs and floods: a proof would cost the machine.
    Never,
    /// It cannot be shown outside; `why` says why.
    None,
}

/// One probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EscapeProbe {
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(default = "reported")]
    pub(crate) expect: Vec<String>,
    #[serde(default)]
    pub(crate) bare: BareProbe,
    #[serde(default)]
    pub(crate) why: Option<String>,
    /// Why it is not a program at all, neither under the process sandbox nor under gVisor: only a component can try it.
    #[serde(default)]
    pub(crate) process: Option<String>,
    /// Why it is not run under gVisor.
    #[serde(default)]
    pub(crate) gvisor: Option<String>,
    #[serde(default = "seconds")]
    pub(crate) timeout: u32,
    #[serde(default = "once")]
    pub(crate) calls: u32,
    #[serde(default)]
    pub(crate) command: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) links: bool,
    #[serde(default)]
    pub(crate) permissions: Vec<String>,
    /// The same attempt as a component; without one the probe does not apply to WASM.
    #[serde(default)]
    pub(crate) wasm: Option<String>,
    /// What may come of the component, where that differs from `expect`.
    #[serde(default)]
    pub(crate) wasm_expect: Option<Vec<String>>,
    #[serde(skip)]
    pub(crate) family: String,
    #[serde(skip)]
    pub(crate) file: String,
}

/// The word in `expect` for a tool that answers `escaped: false`.
pub(crate) const REPORTED: &str = "reported";

fn reported() -> Vec<String> {
    vec![REPORTED.into()]
}

fn seconds() -> u32 {
    30
}

fn once() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    family: BTreeMap<String, Family>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    file: String,
    probe: Vec<EscapeProbe>,
}

/// Reads the list of a folder (`escape/`), family by family.
pub(crate) fn read(folder: &Path) -> Result<Vec<EscapeProbe>> {
    let text = std::fs::read_to_string(folder.join("probes.toml")).context("cannot read escape/probes.toml")?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<EscapeProbe>> {
    let table: Table = toml::from_str(text).context("escape/probes.toml is not as it should be")?;
    let mut probes = Vec::new();
    for (family, Family { file, probe }) in table.family {
        probes.extend(probe.into_iter().map(|probe| EscapeProbe {
            family: family.clone(),
            file: file.clone(),
            ..probe
        }));
    }
    let mut seen = BTreeSet::new();
    for probe in &probes {
        ensure!(seen.insert(&probe.id), "`{}` is listed twice", probe.id);
        ensure!(!probe.expect.is_empty() && probe.calls > 0, "`{}` can have no outcome", probe.id);
        ensure!(
            (probe.bare == BareProbe::None) == probe.why.is_some(),
            "`{}`: `why` belongs to `bare = \"none\"` and to nothing else",
            probe.id
        );
        ensure!(
            probe.process.is_none() || (probe.wasm.is_some() && !probe.is_harmless()),
            "`{}` is no program, so it must be a component and cannot be run bare",
            probe.id
        );
        ensure!(
            probe.wasm_expect.as_ref().is_none_or(|expect| probe.wasm.is_some() && !expect.is_empty()),
            "`{}` expects something of a component that there is not",
            probe.id
        );
    }
    Ok(probes)
}

impl EscapeProbe {
    /// Why it does not apply to an isolation.
    pub(crate) fn not_under(&self, isolation: ProbeIsolation) -> Option<&str> {
        match isolation {
            ProbeIsolation::Process => self.process.as_deref(),
            ProbeIsolation::Gvisor => self.process.as_deref().or(self.gvisor.as_deref()),
            ProbeIsolation::Wasm if self.wasm.is_some() => None,
            ProbeIsolation::Wasm => Some("a component has no such thing to try"),
        }
    }

    /// What may come of it.
    pub(crate) fn expected(&self, isolation: ProbeIsolation) -> &[String] {
        match (isolation, &self.wasm_expect) {
            (ProbeIsolation::Wasm, Some(expect)) => expect,
            _ => &self.expect,
        }
    }

    /// Harmless by construction, so that it may be run where nothing holds it. What is not run bare is not: some of it
    /// is held back for the very reason that it would do harm.
    pub(crate) fn is_harmless(&self) -> bool {
        match self.bare {
            BareProbe::Reports | BareProbe::Leaves | BareProbe::IfThere => true,
            BareProbe::Never | BareProbe::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_defaults_of_the_header_and_faults_are_refused() {
        let row = |more: &str| {
            format!("[family.files]\nfile = \"files.py\"\n[[family.files.probe]]\nid = \"a\"\ntitle = \"t\"\n{more}")
        };
        let probes = parse(&row("")).unwrap();
        let probe = &probes[0];
        assert_eq!((probe.family.as_str(), probe.file.as_str()), ("files", "files.py"));
        assert_eq!((probe.expect.as_slice(), probe.timeout, probe.calls), (&[REPORTED.to_owned()][..], 30, 1));
        assert_eq!(probe.bare, BareProbe::Reports);
        assert!(probe.not_under(ProbeIsolation::Gvisor).is_none() && probe.not_under(ProbeIsolation::Wasm).is_some());
        let component =
            &parse(&row("process = \"p\"\nbare = \"never\"\nwasm = \"w.wasm\"\nwasm_expect = [\"E3404\"]")).unwrap()[0];
        assert_eq!(ProbeIsolation::ALL.map(|isolation| component.not_under(isolation)), [Some("p"), Some("p"), None]);
        assert_eq!(
            ProbeIsolation::ALL.map(|isolation| component.expected(isolation)[0].as_str()),
            [REPORTED, REPORTED, "E3404"]
        );
        for fault in [
            "expct = [\"E3402\"]",
            "expect = []",
            "bare = \"none\"",
            "why = \"without need\"",
            "bare = \"sometimes\"",
            "calls = 0",
            "process = \"but no component\"\nbare = \"never\"",
            "process = \"but run bare\"\nwasm = \"w.wasm\"",
            "wasm_expect = [\"E3404\"]",
            "[[family.files.probe]]\nid = \"a\"\ntitle = \"again\"",
        ] {
            assert!(parse(&row(fault)).is_err(), "{fault}");
        }
    }
}
