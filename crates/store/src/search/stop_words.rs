//! Words that say nothing about what a tool does.
//!
//! Two lists, because they are dropped for different reasons. [`is_stop_word`] is grammar: such a word is in every text,
//! and neither stored nor looked up. [`is_asking`] is politeness: *please*, *help*, *want* say that somebody asks, not
//! for what. A tool may well be about wanting or helping, so these are stored, and a query that consists of nothing
//! else still looks them up.
//!
//! Not here: words that are common in one registry only. Those are recognised by counting (`query`).

use std::collections::HashSet;
use std::sync::LazyLock;

/// Is this word grammar only? Takes lower case, before stemming.
pub(crate) fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| GRAMMAR.split_whitespace().collect());
    WORDS.contains(word)
}

/// Does this word only say that somebody asks? Takes lower case, before stemming.
pub(crate) fn is_asking(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| ASKING.split_whitespace().collect());
    WORDS.contains(word)
}

/// Single letters and `ll`, `re`, `ve` are what is left of *I'm*, *don't* and *we'll*.
const GRAMMAR: &str = "
    a about above after again against all also am an and any are aren as at be because been before being
    below between both but by can cannot could couldn d did didn do does doesn doing don down during each
    either else ever every few for from further had hadn has hasn have haven having he her here hers herself
    him himself his how i if in into is isn it its itself just ll m may me might more most must my myself no
    nor not of off on once only or other our ours ourselves out over own re s same shall she should shouldn
    so some such t than that the their theirs them themselves then there these they this those through to
    too under until up upon us ve very was wasn we were weren what when where whether which while who whom
    whose why will with within won would wouldn you your yours yourself yourselves
";

/// Verbs and openings of requests, and the word *tool* itself, which in a registry of tools says nothing.
const ASKING: &str = "
    additionally afterwards allow anything appreciate ask assist assistance eager finally first firstly
    following get give glad hello help hey hi hoping interested kindly know lastly let like looking love
    make moreover need next now ok okay please provide really request require second secondly show somebody
    something specific suggest suggestions tell thank thanks third thirdly tool tools try trying use using
    want wanted wish wondering
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_lower_case_and_have_nothing_in_common() {
        let words = || GRAMMAR.split_whitespace().chain(ASKING.split_whitespace());
        assert!(words().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
        assert_eq!(words().collect::<HashSet<_>>().len(), words().count());
        assert!(is_stop_word("the") && !is_stop_word("please") && is_asking("please") && !is_asking("weather"));
    }
}
