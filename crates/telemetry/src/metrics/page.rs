//! The page of metrics in the form that is asked for.
//!
//! OpenMetrics is what Prometheus asks for; it alone carries exemplars. The older text format is for everything else. Both
//! say the same: the older one is made from the newer, line by line, so that they cannot differ.

/// How the page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Text,
}

impl MetricsFormat {
    /// What an `accept` header asks for.
    pub fn asked(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A page from lines of OpenMetrics without their end.
    pub fn page(self, lines: String) -> String {
        match self {
            Self::OpenMetrics => lines + "# EOF\n",
            Self::Text => older(&lines),
        }
    }
}

/// In the older format the name of a counter has its `_total` everywhere, and there are neither units nor exemplars.
fn older(lines: &str) -> String {
    let mut page = String::with_capacity(lines.len());
    let mut help: Option<(&str, &str)> = None;
    for line in lines.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take() {
                page.extend(["# HELP ", name, suffix, " ", text, "\n"]);
            }
            page.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            page.extend([line.split_once(" # {").map_or(line, |(sample, _)| sample), "\n"]);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_says_the_same_in_its_own_words() {
        let lines = "# HELP calls Calls.\n# TYPE calls counter\ncalls_total{a=\"x # y\"} 1\n\
                     # HELP took_seconds Time.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                     took_seconds_bucket{le=\"1.0\"} 1 # {trace_id=\"ab\"} 0.5\n";
        let expected = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{a=\"x # y\"} 1\n\
                        # HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
                        took_seconds_bucket{le=\"1.0\"} 1\n";
        assert_eq!(MetricsFormat::asked(Some("text/plain")).page(lines.to_owned()), expected);
        let prometheus = Some("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5");
        assert_eq!(MetricsFormat::asked(prometheus).page(lines.to_owned()), format!("{lines}# EOF\n"));
    }
}
