//! As much of the Domain Name System as a program's own resolver needs: one question in, one answer out (RFC 1035).
//!
//! The other side is hostile: every length is looked at, nothing is followed (compressed names in questions are refused), and
//! an answer is hardly longer than its question.
//!
//! Not here: what the answer to a name is (`direct`).

use std::net::Ipv4Addr;

/// Longest packet that is read; without extensions none is longer.
pub(super) const PACKET_BYTES_MAX: usize = 512;

const HEAD_BYTES: usize = 12;
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;
/// The class of the internet.
const CLASS_INTERNET: u16 = 1;
const KIND_V4: u16 = 1;
const KIND_V6: u16 = 28;
/// In the third byte of the head: an answer, and the bit of a question that is repeated in it.
const IS_ANSWER: u8 = 0x80;
const OPERATION: u8 = 0x78;
const RECURSION_WANTED: u8 = 0x01;
/// In the fourth: recursion can be had.
const RECURSION_THERE: u8 = 0x80;
const NO_ERROR: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
/// A name as it stands twelve bytes into the packet, behind the head.
const NAME_OF_QUESTION: [u8; 2] = [0xC0, 0x0C];
/// An address stands for a name as long as the program lives; asking again costs nothing.
const SECONDS: u32 = 60;

/// A question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    id: [u8; 2],
    recursion_wanted: u8,
    /// As it came: name, kind, class.
    question: Vec<u8>,
    /// With dots.
    pub(super) name: String,
    pub(super) kind: QueryKind,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryKind {
    AddressV4,
    AddressV6,
    Other,
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Address(Ipv4Addr),
    /// The name exists, and has nothing of this kind.
    Nothing,
    NoSuchName,
    Failure,
}

impl Query {
    /// Reads a packet. `None`: it is no question, or not one that a resolver asks.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let [id_high, id_low, flags, _, 0, 1, ..] = *packet else { return None };
        if flags & (IS_ANSWER | OPERATION) != 0 {
            return None;
        }
        let behind_head = packet.get(HEAD_BYTES..)?;
        let (name, length) = read_name(behind_head)?;
        let [kind_high, kind_low, class_high, class_low] = *behind_head.get(length..length + 4)? else { return None };
        if u16::from_be_bytes([class_high, class_low]) != CLASS_INTERNET {
            return None;
        }
        let kind = match u16::from_be_bytes([kind_high, kind_low]) {
            KIND_V4 => QueryKind::AddressV4,
            KIND_V6 => QueryKind::AddressV6,
            _ => QueryKind::Other,
        };
        let question = behind_head.get(..length + 4)?.to_vec();
        Some(Self { id: [id_high, id_low], recursion_wanted: flags & RECURSION_WANTED, question, name, kind })
    }

    /// The packet that says it.
    pub(super) fn answer(&self, outcome: Outcome) -> Vec<u8> {
        let (code, answers) = match outcome {
            Outcome::Address(_) => (NO_ERROR, 1),
            Outcome::Nothing => (NO_ERROR, 0),
            Outcome::NoSuchName => (NAME_ERROR, 0),
            Outcome::Failure => (SERVER_FAILURE, 0),
        };
        let mut packet = self.id.to_vec();
        packet.extend([IS_ANSWER | self.recursion_wanted, RECURSION_THERE | code]);
        packet.extend([0, 1, 0, answers, 0, 0, 0, 0]);
        packet.extend(&self.question);
        if let Outcome::Address(address) = outcome {
            packet.extend(NAME_OF_QUESTION);
            packet.extend(KIND_V4.to_be_bytes());
            packet.extend(CLASS_INTERNET.to_be_bytes());
            packet.extend(SECONDS.to_be_bytes());
            packet.extend([0, 4]);
            packet.extend(address.octets());
        }
        packet
    }
}

/// A name, and how many bytes it takes.
fn read_name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = 0;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Longer ones are references, which no question needs.
        if length > LABEL_BYTES_MAX {
            return None;
        }
        let label = std::str::from_utf8(bytes.get(at..at + length)?).ok()?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(label);
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        at += length;
    }
    (!name.is_empty()).then_some((name, at))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet that asks for this.
    pub(in crate::egress) fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut packet = vec![0xAB, 0xCD, RECURSION_WANTED, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend(label.as_bytes());
        }
        packet.push(0);
        packet.extend(kind.to_be_bytes());
        packet.extend(CLASS_INTERNET.to_be_bytes());
        packet
    }

    #[test]
    fn a_question_is_answered_with_its_own_words_and_an_address() {
        let packet = question("api.example.com", KIND_V4);
        let query = Query::read(&packet).unwrap();
        assert_eq!((query.name.as_str(), query.kind), ("api.example.com", QueryKind::AddressV4));
        let answer = query.answer(Outcome::Address(Ipv4Addr::new(127, 77, 0, 1)));
        assert_eq!(answer[..4], [0xAB, 0xCD, 0x81, 0x80]);
        assert_eq!(answer[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..packet.len()], packet[12..]);
        assert_eq!(answer[answer.len() - 4..], [127, 77, 0, 1]);
        assert_eq!(query.answer(Outcome::NoSuchName)[3], 0x83);
        assert_eq!(query.answer(Outcome::Nothing).len(), packet.len());
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let good = question("api.example.com", KIND_V4);
        let mut answer = good.clone();
        answer[2] |= IS_ANSWER;
        let mut two = good.clone();
        two[5] = 2;
        let mut reference = good.clone();
        reference[12] = 0xC0;
        for packet in [&answer[..], &two, &reference, &good[..good.len() - 1], &good[..11], &[]] {
            assert_eq!(Query::read(packet), None);
        }
        assert_eq!(
            Query::read(&question(&["a".repeat(63).as_str(); 5].join("."), 1)),
            None,
            "longer than a name may be"
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_not_and_an_answer_is_hardly_longer(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(query) = Query::read(&packet) {
                prop_assert!(query.answer(Outcome::Address(Ipv4Addr::LOCALHOST)).len() <= packet.len() + 16);
            }
        }

        #[test]
        fn every_name_is_read_as_it_was_asked(labels in proptest::collection::vec("[a-z0-9-]{1,20}", 1..6)) {
            let name = labels.join(".");
            prop_assert_eq!(Query::read(&question(&name, KIND_V6)).unwrap().name, name);
        }
    }
}
