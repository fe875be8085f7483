//! `extract_entities`: addresses, dates, amounts and names that stand in a text.
//!
//! Forms with a grammar (mail and web addresses, dates, money, percentages, numbers, hashtags, mentions) are found by
//! regular expressions, which this engine runs in linear time. Names are runs of capitalised words; what kind of name it
//! is, is said only where the text says so itself: a title makes a person, "Inc" or "University" an organization.
//! Positions count characters, as `word_count` does.
//!
//! Not here: knowledge of the world. "Paris" alone, at the start of a sentence, is not found.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::words::{Word, is_stop_word, lower, words};

/// Entities of one answer; further ones are left out and `truncated` says so.
const ENTITIES_MAX: usize = 500;

const MONTH: &str = r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)";
const TITLES: &[&str] =
    &["mr", "mrs", "ms", "dr", "prof", "professor", "president", "sir", "lady", "lord", "captain", "judge"];
const ORGANIZATIONS: &[&str] = &[
    "inc",
    "ltd",
    "llc",
    "gmbh",
    "corp",
    "corporation",
    "company",
    "co",
    "plc",
    "ag",
    "university",
    "institute",
    "bank",
    "ministry",
    "department",
    "agency",
    "foundation",
    "committee",
    "council",
    "association",
    "union",
    "group",
];
/// Words that begin letters, not names.
const GREETINGS: &[&str] = &["dear", "hello", "hi", "thanks", "regards", "sincerely"];
/// Small words inside a name: `Bank of America`, `Ludwig van Beethoven`.
const JOINING: &[&str] = &["of", "de", "van", "von", "der", "la", "al", "bin", "and", "&"];

/// Kind and pattern, the more specific first.
static PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    let sources = [
        ("email", r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}".to_owned()),
        ("url", r#"(?:https?://|www\.)[^\s<>"'`]+"#.to_owned()),
        ("date", r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?\b".to_owned()),
        ("date", format!(r"\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{MONTH}\.?,?(?: \d{{4}})?\b")),
        ("date", format!(r"\b{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b")),
        ("date", format!(r"\b{MONTH} \d{{4}}\b")),
        ("date", r"\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b".to_owned()),
        ("time", r"\b\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp]\.?[Mm]\b\.?)?".to_owned()),
        ("money", r"(?:[$€£¥]|\b(?:USD|EUR|GBP|JPY|CHF|RWF) ?)\d[\d,]*(?:\.\d+)?(?: ?(?:k|m|bn|thousand|million|billion|trillion)\b)?".to_owned()),
        ("money", r"\b\d[\d,]*(?:\.\d+)?(?: (?:thousand|million|billion|trillion))? ?(?:€|£|(?:dollars|euros|pounds|francs|yen|USD|EUR|GBP|JPY|CHF|RWF|cents)\b)".to_owned()),
        ("percent", r"\b\d+(?:[.,]\d+)? ?(?:%|percent\b|per cent\b)".to_owned()),
        ("number", r"\b\d[\d,]*(?:\.\d+)?(?: (?:thousand|million|billion|trillion)\b)?".to_owned()),
        ("hashtag", r"#[\p{L}\p{N}_]*\p{L}[\p{L}\p{N}_]*".to_owned()),
        ("mention", r"@[A-Za-z0-9_]{2,32}\b".to_owned()),
    ];
    // A test compiles them all; a pattern that did not would be left out and not take the service down.
    sources.into_iter().filter_map(|(kind, source)| Some((kind, Regex::new(&source).ok()?))).collect()
});

#[derive(Debug, Clone, Copy)]
struct Found<'t> {
    text: &'t str,
    kind: &'static str,
    start: usize,
}

impl Found<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// All entities in the order of the text.
pub(super) fn entities(text: &str) -> Value {
    let mut found: Vec<Found<'_>> = Vec::new();
    for (rank, (kind, pattern)) in PATTERNS.iter().enumerate() {
        debug_assert!(rank < 64);
        found.extend(pattern.find_iter(text).map(|m| trimmed(m.as_str(), kind, m.start())));
    }
    names(text, &mut found);
    // Patterns were tried from the specific to the general, and sorting is stable: of two that begin together the
    // longer wins, of two equal ones the more specific.
    found.sort_by(|a, b| a.start.cmp(&b.start).then(b.text.len().cmp(&a.text.len())));
    let mut kept: Vec<Found<'_>> = Vec::new();
    for entity in found {
        if kept.last().is_none_or(|last| last.end() <= entity.start) {
            kept.push(entity);
        }
    }
    let truncated = kept.len() > ENTITIES_MAX;
    kept.truncate(ENTITIES_MAX);
    let mut answer = json!({ "entities": with_positions(text, &kept) });
    if truncated && let Some(members) = answer.as_object_mut() {
        members.insert("truncated".to_owned(), true.into());
    }
    answer
}

/// Addresses at the end of a sentence do not own its punctuation.
fn trimmed<'t>(text: &'t str, kind: &'static str, start: usize) -> Found<'t> {
    let text = match kind {
        "url" => {
            let bare = text.trim_end_matches(['.', ',', ';', ':', '!', '?', '"', '\'', ']', '}']);
            if bare.contains('(') { bare } else { bare.trim_end_matches([')', '.', ',']) }
        }
        "number" | "money" => text.trim_end_matches([',', '.']),
        _ => text,
    };
    Found { text, kind, start }
}

