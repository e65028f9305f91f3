//! The chores of the workspace, as `cargo xtask <command>`; one file per command. `serve` is in `xtask` itself.
//!
//! Whatever a developer or a CI machine does beyond plain cargo is here, so that both do the same.

mod bench;
mod clients;
mod fuzz_api;
mod mutants;
mod scratch;
mod services;
mod sim;
mod soak;
mod tally;
mod test;
mod tidy;
mod tools;
mod wasm;
mod web;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use tools::Workspace;

/// The chores of the Leasehold workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Build the program and start a server with made-up users on http://127.0.0.1:7420
    Serve(Serve),
    /// Run every check there is, in stages
    Test(test::Options),
    /// Live through a simulated world and tell its story
    Sim(sim::Options),
    /// Run the simulator, the randomised and the process tests again and again
    Soak(soak::Options),
    /// Change the rules in small ways, and see whether the tests notice
    Mutants(mutants::Options),
    /// Measure
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Check the style rules that the compiler does not know
    Tidy,
    /// Check that the rules, compiled to WebAssembly, need nothing from their host
    Wasm,
    /// Build the npm package into web/dist
    Web,
}

/// Here for the help alone: `cargo xtask serve` does not build this program.
#[derive(clap::Args)]
struct Serve {
    /// Further arguments for `leasehold serve`, such as `-- --listen 127.0.0.1:0 --json`
    #[arg(last = true, value_name = "ARGUMENTS")]
    more: Vec<String>,
}

impl Serve {
    fn run(&self) -> Result<bool> {
        anyhow::bail!("start it as `cargo xtask serve -- {}`", self.more.join(" "))
    }
}

fn main() -> ExitCode {
    match run(&Chore::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does the chore; answers whether everything was fine.
fn run(chore: &Chore) -> Result<bool> {
    let workspace = Workspace::find()?;
    match chore {
        Chore::Serve(serve) => serve.run(),
        Chore::Test(options) => test::run(&workspace, options),
        Chore::Sim(options) => sim::run(&workspace, options),
        Chore::Soak(options) => soak::run(&workspace, options),
        Chore::Mutants(options) => mutants::run(&workspace, options),
        Chore::Bench(bench) => bench::run(&workspace, bench),
        Chore::Tidy => Ok(tidy::stage(&workspace)?.is_fine()),
        Chore::Wasm => Ok(wasm::stage(&workspace)?.is_fine()),
        Chore::Web => web::run(&workspace),
    }
}
