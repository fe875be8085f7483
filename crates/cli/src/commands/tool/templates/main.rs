//! Parameters come as JSON on stdin, the result goes as JSON to stdout, stderr is the log, a non-zero exit is an error.

use std::process::ExitCode;

use serde_json::{Value, json};

fn run(parameters: &Value) -> Result<Value, String> {
    let name = parameters["name"].as_str().ok_or("`name` is missing")?;
    Ok(json!({ "greeting": format!("Hello, {name}!") }))
}

fn main() -> ExitCode {
    let parameters = serde_json::from_reader(std::io::stdin()).map_err(|error| error.to_string());
    match parameters.and_then(|parameters| run(&parameters)) {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
