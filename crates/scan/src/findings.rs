//! What a scan says: kinds of findings, how grave they are, and the verdict that follows.
//!
//! A verdict is a function of the findings alone, so that it can be had again from stored findings. `Low` findings are
//! remarks: they never make a verdict by themselves, because each of them is common in honest definitions.

use serde::{Deserialize, Serialize};

use crate::FINDINGS_MAX;

/// Longest excerpt of a finding, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// Characters or mark-up a person does not see but a model reads.
    HiddenText,
    /// Orders aimed at the model, not a description of the tool.
    InstructionToModel,
    /// The model is told to keep something from the user.
    Concealment,
    /// Secrets, files or the conversation are asked for, or sent to a fixed place.
    DataExfiltration,
    /// The definition speaks about, or changes the use of, other tools.
    CrossToolReference,
    /// The tool praises itself or runs others down so that it is chosen.
    ToolPreference,
    /// A dangerous command, or a safeguard to be switched off.
    DangerousCommand,
    /// The name can be taken for another tool's.
    LookAlikeName,
    /// Instructions in base64, hex, percent, entity or rot13 form.
    Encoded,
    /// More text than is read, or than a definition needs.
    Oversized,
}

impl FindingKind {
    /// The name on the wire and in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HiddenText => "hidden_text",
            Self::InstructionToModel => "instruction_to_model",
            Self::Concealment => "concealment",
            Self::DataExfiltration => "data_exfiltration",
            Self::CrossToolReference => "cross_tool_reference",
            Self::ToolPreference => "tool_preference",
            Self::DangerousCommand => "dangerous_command",
            Self::LookAlikeName => "look_alike_name",
            Self::Encoded => "encoded",
            Self::Oversized => "oversized",
        }
    }
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// A remark.
    Low,
    /// A person should look.
    Medium,
    /// Not explained by an honest definition.
    High,
}

/// One thing found, at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanFinding {
    /// What it is.
    pub kind: FindingKind,
    /// How grave it is.
    pub severity: FindingSeverity,
    /// JSON pointer into the definition; empty for a tool's output.
    pub place: String,
    /// Why, in words for a person.
    pub reason: String,
    /// The text it is about: cleaned, one line, bounded.
    pub excerpt: String,
}

/// What the findings together mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanVerdict {
    /// Nothing, or remarks only.
    Clean,
    /// A person should look before a model does.
    Review,
    /// Not to be shown to a model.
    Block,
}

/// The verdict over the findings of one definition or output.
pub fn verdict(findings: &[ScanFinding]) -> ScanVerdict {
    match findings.iter().map(|finding| finding.severity).max() {
        None | Some(FindingSeverity::Low) => ScanVerdict::Clean,
        Some(FindingSeverity::Medium) => ScanVerdict::Review,
        Some(FindingSeverity::High) => ScanVerdict::Block,
    }
}

/// Findings while they are gathered.
#[derive(Debug, Default)]
pub(crate) struct FindingList {
    list: Vec<ScanFinding>,
    /// Highest score of a text.
    loudest: u32,
}

impl FindingList {
    /// Adds one, with its excerpt cleaned.
    pub(crate) fn add(
        &mut self,
        kind: FindingKind,
        severity: FindingSeverity,
        place: &str,
        reason: &str,
        excerpt: &str,
    ) {
        let finding = ScanFinding {
            kind,
            severity,
            place: place.to_owned(),
            reason: reason.to_owned(),
            excerpt: cleaned(excerpt),
        };
        if !self.list.contains(&finding) {
            self.list.push(finding);
        }
        // Kept below twice the bound, so that a hostile definition cannot make this list long.
        if self.list.len() >= FINDINGS_MAX * 2 {
            let list = std::mem::take(&mut self.list);
            self.list = Self { list, loudest: 0 }.finish();
        }
    }

    /// Remembers the score of a text.
    pub(crate) fn note(&mut self, score: u32) {
        self.loudest = self.loudest.max(score);
    }

    /// The highest score of a text so far.
    #[cfg(feature = "fit")]
    pub(crate) fn loudest(&self) -> u32 {
        self.loudest
    }

    /// The gravest first, at most [`FINDINGS_MAX`].
    pub(crate) fn finish(mut self) -> Vec<ScanFinding> {
        self.list
            .sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.place.cmp(&b.place)).then(a.kind.cmp(&b.kind)));
        self.list.truncate(FINDINGS_MAX);
        self.list
    }
}

/// One line of visible characters (SCAN-3).
fn cleaned(text: &str) -> String {
    let mut line = String::new();
    let mut count = 0_usize;
    for word in text.split_whitespace() {
        if count > 0 {
            line.push(' ');
        }
        for character in word.chars().filter(|&character| crate::normalise::is_visible(character)) {
            if count >= EXCERPT_CHARS_MAX {
                line.push('…');
                return line;
            }
            line.push(character);
            count += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: FindingSeverity) -> ScanFinding {
        let (place, reason, excerpt) = (String::new(), String::new(), String::new());
        ScanFinding { kind: FindingKind::Encoded, severity, place, reason, excerpt }
    }

    #[test]
    fn the_gravest_finding_makes_the_verdict() {
        let cases = [
            (vec![], ScanVerdict::Clean),
            (vec![FindingSeverity::Low, FindingSeverity::Low], ScanVerdict::Clean),
            (vec![FindingSeverity::Low, FindingSeverity::Medium], ScanVerdict::Review),
            (vec![FindingSeverity::High, FindingSeverity::Low], ScanVerdict::Block),
        ];
        for (severities, expected) in cases {
            let findings: Vec<ScanFinding> = severities.into_iter().map(finding).collect();
            assert_eq!(verdict(&findings), expected);
        }
    }

    #[test]
    fn an_excerpt_is_one_bounded_line_without_invisible_characters() {
        let excerpt = cleaned("a\n\nb\u{200b}c \u{1b}[8m\u{202e}d");
        assert_eq!(excerpt, "a bc [8md");
        assert!(cleaned(&"x".repeat(1000)).chars().count() <= EXCERPT_CHARS_MAX + 1);
    }

    #[test]
    fn the_list_stays_bounded_and_keeps_the_gravest() {
        let mut findings = FindingList::default();
        for number in 0..1000 {
            let severity = if number == 500 { FindingSeverity::High } else { FindingSeverity::Low };
            findings.add(FindingKind::Encoded, severity, &format!("/{number}"), "r", "e");
        }
        let list = findings.finish();
        assert_eq!(list.len(), FINDINGS_MAX);
        assert_eq!(list[0].severity, FindingSeverity::High);
    }

    #[test]
    fn the_wire_name_is_what_serde_writes() {
        for kind in [FindingKind::HiddenText, FindingKind::CrossToolReference, FindingKind::ToolPreference] {
            assert_eq!(serde_json::to_value(kind).expect("serializes"), kind.as_str());
        }
    }
}
