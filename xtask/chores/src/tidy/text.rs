//! What must not be written anywhere: things of one machine, unfinished code, citations that nobody can follow.

use super::{File, in_lines, rust_files};

/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "farm"];

/// Registries have mirrors: which one is used is up to the machine.
const REGISTRY_HOSTS: [&str; 4] = [
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("deb.", "debian.org"),
    concat!("py", "pi.org"),
];

/// What is left in code that is not finished.
const UNFINISHED: [&str; 4] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!("), concat!("#[", "ignore")];

pub(super) fn no_machine_paths(files: &[File]) -> Vec<String> {
    let folders = MACHINE_FOLDERS.map(|folder| format!("/{folder}/"));
    let found = |line: &str| folders.iter().find(|folder| starts_a_path(line, folder)).cloned();
    in_lines(files, |line| found(line).map(|folder| format!("{folder} is a folder of one machine only")))
}

/// Whether an absolute path begins with this folder somewhere in the line; inside of a relative path it is harmless.
fn starts_a_path(line: &str, folder: &str) -> bool {
    let goes_on = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || "._-~*})".contains(c));
    line.match_indices(folder).any(|(at, _)| !line.get(..at).is_some_and(goes_on))
}

pub(super) fn no_registry_hosts(files: &[File]) -> Vec<String> {
    let found = |line: &str| REGISTRY_HOSTS.iter().find(|host| line.contains(*host)).copied();
    in_lines(files, |line| found(line).map(|host| format!("names the registry host {host}")))
}

pub(super) fn nothing_unfinished(files: &[File]) -> Vec<String> {
    let found = |line: &str| UNFINISHED.iter().find(|mark| line.contains(*mark)).copied();
    in_lines(rust_files(files), |line| found(line).map(|mark| format!("{mark} is for unfinished code")))
}

/// What a merge leaves in a file when nobody has decided it.
const MERGE_MARKS: [&str; 3] = [concat!("<<<<<<", "< "), concat!(">>>>>>", "> "), concat!("||||||", "| ")];

pub(super) fn no_merge_marks(files: &[File]) -> Vec<String> {
    let is_mark = |line: &str| MERGE_MARKS.iter().any(|mark| line.starts_with(mark));
    in_lines(files, |line| is_mark(line).then(|| "is left over from a merge".to_owned()))
}

/// The page that describes the source documents, and their names there.
const SOURCES_PAGE: &str = "docs/sources.md";
const SOURCES: [&str; 5] =
    ["Project lock service", "Project lock states", "AutoSave", "Job lock", "Document lock"];

/// Sources are cited by their names on the page in `docs/`, never by the numbers of the originals' files; and a cited
/// section has a heading there.
pub(super) fn sources_are_cited_by_name(files: &[File]) -> Vec<String> {
    let page = files.iter().find(|file| file.path == SOURCES_PAGE);
    let headings: Vec<&str> = page
        .into_iter()
        .flat_map(|page| page.text.lines())
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let written =
        files.iter().filter(|file| !file.path.ends_with("lock") && !file.path.ends_with("lock.json"));
    in_lines(written, |line| {
        let bare = bare_number(line)
            .map(|number| format!("{number} cites a source by number; {SOURCES_PAGE} has names"));
        let unknown = cited_sections(line).into_iter().find(|cited| !headings.contains(&cited.as_str()));
        bare.or_else(|| unknown.map(|cited| format!("{SOURCES_PAGE} has no section {cited}")))
    })
}

/// A number of a source document that stands alone, and is no part of a longer number.
fn bare_number(line: &str) -> Option<&str> {
    let is_number = |word: &&str| word.len() == 3 && word.starts_with("00") && ("000"..="004").contains(word);
    let apart = |c: char| c.is_whitespace() || "()[]`*;:".contains(c);
    line.split(apart).map(|word| word.trim_end_matches(['.', ','])).find(is_number)
}

/// The sections that a line cites: the name of a source, in emphasis or not, followed by a number.
fn cited_sections(line: &str) -> Vec<String> {
    let cited = SOURCES.iter().flat_map(|name| {
        line.match_indices(name).filter_map(move |(at, _)| {
            let rest = line.get(at + name.len()..)?;
            let rest = rest.strip_prefix('*').unwrap_or(rest).strip_prefix(' ')?;
            let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let number = number.trim_end_matches('.');
            (!number.is_empty()).then(|| format!("{name} {number}"))
        })
    });
    cited.collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{accepts, bites, file};
    use super::*;

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        for folder in MACHINE_FOLDERS {
            bites(no_machine_paths, "README.md", &format!("see /{folder}/file"));
            bites(no_machine_paths, "a.rs", &format!("\"file:///{folder}/file\""));
            accepts(no_machine_paths, "a.sh", &format!("target/{folder}/x $DIR/{folder}/x ./{folder}/x"));
        }
    }

    #[test]
    fn registry_hosts_are_found_and_the_registry_may_be_named() {
        for host in REGISTRY_HOSTS {
            bites(no_registry_hosts, "notes.txt", &format!("from https://{host}/x"));
        }
        accepts(no_registry_hosts, "README.md", "published on crates.io and npm");
    }

    #[test]
    fn marks_of_a_merge_are_found_at_the_start_of_a_line() {
        for mark in MERGE_MARKS {
            bites(no_merge_marks, "CHANGELOG.md", &format!("text\n{mark}HEAD"));
            accepts(no_merge_marks, "CHANGELOG.md", &format!("a line with {mark}in it"));
        }
    }

    #[test]
    fn unfinished_code_is_found_in_rust_only() {
        for mark in UNFINISHED {
            bites(nothing_unfinished, "crates/a/tests/all.rs", &format!("    {mark}"));
            accepts(nothing_unfinished, "README.md", mark);
        }
    }

    #[test]
    fn a_source_cited_by_number_is_found_and_other_numbers_are_not() {
        for number in 0..5 {
            for text in [
                format!("the table of 00{number} section 6"),
                format!("(00{number})"),
                format!("as in 00{number}."),
            ] {
                bites(sources_are_cited_by_name, "crates/a/src/b.rs", &text);
            }
        }
        let numbers = "10,000 0.001 1_000 0x004 +00:00 00:00.000 decision 0001 12.004 \"000\" 005";
        accepts(sources_are_cited_by_name, "crates/a/src/b.rs", numbers);
    }

    #[test]
    fn a_cited_section_must_be_on_the_page() {
        let page = file(SOURCES_PAGE, "### AutoSave 3.3\n");
        let cites =
            |text: &str| sources_are_cited_by_name(&[file("a.rs", text), file(SOURCES_PAGE, &page.text)]);
        assert_eq!(cites("*AutoSave* 3.3, AutoSave 3.3. AutoSave saves."), [""; 0]);
        let (cited, problem) = (
            concat!("*Auto", "Save* 3.9"),
            concat!("a.rs:1: docs/sources.md has no section Auto", "Save 3.9"),
        );
        assert_eq!(cites(cited), [problem]);
    }
}
