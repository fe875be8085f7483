//! A program that is nothing but a launcher, for tests of the servers behind Gantry on their own.

fn main() -> std::process::ExitCode {
    sandbox::serve_launcher()
}
