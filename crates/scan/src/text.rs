//! Scans one text of a definition, or an output: everything that can be said without knowing where it stands.
//!
//! The score of a text is the sum of its loudest rule per family, over the text as written and the text hidden in it.
//! Findings carry the severity of the whole text, because it is the combination that condemns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;

use crate::decode;
use crate::features::ToolPurpose;
use crate::findings::{FindingKind, FindingList, FindingSeverity};
use crate::lexicon;
use crate::model;
use crate::normalise::{HiddenCharacters, PlainText, normalise};
use crate::rules::{self, RuleScope, ScanRule, rules};
use crate::words::{KnownNames, Sentence, sentences};

/// Longest text that is read, in bytes; the rest is a finding.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// A description longer than this is remarked upon.
const TEXT_BYTES_USUAL: usize = 16 * 1024;
/// Only texts up to this length are also looked at for a disguise.
const DISGUISE_BYTES_MAX: usize = 8 * 1024;
/// Score from which decoded text counts: it has no reason to be encoded at all.
const ENCODED_SCORE_MIN: u32 = 4;

/// Weight of a script that takes a machine over.
const SCRIPT_WEIGHT: u32 = 9;
/// Weight of an order that stands where data belongs.
const VALUE_WEIGHT: u32 = 4;
/// Weight of the rule that makes a value an order.
const VALUE_WEIGHT_MIN: u32 = 4;

/// Most that the model counts for where data belongs.
const MODEL_VALUE_MAX: i32 = 6;

/// What kind of text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSurface {
    /// Prose of a definition: title and descriptions.
    Prose,
    /// Values of a definition that are data for the tool: names, enum values, defaults, examples.
    Value,
    /// What a tool returned.
    Output,
}

/// Scans `text`, which stands at `place`.
pub(crate) fn scan(
    text: &str,
    place: &str,
    surface: TextSurface,
    names: &KnownNames,
    purpose: &ToolPurpose,
    findings: &mut FindingList,
) {
    let text = bounded(text, place, findings);
    let plain = normalise(text);
    report_hidden(&plain, place, findings);
    if !plain.smuggled.trim().is_empty() {
        let reason = "text is spelled in invisible characters";
        findings.add(FindingKind::HiddenText, FindingSeverity::High, place, reason, &plain.smuggled);
    }
    let score = Score::of(&plain.text, surface, names, purpose);
    score.report(place, findings);
    let mut hidden = decode::decoded(&plain.text);
    if plain.text.len() <= DISGUISE_BYTES_MAX {
        hidden.extend(decode::undisguised(&plain.text));
    }
    for decoded in hidden {
        let inner = Score::of(&normalise(&decoded).text, surface, names, purpose);
        // An entity form is decoded within its text: only what decoding adds is held against it.
        if inner.total >= ENCODED_SCORE_MIN.max(score.total + 1) {
            let reason = "encoded text carries instructions";
            findings.add(FindingKind::Encoded, FindingSeverity::High, place, reason, inner.excerpt());
            inner.report(place, findings);
        }
    }
}

// --- Score ---------------------------------------------------------------------------------------------------------

/// What the rules say about one text.
#[derive(Debug, Default)]
struct Score {
    total: u32,
    /// What the model takes away.
    doubt: u32,
    /// The loudest rule of each family, with the sentence it was found in.
    said: BTreeMap<&'static str, Said>,
}

#[derive(Debug)]
struct Said {
    kind: FindingKind,
    weight: u32,
    reason: Cow<'static, str>,
    excerpt: String,
}

