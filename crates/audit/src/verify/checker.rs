//! Taking in lines one after the other, and comparing at every checkpoint.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lines::{Facts, Looked};
use super::signatures::{Due, Signatures, forged};
use super::{FAULTS_MAX, LogFault, RecoveredRange, VerifyReport};
use crate::export::ExportHead;
use crate::line::{FAULT_FOUND, KEY_CHANGED, RECOVERED, SET_ASIDE};
use crate::merkle::{TreeFrontier, TreeHash, root_of};
use crate::note::NoteError;
use crate::principals::{PrincipalCounts, PrincipalTurn};
use crate::tree_file::{LeafReader, TreeFile};

/// The check while it goes on.
pub(super) struct Checker {
    signatures: Signatures,
    tree: Option<TreeFile>,
    leaves: LeafReader,
    edge: TreeFrontier,
    principals: PrincipalCounts,
    /// The log is read from its first record, so everybody's count is known.
    from_start: bool,
    /// The number that is due.
    next: u64,
    lines: u64,
    /// Numbers that were passed over. They may still come, out of order.
    gaps: Vec<Range<u64>>,
    /// Lines since the last good checkpoint that the tree file knows otherwise.
    suspects: Vec<u64>,
    /// Records up to here are what was signed.
    good: u64,
    /// The numbers are not in order: what follows from that is not told again.
    is_broken: bool,
    /// The roots cannot be compared any more.
    is_lost: bool,
    steps_back: u64,
    /// The newest believed checkpoint says that the log has ended.
    is_ended: bool,
    /// Half a line stands at the end of the newest file.
    is_torn: bool,
    name: String,
    report: VerifyReport,
}

impl Checker {
    pub(super) fn new(signatures: Signatures, tree: Option<TreeFile>, edge: TreeFrontier, from_start: bool) -> Self {
        let mut made = Self {
            next: edge.size(),
            good: edge.size(),
            signatures,
            tree,
            leaves: LeafReader::default(),
            edge,
            principals: PrincipalCounts::default(),
            from_start,
            lines: 0,
            gaps: Vec::new(),
            suspects: Vec::new(),
            is_broken: false,
            is_lost: false,
            steps_back: 0,
            is_ended: false,
            is_torn: false,
            name: String::new(),
            report: VerifyReport::default(),
        };
        // One of nothing is always right, whoever signs it.
        made.signatures.due_at(0);
        made
    }

    pub(super) fn records(&self) -> u64 {
        self.lines
    }

    pub(super) fn fault(&mut self, fault: LogFault) {
        // Several checkpoints may say the same.
        if self.report.faults.len() < FAULTS_MAX && !self.report.faults.contains(&fault) {
            self.report.faults.push(fault);
        }
    }

    pub(super) fn note(&mut self, note: String) {
        if self.report.notes.len() < FAULTS_MAX {
            self.report.notes.push(note);
        }
    }

    /// Half a line: a crash leaves one at the end of the newest file, and nothing leaves one anywhere else.
    pub(super) fn torn(&mut self, is_newest: bool) {
        if is_newest {
            self.is_torn = true;
        } else {
            self.fault(LogFault::Unreadable { after: self.next });
        }
    }

    /// The next line.
    pub(super) fn take(&mut self, looked: Looked<'_>) {
        self.lines += 1;
        let Some((seq, facts)) = looked.record else {
            self.is_broken = true;
            // It stands where a record is due, so that one is not missing.
            let due = self.next;
            self.fault(LogFault::Unreadable { after: due });
            self.next = self.next.saturating_add(1);
            self.take_in(looked.leaf, due);
            return;
        };
        self.place(seq);
        self.follow(seq, &facts);
        self.take_in(looked.leaf, seq);
    }

    /// The number: is it the one that is due?
    fn place(&mut self, seq: u64) {
        if seq == self.next {
            self.next = self.next.saturating_add(1);
            return;
        }
        self.is_broken = true;
        if seq > self.next {
            self.gaps.push(self.next..seq);
            self.next = seq.saturating_add(1);
            return;
        }
        match self.gaps.iter().position(|gap| gap.contains(&seq)) {
            Some(at) => {
                let gap = self.gaps.swap_remove(at);
                self.gaps.extend(
                    [gap.start..seq, seq.saturating_add(1)..gap.end].into_iter().filter(|rest| !rest.is_empty()),
                );
                self.fault(LogFault::Reordered { seq });
            }
            None => self.fault(LogFault::Repeated { seq }),
        }
    }

