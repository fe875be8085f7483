//! The automata of a pattern, and their sweeps over a text.
//!
//! Every look-around has an automaton of its own. A look-behind is swept from left to right, and every position where it
//! comes to its end is one that it holds at. A look-ahead is written backwards and swept from right to left, which gives
//! the positions where it begins. An automaton is started at every position of the sweep, and all its threads go on
//! together, so one sweep answers for all positions at once.

use regex_syntax::hir::ClassUnicode;

use super::parser::{Node, WORD};
use super::{INSTRUCTIONS_MAX, PatternFault, StepLimit};

#[derive(Debug)]
enum Instruction {
    Class(CharSet),
    Jump(usize),
    /// Both ways.
    Split(usize, usize),
    Start,
    End,
    Word {
        negated: bool,
    },
    /// The answer of a table at this position.
    Look {
        table: usize,
        negated: bool,
    },
    Match,
}

/// Characters: the first 128 as bits, the others as ranges.
#[derive(Debug)]
struct CharSet {
    ascii: u128,
    ranges: Vec<(char, char)>,
}

impl CharSet {
    fn of(class: &ClassUnicode) -> Self {
        let mut ascii = 0_u128;
        let mut ranges = Vec::new();
        for range in class.ranges() {
            let (from, to) = (range.start(), range.end());
            for code in u32::from(from)..=u32::from(to).min(127) {
                ascii |= 1 << code;
            }
            if to > '\u{7f}' {
                ranges.push((from, to));
            }
        }
        Self { ascii, ranges }
    }

    fn contains(&self, letter: char) -> bool {
        if letter.is_ascii() {
            return self.ascii >> u32::from(letter) & 1 == 1;
        }
        let after = self.ranges.partition_point(|(from, _)| *from <= letter);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, to)| letter <= *to)
    }
}

/// All automata of one pattern, those of inner look-arounds before those that read them, the pattern's own last.
#[derive(Debug)]
pub(super) struct Sweeps {
    looks: Vec<(Direction, Vec<Instruction>)>,
    main: Vec<Instruction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Sweeps {
    pub(super) fn of(node: &Node) -> Result<Self, PatternFault> {
        let mut writer = Writer { looks: Vec::new(), instructions: 0 };
        let node = writer.resolved(node)?;
        let main = writer.program(&node, Direction::Forward)?;
        Ok(Self { looks: writer.looks, main })
    }

    pub(super) fn is_match(&self, text: &str, steps_max: u64) -> Result<bool, StepLimit> {
        let letters: Vec<char> = text.chars().collect();
        let mut run = Run { letters: &letters, tables: Vec::with_capacity(self.looks.len()), steps_left: steps_max };
        for (direction, program) in &self.looks {
            let mut table = vec![false; letters.len() + 1];
            run.sweep(program, *direction, |position| {
                if let Some(answer) = table.get_mut(position) {
                    *answer = true;
                }
                false
            })?;
            run.tables.push(table);
        }
        let mut found = false;
        run.sweep(&self.main, Direction::Forward, |_| {
            found = true;
            true
        })?;
        Ok(found)
    }
}

// ------------------------------------------------------------------------------------------------------- Writer

struct Writer {
    looks: Vec<(Direction, Vec<Instruction>)>,
    instructions: usize,
}

impl Writer {
    /// The same with every look-around written as an automaton and replaced by its table: what a repetition writes out
    /// many times then reads one table.
    fn resolved(&mut self, node: &Node) -> Result<Node, PatternFault> {
        Ok(match node {
            Node::Concat(parts) => Node::Concat(self.all_resolved(parts)?),
            Node::Either(branches) => Node::Either(self.all_resolved(branches)?),
            Node::Repeat { node, min, max } => {
                Node::Repeat { node: Box::new(self.resolved(node)?), min: *min, max: *max }
            }
            Node::Look { ahead, negated, node } => {
                let inner = self.resolved(node)?;
                let direction = if *ahead { Direction::Backward } else { Direction::Forward };
                let program = self.program(&inner, direction)?;
                self.looks.push((direction, program));
                Node::Table { table: self.looks.len() - 1, negated: *negated }
            }
            Node::Class(_) | Node::Start | Node::End | Node::Word { .. } | Node::Table { .. } => node.clone(),
        })
    }

    fn all_resolved(&mut self, nodes: &[Node]) -> Result<Vec<Node>, PatternFault> {
        nodes.iter().map(|node| self.resolved(node)).collect()
    }

    fn program(&mut self, node: &Node, direction: Direction) -> Result<Vec<Instruction>, PatternFault> {
        let mut program = Vec::new();
        self.write(node, direction, &mut program)?;
        self.push(&mut program, Instruction::Match)?;
        Ok(program)
    }

    fn push(&mut self, program: &mut Vec<Instruction>, instruction: Instruction) -> Result<usize, PatternFault> {
        self.instructions += 1;
        if self.instructions > INSTRUCTIONS_MAX {
            return Err(PatternFault::TooLarge);
        }
        program.push(instruction);
        Ok(program.len() - 1)
    }

    // Recursion is as deep as the pattern is nested, which the parser bounds.
    fn write(&mut self, node: &Node, direction: Direction, program: &mut Vec<Instruction>) -> Result<(), PatternFault> {
        match node {
            Node::Class(class) => {
                self.push(program, Instruction::Class(CharSet::of(class)))?;
            }
            Node::Start => {
                self.push(program, Instruction::Start)?;
            }
            Node::End => {
                self.push(program, Instruction::End)?;
            }
            Node::Word { negated } => {
                self.push(program, Instruction::Word { negated: *negated })?;
            }
            Node::Concat(parts) => match direction {
                Direction::Forward => parts.iter().try_for_each(|part| self.write(part, direction, program))?,
                Direction::Backward => parts.iter().rev().try_for_each(|part| self.write(part, direction, program))?,
            },
            Node::Either(branches) => self.either(branches, direction, program)?,
            Node::Repeat { node, min, max } => self.repeat(node, *min, *max, direction, program)?,
            Node::Table { table, negated } => {
                self.push(program, Instruction::Look { table: *table, negated: *negated })?;
            }
            // `resolved` has left none.
            Node::Look { .. } => return Err(PatternFault::Syntax),
        }
        Ok(())
    }

