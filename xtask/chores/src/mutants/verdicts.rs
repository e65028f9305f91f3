//! What became of each change, kept in the target folder.
//!
//! A verdict counts as long as the code of the package, and that of the rules, is the one that was changed. Tests may be added:
//! what was noticed would be noticed still, and the rest can be tried again (`--again`). After tests were taken away, delete
//! the file.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tools::Workspace;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A test failed.
    Noticed,
    /// The tests did not end in time.
    Hung,
    /// It says nothing.
    DoesNotCompile,
    /// All tests passed.
    Missed,
}

const WORDS: [(&str, Verdict); 4] = [
    ("noticed", Verdict::Noticed),
    ("hung", Verdict::Hung),
    ("does-not-compile", Verdict::DoesNotCompile),
    ("missed", Verdict::Missed),
];

/// The verdicts of a package's changes, in a file with a line for each: hash of the code, verdict, change.
pub struct Verdicts {
    file: PathBuf,
    code: String,
    known: HashMap<String, Verdict>,
}

impl Verdicts {
    /// Reads those that are about today's code.
    pub fn open(workspace: &Workspace, package: &str, file: &Path) -> Result<Self> {
        let code = hash_of_code(workspace, package)?;
        let text = fs::read_to_string(file).unwrap_or_default();
        Ok(Self { file: file.to_owned(), known: parse(&text, &code), code })
    }

    /// What became of a change, if it was tried.
    pub fn of(&self, name: &str) -> Option<Verdict> {
        self.known.get(name).copied()
    }

    /// Writes a verdict down; it replaces an earlier one.
    pub fn keep(&mut self, name: &str, verdict: Verdict) -> Result<()> {
        let mut file = fs::File::options().create(true).append(true).open(&self.file)?;
        writeln!(file, "{}", line(&self.code, verdict, name))?;
        self.known.insert(name.to_owned(), verdict);
        Ok(())
    }

    /// Leaves some out, so that they are tried again.
    pub fn forget(&mut self, which: impl Fn(Verdict) -> bool) {
        self.known.retain(|_, verdict| !which(*verdict));
    }
}

fn line(code: &str, verdict: Verdict, name: &str) -> String {
    let word = WORDS.iter().find(|(_, known)| *known == verdict).map_or("", |(word, _)| word);
    format!("{code} {word} {name}")
}

/// The last verdict of each change to this code.
fn parse(text: &str, code: &str) -> HashMap<String, Verdict> {
    let read = |line: &str| {
        let rest = line.strip_prefix(code)?.strip_prefix(' ')?;
        let (word, name) = rest.split_once(' ')?;
        let (_, verdict) = WORDS.iter().find(|(known, _)| *known == word)?;
        Some((name.to_owned(), *verdict))
    };
    text.lines().filter_map(read).collect()
}

/// A hash of the code of the rules and of a package, without the tests.
fn hash_of_code(workspace: &Workspace, package: &str) -> Result<String> {
    let folders = ["crates/leasehold-core/src/".to_owned(), format!("crates/{package}/src/")];
    let mut hasher = DefaultHasher::new();
    for file in workspace.files()? {
        let path = workspace.root.join(&file);
        if folders.iter().any(|folder| file.starts_with(folder)) && path.is_file() {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
            (file, without_tests(&text)).hash(&mut hasher);
        }
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// A file without its unit tests, which come last.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod ").map_or(text, |(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_verdict_about_todays_code_counts() {
        let text = [
            line("a1", Verdict::Missed, "src/a.rs:1:2: replace > with >= in f"),
            line("a1", Verdict::Noticed, "src/a.rs:1:2: replace > with >= in f"),
            line("b2", Verdict::Hung, "src/a.rs:9:9: replace g with ()"),
            "a1 cut-in-the-mid".to_owned(),
        ];
        let known = parse(&text.join("\n"), "a1");
        assert_eq!(known.len(), 1);
        assert_eq!(known["src/a.rs:1:2: replace > with >= in f"], Verdict::Noticed);
    }

    #[test]
    fn unit_tests_are_no_part_of_the_code() {
        assert_eq!(without_tests("fn f() {}\n\n#[cfg(test)]\nmod tests {}\n"), "fn f() {}\n");
        assert_eq!(without_tests("#[cfg(test)]\nfn f() {}\n"), "#[cfg(test)]\nfn f() {}\n");
    }
}
