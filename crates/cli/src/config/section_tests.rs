//! For the tests of sections: what becomes of one alone.

use std::collections::BTreeMap;

use super::section::ConfigSection;
use super::settings::{ConfigFile, EffectiveSettings};

/// From the text of a whole file.
pub(super) fn of_file<S: ConfigSection>(text: &str) -> (S::Checked, Vec<String>) {
    let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
    checked::<S>(&EffectiveSettings::gather(Some(&file), &BTreeMap::new(), Vec::new()).unwrap())
}

/// From variables, by the names of the section's keys in capitals.
pub(super) fn of_variables<S: ConfigSection>(variables: &[(&str, &str)]) -> (S::Checked, Vec<String>) {
    let name = |key: &str| format!("GANTRY_{}__{key}", S::NAME.to_uppercase());
    let environment = variables.iter().map(|(key, value)| (name(key), (*value).to_owned())).collect();
    checked::<S>(&EffectiveSettings::gather(None, &environment, Vec::new()).unwrap())
}

fn checked<S: ConfigSection>(settings: &EffectiveSettings) -> (S::Checked, Vec<String>) {
    let mut problems = Vec::new();
    let section = settings.read::<S>(&mut problems);
    (section, problems.iter().map(ToString::to_string).collect())
}
