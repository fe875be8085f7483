//! Rules about other tools, and being chosen before them.

use super::{ANY_TOOL, DEFINITION, DESTINATION, TOOL};
use crate::FindingKind::{CrossToolReference, ToolPreference};
use crate::lexicon::WordMark::*;
use crate::rules::{ScanRule, rule};

/// The rules.
pub(super) const RULES: &[ScanRule] = &[
    // Other tools.
    rule("order", CrossToolReference, 4, 4, &[&[Before], &[EveryTool]], "wants to come before other tools")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        6,
        10,
        &[&[Before, When], &[EveryTool], &[Modal], &[Read, Send, Pass, Tamper]],
        "adds a step to the use of other tools",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[Before, When], &[EveryTool], TOOL, &[Modal, Invoke]],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[Before, When], &[EveryTool], &[Modal], &[Invoke], TOOL],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[EveryTool], &[Modal], &[Before], TOOL],
        "makes the model call another tool at every use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        5,
        &[&[EveryTool], &[Modal], &[Send, Tamper, Hand]],
        "rules over the use of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        8,
        &[&[When], &[User], &[Invoke], &[Before], &[Read, Invoke, Pass]],
        "adds a step to what the user asks for",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        3,
        6,
        &[&[Before], &[Invoke], &[Read, Send, Pass]],
        "adds a step before its own use",
    )
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        5,
        8,
        &[&[When, Before], TOOL, &[Before, AsAlso], TOOL],
        "orders calls of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[When], ANY_TOOL, &[Invoke], &[Tamper, Argument, Send]],
        "changes what other tools do",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 6, 6, &[&[When], TOOL, &[Invoke], &[Modal]], "changes what other tools do")
        .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[Tamper], &[Argument, Slot], ANY_TOOL],
        "changes the arguments of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[ANY_TOOL, &[Tamper], &[Argument, Prompt]],
        "changes the arguments of other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        6,
        &[&[Argument, Slot], ANY_TOOL, &[Tamper]],
        "changes the arguments of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[ANY_TOOL, &[Modal, Tamper], DESTINATION],
        "sends the data of other tools elsewhere",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 7, 4, &[ANY_TOOL, &[Modal], &[Tamper]], "changes what other tools do")
        .affirmative()
        .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[&[ToolWord], &[Modal, Tamper], &[Argument, Slot, Quoted, Tamper], DESTINATION],
        "changes the arguments of other tools",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        6,
        8,
        &[&[Tamper], &[Argument], DESTINATION],
        "puts a fixed value into an argument",
    )
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        7,
        8,
        &[&[Argument], &[Tamper], DESTINATION],
        "puts a fixed value into an argument",
    )
    .only(DEFINITION),
    rule("shadow", CrossToolReference, 5, 10, &[&[Tamper], DESTINATION], "replaces something by what is elsewhere")
        .only(DEFINITION),
    rule("shadow", CrossToolReference, 2, 2, &[&[Tamper], &[Argument]], "changes an argument").only(DEFINITION),
    rule("presence", CrossToolReference, 7, 0, &[&[Presence]], "acts by being present, not by being called")
        .only(DEFINITION),
    rule("foreign", CrossToolReference, 2, 4, &[&[Modal], &[Invoke], TOOL], "requires another tool").only(DEFINITION),
    rule("foreign", CrossToolReference, 3, 4, &[TOOL, &[Modal], &[Invoke]], "requires another tool").only(DEFINITION),
    rule("foreign", CrossToolReference, 4, 4, &[&[AsAlso], &[Invoke], TOOL], "wants another tool called as well")
        .only(DEFINITION),
    // Being chosen.
    rule("prefer", ToolPreference, 6, 0, &[&[Choose]], "asks to be chosen").only(DEFINITION),
    rule("prefer", ToolPreference, 3, 0, &[&[ChooseLoose]], "asks to be used").only(DEFINITION),
    rule("praise", ToolPreference, 3, 0, &[&[Superlative]], "praises itself").only(DEFINITION),
    rule("praise", ToolPreference, 4, 0, &[&[Endorse]], "claims to be endorsed").only(DEFINITION),
    rule(
        "disparage",
        ToolPreference,
        6,
        6,
        &[&[OtherTool, EveryTool, Foreign, Identifier], &[Disparage]],
        "runs other tools down",
    )
    .only(DEFINITION),
    rule("disparage", ToolPreference, 4, 6, &[&[Disparage], &[OtherTool]], "runs others down").only(DEFINITION),
    rule("precedence", ToolPreference, 6, 0, &[&[Precedence]], "claims precedence").only(DEFINITION),
    // Broader forms of the above, each weaker.
    rule(
        "order",
        CrossToolReference,
        8,
        8,
        &[&[When, Before, Every, EveryTool], TOOL, &[Must], &[Mutate]],
        "makes other tools change things",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        8,
        10,
        &[&[When, Every], &[Must], &[Mutate], &[WithTool, Via]],
        "makes other tools change things",
    )
    .affirmative()
    .only(DEFINITION),
    rule("order", CrossToolReference, 8, 10, &[&[When], &[Mutate], &[WithTool]], "makes other tools change things")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 7, 5, &[&[Via], &[Must]], "prescribes what goes into another tool")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 7, 4, &[&[Every], TOOL, &[Must]], "prescribes what another tool does")
        .affirmative()
        .only(DEFINITION),
    rule("order", CrossToolReference, 8, 8, &[TOOL, &[Must], &[Before, When], TOOL], "orders calls of other tools")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        4,
        4,
        &[&[Before], &[Invoke], &[Modal], &[Invoke], TOOL],
        "wants another tool called first",
    )
    .only(DEFINITION),
    rule("order", CrossToolReference, 8, 8, &[&[Every], &[Must], TOOL, &[AsAlso]], "hands everything to another tool")
        .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        6,
        &[&[When, Every], TOOL, &[Must], &[Invoke]],
        "makes the model call another tool",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "order",
        CrossToolReference,
        7,
        8,
        &[&[When], TOOL, &[Before], &[Mutate, Tamper]],
        "adds a step before another tool",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        10,
        &[&[Every, EveryTool], &[Must], &[Mutate, Tamper], &[Argument, Money]],
        "changes what is given to other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule(
        "shadow",
        CrossToolReference,
        8,
        8,
        &[&[EveryTool], &[Must], &[Argument], &[Mutate]],
        "changes what is given to other tools",
    )
    .affirmative()
    .only(DEFINITION),
    rule("promo", ToolPreference, 2, 0, &[&[Promo]], "speaks of advertising").only(DEFINITION),
    rule("promo", ToolPreference, 8, 8, &[&[Stage, Say, EveryTool, When], &[Promo]], "makes the model advertise")
        .only(DEFINITION),
    rule("prefer", ToolPreference, 5, 0, &[&[Steer]], "steers the model away from other tools").only(DEFINITION),
    rule(
        "prefer",
        ToolPreference,
        8,
        10,
        &[&[Steer, EveryTool], &[Steer, EveryTool, Disparage, Own]],
        "steers the model away from other tools",
    )
    .only(DEFINITION),
];
