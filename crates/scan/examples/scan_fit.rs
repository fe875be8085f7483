//! Fits the scanner's model on labelled definitions, and measures it on definitions it was not fitted on. (issue 5)
//!
//! `cargo xtask scan-eval fit FILE… [--also FILE]… [--test FILE]… [--folds N [--families]] [--write]`. A line is as `scan_eval` says.
//! Files after `--also` are honest texts in bulk, which weigh less. With `--folds`, every line is judged by a model
//! that has not seen it, with `--families` by one that has seen nothing of its family (the `category` of a line). `--test` files are never fitted on.
//! `--write` writes `src/model/weights.txt`.
//!
//! Logistic regression, where a definition counts as its loudest window; Adagrad with a fixed order of steps and no
//! randomness, so that the same files give the same table.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]
#![expect(clippy::indexing_slicing, reason = "features are numbered by `Names`, and every table has a row for each")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;

use base::SaturatingFrom as _;
use gantry_scan::{ScannedDefinition, fit};
use serde_json::Value;

/// Passes over the definitions.
const PASSES: u32 = 24;
/// Length of a step.
const RATE: f64 = 0.05;
/// Pull of every weight towards nothing, per step that touches it.
const DECAY: f64 = 0.0004;
/// A feature of fewer definitions is not learned.
const SEEN_MIN: u32 = 3;
/// How much a wording feature is believed in comparison to an act.
const WORDING: f64 = 0.8;
/// How much a definition weighs: poisoned, honest, honest in bulk.
const IMPORTANCE: [f64; 3] = [4.0, 3.0, 1.0];
/// Weights below this are left out of the table.
const LEAST: i32 = 4;

/// One definition.
struct Case {
    id: String,
    family: String,
    poisoned: bool,
    bulk: bool,
    set: String,
    windows: Vec<Vec<u32>>,
    rules: u32,
    text: String,
}

/// What is measured.
#[derive(Default)]
struct Figures {
    poisoned: u32,
    caught: u32,
    honest: u32,
    alarms: u32,
    scores: Vec<(i32, bool)>,
}

/// Features by number.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    names: Vec<String>,
}

/// Weights by number of the feature.
struct Model {
    bias: f64,
    weights: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut names, mut cases, mut tests) = (Names::default(), Vec::new(), Vec::new());
    let (mut folds, mut families, mut write, mut why) = (0_usize, false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--also" => names.read(&arguments.next().ok_or("`--also` needs a file")?, true, &mut cases)?,
            "--test" => {
                let (file, mut read) = (arguments.next().ok_or("`--test` needs a file")?, Vec::new());
                names.read(&file, false, &mut read)?;
                tests.push((file, read));
            }
            "--folds" => folds = arguments.next().ok_or("`--folds` needs a number")?.parse()?,
            "--families" => families = true,
            "--write" => write = true,
            "--why" => why = true,
            file => names.read(file, false, &mut cases)?,
        }
    }
    println!("{} definitions, {} features", cases.len(), names.names.len());
    if folds > 1 {
        let mut together: BTreeMap<String, Figures> = BTreeMap::new();
        for fold in 0..folds {
            let (kept, judged): (Vec<&Case>, Vec<&Case>) =
                cases.iter().partition(|case| case.fold(folds, families) != fold);
            let model = names.fit(&kept);
            for case in judged {
                together.entry(case.set.clone()).or_default().count(case, &model, why);
            }
        }
        for (set, figures) in &together {
            figures.print(&format!("{set}, out of fold"));
        }
    }
    let all: Vec<&Case> = cases.iter().collect();
    let model = names.fit(&all);
    for (file, read) in &tests {
        let mut figures = Figures::default();
        read.iter().for_each(|case| figures.count(case, &model, why));
        figures.print(file);
    }
    if write {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/model/weights.txt");
        fs::write(path, names.table(&model))?;
    }
    Ok(())
}

impl Case {
    /// The fold of a line, or of its family; what follows a colon does not make another family.
    fn fold(&self, folds: usize, families: bool) -> usize {
        let stem = self.family.split(':').next().unwrap_or_default();
        // A family of honest texts would take whole subjects away; these are dealt by their id.
        let key = if self.poisoned && families { stem } else { &self.id };
        key.bytes().fold(7_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte))) % folds
    }
}

impl Names {
    fn read(&mut self, file: &str, bulk: bool, cases: &mut Vec<Case>) -> Result<(), Box<dyn Error>> {
        for line in fs::read_to_string(file)?.lines().filter(|line| !line.trim().is_empty()) {
            let value: Value = serde_json::from_str(line)?;
            let Some(tool) = value.get("tool") else { continue };
            let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let member = |key: &str| tool.get(key).and_then(Value::as_str);
            let definition = ScannedDefinition {
                name: member("name").unwrap_or_default(),
                title: member("title"),
                description: member("description").unwrap_or_default(),
                parameters: tool.get("parameters").unwrap_or(&Value::Null),
                output_schema: tool.get("outputSchema"),
                annotations: tool.get("annotations"),
            };
            let windows = fit::windows(&definition);
            let windows = windows.into_iter().map(|window| window.into_iter().map(|name| self.number(name)).collect());
            cases.push(Case {
                windows: windows.collect(),
                rules: fit::rules_alone(&definition),
                id: word("id"),
                family: word("category"),
                poisoned: word("label") == "malicious",
                bulk,
                set: file.rsplit('/').next().unwrap_or_default().to_owned(),
                text: tool.to_string().chars().take(700).collect(),
            });
        }
        Ok(())
    }

