//! Where a project may be. Nothing is ever written outside of its folder, and the folder is never one that belongs to
//! the Collector, the Analyzer or a log: a `.lock` there would end up in their statistics.

use leasehold_core::name::Invalid;
use leasehold_core::telemetry::FOREIGN_FOLDERS as FOREIGN;

/// Folders of logs.
const LOGS: [&str; 2] = ["log", "logs"];

/// The names of the files of the lock, below the root.
pub mod file {
    use leasehold_core::name::Fence;

    /// Who holds the project.
    pub const LOCK: &str = ".lock";
    /// What `.lock` is written to before it takes its place.
    pub const LOCK_TMP: &str = ".lock.tmp";
    /// The mutex around every change, with the last fence in it.
    pub const GUARD: &str = ".lock.guard";
    /// What the names of held files begin with.
    pub const HELD: &str = ".lock.held.";
    /// What the names of drafts begin with; the time in milliseconds, a dot and some of the hash follow.
    pub const DRAFT: &str = ".lock.draft.";

    /// What programs on disk last said about a request to hand the project over.
    pub const REQUEST: &str = ".lock.request";

    /// The file that the holder with this fence keeps open.
    pub fn held(fence: Fence) -> String {
        format!("{HELD}{}", fence.get())
    }
}

/// A folder that may be locked: slash-separated names below the origin's (or the user's) own storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(Box<str>);

impl Root {
    /// The longest path, in bytes.
    pub const MAX_BYTES: usize = 1_024;

    /// Reads a path below the storage of a browser, or says what is wrong with it.
    pub fn parse(path: &str) -> Result<Self, Invalid> {
        let refuse = |rule: &str, fix: &str| Err(Invalid::new("root", path, rule, fix));
        if path.is_empty() || path.len() > Self::MAX_BYTES {
            return refuse("a root is a path of 1 to 1024 bytes", "write `project`, or leave it out");
        }
        if path.contains(['\\', '\0']) {
            return refuse("a root has no backslash and no NUL in it", "separate folders with `/`");
        }
        if path.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return refuse(
                "every part of a root is the name of a folder",
                "write it like `apps/drawing/project`, without a slash at either end",
            );
        }
        check(path.split('/'), path)?;
        Ok(Self(path.into()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders on the way, from the top.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

/// Refuses a path below the root that is no place to save: outside of the project, or a file of the lock itself.
pub fn check_save(path: &str) -> Result<(), Invalid> {
    let refuse = |rule: &str, fix: &str| Err(Invalid::new("path", path, rule, fix));
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\\', '\0']);
    if path.len() > Root::MAX_BYTES || !path.split('/').all(is_name) {
        return refuse("a save stays inside of the project", "write it like `autosave/current.json`");
    }
    if path.split('/').any(|name| name.starts_with(file::LOCK)) {
        return refuse("files that begin with `.lock` are the lock's own", "choose another name");
    }
    Ok(())
}

/// Refuses a folder that belongs to others. `path` is what the error shows; `names` are the parts of it, links resolved.
pub fn check<'a>(names: impl IntoIterator<Item = &'a str>, path: &str) -> Result<(), Invalid> {
    for name in names {
        let is = |known: &&str| name.eq_ignore_ascii_case(known);
        if FOREIGN.iter().any(is) {
            let rule = "a project is never inside collector/, analyzer/ or workflow-cookbook/";
            return Err(Invalid::new("root", path, rule, "choose a folder of the application's own"));
        }
        if LOGS.iter().any(is) {
            let rule = "a project is never inside a folder of logs";
            return Err(Invalid::new("root", path, rule, "choose a folder of the application's own"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_a_folder_of_its_own() {
        for good in ["project", "apps/drawing/project", "catalog", "プロジェクト"] {
            assert!(Root::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "/", "/project", "project/", "a//b", "../project", "a/./b", "a\\b", "a\0"] {
            assert!(Root::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn folders_of_others_are_refused_wherever_they_are_in_the_path() {
        for bad in [
            "collector",
            "a/Collector/b",
            "analyzer/x",
            "workflow-cookbook/project",
            "workflow-cookbook/logs",
            "x/logs/y",
            "log",
        ] {
            let error = Root::parse(bad).unwrap_err().to_string();
            assert!(error.contains("never inside"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_save_stays_inside_of_the_project_and_leaves_the_lock_alone() {
        for good in ["current.json", "autosave/history/2026-01-01T00:00:00Z.json", ".hidden", "a.lock"] {
            assert!(check_save(good).is_ok(), "{good}");
        }
        for bad in
            ["", "/x", "x/", "../x", "a/../x", "a//b", "a\\b", ".lock", ".lock.guard", "a/.lock.held.1"]
        {
            assert!(check_save(bad).is_err(), "{bad:?}");
        }
    }
}
