//! What a program builds that uses only part of Leasehold, as `cargo tree` shows it.

use anyhow::Result;

use crate::tools::{self, Workspace};

/// What only a store needs.
const DATABASES: [&str; 5] =
    ["rusqlite", "libsqlite3-sys", "tokio-postgres", "deadpool-postgres", "gcloud-sdk"];

/// The dependencies of a program that only talks to a server.
pub(super) fn of_an_http_client(workspace: &Workspace) -> Result<String> {
    let args = ["tree", "--package", "leasehold-client", "--no-default-features", "--features", "http"];
    let finished =
        tools::watch(workspace.cargo(&args).args(["--edges", "normal,build", "--prefix", "none"]))?;
    anyhow::ensure!(finished.ok, "cargo tree failed: {}", finished.output);
    Ok(finished.output)
}

/// A program that only talks HTTP builds no database.
pub(super) fn databases_of_an_http_client(tree: &str) -> Vec<String> {
    let is_there = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    let says = |what: &str| format!("crates/leasehold-client/Cargo.toml: feature `http` {what}");
    // Otherwise the tree would be that of something else, and nothing would ever be found in it.
    let talks_http = is_there("reqwest");
    let missing = (!talks_http).then(|| says("brings no HTTP client"));
    let found = DATABASES.iter().filter(|name| is_there(name));
    missing.into_iter().chain(found.map(|name| says(&format!("alone builds {name}, a database")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_below_an_http_client_is_found() {
        assert!(
            databases_of_an_http_client("leasehold-client v0.1.0\nreqwest v0.13.5\nhttp v1.4.0").is_empty()
        );
        assert_eq!(databases_of_an_http_client("reqwest v0.13.5\nrusqlite v0.38.0 (*)").len(), 1);
        assert_eq!(databases_of_an_http_client("another-program v0.1.0").len(), 1, "nothing that talks HTTP");
    }
}
