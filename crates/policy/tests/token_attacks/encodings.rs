//! What spellings try: padding, spaces, other alphabets, other numbers of parts, and size.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE};
use serde_json::json;

use crate::case::{Case, accepted, malformed};
use crate::forge::{Forge, claims_with, encode, our_claims};

pub(crate) fn cases(forge: &Forge) -> Vec<Case> {
    let token = forge.own(&our_claims());
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { return Vec::new() };
    let mut cases: Vec<Case> = [
        ("nothing", String::new()),
        ("one part", header.into()),
        ("two parts", format!("{header}.{claims}")),
        ("four parts", format!("{token}.{signature}")),
        ("five parts, as encrypted tokens have", format!("{header}.{claims}.{signature}.{claims}.{signature}")),
        ("dots alone", "..".into()),
        ("an empty header part", format!(".{claims}.{signature}")),
        ("a dot before", format!(".{token}")),
        ("a dot behind", format!("{token}.")),
        ("a space before", format!(" {token}")),
        ("a newline behind", format!("{token}\n")),
        ("garbage behind", format!("{token}garbage!")),
        ("a space inside", format!("{header}. {claims}.{signature}")),
        ("a newline inside", format!("{header}.{claims}\n.{signature}")),
        ("a zero byte behind", format!("{token}\u{0}")),
        ("a letter beyond ASCII", format!("{header}.{claims}.{signature}é")),
        ("padding behind the signature", format!("{token}==")),
        ("padding behind the header", format!("{header}=.{claims}.{signature}")),
        ("quotes around it", format!("\"{token}\"")),
        ("`Bearer` twice", format!("Bearer {token}")),
        ("JSON serialisation", json!({ "protected": header, "payload": claims, "signature": signature }).to_string()),
        ("a megabyte of letters", "a".repeat(1 << 20)),
        ("a megabyte of dots", ".".repeat(1 << 20)),
        ("a megabyte of claims", forge.own(&claims_with("x", json!("a".repeat(1 << 20))))),
    ]
    .into_iter()
    .map(|(what, token)| malformed(format!("encoding: {what}"), token))
    .collect();
    cases.push(malformed("encoding: trailing bits of the signature", with_trailing_bits(&token)));
    cases.push(malformed("encoding: trailing bits of the header", {
        // Signed as it is spelt, so that only the spelling is wrong.
        let header = with_trailing_bits(&spelt_with_bits_left(&forge.header().to_string()));
        reseal(forge, &header, claims)
    }));
    cases.push(malformed("encoding: claims in the standard alphabet", {
        let text = claims_with("x", json!("??>>~~")).to_string();
        let spelt = (0..3).map(|n| STANDARD_NO_PAD.encode(format!("{}{text}", " ".repeat(n))));
        reseal(forge, header, &spelt.into_iter().find(|text| text.contains(['+', '/'])).unwrap())
    }));
    cases.push(malformed("encoding: padded claims under a good signature", {
        let text = our_claims().to_string();
        let padded =
            (0..3).map(|n| URL_SAFE.encode(format!("{}{text}", " ".repeat(n)))).find(|text| text.ends_with('='));
        reseal(forge, header, &padded.unwrap())
    }));
    let size = |letters: usize| forge.own(&claims_with("x", json!("a".repeat(letters))));
    let room = (1..16_384).collect::<Vec<_>>().partition_point(|letters| size(*letters).len() <= 16_384);
    cases.push(accepted("encoding: as long as it may be", size(room)));
    cases.push(malformed("encoding: longer by a few letters", size(room + 3)));
    cases
}

/// The last letter of the text raised by one: the same bytes to a careless reader.
fn with_trailing_bits(text: &str) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (last, rest) = text.as_bytes().split_last().unwrap();
    let place = ALPHABET.iter().position(|letter| letter == last).unwrap();
    format!("{}{}", String::from_utf8_lossy(rest), char::from(ALPHABET[place + 1]))
}

/// Base64 of a text whose length leaves bits over, by means of a space that JSON does not mind.
fn spelt_with_bits_left(text: &str) -> String {
    let bits_left = (0..3).map(|n| format!("{text}{}", " ".repeat(n))).find(|text| text.len() % 3 != 0);
    encode(bits_left.unwrap())
}

fn reseal(forge: &Forge, header: &str, claims: &str) -> String {
    let message = format!("{header}.{claims}");
    let signature = encode(forge.own.sign(message.as_bytes()));
    format!("{message}.{signature}")
}
