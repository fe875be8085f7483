//! What tells whether two tables hold the same: how many rows, and a digest that does not ask for their order.
//!
//! The digest is the sum of the SHA-256 of all rows, modulo 2^256. It finds every mistake; it is not meant to find an
//! adversary, who could write to the table anyway.

use std::fmt;

use contract::canonical::Digest;

use super::row::{RowCell, write_line};

/// Rows and their digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowSum {
    rows: u64,
    digest: [u8; 32],
}

/// The sum of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSum {
    pub table: String,
    pub sum: RowSum,
}

impl RowSum {
    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[RowCell]) {
        self.add_line(&write_line(row));
    }

    /// Adds the line of a row.
    pub fn add_line(&mut self, line: &str) {
        let row = Digest::of_bytes(line.as_bytes());
        let mut carry = 0_u16;
        for (byte, more) in self.digest.iter_mut().rev().zip(row.as_bytes().iter().rev()) {
            carry += u16::from(*byte) + u16::from(*more);
            let [high, low] = carry.to_be_bytes();
            *byte = low;
            carry = u16::from(high);
        }
        self.rows += 1;
    }

    /// The digest in hexadecimal digits.
    pub fn digest(&self) -> String {
        Digest::from(self.digest).to_string()
    }
}

impl fmt::Display for RowSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows ({})", self.rows, self.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(rows: &[&[RowCell]]) -> RowSum {
        let mut sum = RowSum::default();
        rows.iter().for_each(|row| sum.add(row));
        sum
    }

    #[test]
    fn the_order_of_rows_does_not_matter_and_everything_else_does() {
        let (one, two) = ([RowCell::Text("1".into()), RowCell::Null], [RowCell::Integer(1), RowCell::Null]);
        let both = sum(&[&one, &two]);
        assert_eq!(both, sum(&[&two, &one]));
        for other in [sum(&[&one]), sum(&[&one, &one]), sum(&[&one, &two, &two]), sum(&[])] {
            assert_ne!(both, other);
        }
    }
}
