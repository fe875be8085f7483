//! From a list of system calls to a program the kernel runs before each of them.
//!
//! The kernel checks a filter when it is applied, and works out beforehand what it says to every call there is. With one
//! comparison per call in a row that costs most of a millisecond for each sandbox; so the program halves the range of
//! numbers with each comparison instead, and is applied in a few microseconds.

use std::collections::BTreeMap;

use libc::sock_filter as Instruction;

use crate::error::{BuildStep, StepFailure};
use crate::system;

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// Allowed if all conditions of one of these hold.
    AllowIf(Vec<Vec<Condition>>),
    /// Fails as if the kernel did not know it.
    Unknown,
}

/// A test of the lower half of one argument. The calls on the list look at no more of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    argument: u8,
    mask: u32,
    value: u32,
    holds_if_equal: bool,
}

impl Condition {
    pub(super) fn equal(argument: u8, value: u32) -> Self {
        Self { argument, mask: u32::MAX, value, holds_if_equal: true }
    }

    pub(super) fn other(argument: u8, value: u32) -> Self {
        Self { argument, mask: u32::MAX, value, holds_if_equal: false }
    }

    pub(super) fn masked(argument: u8, mask: u32, value: u32) -> Self {
        Self { argument, mask, value, holds_if_equal: true }
    }
}

/// A filter.
#[derive(Debug, Clone)]
pub(crate) struct FilterProgram(Vec<Instruction>);

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Where the kernel puts what it shows to a filter.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const NOT_PERMITTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// Numbers from `first` to the next span's, and what becomes of them.
#[derive(Debug)]
struct Span<'r> {
    first: u32,
    verdict: Option<&'r Verdict>,
}

impl FilterProgram {
    pub(super) fn compile(rules: &BTreeMap<u32, Verdict>) -> Result<Self, StepFailure> {
        let spans = spans(rules);
        let mut code = vec![
            load(ARCHITECTURE_AT),
            // Calls of another architecture have other numbers: nothing can be said of them.
            jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
            give(KILL),
            load(NUMBER),
        ];
        code.extend(tree(&spans)?);
        Ok(Self(code))
    }

    pub(crate) fn apply(&self) -> Result<(), StepFailure> {
        system::apply_filter(&self.0).map_err(|error| StepFailure::new(BuildStep::Seccomp, error, "the filter"))
    }
}

/// Runs of numbers with the same verdict, from 0 to the last number there is.
fn spans(rules: &BTreeMap<u32, Verdict>) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = vec![Span { first: 0, verdict: None }];
    let mut push = |first: u32, verdict| match spans.last_mut() {
        Some(last) if last.first == first => last.verdict = verdict,
        Some(last) if last.verdict == verdict => {}
        _ => spans.push(Span { first, verdict }),
    };
    for (number, verdict) in rules {
        push(*number, Some(verdict));
        push(number.saturating_add(1), rules.get(&number.saturating_add(1)));
    }
    spans
}

/// Halves the spans until one is left.
fn tree(spans: &[Span<'_>]) -> Result<Vec<Instruction>, StepFailure> {
    let (lower, upper) = spans.split_at(spans.len() / 2);
    let Some((first, _)) = upper.split_first().filter(|_| !lower.is_empty()) else {
        return leaf(upper.first().and_then(|span| span.verdict));
    };
    let (below, above) = (tree(lower)?, tree(upper)?);
    let far = u32::try_from(below.len()).map_err(|_| too_long())?;
    // At or above: over the code of the lower half. A conditional jump reaches 255 instructions only, a plain one all.
    let mut code = vec![jump(libc::BPF_JGE, first.first, 0, 1), instruction(libc::BPF_JMP | libc::BPF_JA, far)];
    code.extend(below);
    code.extend(above);
    Ok(code)
}

fn leaf(verdict: Option<&Verdict>) -> Result<Vec<Instruction>, StepFailure> {
    match verdict {
        None => Ok(vec![give(NOT_PERMITTED)]),
        Some(Verdict::Allow) => Ok(vec![give(ALLOW)]),
        Some(Verdict::Unknown) => Ok(vec![give(UNKNOWN)]),
        Some(Verdict::AllowIf(alternatives)) => {
            let mut code = Vec::new();
            for conditions in alternatives {
                code.extend(alternative(conditions)?);
            }
            code.push(give(NOT_PERMITTED));
            Ok(code)
        }
    }
}

/// Three instructions for each condition, then the verdict; a condition that does not hold jumps behind it.
fn alternative(conditions: &[Condition]) -> Result<Vec<Instruction>, StepFailure> {
    let mut code = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let behind = u8::try_from((conditions.len() - index - 1) * 3 + 1).map_err(|_| too_long())?;
        let (if_equal, if_not) = if condition.holds_if_equal { (0, behind) } else { (behind, 0) };
        code.push(load(ARGUMENTS + u32::from(condition.argument) * 8));
        code.push(instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, condition.mask));
        code.push(jump(libc::BPF_JEQ, condition.value, if_equal, if_not));
    }
    code.push(give(ALLOW));
    Ok(code)
}

