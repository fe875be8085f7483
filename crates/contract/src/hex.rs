//! Hexadecimal text of bytes, in lower case. Codes, digests and ids are written with it on every call, so the digits are put
//! together by hand.
//!
//! Not here: reading digits. What is read has a form of its own each time, and says itself what is wrong with it.

use std::fmt;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Two digits a byte.
///
/// ```
/// use gantry_contract::hex::lower_hex;
/// assert_eq!(lower_hex(&[0, 10, 255]), "000aff");
/// ```
pub fn lower_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for pair in bytes.iter().copied().map(digits) {
        text.extend(pair.map(char::from));
    }
    text
}

/// The same into a text that is being written, without a text of its own.
pub(crate) fn write_lower_hex<const N: usize>(bytes: [u8; N], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let pairs = bytes.map(digits);
    f.write_str(std::str::from_utf8(pairs.as_flattened()).unwrap_or_default())
}

fn digits(byte: u8) -> [u8; 2] {
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    [digit(byte >> 4), digit(byte & 0x0f)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_is_two_digits_that_give_it_back(bytes: Vec<u8>) {
            let text = lower_hex(&bytes);
            prop_assert_eq!(text.len(), bytes.len() * 2);
            let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            prop_assert_eq!(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect::<Vec<_>>(), bytes);
            prop_assert!(!text.contains(char::is_uppercase));
        }
    }
}