    /// The clock, the principal's count, and keys.
    fn follow(&mut self, seq: u64, facts: &Facts<'_>) {
        if let Some(at) = &facts.at {
            // Times have one width, so they sort as text.
            match &mut self.report.last_at {
                Some(last) => {
                    if at.as_ref() < last.as_str() {
                        self.steps_back += 1;
                    }
                    last.clear();
                    last.push_str(at);
                }
                None => self.report.last_at = Some(at.to_string()),
            }
            if self.report.first_at.is_none() {
                self.report.first_at = Some(at.to_string());
            }
        }
        if let (Some(tenant), Some(subject)) = (&facts.tenant, &facts.subject) {
            self.name.clear();
            self.name.push_str(tenant);
            self.name.push('\n');
            self.name.push_str(subject);
            let turn = PrincipalTurn { era: facts.principal_era, seq: facts.principal_seq.unwrap_or(u64::MAX) };
            // In the middle of a log nobody's count is known until they are met.
            let is_new = !self.from_start && !self.principals.knows(&self.name);
            let expected = if is_new { turn } else { self.principals.count(&self.name) };
            if expected != turn && !self.is_broken {
                let principal = self.name.replace('\n', "/");
                self.fault(LogFault::SequenceGap { seq, principal, expected: expected.seq, found: turn.seq });
            }
            if expected != turn || is_new {
                self.principals.resume(&self.name, turn);
            }
        }
        match facts.action.as_deref() {
            Some(KEY_CHANGED) => self.signatures.name([facts.key.as_deref(), facts.former_key.as_deref()]),
            // Not of a call: those have somebody whose they are.
            Some(RECOVERED) if facts.tenant.is_none() => self.recovered(seq, facts),
            Some(SET_ASIDE) if facts.tenant.is_none() => {
                self.note(format!("record {seq} tells of lines after the log's end that were set aside, unsigned"));
            }
            Some(FAULT_FOUND) if facts.tenant.is_none() => {
                self.note(format!("record {seq} tells that the server found a record missing or changed"));
            }
            _ => {}
        }
    }

    fn recovered(&mut self, seq: u64, facts: &Facts<'_>) {
        if let (Some(first), Some(last)) = (facts.first_record, facts.last_record)
            && self.report.recovered.len() < FAULTS_MAX
        {
            self.report.recovered.push(RecoveredRange { first, last, told_by: seq });
        }
    }

    /// The line's hash.
    fn take_in(&mut self, leaf: TreeHash, seq: u64) {
        if let Some(tree) = &self.tree
            && self.leaves.leaf(tree, seq).is_some_and(|stored| stored != leaf)
            && self.suspects.len() < FAULTS_MAX
        {
            self.suspects.push(seq);
        }
        self.edge.push(leaf, |_| ());
        // Where lines are missing the tree is that of the lines; the signed sizes are those of the numbers.
        while self.signatures.next_size().is_some_and(|size| size <= self.next) {
            let Some(size) = self.signatures.next_size() else { break };
            let Some(due) = self.signatures.due_at(size) else { break };
            self.compare(due);
        }
    }

    fn compare(&mut self, due: Due) {
        let size = due.checkpoint.size;
        let is_root = !self.is_lost && self.edge.size() == size && self.edge.root() == due.checkpoint.root;
        if is_root {
            match self.signatures.believe(&due) {
                Ok(()) => self.covered(&due),
                Err(NoteError::UnknownKey) => self.signatures.doubt(due),
                Err(error) => self.fault(forged(&due, error)),
            }
            if !self.suspects.is_empty() {
                self.suspects.clear();
                self.note(
                    "the tree file is damaged; it is made again from the records when the log is opened".to_owned(),
                );
            }
            self.good = size;
            return;
        }
        // The lines are not what this says: either they were changed, or it was forged.
        if let Err(error) = self.signatures.believe(&due) {
            self.fault(forged(&due, error));
            return;
        }
        if self.is_lost {
            return;
        }
        if due.is_witnessed && self.suspects.is_empty() && !self.is_broken {
            self.fault(LogFault::RolledBack { records: self.next, witnessed: size });
            return;
        }
        self.blame(size);
        // The tree file may know the signed tree; then the check goes on from there.
        let signed = self.tree.as_ref().and_then(|tree| root_of(tree, size).ok());
        match signed.filter(|edge| edge.root() == due.checkpoint.root && self.next == size) {
            Some(edge) => {
                self.edge = edge;
                self.good = size;
                self.is_broken = !self.gaps.is_empty();
            }
            None => self.is_lost = true,
        }
    }