fn too_long() -> StepFailure {
    StepFailure::refused(BuildStep::Seccomp, "the filter is too long")
}

fn instruction(code: u32, k: u32) -> Instruction {
    Instruction { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k }
}

fn load(offset: u32) -> Instruction {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn give(verdict: u32) -> Instruction {
    instruction(libc::BPF_RET | libc::BPF_K, verdict)
}

fn jump(test: u32, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { jt: if_true, jf: if_false, ..instruction(libc::BPF_JMP | test | libc::BPF_K, value) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel would do: the instructions used here, on a call.
    fn interpreted(program: &FilterProgram, number: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let step = program.0[at];
            at += 1;
            let code = u32::from(step.code);
            match code & 0x07 {
                libc::BPF_LD => {
                    accumulator = match step.k {
                        NUMBER => number,
                        ARCHITECTURE_AT => ARCHITECTURE,
                        offset => arguments[((offset - ARGUMENTS) / 8) as usize],
                    }
                }
                libc::BPF_ALU => accumulator &= step.k,
                libc::BPF_RET => return step.k,
                _ => {
                    at += match code & 0xf0 {
                        libc::BPF_JEQ => usize::from(if accumulator == step.k { step.jt } else { step.jf }),
                        libc::BPF_JGE => usize::from(if accumulator >= step.k { step.jt } else { step.jf }),
                        _ => step.k as usize,
                    }
                }
            }
        }
    }

    /// The same from the list itself.
    fn listed(rules: &BTreeMap<u32, Verdict>, number: u32, arguments: [u32; 6]) -> u32 {
        let holds = |condition: &Condition| {
            (arguments[usize::from(condition.argument)] & condition.mask == condition.value) == condition.holds_if_equal
        };
        match rules.get(&number) {
            None => NOT_PERMITTED,
            Some(Verdict::Allow) => ALLOW,
            Some(Verdict::Unknown) => UNKNOWN,
            Some(Verdict::AllowIf(any)) if any.iter().any(|all| all.iter().all(holds)) => ALLOW,
            Some(Verdict::AllowIf(_)) => NOT_PERMITTED,
        }
    }

    fn condition() -> impl Strategy<Value = Condition> {
        (0_u8..6, prop_oneof![Just(u32::MAX), Just(0xf)], 0_u32..4, any::<bool>())
            .prop_map(|(argument, mask, value, holds_if_equal)| Condition { argument, mask, value, holds_if_equal })
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        let alternatives = prop::collection::vec(prop::collection::vec(condition(), 1..4), 1..4);
        prop_oneof![Just(Verdict::Allow), Just(Verdict::Unknown), alternatives.prop_map(Verdict::AllowIf)]
    }

    proptest! {
        #[test]
        fn the_program_says_what_the_list_says(
            rules in prop::collection::btree_map(0_u32..500, verdict(), 0..120),
            calls in prop::collection::vec((0_u32..520, [0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5]), 60),
        ) {
            let program = FilterProgram::compile(&rules).unwrap();
            for (number, arguments) in calls {
                prop_assert_eq!(interpreted(&program, number, arguments), listed(&rules, number, arguments));
            }
        }
    }

    #[test]
    fn the_real_list_fits_and_says_what_it_says_for_every_number() {
        let rules = super::super::rules();
        let program = FilterProgram::compile(&rules).unwrap();
        assert!(program.0.len() < 1000, "{}", program.0.len());
        for number in (0..1000).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
            for arguments in [[0; 6], [1; 6], [2, 1, 6, 0, 0, 0], [0x1000_0000, 0x5412, 0, 0, 0, 0]] {
                assert_eq!(interpreted(&program, number, arguments), listed(&rules, number, arguments), "{number}");
            }
        }
    }
}
