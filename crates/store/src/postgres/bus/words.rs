//! What is said on the channel.
//!
//! A change of the store says `access 12` or, with who made it, `registry 7 4` itself, from its statement. What is published
//! has before it the number of the word and who says it: `31 4 decisions`. Words of a newer release that are not understood are told as
//! `Lost`: whoever hears that reads everything anew.

use ports::change_bus::BusChange;

/// The word for a change of access.
pub(in super::super) const ACCESS_WORD: &str = "access";
/// The word for a change of the registry.
pub(in super::super) const REGISTRY_WORD: &str = "registry";
const SERVERS_WORD: &str = "servers";
const DECISIONS_WORD: &str = "decisions";
const LOST_WORD: &str = "lost";

/// One word.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// There if it was published; the store's own words have none.
    pub(super) number: Option<u64>,
    pub(super) instance: Option<i64>,
    pub(super) change: BusChange,
}

/// A change as this instance says it, without the number, which the database gives.
pub(super) fn spoken(instance: i64, change: &BusChange) -> String {
    match change {
        BusChange::Access { epoch } => format!("{instance} {ACCESS_WORD} {epoch}"),
        BusChange::Registry { generation } => format!("{instance} {REGISTRY_WORD} {generation}"),
        BusChange::Servers => format!("{instance} {SERVERS_WORD}"),
        // Nobody says it of some only here; without their names all decisions are meant.
        BusChange::Decisions | BusChange::DecisionsOf { .. } => format!("{instance} {DECISIONS_WORD}"),
        BusChange::Lost => format!("{instance} {LOST_WORD}"),
    }
}

/// What was said; `None` if it cannot have been said by any Gantry.
pub(super) fn understood(said: &str) -> Option<Word> {
    let mut parts = said.split(' ');
    let first = parts.next()?;
    let Ok(number) = first.parse() else {
        let (raised, instance) = (parts.next()?.parse().ok()?, parts.next().map(str::parse));
        let (change, instance) = match (first, instance, parts.next()) {
            (ACCESS_WORD, None, None) => (BusChange::Access { epoch: raised }, None),
            (REGISTRY_WORD, Some(Ok(instance)), None) => (BusChange::Registry { generation: raised }, Some(instance)),
            _ => return None,
        };
        return Some(Word { number: None, instance, change });
    };
    let instance = parts.next()?.parse().ok()?;
    let change = match (parts.next()?, parts.next().map(str::parse), parts.next()) {
        (ACCESS_WORD, Some(Ok(epoch)), None) => BusChange::Access { epoch },
        (REGISTRY_WORD, Some(Ok(generation)), None) => BusChange::Registry { generation },
        (SERVERS_WORD, None, None) => BusChange::Servers,
        (DECISIONS_WORD, None, None) => BusChange::Decisions,
        _ => BusChange::Lost,
    };
    Some(Word { number: Some(number), instance: Some(instance), change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_understood_as_it_was_said() {
        let changes = [
            BusChange::Access { epoch: u64::MAX },
            BusChange::Registry { generation: 0 },
            BusChange::Servers,
            BusChange::Decisions,
            BusChange::Lost,
        ];
        for change in changes {
            let word = Word { number: Some(7), instance: Some(3), change: change.clone() };
            assert_eq!(understood(&format!("7 {}", spoken(3, &change))), Some(word));
        }
    }

    #[test]
    fn words_of_the_store_have_no_number() {
        let word = |instance, change| Some(Word { number: None, instance, change });
        assert_eq!(understood("access 12"), word(None, BusChange::Access { epoch: 12 }));
        assert_eq!(understood("registry 3 7"), word(Some(7), BusChange::Registry { generation: 3 }));
    }

    #[test]
    fn noise_is_not_understood_and_news_count_as_lost() {
        for noise in [
            "",
            " ",
            "access",
            "access -1",
            "access 1 2",
            "hello 1",
            "registry 3",
            "registry 3 x",
            "7",
            "7 x lost",
            "-7 3 lost",
            "\u{10ffff}",
        ] {
            assert_eq!(understood(noise), None, "{noise:?}");
        }
        for news in ["7 3 quotas 12", "7 3 access many", "7 3 decisions now"] {
            assert_eq!(understood(news).map(|word| word.change), Some(BusChange::Lost), "{news}");
        }
    }
}