    /// Names what was changed before this size.
    fn blame(&mut self, size: u64) {
        if self.is_broken {
            // The order is wrong and that is told; lines that are where they belong may be changed besides.
        } else if self.suspects.is_empty() {
            let from = self.good;
            self.fault(LogFault::ChangedBetween { from, to: size });
        }
        for seq in std::mem::take(&mut self.suspects) {
            self.fault(LogFault::Changed { seq });
        }
    }

    fn covered(&mut self, due: &Due) {
        self.report.checkpoints += 1;
        if due.checkpoint.size >= self.report.covered {
            self.is_ended = due.checkpoint.is_end;
        }
        self.report.covered = self.report.covered.max(due.checkpoint.size);
        self.report.covered_at.clone_from(&due.checkpoint.time);
    }

    /// The end of a directory.
    pub(super) fn end(mut self, tree_leaves: u64, is_ended: bool) -> VerifyReport {
        let mut truncated = 0;
        for due in self.signatures.rest() {
            if let Err(error) = self.signatures.believe(&due) {
                self.fault(forged(&due, error));
            } else if due.is_witnessed {
                let (records, witnessed) = (self.next, due.checkpoint.size);
                self.fault(LogFault::RolledBack { records, witnessed });
            } else {
                truncated = truncated.max(due.checkpoint.size);
            }
        }
        if truncated > 0 {
            self.fault(LogFault::Truncated { records: self.next, signed: truncated });
        } else if tree_leaves > self.next {
            let more = tree_leaves - self.next;
            self.note(format!(
                "the tree file knows {more} records more: the end is missing, or a crash came before it"
            ));
        }
        for seq in std::mem::take(&mut self.suspects) {
            self.fault(LogFault::Changed { seq });
        }
        self.report.unsigned = self.next.saturating_sub(self.report.covered);
        if self.is_ended && is_ended && self.report.unsigned > 0 {
            let (from, to) = (self.report.covered, self.next);
            self.fault(LogFault::AddedAfterEnd { from, to });
        }
        // A server that stopped in order leaves none.
        match (self.is_torn, self.is_ended && is_ended) {
            (true, true) => self.fault(LogFault::HalfAfterEnd { records: self.next }),
            (true, false) => self.note("the last line of a file is torn, as a crash leaves it".to_owned()),
            (false, _) => {}
        }
        self.finish()
    }

    /// The end of an export: what stands after it in the tree leads on to the signed root.
    pub(super) fn end_of_export(mut self, head: &ExportHead) -> VerifyReport {
        let is_all_there = self.next == head.to && self.gaps.is_empty();
        if self.next < head.to {
            let records = self.next;
            self.fault(LogFault::Truncated { records, signed: head.to });
        } else if self.next > head.to {
            self.fault(LogFault::Repeated { seq: head.to });
        }
        let (from, to) = (self.good, self.next);
        let led_on =
            head.right().is_some_and(|tail| tail.into_iter().all(|(level, hash)| self.edge.push_subtree(level, hash)));
        for due in self.signatures.rest() {
            let is_root = led_on && due.checkpoint.size == self.edge.size() && due.checkpoint.root == self.edge.root();
            match self.signatures.believe(&due) {
                Ok(()) if is_root => self.covered(&due),
                Err(NoteError::UnknownKey) if is_root => self.signatures.doubt(due),
                Err(error) => self.fault(forged(&due, error)),
                Ok(()) if due.is_witnessed && due.checkpoint.size > self.edge.size() => {
                    let (records, witnessed) = (self.edge.size(), due.checkpoint.size);
                    self.fault(LogFault::RolledBack { records, witnessed });
                }
                Ok(()) if is_all_there && !self.is_lost && !self.is_broken => {
                    self.fault(LogFault::ChangedBetween { from, to })
                }
                Ok(()) => {}
            }
        }
        self.finish()
    }

    fn finish(mut self) -> VerifyReport {
        for gap in std::mem::take(&mut self.gaps) {
            self.fault(LogFault::Removed { from: gap.start, to: gap.end });
        }
        self.report.checkpoints += self.signatures.settle();
        for fault in std::mem::take(&mut self.signatures.faults) {
            self.fault(fault);
        }
        if self.report.checkpoints == 0 && self.report.faults.is_empty() {
            self.fault(LogFault::Unsigned);
        }
        if self.steps_back > 0 {
            let note =
                format!("the clock went back {} times; the numbers tell the order, not the times", self.steps_back);
            self.note(note);
        }
        let mut report = self.report;
        report.records = self.lines;
        report.root = STANDARD.encode(self.edge.root());
        report.keys = self.signatures.keys.iter().map(ToString::to_string).collect();
        report.key_given = self.signatures.key_given;
        report.whole = report.faults.is_empty();
        report
    }
}
