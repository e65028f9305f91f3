//! Crash safety, shown: the writes of saves are recorded, and every state that a crash could leave behind is made and read
//! again. A crash may come after any write. Of the names that were changed since their folder was last synced, any part may be
//! on disk; of a file that was not synced, nothing, a half or all. And the disk may refuse any of the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::RawMode;
use rustix::io::Errno;

use super::*;
use crate::disk::{Disk, Kernel};

/// A file, by the order in which it was made.
type FileId = usize;

/// A name, and which file has it now.
type Name = (PathBuf, Option<FileId>);

/// A write, with the paths below the project's folder.
#[derive(Clone, Debug)]
enum Wrote {
    /// These names in this folder are these files now, or none.
    Names(PathBuf, Vec<Name>),
    Content(FileId, Vec<u8>),
    Synced(FileId),
    SyncedFolder(PathBuf),
}

#[derive(Debug, Default)]
struct Log {
    root: PathBuf,
    writes: Vec<Wrote>,
    files: Vec<u64>,
    /// Which file has a name now, of those that were made here.
    names: BTreeMap<PathBuf, FileId>,
    /// How many writes succeed before one fails, and with what.
    fault: Option<(usize, Errno)>,
}

/// The kernel, whose writes are recorded, and refused at will.
#[derive(Clone, Debug)]
struct Recorder(Arc<Mutex<Log>>);

impl Recorder {
    fn new(root: &Path) -> Self {
        Self(Arc::new(Mutex::new(Log { root: root.canonicalize().unwrap(), ..Log::default() })))
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write; fails if it is the one that is to fail.
    fn count(&self) -> io::Result<()> {
        let mut log = self.log();
        match log.fault.take() {
            Some((0, errno)) => Err(errno.into()),
            Some((left, errno)) => {
                log.fault = Some((left - 1, errno));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn path(&self, folder: BorrowedFd<'_>) -> PathBuf {
        let path = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).unwrap();
        path.strip_prefix(&self.log().root).unwrap().to_owned()
    }

    fn file(&self, file: &File) -> FileId {
        let number = file.metadata().unwrap().ino();
        self.log().files.iter().rposition(|known| *known == number).unwrap()
    }

    fn names(&self, folder: PathBuf, names: Vec<Name>) {
        let mut log = self.log();
        for (name, file) in &names {
            match file {
                Some(file) => log.names.insert(name.clone(), *file),
                None => log.names.remove(name),
            };
        }
        log.writes.push(Wrote::Names(folder, names));
    }

    fn known(&self, path: &Path) -> Option<FileId> {
        self.log().names.get(path).copied()
    }
}

impl Disk for Recorder {
    fn create(&self, within: BorrowedFd<'_>, name: &str, mode: RawMode) -> io::Result<File> {
        self.count()?;
        let file = Kernel.create(within, name, mode)?;
        let (folder, id) = (self.path(within), self.log().files.len());
        self.log().files.push(file.metadata()?.ino());
        self.names(folder.clone(), vec![(folder.join(name), Some(id))]);
        Ok(file)
    }

    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        self.count()?;
        Kernel.write(file, content)?;
        let id = self.file(file);
        self.log().writes.push(Wrote::Content(id, content.to_owned()));
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.count()?;
        Kernel.sync(file)?;
        let id = self.file(file);
        self.log().writes.push(Wrote::Synced(id));
        Ok(())
    }

    fn sync_folder(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.count()?;
        Kernel.sync_folder(folder)?;
        let path = self.path(folder);
        self.log().writes.push(Wrote::SyncedFolder(path));
        Ok(())
    }

    fn rename(&self, within: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
        self.count()?;
        Kernel.rename(within, from, to)?;
        let folder = self.path(within);
        let (from, to) = (folder.join(from), folder.join(to));
        let file = self.known(&from);
        self.names(folder, vec![(from, None), (to, file)]);
        Ok(())
    }

    fn link(&self, from: BorrowedFd<'_>, name: &str, into: BorrowedFd<'_>, second: &str) -> io::Result<()> {
        self.count()?;
        Kernel.link(from, name, into, second)?;
        let file = self.known(&self.path(from).join(name));
        let folder = self.path(into);
        self.names(folder.clone(), vec![(folder.join(second), file)]);
        Ok(())
    }

    fn unlink(&self, within: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        self.count()?;
        Kernel.unlink(within, name)?;
        let folder = self.path(within);
        self.names(folder.clone(), vec![(folder.join(name), None)]);
        Ok(())
    }
}

/// What is on disk: the content of each path.
type OnDisk = BTreeMap<PathBuf, Vec<u8>>;

/// Everything that could be on disk after a crash that followed these writes.
fn after_a_crash(before: &OnDisk, writes: &[Wrote]) -> BTreeSet<OnDisk> {
    let mut durable: BTreeMap<&Path, Option<FileId>> = BTreeMap::new();
    let mut pending: Vec<(&Path, &[Name])> = Vec::new();
    let mut contents: BTreeMap<FileId, (Vec<u8>, bool)> = BTreeMap::new();
    for wrote in writes {
        match wrote {
            Wrote::Names(folder, names) => pending.push((folder, names)),
            Wrote::Content(file, content) => drop(contents.insert(*file, (content.clone(), false))),
            Wrote::Synced(file) => contents.entry(*file).or_default().1 = true,
            Wrote::SyncedFolder(folder) => {
                for (_, names) in pending.extract_if(.., |(within, _)| within == folder) {
                    durable.extend(names.iter().map(|(name, file)| (name.as_path(), *file)));
                }
            }
        }
    }
    assert!(pending.len() < 16, "{} names are not synced", pending.len());
    let mut states = BTreeSet::new();
    for chosen in 0..1_u32 << pending.len() {
        let mut names = durable.clone();
        for (_, changed) in
            pending.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, op)| op)
        {
            names.extend(changed.iter().map(|(name, file)| (name.as_path(), *file)));
        }
        for share in 0..=2 {
            let mut state = before.clone();
            for (name, file) in &names {
                let Some(file) = file else {
                    state.remove(*name);
                    continue;
                };
                let (content, is_synced) = contents.get(file).cloned().unwrap_or_default();
                let length = if is_synced { content.len() } else { content.len() * share / 2 };
                state.insert((*name).to_owned(), content[..length].to_vec());
            }
            states.insert(state);
        }
    }
    states
}

