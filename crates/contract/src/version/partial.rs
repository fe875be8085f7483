//! A version with gaps, the building block of ranges: `1`, `1.x`, `v1.2.*`, `1.2.3-rc.1`.
//!
//! Only the grammar of one such word. What a gap means depends on what stands before it (`grammar`), and so does
//! whether a number behind a wildcard is tolerated: npm does so after `^` and `~`, and nowhere else.

use semver::Prerelease;

use super::VERSION_NUMBER_MAX;

/// A version of which parts may be missing or wildcards (`None`).
pub(super) struct Partial {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) patch: Option<u64>,
    pub(super) pre: Prerelease,
    /// Nothing but one `v` stands before the numbers. Without that, npm takes only what it rewrites anyway.
    pub(super) clean: bool,
}

impl Partial {
    /// Reads `[v=]* xr ('.' xr ('.' xr ('-' pre)?)?)?`.
    pub(super) fn read(word: &str) -> Option<Self> {
        let plain = word.trim_start_matches(['v', '=']);
        let prefix_bytes = word.len() - plain.len();
        let clean = prefix_bytes == 0 || (prefix_bytes == 1 && word.starts_with('v'));
        let (numbers, pre) = plain.split_once('-').map_or((plain, None), |(numbers, pre)| (numbers, Some(pre)));
        let mut parts = numbers.split('.');
        let major = number_or_wildcard(parts.next()?).ok()?;
        let minor = parts.next().map_or(Ok(None), number_or_wildcard).ok()?;
        let last = parts.next();
        let patch = last.map_or(Ok(None), number_or_wildcard).ok()?;
        let pre = match pre {
            None => Prerelease::EMPTY,
            Some(text) if last.is_some() && !text.is_empty() => Prerelease::new(text).ok()?,
            Some(_) => return None,
        };
        parts.next().is_none().then_some(Self { major, minor, patch, pre, clean })
    }

    pub(super) fn has_number_after_wildcard(&self) -> bool {
        (self.major.is_none() && self.minor.is_some()) || (self.minor.is_none() && self.patch.is_some())
    }
}

/// Neither a number nor a wildcard.
struct NotAPart;

/// A number without leading zeros, or `x`, `X`, `*` (`None`). Numbers too large to be kept stay too large.
fn number_or_wildcard(text: &str) -> Result<Option<u64>, NotAPart> {
    let too_large = VERSION_NUMBER_MAX + 1;
    match text {
        "x" | "X" | "*" => Ok(None),
        "0" => Ok(Some(0)),
        _ if text.is_empty() || text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) => Err(NotAPart),
        _ => Ok(Some(text.parse().unwrap_or(too_large).min(too_large))),
    }
}
