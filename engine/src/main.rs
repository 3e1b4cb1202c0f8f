//! The `redline` command.

fn main() -> std::process::ExitCode {
    redline::cli::main()
}
