//! The difference between two byte strings, small when they have much in common. (CKPT-007)
//!
//! States are JSON texts in which a few values change from one checkpoint to the next, so the difference is found in bytes
//! and needs to know nothing of JSON. Blocks of the old text are indexed by a hash; one pass over the new text with a
//! rolling hash finds them again wherever they have moved to, and each find is stretched to both sides. One table entry per
//! bucket and no search inside one keep the pass linear, whatever a hostile text looks like.
//!
//! ```text
//! delta   := varint(length of the new text) step*
//! step    := varint(n) n bytes             copied from the delta itself
//!            varint(m) zigzag(offset)      m bytes copied from the old text; absent at the end of the delta
//! offset is counted from where the last copy ended
//! ```
//!
//! Invariants
//! - DELTA-1: `apply(old, diff(old, new)) = new`.
//! - DELTA-2: `apply` makes no more bytes than it is allowed to, whatever it is given.
//!
//! Not here: whether a delta is worth keeping, and that the old text is the right one (`codec` has its checksum).

use base::SaturatingFrom as _;

/// Bytes of an indexed block. Small, so that changes strewn over a text leave something to be found between them.
const BLOCK: usize = 16;
/// Multiplier of the rolling hash.
const PRIME: u64 = 0x0100_0000_01b3;
/// An empty place of the index.
const NOWHERE: u32 = u32::MAX;
/// Bytes that a number may take.
const VARINT_BYTES_MAX: usize = 10;

/// Why a delta cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It is not a delta against this text.
    #[error("the delta does not fit what it is applied to")]
    Malformed,
    /// What it makes is larger than allowed.
    #[error("the delta makes more than {max} bytes")]
    TooLarge { max: usize },
}

/// What leads from `old` to `new`.
///
/// ```
/// use gantry_kernel::checkpoints::delta;
/// let (old, new) = (b"the quick brown fox jumps over the lazy dog", b"the quick brown cat jumps over the lazy dog");
/// let change = delta::diff(old, new);
/// assert_eq!(delta::apply(old, &change, 100).unwrap(), new);
/// ```
pub fn diff(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Writer { out: Vec::with_capacity(256), expected: 0 };
    out.number(new.len() as u64);
    let mut literal = 0;
    let index = Index::of(old);
    let mut at = 0;
    let mut hash = window(new, at).map(hash_of);
    while let Some(here) = hash {
        // First where the old text would go on if something had only been overwritten: there the copy is the longest.
        let in_place = out.expected + (at - literal);
        let is_here = |place: &usize| window(old, *place) == window(new, at);
        if let Some(found) = Some(in_place).filter(is_here).or_else(|| index.find(here).filter(is_here)) {
            let back = common_suffix(slice(old, 0, found), slice(new, literal, at));
            let (from, start) = (found - back, at - back);
            let length = back + common_prefix(slice(old, found, old.len()), slice(new, at, new.len()));
            out.step(slice(new, literal, start), Some((from, length)));
            literal = start + length;
            at = literal;
            hash = window(new, at).map(hash_of);
        } else {
            let gone = new.get(at).copied().unwrap_or(0);
            at += 1;
            hash = window(new, at).map(|next| roll(here, gone, next.last().copied().unwrap_or(0)));
        }
    }
    if literal < new.len() {
        out.step(slice(new, literal, new.len()), None);
    }
    out.out
}

/// What `old` becomes by `delta`; at most `bytes_max` long.
///
/// # Errors
/// If the delta is not one against a text like `old`, or makes too much.
pub fn apply(old: &[u8], delta: &[u8], bytes_max: usize) -> Result<Vec<u8>, DeltaError> {
    let mut reader = Reader { rest: delta };
    let length = usize::try_from(reader.number()?).map_err(|_| DeltaError::TooLarge { max: bytes_max })?;
    if length > bytes_max {
        return Err(DeltaError::TooLarge { max: bytes_max });
    }
    let mut new = Vec::with_capacity(length);
    let mut expected: usize = 0;
    while new.len() < length {
        let literal = reader.number()?;
        let literal = reader.bytes(literal)?;
        let room = length - new.len();
        new.extend_from_slice(literal.get(..literal.len().min(room)).unwrap_or_default());
        if literal.len() > room {
            return Err(DeltaError::Malformed);
        }
        if reader.rest.is_empty() {
            break;
        }
        let count = usize::try_from(reader.number()?).map_err(|_| DeltaError::Malformed)?;
        let from = expected.checked_add_signed(reader.signed()?).ok_or(DeltaError::Malformed)?;
        let end = from.checked_add(count).ok_or(DeltaError::Malformed)?;
        let copied = old.get(from..end).ok_or(DeltaError::Malformed)?;
        // A step that moves nothing would let a short delta keep this loop busy.
        if copied.len() > length - new.len() || copied.is_empty() {
            return Err(DeltaError::Malformed);
        }
        new.extend_from_slice(copied);
        expected = end;
    }
    if new.len() == length && reader.rest.is_empty() { Ok(new) } else { Err(DeltaError::Malformed) }
}

