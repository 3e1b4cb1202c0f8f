//! `redline-tests`: shows that redline's promises hold, on real models and on tables.
//!
//! Each check prints JSON objects on standard output and what a person wants to know on standard error. An object with
//! a `verdict` is a row of `scripts/show`. Exit codes: 0 nothing failed, 1 something did, 2 the command can't be used,
//! 3 `simulate` found a
//! rule broken, `exact`, `sampling` or `teeth` a law that is not what it should be.

mod show;

fn main() -> std::process::ExitCode {
    show::main()
}
