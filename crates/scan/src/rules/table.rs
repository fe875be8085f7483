//! The table of rules: family, kind, weight, largest gap, slots, reason. Order has no meaning; families do.

mod commands;
mod data;
mod orders;
mod secrecy;
mod tools;

use super::{Rule, Scope};
use crate::lexicon::Mark::{self, *};

/// Any distance within the sentence.
const ANYWHERE: usize = usize::MAX / 2;
const DEFINITION: Scope = Scope::Definition;
const OUTPUT: Scope = Scope::Output;

const TOOL: &[Mark] = &[Foreign, Identifier, SecretIdentifier];
const ANY_TOOL: &[Mark] = &[Foreign, Identifier, SecretIdentifier, Sibling, EveryTool];
const DESTINATION: &[Mark] = &[Url, Email, Host, Account];
const SECRET: &[Mark] = &[Secret, SecretPath, SecretIdentifier];
const GIVE: &[Mark] = &[Pass, Send, Hand];
const ARGUMENT: &[Mark] = &[Slot, Quoted, Parameter];
const ACT: &[Mark] = &[Read, Send, Pass, Invoke, Tamper];

/// All rules, by what they are about.
const TABLES: &[&[Rule]] = &[secrecy::RULES, orders::RULES, data::RULES, tools::RULES, commands::RULES];

/// All rules.
pub(crate) fn rules() -> impl Iterator<Item = &'static Rule> {
    TABLES.iter().copied().flatten()
}
