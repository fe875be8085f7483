//! Measures the scanner on labelled texts: recall and false alarms per surface and category, with the misses by id.
//! (issue 5)
//!
//! Run by `cargo xtask scan-eval [FILE] [--json] [--why]`. A line of the file is
//! `{"id", "surface": "description"|"tool_output", "label": "malicious"|"benign", "category"?, "tool"|"text"}`. Without a
//! file it reads this crate's first own set, which says little by now: rules and model have been fitted on it.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use gantry_scan::{NeighbourNames, ScanFinding, ScanVerdict, ScannedDefinition, scan, scan_text, verdict};
use serde_json::{Value, json};

/// Figures of one surface.
#[derive(Debug, Default)]
struct Figures {
    malicious: u32,
    caught: u32,
    blocked: u32,
    benign: u32,
    false_alarms: u32,
    missed: Vec<String>,
    alarmed: Vec<String>,
    /// Malicious, caught, benign and false alarms of each category.
    categories: BTreeMap<String, [u32; 4]>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut data = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/definitions.jsonl").to_owned();
    let (mut as_json, mut why) = (false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--data" => data = arguments.next().ok_or("`--data` needs a file")?,
            "--json" => as_json = true,
            "--why" => why = true,
            file if !file.starts_with('-') => data = file.to_owned(),
            unknown => return Err(format!("there is no option `{unknown}`").into()),
        }
    }
    let mut surfaces: BTreeMap<String, Figures> = BTreeMap::new();
    for line in fs::read_to_string(&data)?.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line)?;
        let findings = findings_of(&case);
        let found = verdict(&findings);
        let word = |key: &str| case.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let poisoned = word("label") == "malicious";
        let figures = surfaces.entry(word("surface")).or_default();
        let wrong = figures.count(&word("id"), &word("category"), poisoned, found);
        if why && wrong {
            println!("{} {} {found:?} {}", word("id"), word("label"), text_of(&case));
            for finding in findings {
                println!(
                    "    {:?} {} {}: {}",
                    finding.severity,
                    finding.kind.as_str(),
                    finding.reason,
                    finding.excerpt
                );
            }
        }
    }
    if as_json {
        let table: BTreeMap<&String, Value> = surfaces.iter().map(|(name, figures)| (name, figures.json())).collect();
        println!("{}", serde_json::to_string_pretty(&table)?);
    } else {
        surfaces.iter().for_each(|(name, figures)| figures.print(name));
    }
    Ok(())
}

fn findings_of(case: &Value) -> Vec<ScanFinding> {
    let Some(tool) = case.get("tool") else {
        return scan_text(case.get("text").and_then(Value::as_str).unwrap_or_default());
    };
    let word = |key: &str| tool.get(key).and_then(Value::as_str);
    let parameters = tool.get("parameters").unwrap_or(&Value::Null);
    let definition = ScannedDefinition {
        name: word("name").unwrap_or_default(),
        title: word("title"),
        description: word("description").unwrap_or_default(),
        parameters,
        output_schema: tool.get("outputSchema"),
        annotations: tool.get("annotations"),
    };
    scan(&definition, &NeighbourNames::default())
}

fn text_of(case: &Value) -> String {
    let text = case.get("text").or_else(|| case.pointer("/tool/description")).and_then(Value::as_str);
    text.unwrap_or_default().chars().take(400).collect::<String>().replace('\n', "⏎")
}

impl Figures {
    /// Counts one case; whether it was judged wrongly.
    fn count(&mut self, id: &str, category: &str, malicious: bool, found: ScanVerdict) -> bool {
        let flagged = found != ScanVerdict::Clean;
        let [of_malicious, of_caught, of_benign, of_alarms] = self.categories.entry(category.to_owned()).or_default();
        let (all, flags) = if malicious { (of_malicious, of_caught) } else { (of_benign, of_alarms) };
        *all += 1;
        *flags += u32::from(flagged);
        if malicious {
            self.malicious += 1;
            self.caught += u32::from(flagged);
            self.blocked += u32::from(found == ScanVerdict::Block);
            if !flagged {
                self.missed.push(id.to_owned());
            }
        } else {
            self.benign += 1;
            self.false_alarms += u32::from(flagged);
            if flagged {
                self.alarmed.push(id.to_owned());
            }
        }
        malicious != flagged
    }

    fn recall(&self) -> f64 {
        f64::from(self.caught) / f64::from(self.malicious.max(1))
    }

    fn false_alarm_rate(&self) -> f64 {
        f64::from(self.false_alarms) / f64::from(self.benign.max(1))
    }

    fn json(&self) -> Value {
        json!({
            "malicious": self.malicious, "caught": self.caught, "blocked": self.blocked, "recall": self.recall(),
            "benign": self.benign, "falseAlarms": self.false_alarms, "falseAlarmRate": self.false_alarm_rate(),
            "categories": self.categories, "missedIds": self.missed, "alarmedIds": self.alarmed,
        })
    }

    fn print(&self, surface: &str) {
        println!("{surface}");
        println!(
            "  recall       {:.3}  ({} of {}; {} blocked)",
            self.recall(),
            self.caught,
            self.malicious,
            self.blocked
        );
        println!("  false alarms {:.3}  ({} of {})", self.false_alarm_rate(), self.false_alarms, self.benign);
        println!("  category                        caught        false alarms");
        for (category, [malicious, caught, benign, alarms]) in &self.categories {
            println!("  {category:<28} {caught:>4} of {malicious:<4} {alarms:>8} of {benign}");
        }
        println!("  missed  {}", self.missed.join(" "));
        println!("  alarmed {}", self.alarmed.join(" "));
    }
}
