//! `gantry completions`: what a shell needs to complete commands and flags.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell;

use crate::arguments::GantryArguments;
use crate::context::CommandContext;

/// Print a completion script for a shell
///
/// bash: gantry completions bash > ~/.local/share/bash-completion/completions/gantry
/// zsh:  gantry completions zsh > "${fpath[1]}/_gantry"
/// fish: gantry completions fish > ~/.config/fish/completions/gantry.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsCommand {
    #[arg(value_enum)]
    shell: KnownShell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionsCommand {
    pub(crate) fn run(self, context: &CommandContext) {
        context.printer.raw(&script(self.shell));
    }
}

fn script(shell: KnownShell) -> String {
    let shell = match shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut GantryArguments::command(), "gantry", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in [KnownShell::Bash, KnownShell::Zsh, KnownShell::Fish] {
            let script = script(shell);
            assert!(["serve", "call", "doctor"].iter().all(|word| script.contains(word)), "{shell:?}");
        }
    }
}
