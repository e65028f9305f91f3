//! Drafts: what a program could not save, kept in files of their own beside the project's. A draft never replaces a file of
//! the project, so that keeping one needs no lock. The npm package keeps drafts in the same form.

use std::io;

use leasehold_core::StoreTime;
use leasehold_project_rules::Version;
use leasehold_project_rules::root::file;
use serde::{Deserialize, Serialize};

use crate::section::{Folder, version_of};

/// How many drafts a project has at most: the oldest is dropped.
const MOST: usize = 20;

/// What could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// What it is called when it is discarded.
    pub id: String,
    /// The file that it was to become.
    pub path: String,
    /// The content.
    pub content: Vec<u8>,
    /// The version of the file that it was made from.
    pub base: Version,
    /// When it was kept.
    pub at: StoreTime,
}

/// The first line of a draft. The content follows.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct About {
    path: String,
    base: String,
    #[serde(default)]
    is_text: bool,
    /// How many bytes follow. A draft that a crash has cut off has fewer.
    size: usize,
}

/// Keeps content as a draft; answers its id. Of more drafts than there may be, the oldest are removed.
pub(crate) fn keep<F: Folder>(
    folder: &F,
    path: &str,
    content: &[u8],
    base: &Version,
    now: StoreTime,
) -> io::Result<String> {
    let about = About {
        path: path.to_owned(),
        base: base.as_str().to_owned(),
        is_text: std::str::from_utf8(content).is_ok(),
        size: content.len(),
    };
    let mut whole = serde_json::to_vec(&about)?;
    whole.push(b'\n');
    whole.extend_from_slice(content);
    // Of the whole, and not of the content alone: two files may have the same.
    let hash = version_of(&whole);
    let id = format!("{}{}.{}", file::DRAFT, now.as_millis(), hash.as_str().get(..16).unwrap_or_default());
    folder.keep_draft(&id, &whole)?;
    let ids = ids(folder)?;
    for old in ids.iter().take(ids.len().saturating_sub(MOST)) {
        folder.discard_draft(old)?;
    }
    Ok(id)
}

/// The drafts, the oldest first. What is none, or was cut off, is left out.
pub(crate) fn all<F: Folder>(folder: &F) -> io::Result<Vec<Draft>> {
    let mut drafts = Vec::new();
    for id in ids(folder)? {
        if let Some(draft) = folder.read(&id)?.and_then(|whole| read(&id, &whole)) {
            drafts.push(draft);
        }
    }
    Ok(drafts)
}

/// Removes a draft; fine if it is gone.
pub(crate) fn discard<F: Folder>(folder: &F, id: &str) -> io::Result<()> {
    if !id.starts_with(file::DRAFT) || id.contains('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not the id of a draft"));
    }
    folder.discard_draft(id)
}

fn ids<F: Folder>(folder: &F) -> io::Result<Vec<String>> {
    let mut ids = folder.draft_ids()?;
    ids.sort_unstable();
    Ok(ids)
}

fn read(id: &str, whole: &[u8]) -> Option<Draft> {
    let at = id.strip_prefix(file::DRAFT)?.split('.').next()?.parse().ok()?;
    let end = whole.iter().position(|byte| *byte == b'\n')?;
    let (about, content) = whole.split_at_checked(end)?;
    let about: About = serde_json::from_slice(about).ok()?;
    let content = content.get(1..)?;
    (content.len() == about.size).then(|| Draft {
        id: id.to_owned(),
        path: about.path,
        content: content.to_owned(),
        base: Version::new(&about.base),
        at: StoreTime::from_millis(at),
    })
}
