//! A bar on the terminal for work that takes a while. Where nobody looks there is none.

use crate::printer::Printer;

/// Characters of the bar.
const WIDTH: u64 = 30;

/// How far something has come.
#[derive(Debug)]
pub(crate) struct ProgressBar<'a> {
    printer: &'a Printer,
    /// What is drawn: nothing is drawn twice.
    drawn: String,
}

impl<'a> ProgressBar<'a> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Self { printer, drawn: String::new() }
    }

    /// So much of so much is done.
    pub(crate) fn at(&mut self, doing: &str, done: u64, total: u64) {
        let line = line(doing, done, total);
        if line != self.drawn {
            self.printer.redraw(&line);
            self.drawn = line;
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(self) {
        if !self.drawn.is_empty() {
            self.printer.redraw("");
        }
    }
}

fn line(doing: &str, done: u64, total: u64) -> String {
    // Rows may be added, and files grow, while they are counted.
    let total = total.max(done).max(1);
    let filled = usize::try_from(done.saturating_mul(WIDTH) / total).unwrap_or_default();
    let width = usize::try_from(WIDTH).unwrap_or_default();
    let (full, empty) = ("█".repeat(filled), "░".repeat(width.saturating_sub(filled)));
    format!("{full}{empty} {:>3} %  {doing}", done.saturating_mul(100) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_goes_from_empty_to_full_and_not_beyond() {
        for (done, total, percent) in
            [(0, 10, "  0 %"), (5, 10, " 50 %"), (10, 10, "100 %"), (11, 10, "100 %"), (0, 0, "  0 %")]
        {
            let line = line("ledger", done, total);
            assert!(line.contains(percent) && line.ends_with("ledger"), "{line}");
            assert_eq!(line.chars().filter(|sign| "█░".contains(*sign)).count(), 30);
        }
    }
}
