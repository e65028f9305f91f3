//! The voice of what users read: messages, and the comments that become the API page, name the thing they are about.
//!
//! Only words that are riddles in any message are checked; everything else takes a reader.

use super::{File, in_lines, problem, product_files};

/// Words that stand for something with a name: caller, holder, operator, worker, watcher.
const RIDDLES: [&str; 4] = [
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("what st", "ands"),
    concat!("a mistake", " of ours"),
];

/// Doc comments in these files are the text of the API page.
const API_PAGE: [&str; 2] = ["crates/leasehold-server/src/routes/", "crates/leasehold-core/src/wire"];

/// Their messages are for developers of Leasehold and of stores for it.
const OURS: [&str; 3] = ["crates/leasehold-sim/", "crates/leasehold-store/src/conformance/", "xtask/"];

pub(super) fn messages_name_the_thing(files: &[File]) -> Vec<String> {
    let shipped = || product_files(files).filter(|file| !OURS.iter().any(|ours| file.path.starts_with(ours)));
    let mut problems: Vec<String> = shipped().flat_map(riddles_in_literals).collect();
    let api = shipped().filter(|file| API_PAGE.iter().any(|folder| file.path.starts_with(folder)));
    problems.extend(in_lines(api, |line| line.trim_start().strip_prefix("///").and_then(riddle)));
    problems
}

fn riddles_in_literals(file: &File) -> Vec<String> {
    let found = literals(&file.text).into_iter();
    found.filter_map(|(at, text)| riddle(&text).map(|what| problem(file, at, &what))).collect()
}

fn riddle(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    RIDDLES
        .iter()
        .find(|word| text.contains(**word))
        .map(|word| format!("`{word}` names nothing; say who or what it is"))
}

/// The string literals before the tests of a file, with the line on which each begins. Escapes stay as they are.
fn literals(source: &str) -> Vec<(usize, String)> {
    let source = source.split("\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let from = rest.get(at..).unwrap_or_default();
        let line = source.len().checked_sub(from.len()).and_then(|at| source.get(..at));
        let line = line.map_or(0, |before| before.matches('\n').count());
        let length = match from {
            _ if from.starts_with("//") => from.find('\n').unwrap_or(from.len()),
            _ if from.starts_with("'\"'") || from.starts_with("'\\'") => 3,
            _ if from.starts_with('"') => {
                let hashes =
                    rest.get(..at).map_or(0, |before| before.len() - before.trim_end_matches('#').len());
                let body = literal_length(from, hashes);
                found.push((line, from.get(..body).unwrap_or(from).to_owned()));
                body
            }
            _ => 1,
        };
        rest = from.get(length..).unwrap_or_default();
    }
    found
}

/// The length of the literal that begins with a quote; a raw one ends with a quote and its hashes.
fn literal_length(from: &str, hashes: usize) -> usize {
    if hashes > 0 {
        let end = format!("\"{}", "#".repeat(hashes));
        return from.get(1..).and_then(|body| body.find(&end)).map_or(from.len(), |end| end + 1 + hashes + 1);
    }
    let mut escaped = false;
    for (at, c) in from.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    from.len()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{accepts, bites};
    use super::*;

    #[test]
    fn a_riddle_is_found_in_messages_and_on_the_api_page_only() {
        for word in RIDDLES {
            let rule = messages_name_the_thing;
            bites(rule, "crates/a/src/b.rs", &format!("let a = \"ask {word} about it\";"));
            bites(rule, "crates/a/src/b.rs", &format!("let a = r#\"a \"quoted\" {word}\"#;"));
            bites(rule, "crates/a/src/b.rs", &format!("let a = \"a long \\\n   {word}\";"));
            bites(rule, "crates/leasehold-server/src/routes/a.rs", &format!("    /// For {word}"));
            accepts(
                rule,
                "crates/a/src/b.rs",
                &format!("// {word} \"{word}\"\nlet a = '\"'; // {word}\nmod tests {{\n\"{word}\""),
            );
            accepts(rule, "crates/leasehold-sim/src/b.rs", &format!("\"{word}\""));
        }
    }

    #[test]
    fn literals_are_found_with_their_lines() {
        let source = "fn f<'a>() {\n    g(\"one \\\" two\", 'x', r#\"three \"four\"\"#);\n    // \"five\"\n    h(\"six\");\n}";
        let found = literals(source);
        let expected = [(1, "\"one \\\" two\""), (1, "\"three \"four\"\"#"), (3, "\"six\"")];
        assert_eq!(found, expected.map(|(at, text)| (at, text.to_owned())));
    }
}
