//! The autosave of a page: its requests, and what they mean. A module of its own (feature `autosave`), so that a page that only
//! locks does not load it. Bindings only: there is no rule in here.

use std::time::Duration;

use leasehold_core::time::whole_millis;
use leasehold_project_rules::autosave::history::{Generation, History, Retention, Stamp};
use leasehold_project_rules::autosave::wire::{AutoSaveEffect, AutoSaveView, GenerationView, NoticeView};
use leasehold_project_rules::autosave::{AutoSave, Failure, Listing, Lock, Options, Source, Taken};
use leasehold_project_rules::wire::json::Json;
use leasehold_project_rules::wire::shape::{self, Shape};
use leasehold_project_rules::{CallId, Clock, Now, Version, shape};

use crate::border::{RequestTable, fingerprint, requests};
use crate::fields::Wrong;
use crate::tab::Readings;

/// All requests.
pub const REQUESTS: &[RequestTable] = Request::TABLES;

/// The shapes of what is answered.
pub const ANSWERS: &[Shape] =
    &[Answer::SHAPE, AutoSaveView::SHAPE, GenerationView::SHAPE, AutoSaveEffect::SHAPE, NoticeView::SHAPE];

/// A hash of all declarations.
pub const FINGERPRINT: u32 = shape::hash(ANSWERS, fingerprint(REQUESTS));

