//! Where configuration comes from, and which source wins: default < file < environment < flag.
//!
//! Pure: file text, variables and flags are handed in. Everything wrong is reported at once, and each problem names the
//! place it is in, so that nobody has to guess whether the file or a variable is meant.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use contract::nearest::nearest;
use serde_json::{Map, Value};

use super::SECTIONS;
use super::key::{self, ConfigKey, KeyKind};
use super::paths::resolved;
use super::problems::{ConfigProblem, SectionProblems};
use super::section::{ConfigSection, SectionShape};
use super::value::KeyValue;

/// Prefix of every variable of ours.
const PREFIX: &str = "GANTRY_";

/// Which source a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    Default,
    File,
    Environment,
    Flag,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// A configuration file as it was found.
#[derive(Debug, Clone)]
pub(crate) struct ConfigFile {
    /// As the user wrote it.
    pub(crate) name: String,
    /// What relative paths in it are relative to; empty for the working directory.
    pub(crate) folder: PathBuf,
    pub(crate) text: String,
}

/// What a flag of the command line says about a key.
#[derive(Debug, Clone)]
pub(crate) struct FlagValue {
    section: &'static str,
    name: &'static str,
    value: Value,
}

impl FlagValue {
    pub(crate) fn new(section: &'static str, name: &'static str, value: impl Into<Value>) -> Self {
        Self { section, name, value: value.into() }
    }
}

/// Every key with its value in force.
#[derive(Debug)]
pub(crate) struct EffectiveSettings {
    values: BTreeMap<(&'static str, &'static str), (KeyValue, ValueOrigin)>,
    /// Variables that look like a slip but are none of our business to refuse.
    pub(crate) suspicions: Vec<String>,
}

impl EffectiveSettings {
    /// Merges the sources.
    pub(crate) fn gather(
        file: Option<&ConfigFile>,
        environment: &BTreeMap<String, String>,
        flags: Vec<FlagValue>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let mut settings = Self { values: BTreeMap::new(), suspicions: Vec::new() };
        let mut problems = Vec::new();
        for key in all_keys() {
            if let Some(default) = &key.default {
                settings.set(key, key.value(default.clone()), ValueOrigin::Default);
            }
        }
        if let Some(file) = file {
            settings.take_file(file, &mut problems);
        }
        settings.take_environment(environment, &mut problems);
        for flag in flags {
            match find(flag.section, flag.name).map(|key| (key, key.read(&flag.value))) {
                Some((key, Ok(value))) => settings.set(key, value, ValueOrigin::Flag),
                Some((key, Err(wrong))) => problems.push(ConfigProblem::new(key.title(), wrong)),
                None => problems.push(ConfigProblem::new(key::title(flag.section, flag.name), "there is no such key")),
            }
        }
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// The value in force and its source, if the key is set.
    pub(crate) fn get(&self, key: &ConfigKey) -> Option<(&KeyValue, ValueOrigin)> {
        self.values.get(&(key.section, key.name)).map(|(value, origin)| (value, *origin))
    }

    /// A section, checked. Everything wrong is a problem.
    pub(super) fn read<S: ConfigSection>(&self, problems: &mut Vec<ConfigProblem>) -> S::Checked {
        let mut problems = SectionProblems::new(S::NAME, self, problems);
        let keys = serde_path_to_error::deserialize(Value::Object(self.made(S::NAME))).unwrap_or_else(|error| {
            // What a key takes was checked; this is for types that take less than their schema says.
            let path = error.path().to_string();
            problems.at_place(key::title(S::NAME, &path), error.into_inner().to_string());
            S::default()
        });
        keys.checked(&mut problems)
    }

    /// What somebody has set in a section. An empty text for a key without a default unsets it.
    fn made(&self, section: &str) -> Map<String, Value> {
        let keys = all_keys().filter(|key| key.section == section);
        let made = keys.filter_map(|key| match self.get(key)? {
            (_, ValueOrigin::Default) => None,
            (value, _) if key.default.is_none() && value.value() == "" => None,
            (value, _) => Some((key.name.to_owned(), value.value().clone())),
        });
        made.collect()
    }

    // --------------------------------------------------------------------------------------------------- private parts

    fn set(&mut self, key: &'static ConfigKey, value: KeyValue, origin: ValueOrigin) {
        self.values.insert((key.section, key.name), (value, origin));
    }

    fn take_file(&mut self, file: &ConfigFile, problems: &mut Vec<ConfigProblem>) {
        let table = match toml::from_str::<toml::Table>(&file.text) {
            Ok(table) => table,
            Err(error) => {
                // Not the error's own Display: it quotes the line, which may hold a secret.
                let line = error
                    .span()
                    .and_then(|span| file.text.get(..span.start))
                    .map(|before| before.lines().count().max(1));
                let place = line.map_or_else(|| file.name.clone(), |line| format!("{} line {line}", file.name));
                problems.push(ConfigProblem::new(place, format!("not valid TOML: {}", error.message())));
                return;
            }
        };
        for (section, members) in &table {
            let place = format!("{} [{section}]", file.name);
            if !sections().any(|known| known == section) {
                problems.push(ConfigProblem::new(
                    place,
                    format!("there is no such section{}", did_you_mean(nearest(section, sections()))),
                ));
                continue;
            }
            let toml::Value::Table(members) = members else {
                problems.push(ConfigProblem::new(place, "must be a section with keys, not a single value"));
                continue;
            };
            for (name, value) in members {
                let place = format!("{} [{section}] {name}", file.name);
                let Some(key) = find(section, name) else {
                    problems.push(ConfigProblem::new(place, unknown_key(section, name)));
                    continue;
                };
                // INVARIANT: TOML has nothing that JSON could not say; null fits no key.
                match key.read(&serde_json::to_value(value).unwrap_or_default()) {
                    Ok(value) => self.set(key, resolved(key, &value, &file.folder), ValueOrigin::File),
                    Err(wrong) => problems.push(ConfigProblem::new(place, wrong)),
                }
            }
        }
    }

    fn take_environment(&mut self, environment: &BTreeMap<String, String>, problems: &mut Vec<ConfigProblem>) {
        for (variable, text) in environment {
            let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
            let Some((section, name)) = rest.split_once("__") else {
                self.suspect(variable);
                continue;
            };
            let (section, name) = (section.to_lowercase(), name.to_lowercase());
            match find(&section, &name) {
                Some(key) => match key.parse(text) {
                    Ok(value) => self.set(key, value, ValueOrigin::Environment),
                    Err(wrong) => problems.push(ConfigProblem::new(variable, wrong)),
                },
                None => {
                    let variables: Vec<String> = all_keys().map(ConfigKey::variable).collect();
                    let near = nearest(variable, variables.iter().map(String::as_str));
                    problems
                        .push(ConfigProblem::new(variable, format!("there is no such setting{}", did_you_mean(near))));
                }
            }
        }
    }

    /// `GANTRY_STORE_URL` is almost surely meant to be `GANTRY_STORE__URL`; other programs may own the rest.
    fn suspect(&mut self, variable: &str) {
        if let Some(key) = all_keys().find(|key| key.variable().replace("__", "_") == variable) {
            self.suspicions
                .push(format!("{variable} is not read: the setting is {} (two underscores)", key.variable()));
        }
    }
}

/// All keys in the order of the reference page.
pub(crate) fn all_keys() -> impl Iterator<Item = &'static ConfigKey> {
    static KEYS: LazyLock<Vec<ConfigKey>> = LazyLock::new(|| SECTIONS.iter().flat_map(SectionShape::keys).collect());
    KEYS.iter()
}

