//! Where the marks of secrets stand in a text, in whatever case they are written.
//!
//! There are hundreds of marks and hardly any of them in most texts, so what counts is how fast a text is passed over. Three
//! bytes in a row say whether a mark can begin with them, and the answer for one place does not wait for that of another, as the
//! steps of an automaton do. Only where one can begin are the marks with these first two bytes compared.

/// Kinds of bytes that are told apart. If marks begin with more, some share one; comparing tells them apart again.
const CLASSES: usize = 64;
const LAST_CLASS: u8 = 63;
/// Bytes that say whether a mark can begin.
const HEAD: usize = 3;

/// The marks, ready to be looked for.
#[derive(Debug)]
pub(super) struct Marks {
    marks: Vec<&'static str>,
    /// The kind of each byte; 0 for those that no mark begins with.
    classes: [u8; 256],
    /// For the kinds of the first two bytes: the kinds of the third with which a mark can begin, as bits.
    heads: Box<[u64; CLASSES * CLASSES]>,
    /// For the kinds of the first two bytes: which marks begin with them, the shorter first.
    fitting: Vec<Vec<u16>>,
}

impl Marks {
    /// These marks, known by their number from here on. They are ASCII, and none is empty.
    pub(super) fn new(marks: Vec<&'static str>) -> Self {
        let (mut classes, mut last) = ([0_u8; 256], 0);
        for byte in marks.iter().flat_map(|mark| mark.bytes().take(HEAD)) {
            let (small, large) = (byte.to_ascii_lowercase(), byte.to_ascii_uppercase());
            if classes.get(usize::from(small)) == Some(&0) {
                last = LAST_CLASS.min(last + 1);
                for same in [small, large] {
                    if let Some(class) = classes.get_mut(usize::from(same)) {
                        *class = last;
                    }
                }
            }
        }
        let mut made = Self {
            classes,
            heads: Box::new([0; CLASSES * CLASSES]),
            fitting: vec![Vec::new(); CLASSES * CLASSES],
            marks,
        };
        made.sort_in();
        made
    }

    fn sort_in(&mut self) {
        let mut order: Vec<u16> = (0..).take(self.marks.len()).collect();
        order.sort_by_key(|number| self.mark(*number).len());
        for number in order {
            let mark = self.mark(number).as_bytes();
            let fits =
                |place: usize, class: usize| mark.get(place).is_none_or(|byte| usize::from(self.class(*byte)) == class);
            let pairs = (0..CLASSES * CLASSES).filter(|pair| fits(0, pair / CLASSES) && fits(1, pair % CLASSES));
            let third = (0..CLASSES).filter(|third| fits(2, *third)).fold(0_u64, |bits, third| bits | 1 << third);
            for pair in pairs.collect::<Vec<_>>() {
                if let Some(bits) = self.heads.get_mut(pair) {
                    *bits |= third;
                }
                if let Some(all) = self.fitting.get_mut(pair) {
                    all.push(number);
                }
            }
        }
    }

    fn mark(&self, number: u16) -> &'static str {
        self.marks.get(usize::from(number)).copied().unwrap_or_default()
    }

    fn class(&self, byte: u8) -> u8 {
        self.classes.get(usize::from(byte)).copied().unwrap_or(0)
    }

    /// Tells every mark in `text` with its place: in the order of their beginnings, of those with the same one the shorter first.
    pub(super) fn each(&self, text: &[u8], mut met: impl FnMut(usize, usize, usize)) {
        let mut from = 0;
        while let Some((start, pair)) = self.next_head(text, from) {
            for number in self.fitting.get(pair).into_iter().flatten() {
                let mark = self.mark(*number);
                let end = start + mark.len();
                if text.get(start..end).is_some_and(|it| it.eq_ignore_ascii_case(mark.as_bytes())) {
                    met(usize::from(*number), start, end);
                }
            }
            from = start + 1;
        }
    }

    /// The next place at which a mark can begin, and the kinds of the first two bytes there. By itself, so that nothing of who
    /// asks is in the way of the loop.
    #[inline(never)]
    fn next_head(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        let rest = text.get(from..)?;
        let class = |place: usize| rest.get(place).map_or(0, |byte| self.class(*byte));
        let (mut first, mut second) = (class(0), class(1));
        for (place, byte) in rest.iter().skip(HEAD - 1).enumerate() {
            let third = self.class(*byte);
            if self.is_head(first, second, third) {
                return Some((from + place, pair(first, second)));
            }
            (first, second) = (second, third);
        }
        // Behind the end of the text stands nothing that a mark could begin with.
        let place = rest.len().saturating_sub(HEAD - 1);
        if self.is_head(first, second, 0) {
            return Some((from + place, pair(first, second)));
        }
        self.is_head(second, 0, 0).then(|| (from + place + 1, pair(second, 0)))
    }

    fn is_head(&self, first: u8, second: u8, third: u8) -> bool {
        self.heads.get(pair(first, second)).is_some_and(|bits| bits >> (third % 64) & 1 == 1)
    }
}

