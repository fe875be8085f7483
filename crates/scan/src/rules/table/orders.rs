//! Rules about orders to the model: setting its rules aside, speaking to it, prescribing its answers.

use super::{ACT, ANYWHERE, DEFINITION, OUTPUT};
use crate::FindingKind::InstructionToModel;
use crate::lexicon::WordMark::*;
use crate::rules::{ScanRule, rule};

/// The rules.
pub(super) const RULES: &[ScanRule] = &[
    // Overriding what the model was told.
    rule(
        "override",
        InstructionToModel,
        12,
        2,
        &[&[Dismiss, NotFollow], &[Prior], &[Rules]],
        "tells the model to set its instructions aside",
    ),
    rule("override", InstructionToModel, 10, 0, &[&[IgnoreYours]], "tells the model to set its instructions aside"),
    rule(
        "override",
        InstructionToModel,
        8,
        1,
        &[&[Dismiss], &[PriorLoose], &[Rules]],
        "tells the model to set its instructions aside",
    ),
    rule("override", InstructionToModel, 3, 3, &[&[Dismiss], &[Rules]], "sets rules aside"),
    rule("override", InstructionToModel, 8, 3, &[&[Rules], &[Void]], "declares rules void").only(DEFINITION),
    rule("override", InstructionToModel, 8, 6, &[&[Rules], &[Precedence, Dismiss]], "puts its own rules above others"),
    rule("persona", InstructionToModel, 8, 0, &[&[Persona]], "gives the model a new task or role"),
    rule("trusted", InstructionToModel, 5, 0, &[&[Trusted]], "asks to follow what comes from elsewhere").affirmative(),
    // Speaking to the model.
    rule("model", InstructionToModel, 7, 0, &[&[NoteToModel]], "addresses the model, not a person").only(DEFINITION),
    rule("model", InstructionToModel, 8, 0, &[&[NoteToModel]], "addresses the model, not a person").only(OUTPUT),
    rule("model", InstructionToModel, 5, 3, &[&[Model], &[Modal]], "tells the model what it has to do"),
    rule(
        "model",
        InstructionToModel,
        4,
        2,
        &[&[Model], &[Send, Pass, Read, Tamper]],
        "tells the model what it has to do",
    ),
    rule(
        "regardless",
        InstructionToModel,
        3,
        8,
        &[&[Modal, Say, Choose], &[Regardless]],
        "something is prescribed in every case",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "regardless",
        InstructionToModel,
        8,
        8,
        &[&[Modal, Say, Choose], &[Regardless], &[Asked]],
        "an answer is prescribed whatever was asked",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "regardless",
        InstructionToModel,
        8,
        8,
        &[&[Regardless], &[Asked], &[Modal, Say]],
        "an answer is prescribed whatever was asked",
    )
    .only(DEFINITION),
    rule("regardless", InstructionToModel, 8, ANYWHERE, &[&[Regardless], &[Account]], "a fixed value is prescribed")
        .only(DEFINITION),
    rule("regardless", InstructionToModel, 8, 0, &[&[Prescribe]], "an answer is prescribed").only(DEFINITION),
    rule("lie", InstructionToModel, 6, 0, &[&[Lie]], "puts words into the model's mouth").only(DEFINITION),
    // Small things that add up.
    rule("justify", InstructionToModel, 2, ANYWHERE, &[&[Justify], &[Modal, Before]], "gives a reason of authority")
        .only(DEFINITION),
    rule(
        "justify",
        InstructionToModel,
        2,
        ANYWHERE,
        &[&[Modal, Before, Read, Pass], &[Justify]],
        "gives a reason of authority",
    )
    .only(DEFINITION),
    rule("urgent", InstructionToModel, 3, 6, &[&[Modal], &[Urgent]], "presses for time").only(DEFINITION),
    rule("urgent", InstructionToModel, 3, 8, &[&[Urgent], &[Modal]], "presses for time").only(DEFINITION),
    rule("threat", InstructionToModel, 2, 0, &[&[Threat]], "threatens with failure").only(DEFINITION),
    rule(
        "sleeper",
        InstructionToModel,
        6,
        0,
        &[&[Sleeper]],
        "acts on a condition that has nothing to do with the tool",
    )
    .only(DEFINITION),
    rule("also", InstructionToModel, 1, 6, &[&[AsAlso], ACT], "does something besides").only(DEFINITION),
    // What was returned.
    rule("reply", InstructionToModel, 8, 5, &[&[ReplyVerb], &[Reply]], "prescribes the answer").only(OUTPUT),
    rule("reply", InstructionToModel, 8, 3, &[&[Reply], &[ReplyVerb]], "prescribes the answer").only(OUTPUT),
    rule("task", InstructionToModel, 8, 0, &[&[TaskFor]], "gives the model a task").only(OUTPUT),
    rule("stage", InstructionToModel, 5, 6, &[&[Stage], &[Must], &[Neg, Hold]], "prescribes the answer")
        .only(DEFINITION),
    rule("stage", InstructionToModel, 7, 4, &[&[Say, Stage], &[EveryTool]], "prescribes every answer")
        .affirmative()
        .only(DEFINITION),
    rule("rank", InstructionToModel, 6, 0, &[&[Rank]], "claims authority").affirmative().only(DEFINITION),
    rule("rank", InstructionToModel, 9, 10, &[&[Rank, Trusted], &[Rank, Prompt, EveryTool]], "claims authority")
        .affirmative()
        .only(DEFINITION),
];