// ------------------------------------------------------------------------------------------------------------ Index

/// Where blocks of the old text begin, by their hash.
struct Index {
    places: Vec<u32>,
    mask: u64,
}

impl Index {
    fn of(old: &[u8]) -> Self {
        let size = (old.len() / BLOCK * 2).next_power_of_two().max(64);
        let mut index = Self { places: vec![NOWHERE; size], mask: size as u64 - 1 };
        for (number, block) in old.chunks_exact(BLOCK).enumerate() {
            let at = u32::try_from(number * BLOCK).unwrap_or(NOWHERE);
            let bucket = index.bucket(hash_of(block));
            // The first one stays: repeated text is then copied from where it begins, and stretched.
            if let Some(place) = index.places.get_mut(bucket).filter(|place| **place == NOWHERE) {
                *place = at;
            }
        }
        index
    }

    fn find(&self, hash: u64) -> Option<usize> {
        let place = self.places.get(self.bucket(hash)).copied().filter(|place| *place != NOWHERE)?;
        usize::try_from(place).ok()
    }

    fn bucket(&self, hash: u64) -> usize {
        // The high bits of the product depend on all of the hash.
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        usize::try_from(mixed & self.mask).unwrap_or(0)
    }
}

fn hash_of(block: &[u8]) -> u64 {
    block.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(PRIME).wrapping_add(u64::from(*byte)))
}

/// [`PRIME`] to the power of a block's length less one: the weight of the byte that leaves the window.
const LEAVING: u64 = {
    let (mut weight, mut n) = (1_u64, 1);
    while n < BLOCK {
        weight = weight.wrapping_mul(PRIME);
        n += 1;
    }
    weight
};

fn roll(hash: u64, gone: u8, come: u8) -> u64 {
    hash.wrapping_sub(u64::from(gone).wrapping_mul(LEAVING)).wrapping_mul(PRIME).wrapping_add(u64::from(come))
}

fn window(text: &[u8], at: usize) -> Option<&[u8]> {
    text.get(at..at.checked_add(BLOCK)?)
}

fn slice(text: &[u8], from: usize, to: usize) -> &[u8] {
    text.get(from..to).unwrap_or_default()
}

fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    // Eights first: most of a state is the same, and this is where the time goes.
    let words = left.chunks_exact(8).zip(right.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    let (left, right) = (slice(left, words, left.len()), slice(right, words, right.len()));
    words + left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(a, b)| a == b).count()
}

// ---------------------------------------------------------------------------------------------------- writing, reading

struct Writer {
    out: Vec<u8>,
    /// Where the last copy ended.
    expected: usize,
}

impl Writer {
    fn step(&mut self, literal: &[u8], copy: Option<(usize, usize)>) {
        self.number(literal.len() as u64);
        self.out.extend_from_slice(literal);
        if let Some((from, length)) = copy {
            self.number(length as u64);
            let (from, expected) = (i64::try_from(from).unwrap_or(0), i64::try_from(self.expected).unwrap_or(0));
            let offset = from - expected;
            self.number(((offset << 1) ^ (offset >> 63)).cast_unsigned());
            self.expected = usize::saturating_from(from) + length;
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(low_bits(number) | 0x80);
            number >>= 7;
        }
        self.out.push(low_bits(number));
    }
}