requests! {
    Request;
    /// Makes a machine; the answer says its number. What is left out is the default.
    Open {
        debounce_ms: Option<f64>, idle_ms: Option<f64>, longest_wait_ms: Option<f64>, max_generations: Option<f64>,
        max_bytes: Option<f64>, thins: bool, looks: bool, applies: bool,
    }
    /// Forgets a machine.
    Close {}
    /// The document has changed.
    Changed {}
    /// It has changed since the last `look`.
    ChangedSinceLook {}
    /// What is known of the lock: acquiring, held, readonly, unavailable or released.
    Lock { lock: &'a str }
    /// What the folder has: a line for each file of the history, with its size, a space and its name; the versions are empty for
    /// no file.
    Listed {
        current: &'a str, current_bytes: u64, files: &'a str, newest: &'a str, index: Option<&'a str>,
    }
    /// It cannot be read.
    NotListed { said: &'a str }
    /// The document was serialised, and has this hash and size. `free` is how many more bytes may be written.
    Taken { version: &'a str, bytes: u64, free: Option<f64> }
    /// It cannot be.
    NotTaken { said: &'a str }
    /// It is saved.
    Committed {}
    /// It is not: lost, stale-base, no-space or io.
    NotCommitted { failure: &'a str, said: &'a str }
    /// Another step was done.
    Done {}
    /// It was not.
    NotDone { failure: &'a str, said: &'a str }
    /// The application goes on with this version; with its own, if it is left out.
    Applied { version: Option<&'a str> }
    /// Saves what is unsaved.
    Flush { call: u32 }
    /// Restores the generation with this time, or `current.json` if it is left out.
    Restore { call: u32, ts: Option<&'a str> }
    /// Tries at once what is waiting.
    Retry {}
    /// Saves, releases and stops.
    Stop { call: u32 }
    /// The time of the last answer's `timeoutMs` has come.
    Timeout {}
    /// Which generations are these files? Lines as for `listed`. The answer has them, the newest first.
    Generations { files: &'a str }
}

shape! {
    /// What an autosave answers to any request.
    #[derive(Default)]
    pub struct Answer {
        /// What is wrong with the request.
        pub invalid: Option<Wrong>,
        /// The number of the machine that was opened.
        pub machine: Option<u32>,
        /// What to do, in this order.
        pub effects: Vec<AutoSaveEffect>,
        /// When to come back with `timeout`, from now.
        pub timeout_ms: Option<u64>,
        /// Where it stands.
        pub now: Option<AutoSaveView>,
        /// Generations.
        pub generations: Vec<GenerationView>,
    }
}

/// The autosaves of a page, by number.
#[derive(Default)]
pub struct AutoSaves {
    machines: Vec<Option<Box<(AutoSave, Clock)>>>,
}

impl AutoSaves {
    /// None at all.
    pub const fn new() -> Self {
        Self { machines: Vec::new() }
    }

    /// Handles a request to this machine, and writes the answer as JSON.
    pub fn handle(&mut self, machine: usize, at: Readings, bytes: &[u8]) -> Vec<u8> {
        let answer = Request::read(bytes).and_then(|request| self.answer(&request, machine, at));
        let answer = answer.unwrap_or_else(|why| Answer { invalid: Some(why), ..Answer::default() });
        let mut json = Vec::new();
        answer.write(&mut json);
        json
    }

    fn answer(&mut self, request: &Request<'_>, number: usize, at: Readings) -> Result<Answer, Wrong> {
        match request {
            Request::Open { .. } => return self.open(request, at),
            Request::Generations { files } => {
                let history = History::new(generations(files));
                return Ok(Answer { generations: GenerationView::all(&history), ..Answer::default() });
            }
            _ => {}
        }
        let slot = self.machines.get_mut(number).ok_or("no autosave was opened under this number")?;
        if let Request::Close {} = request {
            *slot = None;
            return Ok(Answer::default());
        }
        let (autosave, clock) = &mut **slot.as_mut().ok_or("this autosave was closed")?;
        let now = clock.tick(at.wall, at.monotonic);
        handle(autosave, request, now)?;
        Ok(drained(autosave, now))
    }

    fn open(&mut self, request: &Request<'_>, at: Readings) -> Result<Answer, Wrong> {
        let mut clock = Clock::new(at.wall, at.monotonic);
        let mut autosave = AutoSave::new(options(request)?, clock.tick(at.wall, at.monotonic));
        let now = clock.tick(at.wall, at.monotonic);
        let answer = drained(&mut autosave, now);
        let number = self.machines.iter().position(Option::is_none).unwrap_or(self.machines.len());
        let machine = Some(Box::new((autosave, clock)));
        match self.machines.get_mut(number) {
            Some(free) => *free = machine,
            None => self.machines.push(machine),
        }
        Ok(Answer { machine: u32::try_from(number).ok(), ..answer })
    }
}

/// What an autosave wants, and where it stands.
fn drained(autosave: &mut AutoSave, now: Now) -> Answer {
    let mut effects = Vec::new();
    while let Some(effect) = autosave.poll_effect() {
        effects.push(effect.into());
    }
    let due = autosave.poll_timeout().map(|due| whole_millis(due.since(now.steady)));
    Answer { effects, timeout_ms: due, now: Some(AutoSaveView::new(autosave, now)), ..Answer::default() }
}

fn handle(autosave: &mut AutoSave, request: &Request<'_>, now: Now) -> Result<(), Wrong> {
    match request {
        Request::Changed {} => autosave.changed(now),
        Request::ChangedSinceLook {} => autosave.changed_since_look(now),
        Request::Lock { lock } => autosave.handle_lock(lock_of(lock)?, now),
        Request::Listed { current, current_bytes, files, newest, index } => {
            let listing = Listing {
                current: Version::new(current),
                current_bytes: *current_bytes,
                generations: generations(files).collect(),
                newest: Version::new(newest),
                index: index.map(Into::into),
            };
            autosave.handle_listed(Ok(listing), now);
        }
        Request::NotListed { said } => autosave.handle_listed(Err((*said).into()), now),
        Request::Taken { version, bytes, free } => {
            let free = free.map(|free| free as u64);
            autosave
                .handle_taken(Taken::Content { version: Version::new(version), bytes: *bytes, free }, now);
        }
        Request::NotTaken { said } => autosave.handle_taken(Taken::Failed { said: (*said).into() }, now),
        Request::Committed {} => autosave.handle_committed(Ok(()), now),
        Request::NotCommitted { failure, said } => {
            autosave.handle_committed(Err(failure_of(failure, said)), now);
        }
        Request::Done {} => autosave.handle_done(Ok(()), now),
        Request::NotDone { failure, said } => autosave.handle_done(Err(failure_of(failure, said)), now),
        Request::Applied { version } => autosave.handle_applied(version.map(Version::new), now),
        Request::Flush { call } => autosave.flush(CallId(*call), now),
        Request::Restore { call, ts } => {
            let source = match ts {
                None => Source::Current,
                Some(ts) => Source::Generation(Stamp::parse(ts).ok_or("ts is no time of a generation")?),
            };
            autosave.restore(CallId(*call), source, now);
        }
        Request::Retry {} => autosave.retry(now),
        Request::Stop { call } => autosave.stop(CallId(*call), now),
        Request::Timeout {} => autosave.handle_timeout(now),
        Request::Open { .. } | Request::Close {} | Request::Generations { .. } => {}
    }
    Ok(())
}

fn options(request: &Request<'_>) -> Result<Options, Wrong> {
    let Request::Open {
        debounce_ms,
        idle_ms,
        longest_wait_ms,
        max_generations,
        max_bytes,
        thins,
        looks,
        applies,
    } = request
    else {
        return Err("this opens no autosave".into());
    };
    let defaults = Options::default();
    let time = |wanted: Option<f64>, usual: Duration| match wanted {
        None => Ok(usual),
        Some(millis) if (0.0..=86_400_000.0).contains(&millis) => Ok(Duration::from_millis(millis as u64)),
        Some(_) => Err(Wrong::from("a time is 0 to 86400000 ms")),
    };
    let count = |wanted: Option<f64>, usual: u64| match wanted {
        None => Ok(usual),
        Some(count) if (1.0..=9_007_199_254_740_991.0).contains(&count) => Ok(count as u64),
        Some(_) => Err(Wrong::from("maxGenerations and maxBytes are at least 1")),
    };
    let retention = Retention {
        max_generations: count(*max_generations, defaults.retention.max_generations as u64)? as usize,
        max_bytes: count(*max_bytes, defaults.retention.max_bytes)?,
        thins: *thins,
    };
    Ok(Options {
        // A look costs something: ten a second are enough.
        debounce: time(*debounce_ms, defaults.debounce)?.max(Duration::from_millis(100)),
        idle: time(*idle_ms, defaults.idle)?,
        longest_wait: time(*longest_wait_ms, defaults.longest_wait)?,
        retention,
        looks: *looks,
        applies: *applies,
    })
}

/// The generations among these files: lines of a size, a space and a name.
fn generations(files: &str) -> impl Iterator<Item = Generation> {
    files.split('\n').filter_map(|line| {
        let (bytes, name) = line.split_once(' ')?;
        Some(Generation { stamp: Stamp::of_file(name)?, bytes: bytes.parse().ok()? })
    })
}

fn lock_of(word: &str) -> Result<Lock, Wrong> {
    Ok(match word {
        "acquiring" => Lock::Acquiring,
        "held" => Lock::Held,
        "readonly" => Lock::ReadOnly,
        "unavailable" => Lock::Unavailable,
        "released" => Lock::Released,
        _ => return Err("there is no such lock".into()),
    })
}

fn failure_of(word: &str, said: &str) -> Failure {
    let said = said.into();
    match word {
        "lost" => Failure::Lost,
        "stale-base" => Failure::StaleBase,
        "no-space" => Failure::NoSpace { said },
        _ => Failure::Io { said },
    }
}
