//! What the requests of one page mean: `border.rs` has read and checked them, the rules decide, and the answer says what to
//! do and when to come back. Bindings only: there is no rule in here. A request that makes no sense changes nothing, and is
//! answered with what is wrong with it.

use leasehold_core::lease::Claim;
use leasehold_core::name::{Invalid, Reason};
use leasehold_core::time::{StoreTime, whole_millis};
use leasehold_core::{Fence, LeaseId, Owner};
use leasehold_project_rules::event::Event;
use leasehold_project_rules::guarded::{self, Action, Found, LockFile, Outcome, Probe, Verdict};
use leasehold_project_rules::options::{lease_time, release_reason};
use leasehold_project_rules::record::{Content, read_guard};
use leasehold_project_rules::root::check_save;
use leasehold_project_rules::wire::{EffectView, ErrorView, StepView};
use leasehold_project_rules::{
    CallId, Clock, Effect, Fault, Folder, IoError, News, Now, Operation, Options, Profile, ProjectLock,
    ProjectLockError, Root, Surroundings, Ticket, Wanted, WebLock, shape,
};

use crate::border::{FolderKind, Request, WebLockResult};
use crate::fields::Wrong;

/// The machines of a page, one for each project, by number.
#[derive(Default)]
pub struct Tab {
    machines: Vec<Option<Box<Machine>>>,
}

/// When a request was made, by both clocks of the page.
#[derive(Clone, Copy, Debug)]
pub struct Readings {
    /// Milliseconds since 1970.
    pub wall: u64,
    /// Milliseconds of a clock that nobody sets.
    pub monotonic: u64,
}

/// One machine, and the guarded section that its host is in.
struct Machine {
    lock: ProjectLock,
    clock: Clock,
    profile: Profile,
    /// The guarded sections that were asked for and not entered yet.
    wanted: Vec<(Ticket, Action)>,
    /// The one that the host is in.
    section: Option<Entered>,
    /// Those that were decided and not reported yet.
    decided: Vec<(Ticket, Verdict)>,
}

/// A guarded section that the host is in.
struct Entered {
    purpose: Purpose,
    action: Action,
    guard: String,
    read: Option<Found>,
}

/// What a guarded section is for.
#[derive(Clone, Copy)]
enum Purpose {
    /// Something that the machine wanted.
    Machine(Ticket),
    /// A save, checked with this.
    Save(Claim),
}

impl Tab {
    /// Handles the request of this number, addressed to this machine, and writes the answer as JSON.
    pub fn handle(&mut self, request: usize, machine: usize, at: Readings, bytes: &[u8]) -> Vec<u8> {
        let answer = Request::read(request, bytes).and_then(|request| self.answer(request, machine, at));
        let answer = answer.unwrap_or_else(|why| Answer { invalid: Some(why), ..Answer::default() });
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    fn answer(&mut self, request: Request<'_>, number: usize, at: Readings) -> Result<Answer, Wrong> {
        if let Request::Open { .. } = request {
            return self.open(&request, at);
        }
        let slot = self.machines.get_mut(number).ok_or("no project was opened under this number")?;
        if let Request::Close {} = request {
            *slot = None;
            return Ok(Answer::default());
        }
        let machine = slot.as_mut().ok_or("this project was closed")?;
        let now = machine.clock.tick(at.wall, at.monotonic);
        let mut answer = machine.handle(request, now)?;
        machine.drain(&mut answer, now);
        Ok(answer)
    }

    /// Makes a machine, in the place of one that was closed if there is one.
    fn open(&mut self, request: &Request<'_>, at: Readings) -> Result<Answer, Wrong> {
        let machine = Machine::new(surroundings(request)?, Clock::new(at.wall, at.monotonic));
        let number = self.machines.iter().position(Option::is_none).unwrap_or(self.machines.len());
        match self.machines.get_mut(number) {
            Some(free) => *free = Some(Box::new(machine)),
            None => self.machines.push(Some(Box::new(machine))),
        }
        Ok(Answer { machine: u32::try_from(number).ok(), ..Answer::default() })
    }
}

impl Machine {
    fn new(surroundings: Surroundings, clock: Clock) -> Self {
        Self {
            lock: ProjectLock::new(surroundings),
            clock,
            profile: Profile::default(),
            wanted: Vec::new(),
            section: None,
            decided: Vec::new(),
        }
    }

