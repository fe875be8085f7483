//! What tightens one call beyond its manifest: overrides of the activation and obligations of the policies. Gathered in
//! authorization, honoured there, in execution and in verification. The tightest of each kind wins; nothing here loosens.

use std::time::Duration;

use contract::manifest::Isolation;
use policy::{Obligation, PolicyOverrides};
use ports::redactor::Redactor;
use serde_json::Value;

/// The conditions of one call.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Conditions {
    pub(super) approval: bool,
    pub(super) confirmation: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) result_bytes: Option<u64>,
    pub(super) isolation: Option<Isolation>,
    redact: Vec<Box<str>>,
}

impl Conditions {
    /// Adds what an activation demands.
    pub(super) fn add_overrides(&mut self, overrides: &PolicyOverrides) {
        self.approval |= overrides.requires_approval == Some(true);
        self.confirmation |= overrides.requires_confirmation == Some(true);
        self.lower_timeout(overrides.timeout_seconds);
        overrides.redact.iter().for_each(|member| self.mask(member));
    }

    /// Adds what a policy demands.
    pub(super) fn add(&mut self, obligation: &Obligation) {
        match obligation {
            Obligation::Redact(member) => self.mask(member),
            Obligation::RequireApproval => self.approval = true,
            Obligation::RequireConfirmation => self.confirmation = true,
            Obligation::TimeoutSeconds(seconds) => self.lower_timeout(Some(*seconds)),
            Obligation::ResultBytes(bytes) => {
                self.result_bytes = Some(self.result_bytes.map_or(*bytes, |known| known.min(*bytes)));
            }
            Obligation::Isolation(level) => self.isolation = self.isolation.max(Some(*level)),
        }
    }

    /// Is there anything to mask?
    pub(super) fn masks(&self) -> bool {
        !self.redact.is_empty()
    }

    /// Masks what must not be seen.
    pub(super) fn redact(&self, redactor: &dyn Redactor, value: &mut Value) {
        if !self.redact.is_empty() {
            redactor.members(value, &self.redact);
        }
    }

    /// Does it hide anything of a result?
    pub(super) fn hides_members(&self) -> bool {
        !self.redact.is_empty()
    }

    fn mask(&mut self, member: &str) {
        if !self.redact.iter().any(|known| **known == *member) {
            self.redact.push(member.into());
        }
    }

    fn lower_timeout(&mut self, seconds: Option<u32>) {
        let new = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        self.timeout = [self.timeout, new].into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_of_each_kind_wins_whatever_the_order() {
        let parts = [
            "timeout_seconds=9",
            "timeout_seconds=4",
            "result_bytes=10",
            "result_bytes=20",
            "require_approval",
            "isolation=process",
            "isolation=gvisor",
        ];
        let of = |order: &mut dyn Iterator<Item = &&str>| {
            let mut conditions = Conditions::default();
            order.for_each(|text| conditions.add(&text.parse().unwrap()));
            conditions
        };
        let (there, back) = (of(&mut parts.iter()), of(&mut parts.iter().rev()));
        assert_eq!(there, back);
        assert_eq!(there.timeout, Some(Duration::from_secs(4)));
        assert_eq!((there.result_bytes, there.approval, there.confirmation), (Some(10), true, false));
        assert_eq!(there.isolation, Some(Isolation::Gvisor));
    }
}
