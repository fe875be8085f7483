//! The one place that prints. Data goes to stdout, everything else to stderr.
//!
//! Every command ends in at most one [`Printer::answer`], which is given both forms of its result, so `--json` cannot be
//! forgotten and prints exactly one document. Text from tools and servers is data: control characters in it are shown,
//! not sent to the terminal.
//!
//! A reader that has gone away (`gantry tool list | head`) is not an error: what cannot be written is dropped.
//!
//! Not here: what is printed (each command), log lines (`telemetry`).

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::failure::CommandFailure;

/// Tables are never squeezed below this.
const COLUMNS_MIN: u16 = 80;

/// Styles of text on a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TextStyle {
    Bold,
    Dim,
    Red,
    Yellow,
    Green,
    Cyan,
}

impl TextStyle {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "1;31",
            Self::Yellow => "33",
            Self::Green => "32",
            Self::Cyan => "36",
        }
    }
}

/// What was asked of the printer by flags and environment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PrinterOptions {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) no_color: bool,
}

/// Prints.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    wishes: PrinterOptions,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
}

impl Printer {
    /// For this process's streams.
    pub(crate) fn new(wishes: PrinterOptions) -> Self {
        Self {
            wishes,
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Is a person reading stdout?
    pub(crate) fn is_for_people(&self) -> bool {
        self.stdout_is_terminal && !self.wishes.json
    }

    /// Was one JSON document asked for?
    pub(crate) fn is_json(&self) -> bool {
        self.wishes.json
    }

    /// Could a person answer a question?
    pub(crate) fn can_ask(&self) -> bool {
        self.stderr_is_terminal && std::io::stdin().is_terminal() && !self.wishes.json
    }

    /// The result of a command, in the form that was asked for.
    pub(crate) fn answer(&self, document: &Value, text: impl FnOnce(&Self) -> String) {
        if self.wishes.json {
            out(&pretty(document));
        } else {
            let text = text(self);
            out(text.strip_suffix('\n').unwrap_or(&text));
        }
    }

    /// Text that is the whole result, such as a completion script.
    pub(crate) fn raw(&self, text: &str) {
        self.answer(&Value::String(text.to_owned()), |_| text.to_owned());
    }

    /// Something a person may want to know besides the result.
    pub(crate) fn note(&self, text: &str) {
        if !self.wishes.quiet {
            err(text);
        }
    }

    /// Something a person should know besides the result; also said when quiet.
    pub(crate) fn warn(&self, text: &str) {
        err(&format!("{} {text}", self.on_stderr("warning:", TextStyle::Yellow)));
    }

    /// Replaces the line that is being written to, for a person who waits.
    pub(crate) fn redraw(&self, text: &str) {
        if self.stderr_is_terminal && !self.wishes.quiet && !self.wishes.json {
            let mut stderr = std::io::stderr().lock();
            // As for every line: a terminal that is gone is not an error.
            let _ = write!(stderr, "\r\x1b[2K{text}").and_then(|()| stderr.flush());
        }
    }

    /// Asks for a yes. Anything else, and the end of input, is a no.
    pub(crate) fn confirm(&self, question: &str) -> bool {
        let answer = self.ask(&format!("{question} [y/N]"));
        answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
    }

    /// What somebody at the terminal answers; `None` if nobody does.
    pub(crate) fn ask(&self, question: &str) -> Option<String> {
        let question = self.on_stderr(question, TextStyle::Bold);
        let mut stderr = std::io::stderr().lock();
        // A question that cannot be shown is not answered either.
        write!(stderr, "{question} ").and_then(|()| stderr.flush()).ok()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
        Some(answer)
    }

    /// Why a command did not succeed.
    pub(crate) fn failure(&self, failure: &CommandFailure) {
        if self.wishes.json {
            out(&pretty(&failure.to_json()));
        }
        let head = match &failure.code {
            Some(code) => format!("error[{code}]:"),
            None => "error:".to_owned(),
        };
        err(&format!("{} {}", self.on_stderr(&head, TextStyle::Red), visible(&failure.message)));
        for reason in &failure.reasons {
            err(&format!("  - {}", visible(reason)));
        }
        // In a frame: these are a stranger's words, and none of ours.
        for line in &failure.tool_words() {
            err(&format!("  {} {}", self.on_stderr("│", TextStyle::Dim), visible(line)));
        }
        if let Some(hint) = &failure.hint {
            err(&format!("{} {}", self.on_stderr("hint:", TextStyle::Cyan), visible(hint)));
        }
    }

    /// A table: drawn for people, plain columns when piped.
    pub(crate) fn table<const N: usize>(
        &self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> String {
        let mut table = Table::new();
        if self.is_for_people() {
            table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
            // Some terminals say that they have no columns; a table one letter wide helps nobody.
            if table.width().is_none_or(|columns| columns < COLUMNS_MIN) {
                table.set_width(COLUMNS_MIN);
            }
        } else {
            table.force_no_tty().load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        }
        table.set_header(header.map(str::to_owned));
        for row in rows {
            table.add_row(row.map(|cell| visible(&cell).into_owned()));
        }
        if !self.is_for_people() {
            table.column_iter_mut().for_each(|column| {
                column.set_padding((0, 2));
            });
        }
        table.trim_fmt()
    }

    /// Styles text for stdout, if stdout wants it.
    pub(crate) fn style(&self, text: &str, style: TextStyle) -> String {
        paint(text, style, self.stdout_is_terminal && !self.wishes.no_color && !self.wishes.json)
    }

    /// Styles text for stderr, if stderr wants it.
    pub(crate) fn on_stderr(&self, text: &str, style: TextStyle) -> String {
        paint(text, style, self.stderr_is_terminal && !self.wishes.no_color)
    }
}

/// Shows control characters instead of obeying them; line breaks and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(is_harmful) {
        text.chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

/// One line of a result that comes line by line. The caller has made it harmless.
pub(crate) fn line(line: &str) {
    out(line);
}

/// A value as indented JSON.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

fn paint(text: &str, style: TextStyle, wanted: bool) -> String {
    if wanted { format!("\u{1b}[{}m{text}\u{1b}[0m", style.code()) } else { text.to_owned() }
}

/// Who has closed the pipe, as `head` does, has read enough; there is nobody left to complain to.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// The same.
fn err(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piped() -> Printer {
        Printer { wishes: PrinterOptions::default(), stdout_is_terminal: false, stderr_is_terminal: false }
    }

    #[test]
    fn a_piped_table_has_plain_columns_without_lines_or_colours() {
        let table = piped().table(["TOOL", "VERSION"], [["calculator".into(), "1.0.0".into()]]);
        assert!(!table.contains(['│', '─', '\u{1b}']), "{table}");
        assert_eq!(table.lines().count(), 2);
        assert!(table.lines().all(|line| line.split_whitespace().count() == 2), "{table}");
    }

    #[test]
    fn control_characters_in_foreign_text_never_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\r\u{7}"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
        assert_eq!(visible("two\nlines\tand a tab"), "two\nlines\tand a tab");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let terminal = Printer { stdout_is_terminal: true, ..piped() };
        assert!(terminal.style("x", TextStyle::Bold).contains('\u{1b}'));
        let plain = Printer { wishes: PrinterOptions { no_color: true, ..PrinterOptions::default() }, ..terminal };
        assert_eq!(plain.style("x", TextStyle::Bold), "x");
        assert_eq!(piped().style("x", TextStyle::Bold), "x");
    }
}
