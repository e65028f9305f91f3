//! Links between pages of this repository.

use std::collections::BTreeSet;
use std::path::Path;

use super::{File, problem};

pub(super) fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let known = known_paths(files);
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| broken_links(page, &known)).collect()
}

/// All files, and all folders that have one.
fn known_paths(files: &[File]) -> BTreeSet<&Path> {
    files.iter().flat_map(|file| Path::new(&file.path).ancestors()).collect()
}

fn broken_links(page: &File, known: &BTreeSet<&Path>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut in_code = false;
    for (at, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let links = if in_code { Vec::new() } else { relative_links(line) };
        let broken = links.iter().filter(|link| !leads_somewhere(&page.path, link, known));
        problems.extend(broken.map(|link| problem(page, at, &format!("the link to {link} leads nowhere"))));
    }
    problems
}

/// The targets of `[text](target#part "title")` and `[name]: target` that stay in the repository.
fn relative_links(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect();
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
    let named = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let named = named.filter(|(name, _)| !name.starts_with('^'));
    let named = named.and_then(|(_, target)| target.split([' ', '#']).next());
    let stays =
        |target: &&str| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
    inline.chain(named).filter(stays).map(String::from).collect()
}

fn leads_somewhere(page: &str, link: &str, known: &BTreeSet<&Path>) -> bool {
    let mut path = Path::new(page).parent().map(Path::to_path_buf).unwrap_or_default();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." if path.pop() => {}
            ".." => return false,
            name => path.push(name),
        }
    }
    known.contains(path.as_path())
}

#[cfg(test)]
mod tests {
    use super::super::testing::file;
    use super::*;

    fn found_in_page(text: &str) -> Vec<String> {
        links_lead_somewhere(&[file("docs/a/page.md", text), file("docs/b.md", ""), file("README.md", "")])
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let broken =
            ["[x](c.md)", "![x](../x.png)", "[x](../../../README.md)", "[x]: gone.md", "[x](b.md \"title\")"];
        for text in broken {
            assert_eq!(found_in_page(text).len(), 1, "{text}");
        }
        assert_eq!(found_in_page("a\n[x](c.md)"), ["docs/a/page.md:2: the link to c.md leads nowhere"]);
    }

    #[test]
    fn links_that_lead_somewhere_or_elsewhere_are_fine() {
        let fine = "[x](../b.md#part) [`x`](page.md) [x](#part) [x](..) [x](https://example.org/c.md) [x](mailto:a@b)
`[x](c.md)`
[x]: ../../README.md
[^1]: a note
```
[x](c.md)
```";
        assert_eq!(found_in_page(fine), [""; 0]);
    }
}