/// Runs of capitalised words.
fn names<'t>(text: &'t str, found: &mut Vec<Found<'t>>) {
    let all: Vec<Word<'t>> = words(text).collect();
    let mut index = 0;
    while let Some(first) = all.get(index) {
        if !begins_name(first.text) {
            index += 1;
            continue;
        }
        let length = run_length(text, all.get(index..).unwrap_or_default());
        let run = all.get(index..index + length).unwrap_or_default();
        if let Some(entity) = name(text, run) {
            found.push(entity);
        }
        index += length.max(1);
    }
}

/// How many words from the first on belong to one name.
fn run_length(text: &str, words: &[Word<'_>]) -> usize {
    let mut length = 1;
    let mut at = 1;
    while let (Some(before), Some(word)) = (words.get(at - 1), words.get(at)) {
        let between = text.get(before.end()..word.start).unwrap_or_default();
        let initial_or_title = is_title(before.text) || before.text.chars().count() == 1;
        let joined = between == " " || between == " & " || (between == ". " && initial_or_title);
        let capital = is_capitalised(word.text);
        if !joined || is_title(word.text) || !(capital || JOINING.contains(&word.text)) {
            break;
        }
        at += 1;
        if capital {
            // Joining words count only when a capital follows them.
            length = at;
        }
    }
    length
}

fn name<'t>(text: &'t str, run: &[Word<'t>]) -> Option<Found<'t>> {
    let titled = run.first().is_some_and(|word| is_title(word.text));
    let run = if titled { run.get(1..)? } else { run };
    let (first, last) = (run.first()?, run.last()?);
    if run.len() < 2 && !titled {
        return None;
    }
    let organization = run.iter().any(|word| ORGANIZATIONS.contains(&lower(word.text).as_str()));
    let kind = if organization {
        "organization"
    } else if titled {
        "person"
    } else {
        "name"
    };
    Some(Found { text: text.get(first.start..last.end())?, kind, start: first.start })
}

fn begins_name(word: &str) -> bool {
    let lowered = lower(word);
    is_capitalised(word) && !is_stop_word(&lowered) && !GREETINGS.contains(&lowered.as_str())
}

fn is_capitalised(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_uppercase)
}

fn is_title(word: &str) -> bool {
    is_capitalised(word) && TITLES.contains(&lower(word).as_str())
}

/// Byte offsets become character offsets in one walk over the text.
fn with_positions(text: &str, kept: &[Found<'_>]) -> Vec<Value> {
    let mut characters = 0;
    let mut bytes = 0;
    kept.iter()
        .map(|entity| {
            characters += text.get(bytes..entity.start).unwrap_or_default().chars().count();
            let length = entity.text.chars().count();
            let value =
                json!({ "text": entity.text, "type": entity.kind, "start": characters, "end": characters + length });
            characters += length;
            bytes = entity.end();
            value
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<(String, String)> {
        let value = entities(text);
        let own = |v: &Value| v.as_str().unwrap().to_owned();
        value["entities"].as_array().unwrap().iter().map(|e| (own(&e["text"]), own(&e["type"]))).collect()
    }

    #[test]
    fn a_business_letter_gives_its_facts() {
        let text = "Dear Dr. Amina Uwase, on 12 March 2024 Acme Tools Inc invoiced €1,250.50 (19% VAT) for 3 licences. \
            Write to billing@acme.example or see https://acme.example/pay?id=7. Meeting: 2024-04-02 at 14:30 in New \
            York with John F. Kennedy. Thanks, @acme_help #invoice";
        let expected = [
            ("Amina Uwase", "person"),
            ("12 March 2024", "date"),
            ("Acme Tools Inc", "organization"),
            ("€1,250.50", "money"),
            ("19%", "percent"),
            ("3", "number"),
            ("billing@acme.example", "email"),
            ("https://acme.example/pay?id=7", "url"),
            ("2024-04-02", "date"),
            ("14:30", "time"),
            ("New York", "name"),
            ("John F. Kennedy", "name"),
            ("@acme_help", "mention"),
            ("#invoice", "hashtag"),
        ];
        let expected: Vec<(String, String)> =
            expected.iter().map(|(t, k)| ((*t).to_owned(), (*k).to_owned())).collect();
        assert_eq!(list(text), expected);
    }

    #[test]
    fn positions_count_characters() {
        let value = entities("Größe: 5 €, café – Ada Lovelace");
        let text: Vec<char> = "Größe: 5 €, café – Ada Lovelace".chars().collect();
        for entity in value["entities"].as_array().unwrap() {
            let at = |key: &str| usize::try_from(entity[key].as_u64().unwrap()).unwrap();
            let piece: String = text[at("start")..at("end")].iter().collect();
            assert_eq!(piece, entity["text"].as_str().unwrap());
        }
        assert_eq!(value["entities"][1]["text"], "Ada Lovelace");
    }

    #[test]
    fn ordinary_sentences_have_no_names() {
        assert!(list("The weather is fine. We walk home. It is late, and nobody minds.").is_empty());
        assert!(list("").is_empty());
    }

    #[test]
    fn every_pattern_compiles_and_long_lists_are_cut() {
        assert_eq!(PATTERNS.len(), 14);
        let many = entities(&"1 ".repeat(2000));
        assert_eq!(many["entities"].as_array().unwrap().len(), ENTITIES_MAX);
        assert_eq!(many["truncated"], true);
    }
}
