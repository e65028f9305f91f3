//! `cargo xtask wasm`: the rules, compiled to WebAssembly, ask their host for nothing. An import would mean that a clock,
//! randomness or IO had crept into them.

use anyhow::{Context, Result};
use wasmparser::{Parser, Payload};

use crate::tally::Report;
use crate::tools::{self, Workspace};

const TARGET: &str = "wasm32-unknown-unknown";

/// The function that calls the rules. Without it the linker would drop them, and the check would prove nothing.
const PROBE: &str = "probe";

/// The crates that must ask for nothing, and the example of each that exports [`PROBE`].
const PROBES: [(&str, &str); 2] =
    [("leasehold-core", "wasm_probe"), ("leasehold-project-rules", "project_probe")];

/// What a module wants from its host, and offers to it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Surface {
    imports: Vec<String>,
    exports: Vec<String>,
}

/// Builds the probes and looks at them.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    tools::ensure_target(workspace, TARGET)?;
    let mut clean = true;
    for (name, probe) in PROBES {
        let args = ["build", "-p", name, "--example", probe, "--target", TARGET, "--release"];
        let finished = tools::watch(&mut workspace.cargo(&args))?;
        if !finished.ok {
            println!("{}", finished.output);
            return Ok(Report::check(false));
        }
        let problems = problems(&surface(&read_probe(workspace, probe)?)?);
        problems.iter().for_each(|problem| println!("{name}: {problem}"));
        clean &= problems.is_empty();
    }
    Ok(Report::check(clean))
}

fn read_probe(workspace: &Workspace, probe: &str) -> Result<Vec<u8>> {
    let path = workspace.target_directory()?.join(TARGET).join(format!("release/examples/{probe}.wasm"));
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn surface(module: &[u8]) -> Result<Surface> {
    let mut surface = Surface::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    surface.imports.push(format!("{}.{}", import.module, import.name));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    surface.exports.push(export?.name.to_string());
                }
            }
            _ => {}
        }
    }
    Ok(surface)
}

fn problems(surface: &Surface) -> Vec<String> {
    let imports = surface.imports.iter().map(|name| format!("the rules import `{name}` from their host"));
    let probe_is_missing = !surface.exports.iter().any(|name| name == PROBE);
    let vacuous = probe_is_missing.then(|| format!("no function `{PROBE}` is exported: nothing was checked"));
    imports.chain(vacuous).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"\0asm\x01\0\0\0";
    /// One type: a function from nothing to nothing.
    const TYPES: &[u8] = &[1, 4, 1, 0x60, 0, 0];
    /// One import: the function `env.now` of type 0.
    const IMPORTS: &[u8] = b"\x02\x0b\x01\x03env\x03now\x00\x00";
    /// One export: function 0 as `probe`.
    const EXPORTS: &[u8] = b"\x07\x09\x01\x05probe\x00\x00";

    fn check(sections: &[&[u8]], expected: &[&str]) {
        let module = [&[HEADER], sections].concat().concat();
        assert_eq!(problems(&surface(&module).unwrap()), expected);
    }

    #[test]
    fn an_import_is_named() {
        check(&[TYPES, IMPORTS, EXPORTS], &["the rules import `env.now` from their host"]);
    }

    #[test]
    fn a_module_without_the_probe_proves_nothing() {
        check(&[TYPES], &["no function `probe` is exported: nothing was checked"]);
    }

    #[test]
    fn a_module_that_only_exports_the_probe_is_fine() {
        check(&[TYPES, EXPORTS], &[]);
    }

    #[test]
    fn what_is_no_module_is_an_error() {
        assert!(surface(b"#!/bin/sh").is_err());
        assert!(surface(&[HEADER, &[2, 200]].concat()).is_err());
    }
}
