//! Some tabs, one folder, the Web Locks and a clock, all in memory: what a shell does, without any of its waiting.

use std::collections::BTreeMap;

use leasehold_core::lease::Proof;
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::{LeaseId, Meta, Owner};
use leasehold_project_rules::guarded::{LockFile, Probe};
use leasehold_project_rules::record::{Content, Record, guard_text, read_guard};
use leasehold_project_rules::wire::json::Json;
use leasehold_project_rules::wire::{DialectsView, ProjectEventView, ProjectName};
use leasehold_project_rules::{
    Answer, Base, CallId, Effect, Event, Folder as Kind, IoReply, IoStep, NotSaved, Now, Options,
    ProjectLease, ProjectLock, ReleaseReason, Save, Settled, Surroundings, Ticket, Version, WebLock,
};

/// When every world begins: 2026-11-15T13:00:00Z.
pub const START: u64 = 1_794_747_600_000;

/// No machine wants this many things in one moment: one that does would go on for ever.
pub const RESTLESS: usize = 1_000;

/// The one file of the project.
pub const FILE: &str = "current.json";

/// What a tab's browser makes of Web Locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Web {
    Works,
    Unsupported,
    Denied,
}

/// What goes wrong in the folder, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    GuardBusy,
    Open,
    Read,
    Write,
    Remove,
    /// Held files cannot be opened.
    Held,
    /// Writing `.lock` is reported as failed, and has happened.
    WriteUnknown,
    /// The same for a save.
    SaveUnknown,
    /// The version of the file that is to be replaced cannot be read.
    Version,
}

#[derive(Default)]
pub struct Folder {
    pub lock: Option<(Content, u64)>,
    pub guard: String,
    /// Which tab is in a guarded section.
    pub guarded_by: Option<usize>,
    /// Which tab has which held file open; none when the tab is gone.
    pub held: BTreeMap<u64, Option<usize>>,
    pub trouble: Option<Trouble>,
    /// Every name that was written or removed.
    pub touched: Vec<String>,
    /// How many files were saved.
    pub saves: u32,
    /// How often it was only looked at.
    pub looks: u32,
    /// The version of the one file; empty when there is none.
    pub file: String,
    /// Every step that was taken.
    pub steps: Vec<IoStep>,
    /// The version that a call saves.
    pub to_save: BTreeMap<u32, String>,
}

pub struct Tab {
    pub machine: ProjectLock,
    pub web: Web,
    folder: Kind,
    pub events: Vec<Event>,
    pub answers: BTreeMap<u32, Answer>,
    pub saved: BTreeMap<u32, Result<(), NotSaved>>,
    alive: bool,
    /// Whether the page does not get to its events.
    pub is_busy: bool,
}

pub struct World {
    pub now: u64,
    pub tabs: Vec<Tab>,
    pub folder: Folder,
    /// Who has the Web Lock, and who waits for it.
    pub web_lock: Option<(usize, Ticket)>,
    web_queue: Vec<(usize, Ticket)>,
    calls: u32,
    lives: u8,
}

impl Tab {
    /// A page that was just opened, for the first time or again.
    fn new(at: usize, life: u8, web: Web, folder: &Kind) -> Self {
        Self {
            machine: ProjectLock::new(Surroundings {
                owner: Owner::parse(&format!("tab-{at}")).unwrap(),
                root: "project".into(),
                folder: folder.clone(),
                seed: [u8::try_from(at).unwrap() + 1 + 16 * life; 16],
            }),
            web,
            folder: folder.clone(),
            events: Vec::new(),
            answers: BTreeMap::new(),
            saved: BTreeMap::new(),
            alive: true,
            is_busy: false,
        }
    }
}

impl World {
    /// As many tabs as there are ways of having Web Locks.
    pub fn new(webs: &[Web]) -> Self {
        Self::with_folder(webs, &Kind::Guarded)
    }

    pub fn with_folder(webs: &[Web], kind: &Kind) -> Self {
        let tab = |(at, web): (usize, &Web)| Tab::new(at, 0, *web, kind);
        Self {
            now: START,
            tabs: webs.iter().enumerate().map(tab).collect(),
            folder: Folder::default(),
            web_lock: None,
            web_queue: Vec::new(),
            calls: 0,
            lives: 0,
        }
    }

    pub fn time(&self) -> Now {
        Now::both(self.now)
    }

    /// Lets the application of a tab do something, and the shell what follows from it.
    pub fn tab(&mut self, tab: usize, does: impl FnOnce(&mut ProjectLock, CallId, Now)) -> u32 {
        self.calls += 1;
        let now = self.time();
        does(&mut self.tabs[tab].machine, CallId(self.calls), now);
        self.settle();
        self.calls
    }

