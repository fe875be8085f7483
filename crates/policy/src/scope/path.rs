//! Paths in scopes and limits: `/data` is `/data` and everything below it, and nothing else.
//!
//! The rule is about whole segments, so `/data` has nothing to do with `/database`. Repeated slashes, `.` segments and a
//! slash at the end mean nothing and are skipped while comparing; nothing is copied to normalise it.
//!
//! What could mean another place to whoever opens it later is not a path here at all: `..`, a backslash, control
//! characters, and `/`, `.`, `\` or `%` in percent-encoding (the last, because a second decoding would bring back the
//! others). A file whose name truly has them cannot be named, which is the safe side to err on.
//!
//! Not here: symbolic links (only who opens the file can see them), and stars (scopes know where they may stand).

/// Why a text is not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It must mean the same wherever it is read.
    #[error("a path must be absolute, that is begin with `/`")]
    Relative,
    /// `..` in any dress.
    #[error("a path must not contain `..`")]
    Upwards,
    /// A spelling that somebody may read as another path.
    #[error("a path must not contain a backslash, a control character, or `/`, `.`, `\\` or `%` in percent-encoding")]
    Ambiguous,
}

/// A path that was checked, and with it everything below. `S` is where its text lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathSubtree<S>(S);

impl PathSubtree<&'static str> {
    /// Every path.
    pub(super) const ROOT: Self = Self("/");
}

impl<'t> PathSubtree<&'t str> {
    /// Reads an absolute path.
    pub(crate) fn read(text: &'t str) -> Result<Self, PathError> {
        if !text.starts_with('/') {
            return Err(PathError::Relative);
        }
        if text.chars().any(|c| c == '\\' || c.is_control()) || hides_a_separator(text) {
            return Err(PathError::Ambiguous);
        }
        // Some servers cut `;parameters` off a segment before they look at it.
        if text.split('/').any(|segment| segment.split(';').next() == Some("..")) {
            return Err(PathError::Upwards);
        }
        Ok(Self(text))
    }

    /// The same with its own text.
    pub(super) fn keep(self) -> PathSubtree<Box<str>> {
        PathSubtree(self.0.into())
    }
}

impl<S: AsRef<str>> PathSubtree<S> {
    /// Is `other`, and so everything below it, at or below this path?
    pub(crate) fn covers<T: AsRef<str>>(&self, other: &PathSubtree<T>) -> bool {
        let mut below = other.segments();
        self.segments().all(|segment| below.next() == Some(segment))
    }

    /// Is there a star, which here is a character like any other?
    pub(super) fn has_star(&self) -> bool {
        self.0.as_ref().contains('*')
    }

    /// The one spelling without what means nothing.
    pub(super) fn shortest(&self) -> String {
        let shortest: String = self.segments().flat_map(|segment| ["/", segment]).collect();
        if shortest.is_empty() { "/".into() } else { shortest }
    }

    /// What counts of the path.
    fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.as_ref().split('/').filter(|segment| !segment.is_empty() && *segment != ".")
    }
}

/// Is there a `%2e`, `%2f`, `%5c`, `%25` or an encoded control character?
fn hides_a_separator(text: &str) -> bool {
    text.split('%').skip(1).any(|after| match after.as_bytes() {
        [b'0' | b'1', digit, ..] => digit.is_ascii_hexdigit(),
        [b'2', b'5' | b'e' | b'E' | b'f' | b'F', ..] => true,
        [b'5', b'c' | b'C', ..] => true,
        [b'7', b'f' | b'F', ..] => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_covers_itself_and_what_is_below_by_whole_segments() {
        for (outer, inner, expected) in [
            ("/data", "/data", true),
            ("/data", "/data/x", true),
            ("/data/", "/data", true),
            ("/data", "/data/", true),
            ("//data/./", "/./data//x", true),
            ("/", "/", true),
            ("/", "/any/thing", true),
            ("/data", "/database", false),
            ("/data", "/dat", false),
            ("/data", "/", false),
            ("/data/x", "/data", false),
            ("/data", "/Data", false),
            ("/a b", "/a b/c", true),
            ("/data", "/data/...", true),
        ] {
            let (from, to) = (PathSubtree::read(outer).unwrap(), PathSubtree::read(inner).unwrap());
            assert_eq!(from.covers(&to), expected, "{outer} {inner}");
            assert_eq!(from.keep().covers(&to.keep()), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn what_could_mean_another_place_is_no_path() {
        use PathError::{Ambiguous, Relative, Upwards};
        for (text, why) in [
            ("", Relative),
            ("data", Relative),
            ("./data", Relative),
            ("~/x", Relative),
            ("C:\\x", Relative),
            ("/data/..", Upwards),
            ("/../data", Upwards),
            ("/data/../database", Upwards),
            ("/data/..;x=1/y", Upwards),
            ("/data\\..\\x", Ambiguous),
            ("/data\0", Ambiguous),
            ("/data\n", Ambiguous),
            ("/data/%2e%2e/x", Ambiguous),
            ("/data/%2E./x", Ambiguous),
            ("/data%2fx", Ambiguous),
            ("/data%2Fx", Ambiguous),
            ("/data%5cx", Ambiguous),
            ("/data%252e%252e", Ambiguous),
            ("/data%00", Ambiguous),
            ("/data/%20/%7f", Ambiguous),
        ] {
            assert_eq!(PathSubtree::read(text).unwrap_err(), why, "{text:?}");
        }
        for fine in ["/100%", "/%", "/a%20b", "/%4", "/..x", "/x..", "/.hidden"] {
            assert!(PathSubtree::read(fine).is_ok(), "{fine}");
        }
    }
}