fn sections() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|section| section.name)
}

/// The key that this variable sets.
pub(crate) fn key_of(variable: &str) -> Option<&'static ConfigKey> {
    all_keys().find(|key| key.variable().eq_ignore_ascii_case(variable))
}

/// May the value of this key be a secret, by itself or in part? A table can hold one.
pub(crate) fn may_be_secret(key: &ConfigKey) -> bool {
    matches!(key.kind, KeyKind::Secret | KeyKind::Tables)
}

/// The key of this name.
pub(super) fn find(section: &str, name: &str) -> Option<&'static ConfigKey> {
    all_keys().find(|key| key.section == section && key.name == name)
}

fn unknown_key(section: &str, name: &str) -> String {
    let here = all_keys().filter(|key| key.section == section).map(|key| key.name);
    if let Some(near) = nearest(name, here) {
        return format!("there is no such key{}", did_you_mean(Some(near)));
    }
    match all_keys().find(|key| key.name == name) {
        Some(elsewhere) => format!("there is no such key here; `{}` is in [{}]", name, elsewhere.section),
        None => {
            let here: Vec<&str> = all_keys().filter(|key| key.section == section).map(|key| key.name).collect();
            format!("there is no such key; known here: {}", here.join(", "))
        }
    }
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(file: &str, variables: &[(&str, &str)]) -> Result<EffectiveSettings, Vec<ConfigProblem>> {
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: file.into() };
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        EffectiveSettings::gather(Some(&file), &environment, Vec::new())
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let file = ConfigFile {
            name: "gantry.toml".into(),
            folder: "".into(),
            text: "[server]\nlisten = '127.0.0.1:1'".into(),
        };
        let environment = BTreeMap::from([("GANTRY_SERVER__LISTEN".to_owned(), "127.0.0.1:2".to_owned())]);
        let flag = || vec![FlagValue::new("server", "listen", "127.0.0.1:3")];
        let none = BTreeMap::new();
        for (settings, listen, origin) in [
            (EffectiveSettings::gather(None, &none, vec![]), "127.0.0.1:7300", ValueOrigin::Default),
            (EffectiveSettings::gather(Some(&file), &none, vec![]), "127.0.0.1:1", ValueOrigin::File),
            (EffectiveSettings::gather(Some(&file), &environment, vec![]), "127.0.0.1:2", ValueOrigin::Environment),
            (EffectiveSettings::gather(Some(&file), &environment, flag()), "127.0.0.1:3", ValueOrigin::Flag),
        ] {
            let settings = settings.unwrap();
            let (value, found) = settings.get(find("server", "listen").unwrap()).unwrap();
            assert_eq!((value.to_string().as_str(), found), (listen, origin));
        }
    }

    #[test]
    fn every_problem_is_named_with_its_place_and_the_nearest_known_name() {
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
        let cases: &[Case<'_>] = &[
            ("[sever]\nlisten = 'x'", &[], "gantry.toml [sever]: there is no such section; did you mean `server`?"),
            (
                "[server]\nlissen = 'x'",
                &[],
                "gantry.toml [server] lissen: there is no such key; did you mean `listen`?",
            ),
            ("[server]\nurl = 'x'", &[], "gantry.toml [server] url: there is no such key here; `url` is in [store]"),
            ("server = 3", &[], "gantry.toml [server]: must be a section with keys, not a single value"),
            ("[log]\nformat = 'xml'", &[], "gantry.toml [log] format: must be one of auto, human, json"),
            ("[log]\nformat = 3", &[], "gantry.toml [log] format: must be one of auto, human, json"),
            ("", &[("GANTRY_LOG__FORMAT", "xml")], "GANTRY_LOG__FORMAT: must be one of auto, human, json"),
            (
                "",
                &[("GANTRY_STORE__URI", "x")],
                "GANTRY_STORE__URI: there is no such setting; did you mean `GANTRY_STORE__URL`?",
            ),
            ("", &[("GANTRY_PROCESS__UNSANDBOXED", "perhaps")], "GANTRY_PROCESS__UNSANDBOXED: must be true or false"),
        ];
        for (file, variables, expected) in cases {
            let problems = gather(file, variables).unwrap_err();
            assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [*expected]);
        }
    }

    #[test]
    fn a_broken_file_is_told_by_line_and_never_quoted() {
        let problems = gather("[model]\napi_key = sk-secret", &[]).unwrap_err();
        assert!(problems[0].place.contains("line 2"), "{problems:?}");
        assert!(!problems[0].to_string().contains("sk-secret"), "{problems:?}");
    }

    #[test]
    fn a_single_underscore_is_suspected_and_other_variables_are_left_alone() {
        let settings =
            gather("", &[("GANTRY_STORE_URL", "x"), ("GANTRY_SERVICE_HOST", "x"), ("GANTRY_TOKEN", "x")]).unwrap();
        assert_eq!(settings.suspicions.len(), 1);
        assert!(settings.suspicions[0].contains("GANTRY_STORE__URL"));
        let value = |section, name| settings.get(find(section, name).unwrap()).map(|(value, _)| value.to_string());
        assert_eq!(value("store", "url"), None);
        assert_eq!(value("log", "format").as_deref(), Some("auto"));
    }

    #[test]
    fn every_field_is_a_key_and_every_default_fits_it() {
        for section in SECTIONS {
            let names: Vec<&str> = section.keys().iter().map(|key| key.name).collect();
            assert_eq!(names, section.names(), "[{}]: of what kind are they?", section.name);
        }
        for key in all_keys() {
            let title = key.title();
            if let Some(default) = &key.default {
                let read = key.read(default).unwrap_or_else(|wrong| panic!("{title}: {default} {wrong}"));
                assert_eq!(read.value(), default, "{title}");
                // As it would be written in a variable.
                if let Some(text) = read.variable_text() {
                    assert_eq!(key.parse(&text), Ok(read), "{title}");
                }
            }
            assert_eq!(key.default.is_some(), key.unset.is_empty(), "{title}: say what holds when it is unset");
            assert!(!key.doc.is_empty() && !key.since.is_empty(), "{title}");
            if let KeyKind::Integer(range) = &key.kind {
                assert!(range.start() < range.end() && *range.end() < u64::MAX, "{title}: from where to where?");
            }
        }
    }

    /// What a key has by default is what it has when it is set to that.
    #[test]
    fn a_file_of_all_defaults_is_as_no_file() {
        let mut file: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
        for key in all_keys() {
            file.entry(key.section).or_default().extend(key.default.as_ref().map(|default| (key.name, default)));
        }
        let settings = gather(&toml::to_string(&file).unwrap(), &[]).unwrap();
        for key in all_keys() {
            assert_eq!(settings.get(key).map(|(value, _)| value.value()), key.default.as_ref(), "{}", key.title());
        }
    }
}