impl Score {
    fn of(text: &str, surface: TextSurface, names: &KnownNames, purpose: &ToolPurpose) -> Self {
        let mut score = Self::default();
        let other = if surface == TextSurface::Output { RuleScope::Definition } else { RuleScope::Output };
        let sentences = sentences(text, names, surface == TextSurface::Output);
        if surface != TextSurface::Output && !names.rules_only {
            score.consult(&sentences, surface, purpose);
        }
        for sentence in &sentences {
            let hits = lexicon::hits(sentence);
            for rule in rules().filter(|rule| rule.scope != other && rules::matches(rule, &hits)) {
                score.say(rule, &sentence.written);
            }
        }
        for (pattern, weight, reason) in patterns() {
            if let Some(found) = pattern.find(text) {
                score.hear("markup", FindingKind::HiddenText, *weight, *reason, found.as_str());
            }
        }
        if let Some(found) = scripts().and_then(|pattern| pattern.find(text)) {
            let reason = "a script that takes a machine over";
            score.hear("script", FindingKind::DangerousCommand, SCRIPT_WEIGHT, reason, found.as_str());
        }
        if surface == TextSurface::Value && score.said.values().any(|said| said.weight >= VALUE_WEIGHT_MIN) {
            let reason = "an order where a value belongs";
            score.hear("place", FindingKind::InstructionToModel, VALUE_WEIGHT, reason, text);
        }
        let alone = score.said.keys().eq(&["model"]);
        if let Some(said) = score.said.get_mut("model").filter(|_| alone) {
            said.reason = format!("{}; no rule does", said.reason).into();
        }
        // What has the form of an attack is one, however honest the words around it.
        let by_form = |family: &str| matches!(family, "markup" | "script");
        let weight = |formal: bool| -> u32 {
            let said = score.said.iter().filter(|(family, _)| by_form(family) == formal);
            said.map(|(_, said)| said.weight).sum()
        };
        score.total = weight(true) + weight(false).saturating_sub(score.doubt);
        score
    }

    /// What the model adds, or takes away from what rules say about a text that otherwise sounds honest.
    fn consult(&mut self, sentences: &[Sentence], surface: TextSurface, purpose: &ToolPurpose) {
        let Some(opinion) = model::judge(sentences, purpose) else { return };
        let points = model::points(opinion.score);
        // Values are not prose, and the model has seen prose only: there it is heard, but not alone, and not against.
        let points = if surface == TextSurface::Value { points.clamp(0, MODEL_VALUE_MAX) } else { points };
        match u32::try_from(points) {
            Ok(0) => {}
            Ok(weight) => {
                let reason = format!("the model finds the acts of an attack ({})", opinion.because);
                self.hear("model", opinion.kind, weight, reason, &opinion.excerpt);
            }
            Err(_) => self.doubt = points.unsigned_abs(),
        }
    }

    fn say(&mut self, rule: &ScanRule, excerpt: &str) {
        self.hear(rule.family, rule.kind, rule.weight, rule.reason, excerpt);
    }

    fn hear(
        &mut self,
        family: &'static str,
        kind: FindingKind,
        weight: u32,
        reason: impl Into<Cow<'static, str>>,
        excerpt: &str,
    ) {
        if self.said.get(family).is_none_or(|said| said.weight < weight) {
            let (reason, excerpt) = (reason.into(), excerpt.to_owned());
            self.said.insert(family, Said { kind, weight, reason, excerpt });
        }
    }

    fn excerpt(&self) -> &str {
        self.said.values().max_by_key(|said| said.weight).map_or("", |said| said.excerpt.as_str())
    }

    fn report(&self, place: &str, findings: &mut FindingList) {
        let severity = match self.total {
            score if score >= rules::BLOCK => FindingSeverity::High,
            score if score >= rules::REVIEW => FindingSeverity::Medium,
            _ => FindingSeverity::Low,
        };
        findings.note(self.total);
        for said in self.said.values() {
            findings.add(said.kind, severity, place, &said.reason, &said.excerpt);
        }
    }
}

// --- what is not a sentence ----------------------------------------------------------------------------------------

fn report_hidden(plain: &PlainText, place: &str, findings: &mut FindingList) {
    for hidden in &plain.hidden {
        let (severity, reason) = match hidden {
            HiddenCharacters::Tags => (FindingSeverity::High, "invisible tag characters"),
            HiddenCharacters::Selectors => (FindingSeverity::High, "a run of variation selectors"),
            HiddenCharacters::ZeroWidth => (FindingSeverity::Medium, "characters of no width within the text"),
            HiddenCharacters::Bidi => (FindingSeverity::Medium, "characters that turn the direction of the text"),
            HiddenCharacters::Escape => (FindingSeverity::High, "terminal escape sequences"),
            HiddenCharacters::Control => (FindingSeverity::Medium, "control characters"),
            HiddenCharacters::LookAlike => (FindingSeverity::Medium, "letters of another script inside Latin words"),
            HiddenCharacters::Padding => (FindingSeverity::Medium, "text is pushed out of sight by blank space"),
        };
        findings.add(FindingKind::HiddenText, severity, place, reason, &plain.text);
    }
}

