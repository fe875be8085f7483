//! What is planted: values that must be seen nowhere, made from a seed, each of them another.
//!
//! Every value is long enough not to stand anywhere by accident. What identifies it is kept beside it: of a key file the
//! first line says nothing, so a line of its body is looked for.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A sequence of numbers that is the same for the same seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*: short, and good enough to make texts differ.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % sides
    }

    fn chars(&mut self, count: usize, alphabet: &[u8]) -> String {
        (0..count).map(|_| char::from(alphabet[usize::try_from(self.roll(alphabet.len() as u64)).unwrap()])).collect()
    }

    fn digits(&mut self, count: usize) -> String {
        self.chars(count, b"0123456789")
    }

    fn letters(&mut self, count: usize) -> String {
        self.chars(count, b"abcdefghijklmnopqrstuvwxyz")
    }

    fn mixed(&mut self, count: usize) -> String {
        self.chars(count, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    }

    fn number(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll(to - from + 1)
    }
}

/// A value as it is planted, and what is looked for.
pub(super) struct Planted {
    pub(super) text: String,
    pub(super) wanted: String,
}

impl Planted {
    fn new(text: String) -> Self {
        Self { wanted: text.clone(), text }
    }
}

/// Something that is recognised by its looks, wherever it stands.
pub(super) fn by_looks(dice: &mut Dice) -> Planted {
    match dice.roll(13) {
        0 => Planted::new(format!("{}.{}@{}.example.com", dice.letters(6), dice.letters(7), dice.letters(5))),
        1 => Planted::new(format!("+49 30 {} {}", dice.digits(4), dice.digits(4))),
        2 => Planted::new(format!("(415) 555-{}{}", dice.number(1, 9), dice.digits(3))),
        3 => Planted::new(format!("{}-{:02}-{:04}", dice.number(100, 665), dice.number(1, 99), dice.number(1, 9999))),
        4 => Planted::new(card(dice)),
        5 => Planted::new(iban(dice)),
        6 => {
            let parts = [dice.number(11, 99), dice.number(100, 255), dice.number(100, 255), dice.number(100, 255)];
            Planted::new(parts.map(|part| part.to_string()).join("."))
        }
        7 => {
            let group = |dice: &mut Dice| dice.chars(4, b"123456789abcdef");
            Planted::new(format!("2001:db8:{}:{}::{}", group(dice), group(dice), group(dice)))
        }
        8 => Planted::new(format!("ghp_{}", dice.mixed(36))),
        9 => Planted::new(format!("AKIA{}", dice.chars(16, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))),
        10 => Planted::new(format!("xoxb-{}-{}-{}", dice.digits(12), dice.digits(12), dice.mixed(24))),
        11 => {
            let part = |text: Value| URL_SAFE_NO_PAD.encode(text.to_string());
            let head = part(json!({ "alg": "HS256", "typ": "JWT" }));
            let body = part(json!({ "sub": dice.letters(12), "iat": dice.number(1_600_000_000, 1_700_000_000) }));
            Planted::new(format!("{head}.{body}.{}", dice.mixed(43)))
        }
        _ => {
            let body = STANDARD.encode(dice.mixed(138));
            let lines = pieces(&body, 64);
            let wanted = lines[1].clone();
            let text = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", lines.join("\n"));
            Planted { text, wanted }
        }
    }
}

/// Something that a rule of the configuration is about.
pub(super) fn by_rule(dice: &mut Dice) -> Planted {
    Planted::new(format!("EMP-{}", dice.digits(9)))
}

/// Something that only its name, its mark or somebody's knowledge tells to be secret.
pub(super) fn words(dice: &mut Dice) -> Planted {
    Planted::new(format!("{} \"{}\"/{}+{}", dice.letters(7), dice.letters(6), dice.letters(8), dice.letters(5)))
}

/// A text of ASCII in pieces of this length.
fn pieces(text: &str, length: usize) -> Vec<String> {
    text.as_bytes().chunks(length).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
}

/// A Visa card whose check digit is right.
fn card(dice: &mut Dice) -> String {
    let mut digits: Vec<u32> = format!("4{}", dice.digits(14)).chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2 == 0, digit * 2) {
            (false, _) => *digit,
            (true, twice) => twice / 10 + twice % 10,
        })
        .sum();
    digits.push((10 - sum % 10) % 10);
    let text: String = digits.iter().map(ToString::to_string).collect();
    pieces(&text, 4).join(" ")
}

/// A German account whose checksum is right.
fn iban(dice: &mut Dice) -> String {
    let account = dice.digits(18);
    // D and E are 13 and 14; the checksum stands as 00 while it is reckoned.
    let rest = format!("{account}131400").bytes().fold(0, |rest, digit| (rest * 10 + u64::from(digit - b'0')) % 97);
    format!("DE{:02}{account}", 98 - rest)
}

/// A sentence around it, as people and programs write them.
pub(super) fn sentence(dice: &mut Dice, planted: &str) -> String {
    match dice.roll(4) {
        0 => format!("please look at {planted} and answer"),
        1 => format!("{{\"value\": {}}}", json!(planted)),
        2 => format!("first line\nsecond with {planted}, third"),
        _ => planted.to_owned(),
    }
}