    /// Saves the one file as this version, made from this base.
    pub fn save(&mut self, tab: usize, claim: Proof, version: &str, base: Base) -> u32 {
        self.folder.to_save.insert(self.calls + 1, version.into());
        let save = Save { claim, path: FILE.into(), version: Version::new(version), base };
        self.tab(tab, |machine, call, now| machine.save(call, save, now))
    }

    /// What became of a save: `saved`, or the code of its refusal.
    pub fn saved(&self, tab: usize, call: u32) -> &'static str {
        match &self.tabs[tab].saved[&call] {
            Ok(()) => "saved",
            Err(NotSaved::Lost(error) | NotSaved::StaleBase(error)) => error.code(),
            Err(NotSaved::Folder(error)) => error.kind.as_str(),
        }
    }

    /// Reads the one file.
    pub fn read(&mut self, tab: usize) {
        let version = Version::new(&self.folder.file);
        self.tabs[tab].machine.saw(FILE, version);
    }

    /// The claim of a tab that holds.
    pub fn claim(&self, tab: usize) -> Proof {
        self.tabs[tab].machine.claim(self.time()).unwrap()
    }

    pub fn acquire(&mut self, tab: usize, options: &Options) -> u32 {
        self.tab(tab, |machine, call, now| machine.acquire(call, options, now))
    }

    pub fn release(&mut self, tab: usize) -> u32 {
        let lease_id = self.lease(tab).lease_id;
        self.tab(tab, |machine, call, now| {
            machine.release(call, lease_id, ReleaseReason::Completed, false, now);
        })
    }

    pub fn renew(&mut self, tab: usize) -> u32 {
        let lease_id = self.lease(tab).lease_id;
        self.tab(tab, |machine, call, now| machine.renew(call, lease_id, None, now))
    }

    pub fn lease(&self, tab: usize) -> ProjectLease {
        self.tabs[tab].machine.lease().expect("a lease").clone()
    }

    pub fn holds(&self, tab: usize) -> bool {
        self.tabs[tab].machine.is_held(self.time())
    }

    pub fn answer(&self, tab: usize, call: u32) -> &Answer {
        self.tabs[tab].answers.get(&call).unwrap_or_else(|| panic!("call {call} is not answered"))
    }

    pub fn acquired(&self, tab: usize, call: u32) -> ProjectLease {
        match self.answer(tab, call) {
            Ok(Settled::Acquired(lease) | Settled::Renewed(lease)) => lease.clone(),
            other => panic!("no lease: {other:?}"),
        }
    }

    pub fn code(&self, tab: usize, call: u32) -> &'static str {
        self.answer(tab, call).as_ref().expect_err("an error").code()
    }

    /// Lets time pass, timer by timer.
    pub fn advance(&mut self, millis: u64) {
        let end = self.now + millis;
        let mut timers = (self.now, 0);
        loop {
            let due = |tab: &Tab| tab.machine.poll_timeout().filter(|_| tab.alive).map(|at| at.as_millis());
            let next = self.tabs.iter().filter_map(due).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            timers = if timers.0 == self.now { (self.now, timers.1 + 1) } else { (self.now, 0) };
            assert!(timers.1 < RESTLESS, "a timer is due again and again");
            self.fire();
        }
        self.now = end;
        self.fire();
    }

    fn fire(&mut self) {
        let now = self.time();
        self.tabs.iter_mut().filter(|tab| tab.alive).for_each(|tab| tab.machine.handle_timeout(now));
        self.settle();
    }

    /// Time passes, and nobody notices: the machine was asleep.
    pub fn sleep(&mut self, millis: u64) {
        self.now += millis;
    }

    /// The tab is closed, or crashes.
    pub fn kill(&mut self, tab: usize) {
        self.tabs[tab].alive = false;
        self.folder.guarded_by = self.folder.guarded_by.filter(|holder| *holder != tab);
        self.folder
            .held
            .values_mut()
            .filter(|holder| **holder == Some(tab))
            .for_each(|holder| *holder = None);
        self.web_queue.retain(|(waiting, _)| *waiting != tab);
        if self.web_lock.is_some_and(|(holder, _)| holder == tab) {
            self.web_lock = None;
        }
        self.settle();
    }

    /// The page is there again, with a new machine.
    pub fn revive(&mut self, tab: usize) {
        let folder = self.tabs[tab].folder.clone();
        self.lives += 1;
        let web = self.tabs[tab].web;
        self.tabs[tab] = Tab::new(tab, self.lives, web, &folder);
    }

    /// Does the next thing that the machine of a tab wants.
    pub fn step(&mut self, tab: usize) {
        if let Some(effect) = self.tabs[tab].machine.poll_effect() {
            self.perform(tab, effect);
        }
    }

    /// Does what the machines want until they want nothing more.
    pub fn settle(&mut self) {
        for _ in 0..RESTLESS {
            let mut quiet = self.pass_web_lock_on();
            for tab in 0..self.tabs.len() {
                let mut wanted = 0;
                while let Some(effect) = self.tabs[tab].machine.poll_effect() {
                    wanted += 1;
                    assert!(wanted < RESTLESS, "tab {tab} wants ever more; now {effect:?}");
                    quiet = false;
                    if self.tabs[tab].alive {
                        self.perform(tab, effect);
                    }
                }
            }
            if quiet {
                return;
            }
        }
        panic!("the tabs do not come to rest");
    }

    fn perform(&mut self, tab: usize, effect: Effect) {
        let now = self.time();
        match effect {
            Effect::RequestWebLock { ticket, steal } => self.request_web_lock(tab, ticket, steal),
            Effect::DropWebLock(ticket) => {
                self.web_queue.retain(|waiting| *waiting != (tab, ticket));
                if self.web_lock == Some((tab, ticket)) {
                    self.web_lock = None;
                }
            }
            Effect::Io(step) => {
                let reply = self.folder.take_step(tab, &step, self.now);
                self.tabs[tab].machine.handle_io(reply, now);
            }
            Effect::DropHeld(fence) => {
                let held = self.folder.held.get_mut(&fence.get()).filter(|holder| **holder == Some(tab));
                held.into_iter().for_each(|holder| *holder = None);
            }
            Effect::Emit(event) => {
                let asks = matches!(event, Event::HandoverRequested(_));
                self.tabs[tab].events.push(event);
                if asks && !self.tabs[tab].is_busy {
                    self.tabs[tab].machine.handover_told(now);
                }
            }
            Effect::Broadcast(news) => {
                for (at, other) in self.tabs.iter_mut().enumerate() {
                    if at != tab && other.alive {
                        other.machine.handle_news(&news, now);
                    }
                }
            }
            Effect::Settle { call, answer } => {
                let twice = self.tabs[tab].answers.insert(call.0, answer);
                assert_eq!(twice, None, "call {} was answered twice", call.0);
            }
            Effect::Saved { call, saved } => {
                let twice = self.tabs[tab].saved.insert(call.0, saved);
                assert_eq!(twice, None, "save {} was answered twice", call.0);
            }
        }
    }

    fn request_web_lock(&mut self, tab: usize, ticket: Ticket, steal: bool) {
        let now = self.time();
        let says = |what| Some(what);
        let answer = match self.tabs[tab].web {
            Web::Works => None,
            Web::Unsupported => says(WebLock::Unsupported),
            Web::Denied => says(WebLock::Denied { said: "SecurityError".into() }),
        };
        if let Some(answer) = answer {
            return self.tabs[tab].machine.handle_web_lock(ticket, answer, now);
        }
        if steal && let Some((holder, stolen)) = self.web_lock.take() {
            self.tabs[holder].machine.handle_web_lock(stolen, WebLock::Stolen, now);
        }
        let at = if steal { 0 } else { self.web_queue.len() };
        self.web_queue.insert(at, (tab, ticket));
    }

    /// Gives the Web Lock to the next in the queue. Answers whether nothing happened.
    fn pass_web_lock_on(&mut self) -> bool {
        if self.web_lock.is_some() || self.web_queue.is_empty() {
            return true;
        }
        let (tab, ticket) = self.web_queue.remove(0);
        self.web_lock = Some((tab, ticket));
        let now = self.time();
        self.tabs[tab].machine.handle_web_lock(ticket, WebLock::Granted, now);
        false
    }

    /// What a tab's subscribers heard, as JSON, in one dialect.
    pub fn heard(&self, tab: usize, dialect: &str) -> Vec<String> {
        // Through a parser, which sorts the members, and shows that it is JSON.
        let json = |view: &ProjectEventView<'_>| {
            let mut text = Vec::new();
            view.write(&mut text);
            serde_json::from_slice::<serde_json::Value>(&text).unwrap().to_string()
        };
        let project = ProjectName { root: "project".into(), lock_name: "imgponic:project".into() };
        let all = self.tabs[tab].events.iter().map(|event| DialectsView::new(event, &project));
        all.flat_map(|views| match dialect {
            "lock" => vec![json(&views.lock)],
            "service" => views.service.iter().map(json).collect(),
            _ => views.autosave.iter().map(json).collect(),
        })
        .collect()
    }

    /// Only the types of it.
    pub fn types(&self, tab: usize, dialect: &str) -> Vec<String> {
        let kind = |line: &String| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["type"].as_str().unwrap().to_owned()
        };
        self.heard(tab, dialect).iter().map(kind).collect()
    }
}