    /// Calls of the application.
    fn handle(&mut self, request: Request<'_>, now: Now) -> Result<Answer, Wrong> {
        match request {
            Request::Acquire { call, options } => {
                let options = self.options(&options)?;
                self.lock.acquire(CallId(call), &options, now);
            }
            Request::TakeOver { call, options, seen, reason } => {
                let options = self.options(&options)?;
                let seen = seen.map(Fence::new).transpose().map_err(said)?;
                let reason = Reason::parse(reason.unwrap_or("taken over")).map_err(said)?;
                self.lock.take_over(CallId(call), &options, seen, reason, now);
            }
            Request::Renew { call, lease_id, extend_by_ms } => {
                let extend_by = lease_time("extendByMs", extend_by_ms).map_err(said)?;
                self.lock.renew(CallId(call), id(lease_id)?, extend_by, now);
            }
            Request::Release { call, lease_id, force, reason } => {
                let reason = release_reason(reason).map_err(said)?;
                self.lock.release(CallId(call), id(lease_id)?, reason, force, now);
            }
            Request::Abort { call } => self.lock.abort(CallId(call), now),
            Request::Refresh {} => self.lock.refresh(now),
            Request::Claim { lease_id, fence, path } => {
                let claim = claim(lease_id, fence)?;
                check_save(path).map_err(said)?;
                return Ok(self.may_save(&claim, now));
            }
            report => return self.handle_report(report, now),
        }
        Ok(Answer::default())
    }

    /// What came in from around: no call of the application.
    fn handle_report(&mut self, request: Request<'_>, now: Now) -> Result<Answer, Wrong> {
        match request {
            Request::Timeout {} => self.lock.handle_timeout(now),
            Request::Frozen {} => self.lock.handle_frozen(now),
            Request::Resumed {} => self.lock.handle_resumed(now),
            Request::WebLock { ticket, result, said } => {
                let result = match result {
                    WebLockResult::Granted => WebLock::Granted,
                    WebLockResult::Unsupported => WebLock::Unsupported,
                    WebLockResult::Denied => WebLock::Denied { said: said.into() },
                    WebLockResult::Stolen => WebLock::Stolen,
                };
                self.lock.handle_web_lock(Ticket(ticket), result, now);
            }
            Request::News { fence, owner, why } => self.lock.handle_news(&news(fence, owner, why)?, now),
            Request::Guarded { ticket } => {
                let ticket = Ticket(ticket);
                let verdict = take(&mut self.decided, ticket).ok_or("nothing was decided")?;
                self.lock.handle_guarded(ticket, verdict.outcome, verdict.skewed, now);
            }
            Request::IoError { ticket, kind, said } => {
                let ticket = Ticket(ticket);
                take(&mut self.wanted, ticket);
                take(&mut self.decided, ticket);
                self.lock.handle_io_error(ticket, &IoError { kind, said: said.into() }, now);
            }
            section => return self.handle_section(section, now),
        }
        Ok(Answer::default())
    }

    /// What the host found in a guarded section.
    fn handle_section(&mut self, request: Request<'_>, now: Now) -> Result<Answer, Wrong> {
        match request {
            Request::Section { ticket, guard } => {
                let action = take(&mut self.wanted, Ticket(ticket)).ok_or("no such section was asked for")?;
                self.enter(Purpose::Machine(Ticket(ticket)), action, guard);
                Ok(Answer::default())
            }
            Request::SaveSection { lease_id, fence, guard } => {
                let claim = claim(lease_id, fence)?;
                if self.lock.claim(now) != Some(claim) {
                    return Ok(Answer { error: Some(self.stale()), ..Answer::default() });
                }
                self.enter(Purpose::Save(claim), Action::Save { claim, call: CallId(0) }, guard);
                Ok(Answer::default())
            }
            Request::LockMissing {} => self.read(LockFile::Missing),
            Request::LockRead { modified, lock } => self.read(LockFile::Read {
                content: Content::of(&lock),
                modified: StoreTime::from_millis(modified),
            }),
            Request::LockDamaged { modified } => self.read(LockFile::Read {
                content: Content::Damaged,
                modified: StoreTime::from_millis(modified),
            }),
            Request::LockUnreadable { modified, said } => self.read(LockFile::Unreadable {
                modified: modified.map(StoreTime::from_millis),
                said: said.into(),
            }),
            Request::Decide { held } => self.decide(held, now),
            Request::SaveFailed { kind, said } => {
                let error = IoError { kind, said: said.into() }.told(Operation::Renew, self.profile);
                Ok(Answer { error: Some((&error).into()), ..Answer::default() })
            }
            _ => Err("there is no such request".into()),
        }
    }