fn bounded<'a>(text: &'a str, place: &str, findings: &mut FindingList) -> &'a str {
    if text.len() > TEXT_BYTES_MAX {
        findings.add(FindingKind::Oversized, FindingSeverity::Medium, place, "longer than what is read", text);
    } else if text.len() > TEXT_BYTES_USUAL {
        findings.add(FindingKind::Oversized, FindingSeverity::Low, place, "unusually long", text);
    }
    let mut end = TEXT_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Commands that open a machine to others or run what is downloaded, in the forms that are copied around.
fn scripts() -> Option<&'static Regex> {
    const FORMS: &str = r"(?ix)
        /dev/tcp/\d
        | \bnc\b [^\n|]{0,40} \s-e\s
        | \b(curl|wget|iwr|irm)\b [^\n|`]{0,160} \|\s* (sudo\s+)? (ba|z|da)?sh\b
        | \b(ba|z)?sh\s+ <\(\s*curl
        | source\s+ <\(\s*curl
        | \bexec\s*\( [^\n)]{0,80} (urlopen|requests\.get)
        | base64\s+ (-d|--decode) [^\n|]{0,40} \|\s* (ba)?sh\b
        | powershell [^\n]{0,60} \s-e(nc|ncodedcommand)?\s
        | \biex\s*\( [^\n]{0,60} (downloadstring|iwr|irm)
        | rm\s+-(rf|fr)\s+ (/|~)(\s|$|\*)";
    static COMPILED: OnceLock<Option<Regex>> = OnceLock::new();
    COMPILED.get_or_init(|| Regex::new(FORMS).ok()).as_ref()
}

/// Mark-up that a person does not see or that imitates the frame of a conversation, with weight and reason.
fn patterns() -> &'static [(Regex, u32, &'static str)] {
    const PATTERNS: &[(&str, u32, &str)] = &[
        (
            r"(?i)</?(important|instructions?|critical|note_to_ai|rules?|attention|urgent|mandatory|requirements?|information)[a-z_ -]{0,24}>",
            5,
            "an order in a tag",
        ),
        (
            r"(?i)</?(system|secret|hidden|admin|assistant|developer|prompt|user|human|tool_result|tool_response|description|internal|private|override)[a-z_ -]{0,24}>",
            7,
            "a tag that imitates the frame of the conversation",
        ),
        (
            r"(?i)\[/?(inst|system|sys|assistant|hidden|system [a-z]{1,12})\]|<<sys>>|<\|[a-z_]{1,24}\|>",
            8,
            "a token that imitates the frame of the conversation",
        ),
        (r"(?is)<!--.{12}", 5, "a comment in mark-up"),
        (
            r"(?i)(display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0[^.1-9]|color\s*:\s*(white|transparent|#fff))",
            8,
            "styled so that it cannot be seen",
        ),
        (r"(?im)^\s*(human|user|assistant|system)\s*:\s*\S", 5, "imitates a turn of the conversation"),
        (r"(?i)!\[[^\]]{0,80}\]\(https?://[^)\s]{1,200}\?[^)\s]{0,200}=", 6, "an image address that carries data out"),
        (
            r"(?i)#{2,}\s{0,3}\(?(new |system |important |hidden )?(system_message|instructions? (to|for)|system|override|prompt)\b",
            8,
            "a heading that imitates instructions",
        ),
    ];
    static COMPILED: OnceLock<Vec<(Regex, u32, &str)>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        PATTERNS.iter().filter_map(|(text, weight, reason)| Some((Regex::new(text).ok()?, *weight, *reason))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(patterns().len(), 8);
        assert!(scripts().is_some());
    }
}
