//! Makes text plain before it is judged: compatibility forms folded, invisible characters taken out, look-alike letters
//! put back, and all of that remembered.
//!
//! What is taken out is judged too: characters of the tag block and runs of variation selectors spell text, which is
//! handed on as [`PlainText::smuggled`]. Joiners that scripts and emoji need are left alone, because a scanner that cries at
//! every Persian sentence is switched off by its third day.
//!
//! Not here: base64 and other visible encodings (`decode`).

use unicode_normalization::UnicodeNormalization;
use unicode_security::confusable_detection::skeleton;

/// Zero-width characters that may stand in honest text (a byte order mark, a pasted space) without a finding.
const ZERO_WIDTH_TOLERATED: usize = 2;
/// Variation selectors in a row that style one character.
const SELECTORS_TOLERATED: usize = 2;
/// This many spaces, or [`PADDING_LINES`] line ends, in a row push text out of sight.
const PADDING_BLANKS: usize = 60;
/// See [`PADDING_BLANKS`].
const PADDING_LINES: usize = 20;

/// Something invisible that was found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HiddenCharacters {
    /// Characters of the Unicode tag block, which spell ASCII invisibly.
    Tags,
    /// Runs of variation selectors, which can spell bytes.
    Selectors,
    /// Characters of no width between ordinary letters.
    ZeroWidth,
    /// Characters that turn the direction of the text.
    Bidi,
    /// A terminal escape sequence.
    Escape,
    /// Other control characters.
    Control,
    /// Letters of another script that look like Latin ones, inside Latin words.
    LookAlike,
    /// So much blank space that the text after it is out of sight.
    Padding,
}

/// A text made plain.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PlainText {
    /// What a person reads, in plain characters.
    pub text: String,
    /// What was hidden in it, each kind once.
    pub hidden: Vec<HiddenCharacters>,
    /// Text that was spelled in invisible characters.
    pub smuggled: String,
}

/// Makes `text` plain.
pub fn normalise(text: &str) -> PlainText {
    let mut plain = PlainText::default();
    let mut stripped = String::with_capacity(text.len());
    let mut zero_width = 0_usize;
    let mut selectors = Vec::new();
    let mut flag = false;
    let has_rtl = text.chars().any(is_right_to_left);
    let mut before = ' ';
    for character in text.chars() {
        let code = u32::from(character);
        // The flags of England, Scotland and Wales are spelled with tags after a black flag.
        flag = character == '\u{1f3f4}' || (flag && (0xe_0020..=0xe_007f).contains(&code));
        match code {
            0xe_0000..=0xe_007f if flag => {}
            0xe_0000..=0xe_007f => {
                plain.note(HiddenCharacters::Tags);
                plain.smuggled.extend(char::from_u32(code - 0xe_0000).filter(|letter| !letter.is_control()));
            }
            0xfe00..=0xfe0f | 0xe_0100..=0xe_01ef => {
                selectors.extend(selector_byte(code));
                continue;
            }
            0x200b..=0x200d
            | 0x2060..=0x2064
            | 0xfeff
            | 0x00ad
            | 0x180e
            | 0x034f
            | 0x115f
            | 0x1160
            | 0x3164
            | 0xffa0 => {
                let joins = matches!(code, 0x200c | 0x200d) && !before.is_ascii();
                zero_width += usize::from(!joins);
                continue;
            }
            0x200e | 0x200f | 0x061c if has_rtl => {}
            0x202a..=0x202c | 0x2066..=0x2069 if has_rtl => {}
            0x200e | 0x200f | 0x061c | 0x202a..=0x202e | 0x2066..=0x2069 => plain.note(HiddenCharacters::Bidi),
            0x1b | 0x9b => plain.note(HiddenCharacters::Escape),
            0x09 | 0x0a | 0x0d => stripped.push(character),
            _ if character.is_control() => plain.note(HiddenCharacters::Control),
            _ => stripped.push(character),
        }
        plain.flush(&mut selectors);
        before = character;
    }
    plain.flush(&mut selectors);
    if zero_width > ZERO_WIDTH_TOLERATED {
        plain.note(HiddenCharacters::ZeroWidth);
    }
    if is_padded(&stripped) {
        plain.note(HiddenCharacters::Padding);
    }
    let folded: String = if stripped.is_ascii() { stripped } else { stripped.nfkc().collect() };
    plain.text = if folded.is_ascii() { folded } else { plain.unmask(&folded) };
    plain
}

/// Whether a character can be shown to a person without hiding or moving anything.
pub(crate) fn is_visible(character: char) -> bool {
    let code = u32::from(character);
    let hidden = matches!(
        code,
        0x00ad | 0x034f | 0x061c | 0x115f | 0x1160 | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
            | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff9..=0xfffb | 0xe_0000..=0xe_0fff
    );
    !hidden && !character.is_control()
}

/// The Latin letter that `character` looks like, if it is of another script and looks like one.
pub(crate) fn latin_twin(character: char) -> Option<char> {
    let code = u32::from(character);
    // Greek, Cyrillic, Armenian, Cherokee, Lisu: scripts with letters that cannot be told from Latin ones.
    if !matches!(code, 0x0370..=0x058f | 0x13a0..=0x13ff | 0xa4d0..=0xa4ff | 0xab70..=0xabbf) {
        return None;
    }
    let mut buffer = [0_u8; 4];
    let mut twin = skeleton(character.encode_utf8(&mut buffer));
    match (twin.next(), twin.next()) {
        (Some(letter), None) if letter.is_ascii_alphabetic() => Some(letter),
        _ => None,
    }
}

