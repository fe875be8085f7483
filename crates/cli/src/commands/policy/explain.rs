//! `gantry policy explain`: what would become of this call, and why? Nothing is run and nothing is spent.

use clap::Args;
use serde_json::Value;

use crate::commands::CommandOutcome;
use crate::commands::call::WhatToCall;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle, visible};

/// Say whether a call would be allowed for the token that is shown, and why; nothing is run
///
/// Exit code 1 if it would be refused.
///
/// GANTRY_TOKEN=$AGENT gantry policy explain billing.refund order=4711 amount=250
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_version_flag = true)]
pub(crate) struct PolicyExplainCommand {
    #[command(flatten)]
    what: WhatToCall,
}

impl PolicyExplainCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let client = context.client()?;
        let request = self.what.request(&client).await?;
        let answer = client.post("/v1/tools/explain", &request).await?;
        context.printer.answer(&answer, |printer| page(printer, &answer));
        let allowed = answer.get("allowed") == Some(&Value::Bool(true));
        Ok(if allowed { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}

fn page(printer: &Printer, answer: &Value) -> String {
    let text = |name: &str| visible(answer.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
    let list = |name: &str| {
        let items = answer.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        visible(&items.collect::<Vec<_>>().join(", ")).into_owned()
    };
    let allowed = answer.get("allowed") == Some(&Value::Bool(true));
    let mut lines = vec![if allowed {
        printer.style("allowed", TextStyle::Green)
    } else {
        format!("{} {}: {}", printer.style("refused", TextStyle::Red), text("code"), text("message"))
    }];
    for (title, value) in
        [("policies", list("policies")), ("obligations", list("obligations")), ("hint", text("resolution"))]
    {
        if !value.is_empty() {
            lines.push(format!("{title:<11}  {value}"));
        }
    }
    if let Some(estimate) =
        answer.get("estimate").filter(|estimate| estimate.get("confidence") != Some(&"unknown".into()))
    {
        let text = |name: &str| visible(estimate.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned();
        let words = format!("{} {} ({})", text("estimated_cost"), text("currency"), text("confidence"));
        lines.push(format!("{:<11}  {words}", "cost"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::PrinterOptions;
    use serde_json::json;

    #[test]
    fn a_refusal_is_told_with_its_policies_and_what_to_do() {
        let printer = Printer::new(PrinterOptions { no_color: true, ..PrinterOptions::default() });
        let refused = json!({
            "allowed": false, "code": "E3206", "message": "forbidden by `no-refunds-at-night`",
            "policies": ["no-refunds-at-night"], "obligations": [], "resolution": "come back in the morning",
        });
        assert_eq!(
            page(&printer, &refused),
            "refused E3206: forbidden by `no-refunds-at-night`\npolicies     no-refunds-at-night\nhint         come back in the morning"
        );
        let estimate = json!({ "estimated_cost": "0.012", "currency": "EUR", "confidence": "estimate" });
        let allowed =
            json!({ "allowed": true, "policies": ["a", "b"], "obligations": ["redact=email"], "estimate": estimate });
        assert_eq!(
            page(&printer, &allowed),
            "allowed\npolicies     a, b\nobligations  redact=email\ncost         0.012 EUR (estimate)"
        );
    }
}
