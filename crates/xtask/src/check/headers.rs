//! Every Rust file begins by saying what it is: a `//!` header of at least one whole sentence.

use crate::workspace::SourceFile;

/// Fewer words than this are a label, not a sentence.
const WORDS_MIN: usize = 4;

/// Files that begin with something else.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.filter_map(|file| fault(&file.text).map(|fault| format!("`{}` {fault}", file.path))).collect()
}

fn fault(text: &str) -> Option<&'static str> {
    let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    if header.is_empty() {
        return Some("does not start with a `//!` header that says what the file is and why");
    }
    // The first paragraph must stand by itself.
    let paragraph: String = header.iter().take_while(|line| !line.trim().is_empty()).copied().collect();
    let ends = paragraph.contains(['.', '!', '?', ':']);
    (paragraph.split_whitespace().count() < WORDS_MIN || !ends).then_some("has a `//!` header without a whole sentence")
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn only_a_whole_sentence_is_a_header() {
        let cases = [
            ("//! Retry timing: when a call is sent again.\n\nuse x;\n", true),
            ("//! What goes on for\n//! more than one line ends here.\nmod a;\n", true),
            ("//! placeholder\n", false),
            ("//! three short words.\n", false),
            ("//! No full stop in the whole paragraph\n//!\n//! Not here either. Too late.\n", false),
            ("\n//! A blank line came first, so this is no header.\n", false),
            ("use x;\n", false),
            ("", false),
        ];
        for (text, fine) in cases {
            assert_eq!(findings(&[file("a.rs", text)]).is_empty(), fine, "{text:?}");
        }
        assert!(findings(&[file("a.md", "anything")]).is_empty());
    }
}