    fn number(&mut self, name: String) -> u32 {
        let next = u32::saturating_from(self.names.len());
        *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.names.push(name);
            next
        })
    }

    /// Fits a model.
    fn fit(&self, cases: &[&Case]) -> Model {
        let mut seen = vec![0_u32; self.names.len()];
        for case in cases {
            let once: BTreeSet<u32> = case.windows.iter().flatten().copied().collect();
            once.iter().for_each(|&feature| seen[feature as usize] += 1);
        }
        let wording = |name: &str| name.starts_with("w:") || name.starts_with("s:");
        let belief: Vec<f64> = self.names.iter().map(|name| if wording(name) { WORDING } else { 1.0 }).collect();
        let known = |window: &Vec<u32>| -> (Vec<u32>, usize) {
            let known = window.iter().copied().filter(|&feature| seen[feature as usize] >= SEEN_MIN);
            (known.collect(), window.len())
        };
        let windows: Vec<Vec<(Vec<u32>, usize)>> =
            cases.iter().map(|case| case.windows.iter().map(known).collect()).collect();
        let mut model = Model { bias: -1.0, weights: vec![0.0; self.names.len()] };
        let (mut squares, mut bias_squares) = (vec![1.0_f64; self.names.len()], 1.0_f64);
        // Poisoned and honest definitions are met in turn: a stride that shares no factor with the number of them.
        let stride = (0..).map(|add| cases.len() / 3 + add).find(|&step| coprime(step, cases.len())).unwrap_or(1);
        for pass in 0..PASSES {
            for step in 0..cases.len() {
                let at = (step * stride + pass as usize) % cases.len();
                let (case, windows) = (cases[at], &windows[at]);
                let scores: Vec<f64> = windows
                    .iter()
                    .map(|(window, size)| {
                        model.bias
                            + scale(*size)
                                * window.iter().map(|&f| model.weights[f as usize] * belief[f as usize]).sum::<f64>()
                    })
                    .collect();
                let Some(top) = scores.iter().copied().reduce(f64::max) else { continue };
                let share: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let total: f64 = share.iter().sum();
                let importance = IMPORTANCE[if case.poisoned { 0 } else { 1 + usize::from(case.bulk) }];
                let wrong = importance * (f64::from(u8::from(case.poisoned)) - 1.0 / (1.0 + (-top).exp()));
                bias_squares += wrong * wrong;
                model.bias += RATE * wrong / bias_squares.sqrt();
                for ((window, size), share) in windows.iter().zip(&share) {
                    let pull = wrong * share / total * scale(*size);
                    if pull.abs() < 1e-4 {
                        continue;
                    }
                    for &feature in window {
                        let feature = feature as usize;
                        let gradient = pull * belief[feature];
                        squares[feature] += gradient * gradient;
                        let weight = &mut model.weights[feature];
                        *weight += RATE * gradient / squares[feature].sqrt();
                        *weight *= 1.0 - DECAY;
                    }
                }
            }
        }
        for (weight, belief) in model.weights.iter_mut().zip(belief) {
            *weight *= belief;
        }
        model
    }

    /// The table as the crate reads it: the loudest features first are not needed, so by name.
    fn table(&self, model: &Model) -> String {
        let mut table = format!("bias {}\n", hundredths(model.bias));
        for (name, number) in &self.numbers {
            let weight = hundredths(model.weights[*number as usize]);
            if weight.abs() >= LEAST {
                let _ = writeln!(table, "{name} {weight}");
            }
        }
        table
    }
}

impl Model {
    /// The score of a definition, in hundredths, as the scan counts it.
    fn score(&self, case: &Case) -> i32 {
        let scores = case.windows.iter().map(|window| {
            let weights = window.iter().map(|&feature| hundredths(self.weights[feature as usize]));
            let weights: Vec<i32> = weights.filter(|weight| weight.abs() >= LEAST).collect();
            let speaks_for: i32 = weights.iter().filter(|weight| **weight > 0).sum();
            let against: i32 = weights.iter().filter(|weight| **weight < 0).sum();
            hundredths(self.bias) + fit::scaled(speaks_for + against.max(-fit::AGAINST_MAX), window.len())
        });
        scores.max().unwrap_or(i32::MIN)
    }
}

impl Figures {
    fn count(&mut self, case: &Case, model: &Model, why: bool) {
        let score = model.score(case);
        let flagged = fit::asks_for_review(score, case.rules);
        self.scores.push((score, case.poisoned));
        if case.poisoned {
            self.poisoned += 1;
            self.caught += u32::from(flagged);
        } else {
            self.honest += 1;
            self.alarms += u32::from(flagged);
        }
        if why && flagged != case.poisoned {
            println!("{} {} model {score} rules {}: {}", case.id, case.family, case.rules, case.text);
        }
    }

    fn print(&self, what: &str) {
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole.max(1));
        println!("{what}");
        println!("  recall       {:.3} ({} of {})", share(self.caught, self.poisoned), self.caught, self.poisoned);
        println!("  false alarms {:.4} ({} of {})", share(self.alarms, self.honest), self.alarms, self.honest);
        for least in (-200..=300).step_by(50) {
            let above = |poisoned| self.scores.iter().filter(|(s, p)| *p == poisoned && *s >= least).count();
            println!("    model alone from {least:>5}: {:>4} caught, {:>3} false alarms", above(true), above(false));
        }
    }
}

fn hundredths(weight: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "weights are small")]
    let rounded = (weight * 100.0).round() as i32;
    rounded
}

/// As the scan scales a sum over this many features, without rounding.
fn scale(features: usize) -> f64 {
    (100.0 / f64::from(u32::saturating_from(features.max(20)))).sqrt()
}

fn coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}