impl Folder {
    /// One step, as a shell takes it.
    pub fn take_step(&mut self, tab: usize, step: &IoStep, now: u64) -> IoReply {
        self.steps.push(step.clone());
        if let Some(said) = self.refuses(step) {
            return IoReply::Failed { said: said.into() };
        }
        match step {
            IoStep::TakeGuard { look } => {
                self.looks += u32::from(*look);
                if self.trouble == Some(Trouble::GuardBusy) || self.guarded_by.is_some() {
                    return IoReply::Busy;
                }
                self.guarded_by = Some(tab);
            }
            IoStep::ReadGuard => return IoReply::Guard(read_guard(&self.guard)),
            IoStep::ReadLock => return IoReply::Lock(self.read_lock()),
            IoStep::ProbeHeld(fence) => {
                return IoReply::Probe(match self.held.get(&fence.get()) {
                    None => Probe::Unknown,
                    Some(None) => Probe::Free,
                    Some(Some(_)) => Probe::Busy,
                });
            }
            IoStep::WriteGuard(fence) => {
                self.guard = guard_text(*fence);
                self.touched.push(".lock.guard".into());
            }
            IoStep::OpenHeld(fence) => {
                self.held.insert(fence.get(), Some(tab));
            }
            IoStep::WriteLock(record) => {
                self.touched.push(".lock".into());
                self.lock = Some((Content::Record(record.clone()), now));
                if self.trouble == Some(Trouble::WriteUnknown) {
                    return IoReply::Failed { said: "UnknownError".into() };
                }
            }
            IoStep::RemoveLock => {
                self.touched.push(".lock".into());
                self.lock = None;
            }
            // A tab that acquires does so when it has let the guard go.
            IoStep::ReadVersion(_) => return IoReply::Version(Version::new(&self.file)),
            IoStep::Save(call) => {
                self.saves += 1;
                self.file = self.to_save.get(&call.0).cloned().unwrap_or_default();
                if self.trouble == Some(Trouble::SaveUnknown) {
                    return IoReply::Failed { said: "UnknownError".into() };
                }
            }
            IoStep::CloseHeld(fence) => {
                let others = self.held.get(&fence.get()).is_some_and(|it| it.is_some_and(|it| it != tab));
                assert!(!others, "{step:?} is another tab's");
                self.held.remove(&fence.get());
            }
            IoStep::DropHeld(fence) => {
                let held = self.held.get_mut(&fence.get()).filter(|holder| **holder == Some(tab));
                held.into_iter().for_each(|holder| *holder = None);
            }
            IoStep::SweepHeld { keep } => {
                self.held.retain(|fence, holder| *fence == keep.get() || holder.is_some());
            }
            IoStep::DropGuard => self.guarded_by = None,
        }
        assert_eq!(self.guarded_by.is_none(), *step == IoStep::DropGuard, "{step:?} needs the guard");
        IoReply::Done
    }

