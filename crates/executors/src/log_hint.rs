//! Where what a tool wrote is found, with the name of the tool: a failure is made where nobody knows it, and is told by whoever ran
//! the call.

use ports::executor::ExecutorError;

use contract::ids::ToolId;

/// The command, as failures name it.
const COMMAND: &str = "`gantry tool logs`";

/// The same failure, with the tool in the command that shows its log.
pub(crate) fn naming(tool: &ToolId) -> impl FnOnce(ExecutorError) -> ExecutorError + '_ {
    move |mut error| {
        if let Some(hint) = &mut error.refusal.hint {
            *hint = hint.replace(COMMAND, &format!("`gantry tool logs {tool}`"));
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use contract::error::{ErrorCode, Refusal};

    use super::*;

    #[test]
    fn the_command_that_shows_a_log_names_the_tool() {
        let tool: ToolId = "demo.word_count".parse().unwrap();
        let hinted = |hint: &str| ExecutorError::answered(Refusal::new(ErrorCode::E3401, "it failed").hint(hint));
        let hint = naming(&tool)(hinted(crate::process::output::STDERR_HINT)).refusal.hint.unwrap();
        assert!(hint.starts_with("`gantry tool logs demo.word_count` shows"), "{hint}");
        assert_eq!(naming(&tool)(hinted("wait")).refusal.hint.as_deref(), Some("wait"));
    }
}
