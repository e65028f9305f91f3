//! `cargo xtask tidy`: the rules of this repository that the compiler does not know, checked over the files that git tracks.
//!
//! A rule is a function from the files to the problems it finds, with a test that shows a violation. Forbidden words are
//! put together from parts here, so that these files can be checked like any other.

mod links;
mod map;
mod shape;
mod text;
mod tree;
mod voice;
mod worst_days;

use std::path::Path;

use anyhow::Result;

use crate::tally::Report;
use crate::tools::Workspace;

/// A file that git tracks. The text is empty when it is not UTF-8.
struct File {
    path: String,
    text: String,
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[Rule] = &[
    text::no_machine_paths,
    text::no_registry_hosts,
    text::nothing_unfinished,
    text::no_merge_marks,
    text::sources_are_cited_by_name,
    voice::messages_name_the_thing,
    shape::functions_fit_on_a_screen,
    shape::modules_say_what_they_are,
    shape::every_exception_has_a_reason,
    map::rules_are_pure,
    map::one_retry_policy,
    map::serde_stays_where_it_may_be,
    map::refusals_stay_in_error,
    map::routes_read_or_change,
    map::dependencies_point_one_way,
    map::telemetry_knows_no_lock_file,
    links::links_lead_somewhere,
    worst_days::worst_days_name_tests,
];

/// Checks every rule.
pub fn stage(workspace: &Workspace) -> Result<Report> {
    let files = read_files(&workspace.root, workspace.files()?);
    let mut problems: Vec<String> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    problems.extend(tree::databases_of_an_http_client(&tree::of_an_http_client(workspace)?));
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("   {} files, {} rules, {} problems", files.len(), RULES.len() + 1, problems.len());
    Ok(Report::check(problems.is_empty()))
}

/// A file that git tracks but that is deleted, or is a link to nowhere, cannot be read and is left out.
fn read_files(root: &Path, paths: Vec<String>) -> Vec<File> {
    let read = |path: String| {
        let bytes = std::fs::read(root.join(&path)).ok()?;
        Some(File { path, text: String::from_utf8(bytes).unwrap_or_default() })
    };
    paths.into_iter().filter_map(read).collect()
}

fn rust_files(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with(".rs"))
}

/// The sources of the crates and of this program, without files that hold tests only.
fn product_files(files: &[File]) -> impl Iterator<Item = &File> {
    rust_files(files).filter(|file| {
        let in_source = file.path.starts_with("xtask/src/")
            || file.path.starts_with("xtask/chores/src/")
            || file.path.strip_prefix("crates/").is_some_and(|rest| rest.split('/').nth(1) == Some("src"));
        in_source && !file.path.ends_with("/tests.rs")
    })
}

/// The problems that can be seen in a single line.
fn in_lines<'a>(
    files: impl IntoIterator<Item = &'a File>,
    look: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let look = &look;
    let in_file = |file: &'a File| {
        let lines = file.text.lines().enumerate();
        lines.filter_map(move |(at, line)| look(line).map(|what| problem(file, at, &what)))
    };
    files.into_iter().flat_map(in_file).collect()
}

fn problem(file: &File, at: usize, what: &str) -> String {
    format!("{}:{}: {what}", file.path, at + 1)
}

#[cfg(test)]
mod testing {
    use super::{File, Rule};

    pub fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    pub fn found(rule: Rule, path: &str, text: &str) -> Vec<String> {
        rule(&[file(path, text)])
    }

    #[track_caller]
    pub fn bites(rule: Rule, path: &str, text: &str) {
        assert_eq!(found(rule, path, text).len(), 1, "{path}: {text}");
    }

    #[track_caller]
    pub fn accepts(rule: Rule, path: &str, text: &str) {
        assert_eq!(found(rule, path, text), [""; 0]);
    }
}
