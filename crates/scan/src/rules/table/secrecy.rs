//! Rules about keeping something from the user.

use super::{DEFINITION, OUTPUT};
use crate::FindingKind::{Concealment, InstructionToModel};
use crate::lexicon::WordMark::*;
use crate::rules::{ScanRule, rule};

/// The rules.
pub(super) const RULES: &[ScanRule] = &[
    // Keeping something from the user.
    rule("conceal", Concealment, 12, 6, &[&[NegTell], &[User]], "tells the model to keep something from the user")
        .only(DEFINITION),
    rule("conceal", Concealment, 12, 6, &[&[NegTell], &[EndUser]], "tells the model to keep something from the user")
        .only(OUTPUT),
    rule("conceal", Concealment, 5, 7, &[&[NegShow], &[User]], "something is not to be shown to the user"),
    rule("conceal", Concealment, 4, 0, &[&[NegTell]], "something is not to be told").only(DEFINITION),
    rule("conceal", Concealment, 9, 0, &[&[Covert]], "asks for something to be done in secret"),
    rule("conceal", Concealment, 7, 4, &[&[Silent], &[Send, Read, Pass, Invoke]], "an action is to happen silently")
        .only(DEFINITION),
    rule("conceal", Concealment, 7, 2, &[&[Send, Hand], &[Silent]], "something is sent silently").only(DEFINITION),
    rule("conceal", Concealment, 9, 0, &[&[ConcealPhrase]], "speaks of what the user shall not notice")
        .only(DEFINITION),
    rule("conceal", Concealment, 7, 0, &[&[ConcealPhrase]], "speaks of what the user shall not notice").only(OUTPUT),
    rule("no-ask", InstructionToModel, 4, 0, &[&[NoAsk]], "asks to act without the user's consent").affirmative(),
    rule(
        "no-ask",
        InstructionToModel,
        8,
        6,
        &[&[Modal, Model, Trusted], &[NoAsk]],
        "asks to act without the user's consent",
    )
    .affirmative(),
    rule("offstage", Concealment, 5, 0, &[&[OffStage]], "something is to stay out of sight").only(DEFINITION),
    rule(
        "offstage",
        Concealment,
        9,
        8,
        &[&[OffStage], &[Neg, OffStage, Stage, User]],
        "something is to stay out of sight",
    )
    .only(DEFINITION),
    rule("offstage", Concealment, 8, 8, &[&[Neg], &[OffStage]], "something is to stay out of sight").only(DEFINITION),
    rule("offstage", Concealment, 8, 8, &[&[When, User], &[OffStage]], "something is to stay out of sight")
        .only(DEFINITION),
];