/// All files below a folder but those of the lock.
fn on_disk(root: &Path) -> OnDisk {
    let mut found = OnDisk::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if !entry.file_name().to_string_lossy().starts_with(".lock") {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// A program that saves texts.
struct Writer {
    text: Arc<Mutex<String>>,
    autosave: AutoSave,
}

impl Writer {
    fn start(project: Project) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let content = text.clone();
        let document = Document::new(move || Ok(content.lock().unwrap().clone().into_bytes()));
        let retention = Retention { max_generations: 3, ..Retention::default() };
        let options = Options { retention, ..Options::default() };
        let autosave = AutoSave::start(project, options, document.applied_by(|_| {})).unwrap();
        Self { text, autosave }
    }

    /// Saves a text; a save that fails is tried again at once.
    fn save(&self, text: &str) -> bool {
        *self.text.lock().unwrap() = text.into();
        let (answer, answered) = mpsc::channel();
        self.autosave.send(Order::Changed);
        self.autosave.send(Order::Flush(answer));
        self.autosave.send(Order::Retry);
        answered.recv().unwrap()
    }

    /// The same; what follows a save is done, too, because the same text once more is not saved again.
    fn save_and_tidy(&self, text: &str) -> bool {
        self.save(text) && self.save(text)
    }
}

/// Texts of several blocks, so that a half is seen to be one.
fn version(number: usize) -> String {
    format!("\"version {number} {}\"", "x".repeat(10_000 + number))
}

#[test]
fn after_a_crash_at_any_write_there_is_the_whole_old_or_the_whole_new_version() {
    let place = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(place.path());
    let writer = Writer::start(Project::open_on(place.path(), Box::new(recorder.clone())).unwrap());
    for number in 0..4 {
        assert!(writer.save_and_tidy(&version(number)));
    }
    let before = on_disk(place.path());
    recorder.log().writes.clear();
    assert!(writer.save_and_tidy(&version(4)));
    let writes = recorder.log().writes.clone();
    let ours = |path: &Path| path.starts_with("autosave");
    // Acknowledged is what was synced after the rename.
    let renamed = writes.iter().position(|wrote| {
        matches!(wrote, Wrote::Names(_, names) if names.iter().any(|(name, _)| name == Path::new(CURRENT)))
    });
    let synced =
        |wrote: &Wrote| matches!(wrote, Wrote::SyncedFolder(folder) if folder == Path::new("autosave"));
    let renamed = renamed.expect("a rename");
    let acknowledged = renamed + writes[renamed..].iter().position(synced).expect("a sync");
    let mut count = 0;
    for end in 0..=writes.len() {
        for state in after_a_crash(&before, &writes[..end]) {
            count += 1;
            let current = String::from_utf8(state[Path::new(CURRENT)].clone()).unwrap();
            let is_new = current == version(4);
            assert!(is_new || current == version(3), "after {end} writes: {} bytes", current.len());
            assert!(is_new || end <= acknowledged, "the acknowledged version is lost after {end} writes");
            let rest = state.into_iter().filter(|(path, _)| ours(path)).collect();
            check_the_rest(&rest, &current);
        }
    }
    assert!(count > 50, "{count} states");
}

/// Whatever else a crash has left, the next program finds every version whole, and puts the rest in order.
fn check_the_rest(state: &OnDisk, current: &str) {
    let place = tempfile::tempdir().unwrap();
    for (path, content) in state {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let project = Project::open(place.path()).unwrap();
    for generation in history(&project).unwrap() {
        let content = read(&project, generation.stamp).unwrap().unwrap();
        let content = String::from_utf8(content).unwrap();
        assert!((0..5).any(|number| content == version(number)), "{} bytes", content.len());
    }
    let writer = Writer::start(project.clone());
    assert!(writer.save_and_tidy(current) && writer.autosave.stop());
    let found = history(&project).unwrap();
    assert!((1..=3).contains(&found.len()), "{found:?}");
    let newest = read(&project, found[0].stamp).unwrap().unwrap();
    assert_eq!(newest, current.as_bytes(), "the current version is a generation");
    let index = fs::read_to_string(place.path().join(INDEX)).unwrap();
    assert_eq!(index, history::History::new(found).index());
}

#[test]
fn whatever_write_fails_nothing_is_lost_and_the_next_try_saves() {
    for errno in [Errno::IO, Errno::NOSPC] {
        for failing in 0.. {
            let place = tempfile::tempdir().unwrap();
            let recorder = Recorder::new(place.path());
            let writer = Writer::start(Project::open_on(place.path(), Box::new(recorder.clone())).unwrap());
            for number in 0..4 {
                assert!(writer.save_and_tidy(&version(number)));
            }
            recorder.log().fault = Some((failing, errno));
            assert!(writer.save_and_tidy(&version(4)), "{errno} at write {failing}");
            let has_failed = recorder.log().fault.is_none();
            recorder.log().fault = None;
            assert_eq!(fs::read_to_string(place.path().join(CURRENT)).unwrap(), version(4));
            let project = writer.autosave.project.clone();
            assert!(writer.autosave.stop());
            for generation in history(&project).unwrap() {
                let content = read(&project, generation.stamp).unwrap().unwrap();
                let is_whole = (0..5).any(|number| version(number).as_bytes() == content);
                assert!(is_whole, "{errno} at write {failing}");
            }
            let left: Vec<_> = on_disk(place.path()).into_keys().collect();
            assert!(left.iter().all(|path| path.extension().is_some_and(|end| end == "json")), "{left:?}");
            if !has_failed {
                assert!(failing > 6, "a save takes more writes than {failing}");
                break;
            }
        }
    }
}
