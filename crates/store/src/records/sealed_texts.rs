//! Texts that stand in clear where a seal belongs, out of rows.

use ports::sealed_texts::StoredText;

use crate::stored_row::StoredRow;

/// A text out of a row with `tenant_id`, `row` and `text`.
pub(crate) fn stored_text<R: StoredRow>(row: &R) -> Result<StoredText, R::Fault> {
    let name = row.free_text("row")?;
    Ok(StoredText { tenant: row.word("tenant_id", &name)?, text: row.text("text")?.to_owned(), row: name })
}
