//! The phrases of every mark: data, in the notation that `lexicon` explains. A phrase may stand under several marks.

mod data;
mod orders;
mod people;
mod tools;

use super::WordMark;

/// Phrases of each mark, by what they speak of.
pub(super) const PHRASES: &[&[(WordMark, &[&str])]] =
    &[people::PHRASES, orders::PHRASES, data::PHRASES, tools::PHRASES];
