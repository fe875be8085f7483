//! A name as it is compared: compatible characters are one (NFKC, so that `ｐａｓｓｗｏｒｄ` is `password`), and characters that
//! nobody sees are none (`pass\u{200b}word`). What is shown of a name is not changed by this.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// The form of a name in which it is compared with others. Nearly all names are in it.
pub(crate) fn normalised(name: &str) -> Cow<'_, str> {
    if name.is_ascii() {
        return Cow::Borrowed(name);
    }
    // Again afterwards: a compatible character may stand for one that nobody sees.
    let seen = name.chars().filter(|letter| !is_ignorable(*letter)).nfkc();
    Cow::Owned(seen.filter(|letter| !is_ignorable(*letter)).collect())
}

/// Whether programs show nothing for a character (`Default_Ignorable_Code_Point` of Unicode).
fn is_ignorable(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_the_same_are_the_same() {
        for name in [
            "password",
            "ｐａｓｓｗｏｒｄ",
            "pass\u{200b}word",
            "\u{feff}pass\u{ad}wo\u{2060}rd\u{fe0f}",
            "𝐩𝐚𝐬𝐬𝐰𝐨𝐫𝐝",
            "ｐａｓｓ\u{e0041}ｗｏｒｄ",
            "pa\u{3164}ssword",
        ] {
            assert_eq!(normalised(name), "password", "{name:?}");
        }
        // Composed or not, a letter with a mark is one letter, and not the letter without it.
        assert_eq!(normalised("contrasen\u{303}a"), "contraseña");
        assert_ne!(normalised("contraseña"), "contrasena");
        assert!(matches!(normalised("plain_name"), Cow::Borrowed(_)));
    }
}