    fn either(
        &mut self,
        branches: &[Node],
        direction: Direction,
        program: &mut Vec<Instruction>,
    ) -> Result<(), PatternFault> {
        let mut exits = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            if index + 1 == branches.len() {
                self.write(branch, direction, program)?;
                break;
            }
            let split = self.push(program, Instruction::Jump(0))?;
            self.write(branch, direction, program)?;
            exits.push(self.push(program, Instruction::Jump(0))?);
            let end = program.len();
            set(program, split, Instruction::Split(split + 1, end));
        }
        let end = program.len();
        for exit in exits {
            set(program, exit, Instruction::Jump(end));
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        node: &Node,
        min: u32,
        max: Option<u32>,
        direction: Direction,
        program: &mut Vec<Instruction>,
    ) -> Result<(), PatternFault> {
        for _ in 0..min {
            self.write(node, direction, program)?;
        }
        let Some(max) = max else {
            let split = self.push(program, Instruction::Jump(0))?;
            self.write(node, direction, program)?;
            self.push(program, Instruction::Jump(split))?;
            let end = program.len();
            set(program, split, Instruction::Split(split + 1, end));
            return Ok(());
        };
        let mut exits = Vec::new();
        for _ in min..max {
            exits.push(self.push(program, Instruction::Jump(0))?);
            self.write(node, direction, program)?;
        }
        let end = program.len();
        for exit in exits {
            set(program, exit, Instruction::Split(exit + 1, end));
        }
        Ok(())
    }
}

fn set(program: &mut [Instruction], at: usize, instruction: Instruction) {
    if let Some(place) = program.get_mut(at) {
        *place = instruction;
    }
}

// ---------------------------------------------------------------------------------------------------------- Run

struct Run<'t> {
    letters: &'t [char],
    tables: Vec<Vec<bool>>,
    steps_left: u64,
}

/// The threads at one position: each instruction at most once.
struct Threads {
    /// The round in which an instruction was last added.
    added: Vec<u32>,
    round: u32,
    stack: Vec<usize>,
    /// Instructions that wait for a letter.
    waiting: Vec<usize>,
}

impl Run<'_> {
    /// Tells `found` every position where the automaton comes to its end, until it says that this is enough.
    fn sweep(
        &mut self,
        program: &[Instruction],
        direction: Direction,
        mut found: impl FnMut(usize) -> bool,
    ) -> Result<(), StepLimit> {
        let mut threads = Threads { added: vec![0; program.len()], round: 0, stack: Vec::new(), waiting: Vec::new() };
        let mut next: Vec<usize> = Vec::new();
        let length = self.letters.len();
        for step in 0..=length {
            let position = if direction == Direction::Forward { step } else { length - step };
            threads.round += 1;
            threads.waiting.clear();
            threads.stack.clear();
            threads.stack.push(0);
            threads.stack.append(&mut next);
            if self.follow(program, &mut threads, position)? && found(position) {
                return Ok(());
            }
            let read = match direction {
                Direction::Forward => self.letters.get(position),
                Direction::Backward => position.checked_sub(1).and_then(|before| self.letters.get(before)),
            };
            let Some(letter) = read else { continue };
            next.extend(threads.waiting.iter().copied().filter_map(|at| match program.get(at) {
                Some(Instruction::Class(set)) if set.contains(*letter) => Some(at + 1),
                _ => None,
            }));
        }
        Ok(())
    }

    /// Follows all threads until they wait for a letter; whether one of them came to the end.
    fn follow(&mut self, program: &[Instruction], threads: &mut Threads, position: usize) -> Result<bool, StepLimit> {
        let mut ended = false;
        while let Some(at) = threads.stack.pop() {
            let (Some(added), Some(instruction)) = (threads.added.get_mut(at), program.get(at)) else { continue };
            if std::mem::replace(added, threads.round) == threads.round {
                continue;
            }
            self.steps_left = self.steps_left.checked_sub(1).ok_or(StepLimit)?;
            let goes_on = match instruction {
                Instruction::Class(_) => {
                    threads.waiting.push(at);
                    false
                }
                Instruction::Jump(to) => {
                    threads.stack.push(*to);
                    false
                }
                Instruction::Split(one, other) => {
                    threads.stack.extend([*one, *other]);
                    false
                }
                Instruction::Match => {
                    ended = true;
                    false
                }
                Instruction::Start => position == 0,
                Instruction::End => position == self.letters.len(),
                Instruction::Word { negated } => self.is_word_edge(position) != *negated,
                Instruction::Look { table, negated } => {
                    let holds = self.tables.get(*table).and_then(|table| table.get(position)).copied();
                    holds.unwrap_or(false) != *negated
                }
            };
            if goes_on {
                threads.stack.push(at + 1);
            }
        }
        Ok(ended)
    }

    fn is_word_edge(&self, position: usize) -> bool {
        let is_word = |at: Option<usize>| {
            let letter = at.and_then(|at| self.letters.get(at));
            letter.is_some_and(|letter| WORD.iter().any(|(from, to)| (from..=to).contains(&letter)))
        };
        is_word(position.checked_sub(1)) != is_word(Some(position))
    }
}