    fn options(&mut self, wanted: &Wanted) -> Result<Options, Wrong> {
        let options = Options::parse(wanted).map_err(said)?;
        self.profile = options.profile;
        Ok(options)
    }

    /// May the holder of this lease begin to save?
    fn may_save(&mut self, wanted: &Claim, now: Now) -> Answer {
        // Past its deadline the lease is lost, and subscribers are told so now.
        self.lock.handle_timeout(now);
        let may = self.lock.claim(now).as_ref() == Some(wanted);
        Answer { error: (!may).then(|| self.stale()), ..Answer::default() }
    }

    fn enter(&mut self, purpose: Purpose, action: Action, guard: &str) {
        self.section = Some(Entered { purpose, action, guard: guard.into(), read: None });
    }

    /// `.lock` was read: which held file is to be looked at?
    fn read(&mut self, lock: LockFile) -> Result<Answer, Wrong> {
        let entered = self.section.as_mut().ok_or("no section was entered")?;
        let found = Found { lock, last_fence: read_guard(&entered.guard) };
        let probe = guarded::probe(&entered.action, &found).map(Fence::get);
        entered.read = Some(found);
        Ok(Answer { probe, ..Answer::default() })
    }

    /// The held file was looked at: what is to be done?
    fn decide(&mut self, probe: Probe, now: Now) -> Result<Answer, Wrong> {
        let Entered { purpose, action, read, .. } = self.section.take().ok_or("no section was entered")?;
        let found = read.ok_or(".lock was not read")?;
        let verdict = guarded::decide(&action, &found, probe, now.wall);
        let steps = verdict.steps.iter().filter_map(StepView::of).collect();
        let mut answer = Answer { steps, ..Answer::default() };
        match purpose {
            Purpose::Machine(ticket) => self.decided.push((ticket, verdict)),
            Purpose::Save(_) if verdict.outcome == Outcome::Saved => {}
            Purpose::Save(claim) => {
                self.lock.handle_commit(claim, &verdict.outcome, now);
                answer.error = Some(match &verdict.outcome {
                    // Whose it is cannot be told now: nothing is lost yet.
                    Outcome::Unreadable { said } => (&self.refusal(Fault::CannotRead).said(said)).into(),
                    _ => self.stale(),
                });
            }
        }
        Ok(answer)
    }

    /// The error of a holder that may not save, unless the machine has a better one.
    fn stale(&self) -> ErrorView {
        ErrorView::from(&self.refusal(Fault::Stale))
    }

    fn refusal(&self, fault: Fault) -> ProjectLockError {
        ProjectLockError::new(fault, Operation::Renew, self.profile)
    }

