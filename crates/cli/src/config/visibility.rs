//! `[visibility]`: what agents may use where no activation says otherwise. (VIS-004, DESIGN §8.7)

use policy::VisibilityDefault;

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const DEFAULT: ConfigKey = ConfigKey {
    section: "visibility",
    name: "default",
    kind: KeyKind::Choice(&["enabled", "read_only", "disabled"]),
    default: None,
    unset: "`enabled` in the home tenant `local`, `read_only` elsewhere",
    doc: "What agents may use without an activation: `enabled` everything their token names, `read_only` only tools that \
          change nothing, `disabled` nothing. A tenant may have its own (`gantry tenant set --visibility`).",
    since: "0.1",
};

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&DEFAULT];

/// The section's value.
pub(super) fn read(settings: &EffectiveSettings) -> Option<VisibilityDefault> {
    match settings.text(&DEFAULT) {
        Some("enabled") => Some(VisibilityDefault::Enabled),
        Some("read_only") => Some(VisibilityDefault::ReadOnly),
        Some("disabled") => Some(VisibilityDefault::Disabled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_choice_means_something() {
        let KeyKind::Choice(words) = &DEFAULT.kind else { panic!("a choice") };
        for word in *words {
            let environment = BTreeMap::from([("GANTRY_VISIBILITY__DEFAULT".to_owned(), (*word).to_owned())]);
            let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
            let read = read(&settings).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), *word);
        }
        assert_eq!(read(&EffectiveSettings::gather(None, &BTreeMap::new(), Vec::new()).unwrap()), None);
    }
}
