//! Marks: what single words and short phrases can mean for a rule.
//!
//! The table is data. Words of a phrase are separated by spaces, alternatives by `|`, words that belong together by `_`;
//! `~` stands for nothing. All phrases are looked for in one pass of one automaton over the canonical sentence, so that
//! the cost does not grow with the table. A mark by itself means nothing bad: `must` and `password` are ordinary words.
//!
//! Not here: which combinations matter (`rules`), marks by form such as paths and addresses (`words`).

mod phrases;

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use crate::words::{Sentence, is_unspaced};
use phrases::PHRASES;

/// What a token or phrase can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum WordMark {
    // By form.
    Quoted,
    Own,
    Foreign,
    Sibling,
    Parameter,
    Identifier,
    /// An option of a command, or an entry of a list of arguments.
    Listed,
    SecretIdentifier,
    SecretPath,
    Path,
    Url,
    Email,
    Host,
    Account,
    Example,
    // By phrase.
    Model,
    NoteToModel,
    User,
    Modal,
    Neg,
    Read,
    Send,
    Pass,
    Slot,
    Secret,
    Prompt,
    Personal,
    NegTell,
    NegShow,
    Covert,
    Silent,
    ConcealPhrase,
    NoAsk,
    Dismiss,
    Prior,
    PriorLoose,
    NotFollow,
    IgnoreYours,
    Hold,
    Hand,
    Asked,
    Prescribe,
    ChooseLoose,
    CommandLoose,
    SwitchOn,
    Opening,
    EndUser,
    Urgent,
    Must,
    Mutate,
    Via,
    WithTool,
    Stage,
    Promo,
    OffStage,
    Rank,
    Steer,
    Grave,
    Mine,
    UsersOwn,
    Rules,
    Void,
    Persona,
    Justify,
    Before,
    When,
    EveryTool,
    Every,
    ToolWord,
    Invoke,
    Tamper,
    Argument,
    Threat,
    Choose,
    Superlative,
    Disparage,
    Precedence,
    OtherTool,
    Endorse,
    Regardless,
    Say,
    CopyTo,
    Command,
    Download,
    Shell,
    SwitchOff,
    Safeguard,
    Presence,
    Sleeper,
    Trusted,
    Reply,
    ReplyVerb,
    TaskFor,
    Lie,
    Lookup,
    AsAlso,
    Money,
    Public,
}

/// A mark over the tokens `start..end` of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MarkHit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) mark: WordMark,
}

/// All marks of a sentence, by their start.
pub(crate) fn hits(sentence: &Sentence) -> Vec<MarkHit> {
    let mut hits: Vec<MarkHit> =
        sentence.marks.iter().map(|&(mark, start)| MarkHit { start, end: start + 1, mark }).collect();
    if let Some(lexicon) = lexicon() {
        for found in lexicon.automaton.find_overlapping_iter(&sentence.canonical) {
            // A phrase has a space on both sides, so it starts one token after the space it starts with.
            let start = sentence.starts.partition_point(|&place| place <= found.start());
            let end = sentence.starts.partition_point(|&place| place < found.end());
            hits.extend(lexicon.marks.get(found.pattern().as_usize()).map(|&mark| MarkHit { start, end, mark }));
        }
    }
    hits.sort_unstable();
    hits.dedup();
    hits
}

// --- the automaton -------------------------------------------------------------------------------------------------

#[derive(Debug)]
struct Lexicon {
    automaton: AhoCorasick,
    /// The mark of each pattern.
    marks: Vec<WordMark>,
}

/// The automaton over all phrases, built once. `None` cannot happen with the table above; a test holds it to that.
fn lexicon() -> Option<&'static Lexicon> {
    static LEXICON: OnceLock<Option<Lexicon>> = OnceLock::new();
    LEXICON
        .get_or_init(|| {
            let all =
                PHRASES.iter().copied().flatten().flat_map(|(mark, specs)| specs.iter().map(move |spec| (*mark, spec)));
            let (marks, phrases): (Vec<WordMark>, Vec<String>) =
                all.flat_map(|(mark, spec)| expand(spec).into_iter().map(move |phrase| (mark, phrase))).unzip();
            AhoCorasick::new(&phrases).ok().map(|automaton| Lexicon { automaton, marks })
        })
        .as_ref()
}

/// The phrases a specification stands for, with a space on both sides; after a `*`, with none behind.
pub(crate) fn expand(spec: &str) -> Vec<String> {
    let mut phrases = vec![" ".to_owned()];
    for part in spec.split(' ') {
        let mut longer = Vec::with_capacity(phrases.len() * 2);
        for phrase in &phrases {
            for choice in part.split('|') {
                longer.push(if choice == "~" { phrase.clone() } else { format!("{phrase}{}", words_of(choice)) });
            }
        }
        phrases = longer;
    }
    phrases.retain(|phrase| phrase.len() > 2);
    phrases
}

/// The tokens that `words` cuts one alternative into.
fn words_of(choice: &str) -> String {
    let (stem, end) = choice.strip_suffix('*').map_or((choice, " "), |stem| (stem, ""));
    let mut words = String::with_capacity(choice.len() + 1);
    for character in stem.chars() {
        let unspaced = is_unspaced(character);
        if unspaced && words.ends_with(|before: char| before != ' ') {
            words.push(' ');
        }
        words.push(if character == '_' { ' ' } else { character });
    }
    words + end
}

#[cfg(test)]
mod tests {
    /// The automaton is built once per process; more phrases than this would be felt at the start.
    const PHRASES_MAX: usize = 32_000;

    use super::*;
    use crate::words::{KnownNames, sentences};

    fn marks(text: &str) -> Vec<(WordMark, usize, usize)> {
        let sentences = sentences(text, &KnownNames::default(), false);
        sentences.iter().flat_map(hits).map(|hit| (hit.mark, hit.start, hit.end)).collect()
    }

    #[test]
    fn the_table_compiles_and_stays_small() {
        let lexicon = lexicon().expect("the phrases compile");
        assert!(lexicon.marks.len() < PHRASES_MAX, "{} phrases", lexicon.marks.len());
    }

    #[test]
    fn a_specification_stands_for_all_its_phrases() {
        assert_eq!(expand("a|b_c d|~"), [" a d ", " a ", " b c d ", " b c "]);
        assert_eq!(expand("abc*|密码"), [" abc", " 密 码 "]);
    }

    #[test]
    fn phrases_match_whole_words_at_their_place() {
        assert!(marks("Please do not tell the user").contains(&(WordMark::NegTell, 1, 4)));
        assert!(marks("the user").contains(&(WordMark::User, 1, 2)));
        assert!(!marks("superuser").iter().any(|(mark, ..)| *mark == WordMark::User));
        assert!(marks("you are to open it").contains(&(WordMark::Modal, 1, 3)));
    }
}
