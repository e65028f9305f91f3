//! Finds the files of the demo for a release build: those in `web/dist/demo`, which `cargo xtask web` makes. It builds nothing itself,
//! and without the files the server is built without them.
//!
//! A debug build embeds none, because it reads the folder when it runs (`src/demo.rs`). Otherwise every build of the page would be
//! followed by one of the server.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let web = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../web");
    let folder = web.join("dist/demo");
    let mut list = String::from("&[\n");
    // Outside of the repository there is nothing to wait for: a folder that is watched and absent has cargo build anew every time.
    if std::env::var("PROFILE")? == "release" && web.is_dir() {
        println!("cargo::rerun-if-changed={}", folder.display());
        for path in files_below(&folder) {
            let name = path.strip_prefix(&folder)?.to_string_lossy().replace('\\', "/");
            writeln!(list, "    ({name:?}, include_bytes!({:?})),", path.display().to_string())?;
        }
    }
    list.push_str("]\n");
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("demo_files.rs");
    Ok(std::fs::write(out, list)?)
}

/// The files in a folder and in those in it; none if there is no such folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
