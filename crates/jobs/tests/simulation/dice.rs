//! Chance that can be thrown again: a small generator, one for each player, so that who throws first changes nobody else's
//! luck.

use std::sync::Mutex;
use std::time::Duration;

/// One player's luck (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    /// The luck of one player in one history.
    pub(crate) fn of(seed: u64, player: u64) -> Self {
        let dice = Self(Mutex::new(
            (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ player.wrapping_mul(0xD1B5_4A32_D192_ED03)) | 1,
        ));
        for _ in 0..8 {
            dice.throw();
        }
        dice
    }

    pub(crate) fn throw(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Less than `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        (self.throw() >> 11) % end.max(1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Up to so many milliseconds.
    pub(crate) fn millis(&self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}
