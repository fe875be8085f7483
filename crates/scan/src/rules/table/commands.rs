//! Rules about commands and safeguards.

use super::{DEFINITION, DESTINATION, OUTPUT};
use crate::FindingKind::DangerousCommand;
use crate::lexicon::WordMark::*;
use crate::rules::{ScanRule, rule};

/// The rules.
pub(super) const RULES: &[ScanRule] = &[
    // Commands.
    rule(
        "command",
        DangerousCommand,
        8,
        6,
        &[&[Modal, When, Before, AsAlso, Pass, Model, EveryTool, Invoke], &[Command]],
        "asks for a dangerous command",
    )
    .affirmative()
    .only(DEFINITION),
    rule("command", DangerousCommand, 5, 4, &[&[Modal, Before, AsAlso, Model], &[CommandLoose]], "asks for a command")
        .affirmative()
        .only(DEFINITION),
    rule("command", DangerousCommand, 8, 6, &[&[Command], &[EveryTool, Before]], "asks for a dangerous command")
        .only(DEFINITION),
    rule("command", DangerousCommand, 3, 0, &[&[Command]], "names a dangerous command").only(DEFINITION),
    rule("command", DangerousCommand, 9, 10, &[&[Download], &[Url, Host], &[Shell]], "downloads and runs code"),
    rule("command", DangerousCommand, 7, 6, &[&[Pass], &[SecretPath]], "writes where a system keeps its keys")
        .affirmative()
        .only(DEFINITION),
    rule("command", DangerousCommand, 8, 6, &[&[Modal, Invoke], &[Command]], "asks for a dangerous command")
        .only(OUTPUT),
    rule("safeguard", DangerousCommand, 6, 4, &[&[SwitchOff], &[Safeguard]], "switches a safeguard off")
        .affirmative()
        .only(DEFINITION),
    rule("safeguard", DangerousCommand, 5, 5, &[&[SwitchOn], &[Opening]], "opens a door")
        .affirmative()
        .only(DEFINITION),
    rule("grave", DangerousCommand, 5, 0, &[&[Grave]], "names a dangerous change").affirmative().only(DEFINITION),
    rule(
        "grave",
        DangerousCommand,
        8,
        8,
        &[&[Modal, Must, Before, When, Invoke, Tamper], &[Grave]],
        "asks for a dangerous change",
    )
    .affirmative()
    .only(DEFINITION),
    rule("grave", DangerousCommand, 8, 8, &[&[Grave], &[Before, Must, AsAlso]], "asks for a dangerous change")
        .only(DEFINITION),
    rule(
        "grave",
        DangerousCommand,
        8,
        8,
        &[&[Tamper], &[SecretPath], DESTINATION],
        "replaces a file that a system trusts",
    )
    .affirmative()
    .only(DEFINITION),
];
