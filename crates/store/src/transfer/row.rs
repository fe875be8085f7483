//! A row as a line of JSON: an array of its cells, exact for every value.
//!
//! Numbers with a fraction are written by their bits, because their decimal text is a matter of taste.

use contract::hex::lower_hex;
use serde_json::Value;

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum RowCell {
    Null,
    Text(String),
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Bytes(Vec<u8>),
}

/// The cells of a row, in the order of the table's columns.
pub type TableRow = Vec<RowCell>;

impl RowCell {
    /// About how much room it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Boolean(_) => 1,
            Self::Integer(_) | Self::Real(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::from(text.as_str()),
            Self::Integer(number) => Value::from(*number),
            Self::Boolean(is) => Value::from(*is),
            Self::Real(number) => tagged("r", format!("{:016x}", number.to_bits())),
            Self::Bytes(bytes) => tagged("b", lower_hex(bytes)),
        }
    }

    fn of_json(value: Value) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(is) => Self::Boolean(is),
            Value::Number(number) => Self::Integer(number.as_i64()?),
            Value::String(text) => Self::Text(text),
            Value::Array(_) => return None,
            Value::Object(tagged) => match tagged.iter().next()? {
                (tag, Value::String(digits)) if tag == "r" && tagged.len() == 1 => {
                    Self::Real(f64::from_bits(u64::from_str_radix(digits, 16).ok()?))
                }
                (tag, Value::String(digits)) if tag == "b" && tagged.len() == 1 => Self::Bytes(of_hex(digits)?),
                _ => return None,
            },
        })
    }
}

/// The line of a row, without its end.
pub fn write_line(row: &[RowCell]) -> String {
    Value::Array(row.iter().map(RowCell::to_json).collect()).to_string()
}

/// The row of a line; `None` if it is none.
pub fn read_line(line: &str) -> Option<TableRow> {
    let Ok(Value::Array(cells)) = serde_json::from_str(line) else { return None };
    cells.into_iter().map(RowCell::of_json).collect()
}

fn tagged(tag: &str, text: String) -> Value {
    Value::Object([(tag.to_owned(), Value::String(text))].into_iter().collect())
}

fn of_hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok()))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> impl Strategy<Value = RowCell> {
        prop_oneof![
            Just(RowCell::Null),
            any::<String>().prop_map(RowCell::Text),
            any::<i64>().prop_map(RowCell::Integer),
            any::<f64>().prop_filter("equal to itself", |number| !number.is_nan()).prop_map(RowCell::Real),
            any::<bool>().prop_map(RowCell::Boolean),
            any::<Vec<u8>>().prop_map(RowCell::Bytes),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_line_reads_back_as_the_row_it_was_written_from(row in proptest::collection::vec(cell(), 0..8)) {
            let line = write_line(&row);
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(read_line(&line), Some(row));
        }
    }

    #[test]
    fn what_no_row_was_written_as_is_refused() {
        for line in [
            "",
            "{}",
            "[[]]",
            "[{}]",
            "[1.5]",
            "[{\"b\":\"0\"}]",
            "[{\"b\":\"zz\"}]",
            "[{\"x\":\"00\"}]",
            "[1",
            "[18446744073709551615]",
        ] {
            assert_eq!(read_line(line), None, "{line}");
        }
    }
}
