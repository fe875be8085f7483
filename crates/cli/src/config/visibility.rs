//! `[visibility]`: what agents may use where no activation says otherwise. (VIS-004, DESIGN §8.7)

use policy::VisibilityDefault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// What agents may use where no activation says otherwise.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.1"))]
pub(crate) struct VisibilityKeys {
    /// What agents may use without an activation: `enabled` everything their token names, `read_only` only tools that
    /// change nothing, `disabled` nothing. A tenant may have its own (`gantry tenant set --visibility`).
    #[schemars(extend("x-unset" = "`enabled` in the home tenant `local`, `read_only` elsewhere"))]
    pub(super) default: Option<VisibilityChoice>,
}

/// In the order of the reference page: that of the type is from nothing to everything.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VisibilityChoice {
    Enabled,
    ReadOnly,
    Disabled,
}

impl ConfigSection for VisibilityKeys {
    const NAME: &'static str = "visibility";
    type Checked = Option<VisibilityDefault>;

    fn checked(self, _: &mut SectionProblems<'_>) -> Option<VisibilityDefault> {
        self.default.map(|choice| match choice {
            VisibilityChoice::Enabled => VisibilityDefault::Enabled,
            VisibilityChoice::ReadOnly => VisibilityDefault::ReadOnly,
            VisibilityChoice::Disabled => VisibilityDefault::Disabled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::KeyKind;
    use super::super::section_tests::of_variables;
    use super::super::settings::find;
    use super::*;

    #[test]
    fn every_choice_means_something() {
        let KeyKind::Choice(words) = &find("visibility", "default").unwrap().kind else { panic!("a choice") };
        assert_eq!(words, &["enabled", "read_only", "disabled"]);
        for word in words {
            let (read, problems) = of_variables::<VisibilityKeys>(&[("DEFAULT", word.as_str())]);
            assert_eq!((serde_json::to_value(read.unwrap()).unwrap(), problems.len()), (word.as_str().into(), 0));
        }
        assert_eq!(of_variables::<VisibilityKeys>(&[]).0, None);
    }
}