    fn refuses(&self, step: &IoStep) -> Option<&'static str> {
        match (self.trouble?, step) {
            (Trouble::Open, IoStep::TakeGuard { .. }) => Some("NotAllowedError"),
            (Trouble::Read, IoStep::ReadGuard) if self.lock.is_none() => Some("NotReadableError"),
            (Trouble::Write, IoStep::WriteLock(_) | IoStep::RemoveLock) => Some("QuotaExceededError"),
            (Trouble::Remove, IoStep::RemoveLock) => Some("QuotaExceededError"),
            (Trouble::Version, IoStep::ReadVersion(_)) => Some("NotReadableError"),
            (Trouble::Held, IoStep::OpenHeld(_)) => Some("NoModificationAllowedError"),
            _ => None,
        }
    }

    fn read_lock(&self) -> LockFile {
        match &self.lock {
            None => LockFile::Missing,
            Some((_, modified)) if self.trouble == Some(Trouble::Read) => LockFile::Unreadable {
                modified: Some(StoreTime::from_millis(*modified)),
                said: "NotReadableError".into(),
            },
            Some((content, modified)) => {
                LockFile::Read { content: content.clone(), modified: StoreTime::from_millis(*modified) }
            }
        }
    }

    /// What `.lock` says.
    pub fn record(&self) -> Record {
        match &self.lock.as_ref().expect("a .lock").0 {
            Content::Record(record) => record.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// The `.lock` of another tab, without a fence and a held file, as the sources write it.
pub fn foreign(updated: u64) -> Content {
    Content::Record(Record {
        lease_id: LeaseId::parse("0b7c2b6e-58a5-4f0a-9a53-0d6f0f1d2c3b").unwrap(),
        owner: Owner::parse("other-tab").unwrap(),
        label: Meta::default(),
        acquired_at: StoreTime::from_millis(updated),
        updated_at: StoreTime::from_millis(updated),
        ttl: Ttl::from_secs(30).unwrap(),
        fence: None,
        seq: 0,
        held: false,
    })
}