/// The lowest seven.
fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn number(&mut self) -> Result<u64, DeltaError> {
        let mut number: u64 = 0;
        for place in 0..VARINT_BYTES_MAX {
            let (byte, rest) = self.rest.split_first().ok_or(DeltaError::Malformed)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits.checked_shl(u32::try_from(place * 7).unwrap_or(64)).ok_or(DeltaError::Malformed)?;
            if shifted >> (place * 7) != bits {
                return Err(DeltaError::Malformed);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DeltaError::Malformed)
    }

    fn signed(&mut self) -> Result<isize, DeltaError> {
        let number = self.number()?;
        let signed = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        isize::try_from(signed).map_err(|_| DeltaError::Malformed)
    }

    fn bytes(&mut self, count: u64) -> Result<&'a [u8], DeltaError> {
        let count = usize::try_from(count).map_err(|_| DeltaError::Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(DeltaError::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: usize = 1 << 22;

    fn text(records: usize) -> Vec<u8> {
        (0..records).flat_map(|n| format!("{{\"id\":{n},\"sum\":\"{:016x}\"}},", n * 7_919).into_bytes()).collect()
    }

    #[test]
    fn differences_are_small_where_texts_are_alike() {
        let old = text(20_000);
        let whole = old.len();
        let mut strewn = old.clone();
        for at in (0..whole).step_by(100) {
            strewn[at] ^= 1;
        }
        let mut shifted = b"something new at the beginning".to_vec();
        shifted.extend_from_slice(&old);
        let mut cut = old.clone();
        cut.drain(1_000..2_000);
        let appended = [old.as_slice(), b"one more"].concat();
        let cases: [(&str, &[u8], usize); 6] = [
            ("the same", &old, 32),
            ("one byte in a hundred", &strewn, whole / 15),
            ("shifted", &shifted, 64),
            ("cut", &cut, 64),
            ("appended", &appended, 64),
            ("empty", b"", 4),
        ];
        for (name, new, most) in cases {
            let change = diff(&old, new);
            assert!(change.len() <= most, "{name}: {} of {most}", change.len());
            assert_eq!(apply(&old, &change, ROOM).unwrap(), new, "{name}");
        }
    }

    #[test]
    fn a_hostile_text_takes_linear_time() {
        // Every block hashes alike and every window is found: the work is bounded by the stretch, not by the finds.
        let (old, new) = (vec![b'a'; 1 << 20], vec![b'a'; (1 << 20) + 7]);
        assert_eq!(apply(&old, &diff(&old, &new), ROOM).unwrap(), new);
        let almost: Vec<u8> = (0..1 << 20).map(|n| if n % 17 == 0 { b'b' } else { b'a' }).collect();
        assert_eq!(apply(&old, &diff(&old, &almost), ROOM).unwrap(), almost);
    }

    #[test]
    fn what_a_delta_makes_is_bounded_before_it_is_made() {
        let change = diff(&[], &vec![0; 1_000]);
        assert_eq!(apply(&[], &change, 999), Err(DeltaError::TooLarge { max: 999 }));
        // Says that it makes an exabyte.
        let bomb = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert_eq!(apply(b"old", &bomb, ROOM), Err(DeltaError::TooLarge { max: ROOM }));
        for malformed in [&[][..], &[5, 9], &[5, 0, 5, 0], &[5, 0, 0, 0], &[0, 1], &[0x80; 12], &[5, 0, 3, 9]] {
            assert_eq!(apply(b"old", malformed, ROOM), Err(DeltaError::Malformed), "{malformed:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn applying_a_difference_gives_the_new_text(
            old in proptest::collection::vec(0_u8..4, 0..600),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..40, proptest::collection::vec(0_u8..4, 0..40)), 0..6),
        ) {
            let mut new = old.clone();
            for (place, removed, inserted) in edits {
                let at = if new.is_empty() { 0 } else { place.index(new.len()) };
                let end = (at + removed).min(new.len());
                new.splice(at..end, inserted);
            }
            prop_assert_eq!(apply(&old, &diff(&old, &new), ROOM).unwrap(), new);
        }

        #[test]
        fn anything_may_be_applied_and_nothing_grows_beyond_its_bound(
            old in proptest::collection::vec(any::<u8>(), 0..64),
            change in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Ok(new) = apply(&old, &change, 500) {
                prop_assert!(new.len() <= 500);
            }
        }
    }
}
