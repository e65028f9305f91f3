//! `cargo xtask serve`: from a clone to something that runs. It must never claim to serve what is not there yet.

use anyhow::Result;

use crate::tools::{self, Workspace};

const WELCOME: &str = "
The program `leasehold` is built. The documents server is not built yet, so there is nothing to open in a browser.
What works now, on a local file:

  cargo run -q -- try run/hello            take a lease on the key run/hello, if it is free
  cargo run -q -- ls                       list the leases
  cargo run -q -- store check leases.db    check a store file

Everything else: cargo run -q -- --help
";

/// Builds the program and says what can be done with it.
pub fn run(workspace: &Workspace) -> Result<bool> {
    let finished = tools::watch(&mut workspace.cargo(&["build", "--package", "leasehold-cli"]))?;
    println!("{}", if finished.ok { WELCOME } else { &finished.output });
    Ok(finished.ok)
}
