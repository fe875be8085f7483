//! What is wrong with the configuration: every problem, each with its place.

use std::fmt;
use std::str::FromStr;

use super::key;
use super::settings::{EffectiveSettings, ValueOrigin, find};

/// Something wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub(crate) struct ConfigProblem {
    pub(crate) place: String,
    pub(crate) message: String,
}

impl ConfigProblem {
    /// At a place.
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

/// What is wrong with one section.
#[derive(Debug)]
pub(crate) struct SectionProblems<'a> {
    section: &'static str,
    settings: &'a EffectiveSettings,
    problems: &'a mut Vec<ConfigProblem>,
}

impl<'a> SectionProblems<'a> {
    pub(super) fn new(
        section: &'static str,
        settings: &'a EffectiveSettings,
        problems: &'a mut Vec<ConfigProblem>,
    ) -> Self {
        Self { section, settings, problems }
    }

    /// With a key.
    pub(super) fn at(&mut self, name: &str, message: impl Into<String>) {
        debug_assert!(find(self.section, name).is_some(), "[{}] has no key {name}", self.section);
        self.at_place(key::title(self.section, name), message);
    }

    /// With the section as a whole.
    pub(super) fn at_section(&mut self, message: impl Into<String>) {
        self.at_place(format!("[{}]", self.section), message);
    }

    /// With a part of a key, as people write it.
    pub(super) fn at_place(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.problems.push(ConfigProblem::new(place, message));
    }

    /// Settings that somebody has made and that do nothing without another one, which nobody has.
    pub(super) fn idle(&mut self, names: &[&str], without: &str) {
        for name in names {
            let value = find(self.section, name).and_then(|key| self.settings.get(key));
            if value.is_some_and(|(_, origin)| origin != ValueOrigin::Default) {
                self.at(name, format!("does nothing without {without}: set that, or leave this out"));
            }
        }
    }

    /// A text as something else, or its default and a problem.
    pub(super) fn parsed<T: FromStr<Err: fmt::Display> + Default>(&mut self, name: &str, text: &str) -> T {
        text.parse().unwrap_or_else(|error| {
            self.at(name, format!("{error}"));
            T::default()
        })
    }

    /// Every text of a list as something else. Each one that cannot be read is a problem of its own.
    pub(super) fn each<T>(&mut self, name: &str, texts: &[String]) -> Vec<T>
    where
        T: FromStr<Err: fmt::Display>,
    {
        self.each_with(name, texts, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// The same with a reading of one's own.
    pub(super) fn each_with<T>(
        &mut self,
        name: &str,
        texts: &[impl AsRef<str>],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for text in texts.iter().map(AsRef::as_ref) {
            match read(text) {
                Ok(value) => found.push(value),
                Err(wrong) => self.at(name, format!("`{text}`: {wrong}")),
            }
        }
        found
    }

    /// How many there are so far, of all sections.
    pub(super) fn count(&self) -> usize {
        self.problems.len()
    }
}
