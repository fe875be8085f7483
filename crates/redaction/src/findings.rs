//! What was found, and the words that take its place (VALID-009, VALID-010).

/// What stands in place of a secret, and of a value whose name or mark says that it must not be seen.
pub const REDACTED: &str = "[REDACTED]";

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RedactionKind {
    Email,
    Phone,
    Ssn,
    CreditCard,
    Iban,
    IpAddress,
    Secret,
}

impl RedactionKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Email, Self::Phone, Self::Ssn, Self::CreditCard, Self::Iban, Self::IpAddress, Self::Secret];

    /// The word that takes its place.
    pub const fn replacement(self) -> &'static str {
        match self {
            Self::Email => "[EMAIL_REDACTED]",
            Self::Phone => "[PHONE_REDACTED]",
            Self::Ssn => "[SSN_REDACTED]",
            Self::CreditCard => "[CREDIT_CARD_REDACTED]",
            Self::Iban => "[IBAN_REDACTED]",
            Self::IpAddress => "[IP_ADDRESS_REDACTED]",
            Self::Secret => REDACTED,
        }
    }
}

/// One place in a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactionFinding {
    pub kind: RedactionKind,
    pub start: usize,
    pub end: usize,
}

/// Brings findings into order, and makes one of those that overlap: a secret is more than what it looks like besides, then
/// the longer is more than the shorter.
pub(crate) fn settle(found: &mut Vec<RedactionFinding>) {
    found.retain(|finding| finding.start < finding.end);
    found.sort_unstable_by_key(|finding| (finding.start, finding.end));
    found.dedup_by(|next, last| {
        let overlap = next.start < last.end;
        if overlap {
            let rank =
                |finding: &RedactionFinding| (finding.kind == RedactionKind::Secret, finding.end - finding.start);
            // All of both goes, under the better name.
            let kind = if rank(next) > rank(last) { next.kind } else { last.kind };
            *last = RedactionFinding { kind, start: last.start, end: last.end.max(next.end) };
        }
        overlap
    });
}

/// The text with words in place of what was found; `found` is in order and does not overlap.
pub(crate) fn replace(text: &str, found: &[RedactionFinding]) -> String {
    let words: usize = found.iter().map(|finding| finding.kind.replacement().len()).sum();
    let gone: usize = found.iter().map(|finding| finding.end - finding.start).sum();
    let mut redacted = String::with_capacity((text.len() + words).saturating_sub(gone));
    let mut done = 0;
    for finding in found {
        redacted.push_str(text.get(done..finding.start).unwrap_or_default());
        redacted.push_str(finding.kind.replacement());
        done = finding.end;
    }
    redacted.push_str(text.get(done..).unwrap_or_default());
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_overlapping_findings_one_is_left_and_a_secret_wins() {
        let finding = |kind, start, end| RedactionFinding { kind, start, end };
        let mut settled = vec![
            finding(RedactionKind::Email, 8, 30),
            finding(RedactionKind::Secret, 4, 12),
            finding(RedactionKind::Phone, 40, 50),
            finding(RedactionKind::CreditCard, 40, 56),
            finding(RedactionKind::Ssn, 60, 60),
        ];
        settle(&mut settled);
        assert_eq!(settled, [finding(RedactionKind::Secret, 4, 30), finding(RedactionKind::CreditCard, 40, 56)]);
    }

    #[test]
    fn what_is_around_a_finding_stays() {
        let found = [RedactionFinding { kind: RedactionKind::Email, start: 4, end: 9 }];
        assert_eq!(replace("ä: a@b.c!", &found), "ä: [EMAIL_REDACTED]!");
        assert_eq!(replace("nothing", &[]), "nothing");
    }
}