    fn drain(&mut self, answer: &mut Answer, now: Now) {
        while let Some((ticket, action)) = self.lock.take_section() {
            answer.effects.push(EffectView::guarded(ticket));
            self.wanted.push((ticket, action));
        }
        while let Some(effect) = self.lock.poll_effect() {
            if let (Some(error), Effect::Emit(Event::ReadonlyEntered { last_error, .. })) =
                (&mut answer.error, &effect)
            {
                *error = last_error.into();
            }
            answer.effects.extend(EffectView::of(&effect));
        }
        answer.timeout_ms = self.lock.poll_timeout().map(|at| whole_millis(at.since(now.steady)));
    }
}

fn take<T>(of: &mut Vec<(Ticket, T)>, ticket: Ticket) -> Option<T> {
    let at = of.iter().position(|(known, _)| *known == ticket)?;
    Some(of.swap_remove(at).1)
}

// --- what comes in, parsed into the types of the rules ---

fn surroundings(request: &Request<'_>) -> Result<Surroundings, Wrong> {
    let Request::Open { owner, root, folder, why, seed_a, seed_b, seed_c, seed_d } = request else {
        return Err("there is no such request".into());
    };
    let owner = Owner::parse(owner).map_err(said)?;
    Root::parse(root).map_err(said)?;
    let folder = match folder {
        FolderKind::Guarded => Folder::Guarded,
        FolderKind::Advisory => Folder::Advisory,
        FolderKind::Absent => Folder::Absent { said: why.unwrap_or("no-folder").into() },
    };
    let seed =
        [seed_a, seed_b, seed_c, seed_d].iter().fold(0, |seed, part| (seed << 32) | u128::from(**part));
    Ok(Surroundings { owner, folder, seed: seed.to_le_bytes() })
}

fn news(fence: u64, owner: Option<&str>, why: Option<&str>) -> Result<News, Wrong> {
    let fence = Fence::new(fence).map_err(said)?;
    Ok(match owner {
        Some(owner) => {
            let why = why.map(Reason::parse).transpose().map_err(said)?;
            News::Acquired { owner: Owner::parse(owner).map_err(said)?, fence, why }
        }
        None => News::Released { fence },
    })
}

fn claim(lease_id: &str, fence: u64) -> Result<Claim, Wrong> {
    Ok(Claim { lease_id: id(lease_id)?, fence: Fence::new(fence).map_err(said)? })
}

fn id(lease_id: &str) -> Result<LeaseId, Wrong> {
    LeaseId::parse(lease_id).map_err(said)
}

#[allow(clippy::needless_pass_by_value)] // how `map_err` passes errors
fn said(error: Invalid) -> Wrong {
    error.to_string().into()
}

// --- what goes out ---

shape! {
    /// What the rules answer to any request.
    #[derive(Default)]
    pub struct Answer {
        /// What is wrong with the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invalid: Option<Wrong>,
        /// The number of the machine that was opened.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub machine: Option<u32>,
        /// What to do, in this order.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub effects: Vec<EffectView>,
        /// When to come back with `timeout`, from now.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_ms: Option<u64>,
        /// The fence whose held file is to be looked at.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub probe: Option<u64>,
        /// What to do in the section, in this order.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub steps: Vec<StepView>,
        /// Why nothing may be saved.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error: Option<ErrorView>,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::border::REQUESTS;

    const LEASE: &str = "3f1c0b1e-0000-4000-8000-000000000001";

    enum Word<'a> {
        Text(&'a str),
        Number(f64),
        Flag(bool),
        Nothing,
    }

    use Word::{Flag, Nothing, Number, Text};

    /// The fields of an acquire after its number: nothing that the profile does not say.
    const DEFAULTS: [Word<'static>; 13] = [
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        Flag(false),
        Nothing,
        Flag(false),
    ];

    /// Sends the first machine a request at this time, as the npm package does.
    fn send(tab: &mut Tab, at: u64, name: &str, words: &[Word<'_>]) -> Value {
        let mut bytes = Vec::new();
        for word in words {
            match word {
                Nothing => bytes.push(0),
                Flag(flag) => bytes.push(1 + u8::from(*flag)),
                Number(number) => bytes.extend([&[3][..], &number.to_le_bytes()].concat()),
                Text(text) => {
                    let length = u32::try_from(text.len()).unwrap();
                    bytes.extend([&[4][..], &length.to_le_bytes(), text.as_bytes()].concat());
                }
            }
        }
        let number = REQUESTS.iter().position(|request| request.name == name).expect(name);
        let at = Readings { wall: 1_767_225_600_000 + at, monotonic: at };
        serde_json::from_slice(&tab.handle(number, 0, at, &bytes)).unwrap()
    }

    fn opened() -> Tab {
        let mut tab = Tab::default();
        let seeds = [Number(1.0), Number(2.0), Number(3.0), Number(4.0)];
        let words = [Text("me"), Text("project"), Text("guarded"), Nothing];
        let answer = send(&mut tab, 0, "Open", &words.into_iter().chain(seeds).collect::<Vec<_>>());
        assert_eq!(answer, serde_json::json!({ "machine": 0 }));
        tab
    }

    fn ticket(answer: &Value, what: &str) -> f64 {
        let effects = answer["effects"].as_array().unwrap();
        let wanted = effects.iter().find(|effect| effect["do"] == what);
        wanted.unwrap_or_else(|| panic!("no {what} in {answer}"))["ticket"].as_f64().unwrap()
    }

    fn acquired() -> (Tab, Value) {
        let mut tab = opened();
        let acquire: Vec<_> = std::iter::once(Number(1.0)).chain(DEFAULTS).collect();
        let web = ticket(&send(&mut tab, 0, "Acquire", &acquire), "requestWebLock");
        let answer = send(&mut tab, 1, "WebLock", &[Number(web), Text("granted"), Text("")]);
        let section = ticket(&answer, "guarded");
        send(&mut tab, 2, "Section", &[Number(section), Text("")]);
        assert_eq!(send(&mut tab, 2, "LockMissing", &[])["probe"], Value::Null);
        let steps = send(&mut tab, 3, "Decide", &[Text("unknown")])["steps"].clone();
        let steps: Vec<_> =
            steps.as_array().unwrap().iter().map(|step| step["do"].as_str().unwrap()).collect();
        assert_eq!(steps, ["storeFence", "openHeld", "writeLock", "sweepHeld"]);
        let answer = send(&mut tab, 4, "Guarded", &[Number(section)]);
        let settled = answer["effects"].as_array().unwrap().iter().find(|effect| effect["do"] == "settle");
        let lease = settled.unwrap()["lease"].clone();
        assert_eq!(lease["guarantee"], "exclusive");
        (tab, lease)
    }

    #[test]
    fn a_lock_is_acquired_request_by_request() {
        acquired();
    }

    #[test]
    fn a_save_is_allowed_by_the_lock_file_alone() {
        let (mut tab, lease) = acquired();
        let claim = || [Text(lease["leaseId"].as_str().unwrap()), Number(lease["fence"].as_f64().unwrap())];
        let words = |last| claim().into_iter().chain([Text(last)]).collect::<Vec<_>>();
        assert_eq!(send(&mut tab, 5, "Claim", &words("current.json"))["error"], Value::Null);
        // Somebody has removed `.lock` in the meantime.
        assert_eq!(send(&mut tab, 6, "SaveSection", &words(""))["error"], Value::Null);
        assert_eq!(send(&mut tab, 6, "LockMissing", &[])["error"], Value::Null);
        let answer = send(&mut tab, 7, "Decide", &[Text("unknown")]);
        assert_eq!(answer["error"]["code"], "lease-stale");
        assert!(answer["effects"].as_array().unwrap().iter().any(|effect| effect["do"] == "emit"));
    }

    /// Somebody wrote `extendByMs: 5` and was told that `ttlMs` was wrong, which they had not written.
    #[test]
    fn a_wrong_extension_is_refused_by_its_own_name() {
        let (mut tab, lease) = acquired();
        let words = [Number(2.0), Text(lease["leaseId"].as_str().unwrap()), Number(5.0)];
        let answer = send(&mut tab, 5, "Renew", &words);
        assert!(answer["invalid"].as_str().unwrap().contains("extendByMs"), "{answer}");
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let mut tab = opened();
        let profile: Vec<_> =
            [Number(1.0), Text("no such profile")].into_iter().chain(DEFAULTS.into_iter().skip(1)).collect();
        let cases: [(&str, &[Word<'_>]); 8] = [
            ("Acquire", &[]),
            ("Acquire", &profile),
            ("Release", &[Number(1.0), Text("no lease id"), Flag(false), Nothing]),
            ("Section", &[Number(7.0), Text("")]),
            ("Decide", &[Text("free")]),
            ("LockMissing", &[]),
            ("Guarded", &[Number(7.0)]),
            ("Claim", &[Text(LEASE), Number(1.0), Text("../outside")]),
        ];
        for (name, words) in cases {
            let answer = send(&mut tab, 1, name, words);
            assert!(answer["invalid"].is_string(), "{name}: {answer}");
            assert_eq!(answer["effects"], Value::Null);
        }
        assert!(send(&mut Tab::default(), 0, "Timeout", &[])["invalid"].is_string());
        let at = Readings { wall: 0, monotonic: 0 };
        assert!(
            String::from_utf8(Tab::default().handle(usize::MAX, 0, at, &[9])).unwrap().contains("invalid")
        );
    }
}
