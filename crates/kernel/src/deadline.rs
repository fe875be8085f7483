//! How long a call may take: the smallest of everything that has a say (DESIGN §8.17, X-09, LIFE-025).

use std::time::Duration;

use contract::manifest::Manifest;

/// No synchronous call takes longer, whatever its manifest says (LIFE-026).
pub const SYNC_MAX: Duration = Duration::from_secs(900);

/// The time a call has, or `None` if there is none left before it begins.
///
/// Without [`SYNC_MAX`], which holds where somebody waits. `asked` is the caller's own wish, `token_left` what is left of its token, `parent_left` what is left of the call that
/// made this one.
pub(crate) fn time_allowed(
    manifest: &Manifest,
    asked: Option<Duration>,
    token_left: Option<Duration>,
    parent_left: Option<Duration>,
) -> Option<Duration> {
    let default = Duration::from_millis(manifest.timeout_default_ms());
    let ceiling = Duration::from_millis(manifest.timeout_max_ms());
    // A caller may ask for more than the default, but never for more than the ceiling.
    let wished = asked.unwrap_or(default).min(ceiling);
    let allowed = [token_left, parent_left].into_iter().flatten().fold(wished, Duration::min);
    (!allowed.is_zero()).then_some(allowed)
}
