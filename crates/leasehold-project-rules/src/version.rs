//! Versions of the files of a project: which one a tab's memory was made from, and which one a save may replace. A version is
//! the hash of a file's content, which the platform computes; here it is only compared. A save that was made from another
//! version than the one that is there must never replace it.

/// The version of a file: the SHA-256 of its content, in lower-case hexadecimal, as `sha256sum` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

impl Version {
    /// The version of a file that is not there.
    pub const NO_FILE: Self = Self(String::new());

    /// The version with this text; empty for no file.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a save was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// What this tab last read or wrote under the path; no file, if it did neither.
    #[default]
    LastSeen,
    /// This version.
    Exactly(Version),
    /// Whatever is there: the save replaces it unseen.
    Overwrite,
}

/// The versions that a file is expected to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The file, below the root.
    pub path: String,
    /// The versions, with a space between each two. (A list of texts would be more code for a page to load.)
    versions: String,
}

impl Expected {
    /// A file that is expected to have this version.
    pub fn new(path: &str, version: &Version) -> Self {
        Self { path: path.into(), versions: version.0.clone() }
    }

    /// The same, or this version.
    #[must_use]
    pub fn or(mut self, version: &Version) -> Self {
        self.versions.push(' ');
        self.versions.push_str(&version.0);
        self
    }

    /// Whether it is one of them.
    pub fn allows(&self, found: &Version) -> bool {
        self.versions.split(' ').any(|version| version == found.0)
    }

    /// The first of them: what was read, or written for sure.
    fn first(&self) -> &str {
        self.versions.split(' ').next().unwrap_or_default()
    }
}

/// How many files a tab remembers the versions of, before it forgets them all. A file that it has forgotten counts as not seen,
/// so that a save over it is refused until it was read again.
const MOST_FILES: usize = 1_000;

/// How many bytes the versions of one file may take: those of a dozen saves that failed, and may have taken effect.
const MOST_VERSIONS: usize = 1_000;

/// What one tab or program has read and written: the version of each file that its memory was made from. A save that failed
/// may have taken effect, so that a file can have several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(Vec<Expected>);

impl Versions {
    /// The tab has read or written this version.
    pub(crate) fn saw(&mut self, path: &str, version: &Version) {
        self.remember(Expected::new(path, version));
    }

    /// A save of this version failed, and may have taken effect.
    pub(crate) fn may_have_written(&mut self, path: &str, version: &Version) {
        let known = self.of(path);
        if known.versions.len() < MOST_VERSIONS {
            self.remember(known.or(version));
        }
    }

    fn remember(&mut self, file: Expected) {
        if let Some(known) = self.0.iter_mut().find(|known| known.path == file.path) {
            *known = file;
            return;
        }
        if self.0.len() == MOST_FILES {
            self.0.clear();
        }
        self.0.push(file);
    }

    /// What the file is expected to be.
    pub(crate) fn of(&self, path: &str) -> Expected {
        let known = self.0.iter().find(|known| known.path == path);
        known.cloned().unwrap_or_else(|| Expected::new(path, &Version::NO_FILE))
    }

    /// What the files that the tab knows are expected to be.
    pub(crate) fn all(&self) -> Vec<Expected> {
        self.0.clone()
    }

    /// What a save of this version, made from `base`, may replace; anything when absent. A file that already has the new
    /// content may be replaced in any case.
    pub(crate) fn replaceable(&self, path: &str, base: &Base, version: &Version) -> Option<Expected> {
        let expected = match base {
            Base::Overwrite => return None,
            Base::LastSeen => self.of(path),
            Base::Exactly(base) => Expected::new(path, base),
        };
        Some(expected.or(version))
    }

    /// Which version this content was made from, unless it is what the tab has read or written.
    pub(crate) fn base_of(&self, path: &str, version: &Version) -> Option<Version> {
        let known = self.of(path);
        (!known.allows(version)).then(|| Version::new(known.first()))
    }
}
