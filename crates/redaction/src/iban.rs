//! Bank accounts (ISO 13616): country, length of that country, and the checksum modulo 97.

use crate::boundary::{at, before, begins, ends, line_before, mentions};

/// The lengths of the registry, and of the countries that use the form without being in it.
const LENGTHS: &[(&[u8; 2], u8)] = &[
    (b"AD", 24),
    (b"AE", 23),
    (b"AL", 28),
    (b"AO", 25),
    (b"AT", 20),
    (b"AZ", 28),
    (b"BA", 20),
    (b"BE", 16),
    (b"BF", 28),
    (b"BG", 22),
    (b"BH", 22),
    (b"BI", 27),
    (b"BJ", 28),
    (b"BR", 29),
    (b"BY", 28),
    (b"CF", 27),
    (b"CG", 27),
    (b"CH", 21),
    (b"CI", 28),
    (b"CM", 27),
    (b"CR", 22),
    (b"CV", 25),
    (b"CY", 28),
    (b"CZ", 24),
    (b"DE", 22),
    (b"DJ", 27),
    (b"DK", 18),
    (b"DO", 28),
    (b"DZ", 26),
    (b"EE", 20),
    (b"EG", 29),
    (b"ES", 24),
    (b"FI", 18),
    (b"FK", 18),
    (b"FO", 18),
    (b"FR", 27),
    (b"GA", 27),
    (b"GB", 22),
    (b"GE", 22),
    (b"GI", 23),
    (b"GL", 18),
    (b"GQ", 27),
    (b"GR", 27),
    (b"GT", 28),
    (b"GW", 25),
    (b"HN", 28),
    (b"HR", 21),
    (b"HU", 28),
    (b"IE", 22),
    (b"IL", 23),
    (b"IQ", 23),
    (b"IR", 26),
    (b"IS", 26),
    (b"IT", 27),
    (b"JO", 30),
    (b"KM", 27),
    (b"KW", 30),
    (b"KZ", 20),
    (b"LB", 28),
    (b"LC", 32),
    (b"LI", 21),
    (b"LT", 20),
    (b"LU", 20),
    (b"LV", 21),
    (b"LY", 25),
    (b"MA", 28),
    (b"MC", 27),
    (b"MD", 24),
    (b"ME", 22),
    (b"MG", 27),
    (b"MK", 19),
    (b"ML", 28),
    (b"MN", 20),
    (b"MR", 27),
    (b"MT", 31),
    (b"MU", 30),
    (b"MZ", 25),
    (b"NE", 28),
    (b"NI", 28),
    (b"NL", 18),
    (b"NO", 15),
    (b"OM", 23),
    (b"PK", 24),
    (b"PL", 28),
    (b"PS", 29),
    (b"PT", 25),
    (b"QA", 29),
    (b"RO", 24),
    (b"RS", 22),
    (b"RU", 33),
    (b"SA", 24),
    (b"SC", 31),
    (b"SD", 18),
    (b"SE", 24),
    (b"SI", 19),
    (b"SK", 24),
    (b"SM", 27),
    (b"SN", 28),
    (b"SO", 23),
    (b"ST", 25),
    (b"SV", 28),
    (b"TD", 27),
    (b"TG", 28),
    (b"TL", 23),
    (b"TN", 24),
    (b"TR", 26),
    (b"UA", 29),
    (b"VA", 22),
    (b"VG", 24),
    (b"XK", 20),
    (b"YE", 30),
];

/// The account whose check digits begin at `digits`.
pub(crate) fn around(bytes: &[u8], digits: usize) -> Option<(usize, usize)> {
    let start = digits.checked_sub(2)?;
    let country = [at(bytes, start).to_ascii_uppercase(), before(bytes, digits).to_ascii_uppercase()];
    if !country.iter().all(u8::is_ascii_uppercase) || !begins(bytes, start) {
        return None;
    }
    let length = usize::from(LENGTHS.iter().find(|(known, _)| **known == country)?.1);
    let end = end(bytes, start, length)?;
    let sound = checksum(bytes.get(start..end)?) == 1;
    // A mistyped account that is called one is still somebody's.
    (sound || mentions(line_before(bytes, start), "iban")).then_some((start, end))
}

/// Where the account ends: all its characters, in one piece or in groups with one blank or hyphen between.
fn end(bytes: &[u8], start: usize, length: usize) -> Option<usize> {
    let (mut place, mut count) = (start, 0);
    while count < length {
        let byte = at(bytes, place);
        match byte {
            _ if byte.is_ascii_alphanumeric() => {
                if (2..4).contains(&count) && !byte.is_ascii_digit() {
                    return None;
                }
                count += 1;
            }
            b' ' | b'-' if count > 0 && count % 4 == 0 && at(bytes, place + 1).is_ascii_alphanumeric() => {}
            _ => return None,
        }
        place += 1;
    }
    ends(bytes, place).then_some(place)
}

/// The number modulo 97 after the first four characters went to the end and letters became numbers.
fn checksum(account: &[u8]) -> u32 {
    let plain = || account.iter().filter(|byte| byte.is_ascii_alphanumeric());
    plain().skip(4).chain(plain().take(4)).fold(0, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.to_ascii_uppercase() - b'A') + 10) % 97,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_all_forms_are_found_and_wrong_ones_left() {
        let cases = [
            ("GB82WEST12345698765432", true),
            ("gb82 west 1234 5698 7654 32", true),
            ("DE89 3704 0044 0532 0130 00", true),
            ("DE89-3704-0044-0532-0130-00", true),
            ("NO9386011117947", true),
            ("MT84MALT011000012345MTLCAST001S", true),
            ("LC55HEMM000100010012001200023015", true),
            ("GB83WEST12345698765432", false),
            ("GB82WEST123456987654321", false),
            ("XGB82WEST12345698765432", false),
            ("ZZ82WEST12345698765432", false),
            ("GB82WEST1234", false),
            ("my IBAN: GB83WEST12345698765432", true),
        ];
        for (text, expected) in cases {
            let digits = text.find(|letter: char| letter.is_ascii_digit()).unwrap();
            assert_eq!(around(text.as_bytes(), digits).is_some(), expected, "{text}");
        }
    }
}