/// The number of two kinds in a row.
fn pair(first: u8, second: u8) -> usize {
    (usize::from(first) << 6 | usize::from(second)) % (CLASSES * CLASSES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{FORMS, NAMES, PROVIDERS};
    use aho_corasick::AhoCorasick;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn all() -> Vec<&'static str> {
        NAMES.into_iter().chain(FORMS).chain(PROVIDERS.iter().map(|row| row.literal())).collect()
    }

    /// Both ways to look for the same marks. Making them takes longer than looking.
    struct Both(Marks, AhoCorasick);

    impl Both {
        fn of(marks: Vec<&'static str>) -> Self {
            let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(&marks).unwrap();
            Self(Marks::new(marks), automaton)
        }

        /// What is found here, and what an automaton finds.
        fn find(&self, text: &str) -> [Vec<(usize, usize, usize)>; 2] {
            let theirs = self.1.find_overlapping_iter(text);
            let theirs = theirs.map(|hit| (hit.pattern().as_usize(), hit.start(), hit.end())).collect();
            let mut ours = Vec::new();
            self.0.each(text.as_bytes(), |mark, start, end| ours.push((mark, start, end)));
            assert!(ours.is_sorted_by_key(|(_, start, end)| (*start, *end)), "{ours:?}");
            let mut found = [ours, theirs];
            found.iter_mut().for_each(|found| found.sort_unstable());
            found
        }
    }

    static BOTH: LazyLock<Both> = LazyLock::new(|| Both::of(all()));

    #[test]
    fn every_mark_is_found_wherever_it_stands() {
        for mark in all() {
            for before in ["", "x", "ü", ".a", "-u_"] {
                for text in [mark.to_owned(), mark.to_ascii_uppercase(), format!("{mark}ß")] {
                    let text = format!("{before}{text}");
                    let [ours, theirs] = BOTH.find(&text);
                    assert!(ours == theirs && !ours.is_empty(), "{text}");
                }
            }
        }
    }

    #[test]
    fn more_kinds_of_bytes_than_are_told_apart_are_found_all_the_same() {
        const EVERY: &str = "!\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";
        let marks: Vec<&'static str> = (0..EVERY.len() - 1).map(|place| EVERY.get(place..place + 2).unwrap()).collect();
        assert!(marks.len() > CLASSES);
        let [ours, theirs] = Both::of(marks).find(EVERY);
        assert_eq!(ours, theirs);
        assert_eq!(ours.len(), EVERY.len() - 1);
    }

    proptest! {
        #[test]
        fn what_an_automaton_finds_is_found(pieces in prop::collection::vec((0..2000_usize, "\\PC{0,3}"), 0..20)) {
            let marks = all();
            let piece = |(number, other): &(usize, String)| {
                let mark = marks.get(*number).copied().unwrap_or_default();
                let part = mark.get(..number % (mark.len() + 1)).unwrap_or_default();
                format!("{}{other}", if number % 3 == 0 { mark } else { part })
            };
            let text: String = pieces.iter().map(piece).collect();
            let [ours, theirs] = BOTH.find(&text);
            prop_assert_eq!(ours, theirs);
        }
    }
}
