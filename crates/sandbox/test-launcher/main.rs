//! A program that is nothing but a launcher, for tests of the crate on its own.

fn main() -> std::process::ExitCode {
    gantry_sandbox::serve_launcher()
}
