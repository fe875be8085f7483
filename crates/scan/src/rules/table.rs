//! The table of rules: family, kind, weight, largest gap, slots, reason. Order has no meaning; families do.

mod commands;
mod data;
mod orders;
mod secrecy;
mod tools;

use super::{RuleScope, ScanRule};
use crate::lexicon::WordMark::{self, *};

/// Any distance within the sentence.
const ANYWHERE: usize = usize::MAX / 2;
const DEFINITION: RuleScope = RuleScope::Definition;
const OUTPUT: RuleScope = RuleScope::Output;

const TOOL: &[WordMark] = &[Foreign, Identifier, SecretIdentifier];
const ANY_TOOL: &[WordMark] = &[Foreign, Identifier, SecretIdentifier, Sibling, EveryTool];
const DESTINATION: &[WordMark] = &[Url, Email, Host, Account];
const SECRET: &[WordMark] = &[Secret, SecretPath, SecretIdentifier];
const GIVE: &[WordMark] = &[Pass, Send, Hand];
const ARGUMENT: &[WordMark] = &[Slot, Quoted, Parameter];
const ACT: &[WordMark] = &[Read, Send, Pass, Invoke, Tamper];

/// All rules, by what they are about.
const TABLES: &[&[ScanRule]] = &[secrecy::RULES, orders::RULES, data::RULES, tools::RULES, commands::RULES];

/// All rules.
pub(crate) fn rules() -> impl Iterator<Item = &'static ScanRule> {
    TABLES.iter().copied().flatten()
}