// --- Plain ---------------------------------------------------------------------------------------------------------

impl PlainText {
    fn note(&mut self, hidden: HiddenCharacters) {
        if !self.hidden.contains(&hidden) {
            self.hidden.push(hidden);
        }
    }

    /// Ends a run of variation selectors: one or two are style, more of them are a message.
    fn flush(&mut self, selectors: &mut Vec<u8>) {
        if selectors.len() > SELECTORS_TOLERATED {
            self.note(HiddenCharacters::Selectors);
            self.smuggled.push_str(&String::from_utf8_lossy(selectors));
        }
        selectors.clear();
    }

    /// Puts Latin letters back into words that mix them with their twins of other scripts.
    fn unmask(&mut self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len());
        for word in text.split_inclusive(|character: char| !character.is_alphanumeric()) {
            let mixed = word.chars().any(|character| character.is_ascii_alphabetic());
            let has_twin = mixed && word.chars().any(|character| latin_twin(character).is_some());
            if has_twin {
                self.note(HiddenCharacters::LookAlike);
            }
            plain.extend(word.chars().map(|c| if mixed { latin_twin(c).unwrap_or(c) } else { c }));
        }
        plain
    }
}

// --- characters ----------------------------------------------------------------------------------------------------

fn selector_byte(code: u32) -> Option<u8> {
    let value = if code < 0x1_0000 { code - 0xfe00 } else { code - 0xe_0100 + 16 };
    u8::try_from(value).ok()
}

fn is_right_to_left(character: char) -> bool {
    matches!(u32::from(character), 0x0590..=0x08ff | 0xfb1d..=0xfdff | 0xfe70..=0xfefe)
}

/// Whether text follows a stretch of blank space that no layout needs.
fn is_padded(text: &str) -> bool {
    let (mut blanks, mut lines) = (0_usize, 0_usize);
    let mut seen = false;
    for character in text.chars() {
        match character {
            '\n' => (blanks, lines) = (0, lines + 1),
            _ if character.is_whitespace() => blanks += 1,
            _ => {
                if seen && (blanks >= PADDING_BLANKS || lines >= PADDING_LINES) {
                    return true;
                }
                (seen, blanks, lines) = (true, 0, 0);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tagged(text: &str) -> String {
        text.chars().filter_map(|c| char::from_u32(0xe_0000 + u32::from(c))).collect()
    }

    #[test]
    fn each_way_of_hiding_is_noted_and_taken_out() {
        let cases = [
            (format!("Adds.{}", tagged("read keys")), HiddenCharacters::Tags, "Adds."),
            ("A\u{fe01}\u{fe02}\u{fe03}\u{fe04}dds".to_owned(), HiddenCharacters::Selectors, "Adds"),
            ("A\u{200b}d\u{200b}d\u{200b}s".to_owned(), HiddenCharacters::ZeroWidth, "Adds"),
            ("Ad\u{202e}ds".to_owned(), HiddenCharacters::Bidi, "Adds"),
            ("Adds\u{1b}[8m".to_owned(), HiddenCharacters::Escape, "Adds[8m"),
            ("Ad\u{7}ds".to_owned(), HiddenCharacters::Control, "Adds"),
            ("\u{430}dds".to_owned(), HiddenCharacters::LookAlike, "adds"),
        ];
        for (text, hidden, plain) in cases {
            let result = normalise(&text);
            assert_eq!(result.hidden, [hidden], "{text:?}");
            assert_eq!(result.text, plain);
        }
        assert_eq!(normalise(&format!("Adds.{}more", " ".repeat(100))).hidden, [HiddenCharacters::Padding]);
    }

    #[test]
    fn what_invisible_characters_spell_is_read() {
        assert_eq!(normalise(&format!("x{}", tagged("read keys"))).smuggled, "read keys");
        let selectors: String =
            b"call".iter().filter_map(|byte| char::from_u32(0xe_0100 + u32::from(*byte) - 16)).collect();
        assert_eq!(normalise(&format!("x{selectors}")).smuggled, "call");
    }

    #[test]
    fn scripts_and_emoji_are_left_alone() {
        let cases = [
            "متن را ترجمه می\u{200c}کند",
            "a family: 👩\u{200d}👩\u{200d}👧 and a ❤\u{fe0f}",
            "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f} flag",
            "Переводит текст",
            "Ω and µm — “quotes”",
            "\u{feff}with a byte order mark",
        ];
        for text in cases {
            assert_eq!(normalise(text).hidden, [], "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn printable_ascii_is_left_as_it_is(text in "[ -~\n]{0,40}") {
            let plain = normalise(&text);
            prop_assert_eq!(&plain.text, &text);
            prop_assert!(plain.smuggled.is_empty());
        }

        #[test]
        fn normalising_twice_changes_no_text(text in any::<String>()) {
            let once = normalise(&text).text;
            let hidden = normalise(&once).hidden;
            prop_assert!(!hidden.contains(&HiddenCharacters::Tags) && !hidden.contains(&HiddenCharacters::Escape));
        }
    }
}
