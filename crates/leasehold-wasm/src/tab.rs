//! What the requests of one page mean: `border.rs` has read and checked them, the rules decide, and the answer says what to
//! do and when to come back. Bindings only: there is no rule in here. A request that makes no sense changes nothing, and is
//! answered with what is wrong with it.

use std::sync::Arc;

use leasehold_core::lease::Proof;
use leasehold_core::name::{Invalid, Meta, Reason};
use leasehold_core::time::{StoreTime, whole_millis};
use leasehold_core::{Fence, LeaseId, Owner};
use leasehold_project_rules::guarded::LockFile;
use leasehold_project_rules::options::{ask, lease_time, release_reason};
use leasehold_project_rules::record::{Content, read_guard};
use leasehold_project_rules::root::check_save;
use leasehold_project_rules::wire::json::Json;
use leasehold_project_rules::wire::{EffectList, ProjectName, StateWord};
use leasehold_project_rules::{
    Ask, Base, CallId, Clock, Folder, IoReply, News, Now, Options, Profile, ProjectLock, ProjectLockError,
    Root, Save, Surroundings, Ticket, Version, Wanted, WebLock, shape,
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

/// One machine.
struct Machine {
    lock: ProjectLock,
    clock: Clock,
    profile: Profile,
    project: ProjectName,
}

impl Tab {
    /// No machine at all.
    pub const fn new() -> Self {
        Self { machines: Vec::new() }
    }

    /// Handles a request to this machine, and writes the answer as JSON.
    pub fn handle(&mut self, machine: usize, at: Readings, bytes: &[u8]) -> Vec<u8> {
        let answer = Request::read(bytes).and_then(|request| self.answer(request, machine, at));
        let answer = answer.unwrap_or_else(|why| Answer { invalid: Some(why), ..Answer::default() });
        let mut json = Vec::new();
        answer.write(&mut json);
        json
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
        let (surroundings, project) = surroundings(request)?;
        let machine = Machine::new(surroundings, project, Clock::new(at.wall, at.monotonic));
        let number = self.machines.iter().position(Option::is_none).unwrap_or(self.machines.len());
        match self.machines.get_mut(number) {
            Some(free) => *free = Some(Box::new(machine)),
            None => self.machines.push(Some(Box::new(machine))),
        }
        Ok(Answer { machine: u32::try_from(number).ok(), ..Answer::default() })
    }
}

impl Machine {
    fn new(surroundings: Surroundings, project: ProjectName, clock: Clock) -> Self {
        Self { lock: ProjectLock::new(surroundings), clock, profile: Profile::default(), project }
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
            Request::Handover { call, options, reason, countdown_ms, on_silence } => {
                let label = options.label.clone();
                let options = self.options(&options)?;
                let ask = ask_of(self.lock.owner(), reason, label.as_deref(), countdown_ms, on_silence)?;
                self.lock.request_handover(CallId(call), &options, ask, now);
            }
            Request::HandoverTold {} => self.lock.handover_told(now),
            Request::RefuseHandover { lease_id, reason } => {
                self.lock.refuse_handover(id(lease_id)?, reason_of(reason)?, now);
            }
            Request::Look { call } => self.lock.look_at(CallId(call), now),
            Request::State {} => {
                // A tab that was asleep finds out.
                self.lock.handle_timeout(now);
                return Ok(Answer { state: Some(self.lock.state_word()), ..Answer::default() });
            }
            Request::Abort { call } => self.lock.abort(CallId(call), now),
            Request::Refresh {} => self.lock.refresh(now),
            Request::Claim { lease_id, fence, path } => {
                let claim = claim(lease_id, fence)?;
                check_save(path).map_err(said)?;
                let refused = self.lock.may_save(claim, now).err();
                return Ok(Answer { error: refused, ..Answer::default() });
            }
            Request::Save { call, lease_id, fence, path, version, base, overwrite } => {
                let base = match base {
                    _ if overwrite => Base::Overwrite,
                    None => Base::LastSeen,
                    Some(base) => Base::Exactly(Version::new(base)),
                };
                let (claim, version) = (claim(lease_id, fence)?, Version::new(version));
                self.lock.save(CallId(call), Save { claim, path: path.into(), version, base }, now);
            }
            Request::Saw { path, version } => self.lock.saw(path, Version::new(version)),
            Request::Unsaved { path, version } => {
                check_save(path).map_err(said)?;
                let base = self.lock.unsaved(path, &Version::new(version));
                let base = base.map(|base| base.as_str().to_owned());
                return Ok(Answer { base, ..Answer::default() });
            }
            report => self.handle_report(report, now)?,
        }
        Ok(Answer::default())
    }

    /// What came in from around: no call of the application.
    fn handle_report(&mut self, request: Request<'_>, now: Now) -> Result<(), Wrong> {
        match request {
            Request::Timeout {} => self.lock.handle_timeout(now),
            Request::Frozen {} => self.lock.handle_frozen(now),
            Request::Hidden { hidden } => self.lock.handle_hidden(hidden, now),
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
            Request::News { .. } => self.lock.handle_news(&news(&request)?, now),
            reply => self.lock.handle_io(reply_of(reply)?, now),
        }
        Ok(())
    }

    fn options(&mut self, wanted: &Wanted) -> Result<Options, Wrong> {
        let options = Options::parse(wanted).map_err(said)?;
        self.lock.set_label(Meta::label(wanted.label.as_deref().unwrap_or_default()).map_err(said)?);
        self.profile = options.profile;
        Ok(options)
    }

    fn drain(&mut self, answer: &mut Answer, now: Now) {
        let mut effects = Vec::new();
        while let Some(effect) = self.lock.poll_effect() {
            effects.push(effect);
        }
        if !effects.is_empty() {
            let (profile, project) = (self.profile, self.project.clone());
            answer.effects = Some(EffectList { effects, profile, project });
        }
        answer.timeout_ms = self.lock.poll_timeout().map(|at| whole_millis(at.since(now.steady)));
    }
}

// --- what comes in, parsed into the types of the rules ---

fn surroundings(request: &Request<'_>) -> Result<(Surroundings, ProjectName), Wrong> {
    let Request::Open { owner, root, lock_name, folder, why, seed_a, seed_b, seed_c, seed_d } = request
    else {
        return Err("there is no such request".into());
    };
    let owner = Owner::parse(owner).map_err(said)?;
    Root::parse(root).map_err(said)?;
    let project = ProjectName { root: (*root).into(), lock_name: (*lock_name).into() };
    let folder = match folder {
        FolderKind::Guarded => Folder::Guarded,
        FolderKind::Advisory => Folder::Advisory,
        FolderKind::Absent => Folder::Absent { said: why.unwrap_or("no-folder").into() },
    };
    let seed =
        [seed_a, seed_b, seed_c, seed_d].iter().fold(0, |seed, part| (seed << 32) | u128::from(**part));
    let root = project.root.as_str().into();
    Ok((Surroundings { owner, root, folder, seed: seed.to_le_bytes() }, project))
}

/// What came of a step.
fn reply_of(request: Request<'_>) -> Result<IoReply, Wrong> {
    let read = |content, modified| LockFile::Read { content, modified: StoreTime::from_millis(modified) };
    Ok(match request {
        Request::IoDone {} => IoReply::Done,
        Request::IoFailed { said } => IoReply::Failed { said: said.into() },
        Request::GuardBusy {} => IoReply::Busy,
        Request::GuardAbsent {} => IoReply::Absent,
        Request::GuardRead { text } => IoReply::Guard(read_guard(text)),
        Request::LockMissing {} => IoReply::Lock(LockFile::Missing),
        Request::LockRead { modified, lock } => IoReply::Lock(read(Content::of(&lock), modified)),
        Request::LockDamaged { modified } => IoReply::Lock(read(Content::Damaged, modified)),
        Request::LockUnreadable { modified, said } => IoReply::Lock(LockFile::Unreadable {
            modified: modified.map(StoreTime::from_millis),
            said: said.into(),
        }),
        Request::HeldProbed { held } => IoReply::Probe(held),
        Request::VersionRead { version } => IoReply::Version(Version::new(version)),
        _ => return Err("there is no such request".into()),
    })
}

fn news(request: &Request<'_>) -> Result<News, Wrong> {
    let Request::News { fence, owner, why, say, label, countdown_ms, on_silence } = *request else {
        return Err("there is no such request".into());
    };
    let fence = Fence::new(fence).map_err(said)?;
    let Some(owner) = owner else { return Ok(News::Released { fence }) };
    let owner = Owner::parse(owner).map_err(said)?;
    match say {
        Some(say) => {
            let ask = ask_of(owner, why, label, countdown_ms, on_silence)?;
            Ok(News::Handover { fence, say, ask: Arc::new(ask) })
        }
        None => {
            let why = why.map(Reason::parse).transpose().map_err(said)?;
            Ok(News::Acquired { owner, fence, why })
        }
    }
}

fn ask_of(
    asker: Owner,
    why: Option<&str>,
    label: Option<&str>,
    countdown_ms: Option<f64>,
    on_silence: Option<&str>,
) -> Result<Ask, Wrong> {
    let (countdown, on_silence) = ask(countdown_ms, on_silence).map_err(said)?;
    let label = Meta::label(label.unwrap_or_default()).map_err(said)?;
    Ok(Ask { asker, label, why: reason_of(why)?, countdown, on_silence })
}

fn reason_of(reason: Option<&str>) -> Result<Reason, Wrong> {
    Reason::parse(reason.unwrap_or_default()).map_err(said)
}

fn claim(lease_id: &str, fence: u64) -> Result<Proof, Wrong> {
    Ok(Proof { lease_id: id(lease_id)?, fence: Fence::new(fence).map_err(said)? })
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
        pub invalid: Option<Wrong>,
        /// The number of the machine that was opened.
        pub machine: Option<u32>,
        /// What to do, in this order.
        pub effects: Option<EffectList>,
        /// When to come back with `timeout`, from now.
        pub timeout_ms: Option<u64>,
        /// The version that unsaved content was made from; empty for no file.
        pub base: Option<String>,
        /// Where the tab stands.
        pub state: Option<StateWord>,
        /// Why nothing may be saved.
        pub error: Option<ProjectLockError>,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::border::REQUESTS;
    use crate::typescript::flat;
    use leasehold_project_rules::wire::json::camel_case;

    const LEASE: &str = "3f1c0b1e-0000-4000-8000-000000000001";

    enum Word<'a> {
        Text(&'a str),
        Number(f64),
        Flag(bool),
        Nothing,
    }

    use Word::{Flag, Nothing, Number, Text};

    /// The fields of an acquire after its number: nothing that the profile does not say.
    const DEFAULTS: [Word<'static>; 15] = [
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
        Flag(false),
        Nothing,
    ];

    /// Sends the first machine a request at this time, as the npm package does.
    fn send(tab: &mut Tab, at: u64, name: &str, words: &[Word<'_>]) -> Value {
        let request = REQUESTS.iter().find(|request| request.name == name).expect(name);
        let mut bytes = packed(&Text(&camel_case(name)));
        for ((field, _), word) in flat(request.fields).iter().zip(words) {
            bytes.extend(packed(&Text(&camel_case(field))));
            bytes.extend(packed(word));
        }
        let at = Readings { wall: 1_767_225_600_000 + at, monotonic: at };
        serde_json::from_slice(&tab.handle(0, at, &bytes)).unwrap()
    }

    fn packed(word: &Word<'_>) -> Vec<u8> {
        match word {
            Nothing => vec![0],
            Flag(flag) => vec![1 + u8::from(*flag)],
            Number(number) => [&[3][..], &number.to_le_bytes()].concat(),
            Text(text) => {
                let length = u32::try_from(text.len()).unwrap();
                [&[4][..], &length.to_le_bytes(), text.as_bytes()].concat()
            }
        }
    }

    fn opened() -> Tab {
        let mut tab = Tab::default();
        let seeds = [Number(1.0), Number(2.0), Number(3.0), Number(4.0)];
        let words = [Text("me"), Text("project"), Text("imgponic:project"), Text("guarded"), Nothing];
        let answer = send(&mut tab, 0, "Open", &words.into_iter().chain(seeds).collect::<Vec<_>>());
        assert_eq!(answer, serde_json::json!({ "machine": 0 }));
        tab
    }

    fn effect<'a>(answer: &'a Value, what: &str) -> &'a Value {
        let effects = answer["effects"].as_array().unwrap();
        let wanted = effects.iter().find(|effect| effect["do"] == what);
        wanted.unwrap_or_else(|| panic!("no {what} in {answer}"))
    }

    /// Reports the steps of one section in the folder, which is empty; answers the last answer, and the steps.
    fn run(tab: &mut Tab, mut answer: Value, at: u64) -> (Value, Vec<String>) {
        let mut steps = Vec::new();
        while let Some(io) = answer["effects"]
            .as_array()
            .and_then(|all| all.iter().find(|effect| effect["do"] == "io").cloned())
        {
            let step = io["step"]["do"].as_str().unwrap().to_owned();
            answer = match step.as_str() {
                "readGuard" => send(tab, at, "GuardRead", &[Text("")]),
                "readLock" => send(tab, at, "LockMissing", &[]),
                _ => send(tab, at, "IoDone", &[]),
            };
            steps.push(step);
            if steps.last().is_some_and(|step| step == "dropGuard") {
                break;
            }
        }
        (answer, steps)
    }

    fn acquired() -> (Tab, Value) {
        let mut tab = opened();
        let acquire: Vec<_> = std::iter::once(Number(1.0)).chain(DEFAULTS).collect();
        let asked = send(&mut tab, 0, "Acquire", &acquire);
        let web = effect(&asked, "requestWebLock")["ticket"].as_f64().unwrap();
        let granted = send(&mut tab, 1, "WebLock", &[Number(web), Text("granted"), Text("")]);
        let (answer, steps) = run(&mut tab, granted, 2);
        let expected = [
            "takeGuard",
            "readGuard",
            "readLock",
            "writeGuard",
            "openHeld",
            "writeLock",
            "sweepHeld",
            "dropGuard",
        ];
        assert_eq!(steps, expected);
        let lease = effect(&answer, "settle")["lease"].clone();
        assert_eq!(lease["guarantee"], "exclusive");
        for named in [&lease, &effect(&answer, "emit")["event"]["lock"]] {
            assert_eq!((&named["root"], &named["lockName"]), (&"project".into(), &"imgponic:project".into()));
        }
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
        let words: Vec<_> = claim().into_iter().chain([Text("current.json")]).collect();
        assert_eq!(send(&mut tab, 5, "Claim", &words)["error"], Value::Null);
        // `.lock` was removed in the meantime.
        let file = [Text("current.json"), Text("hash"), Nothing, Flag(false)];
        let words: Vec<_> = [Number(2.0)].into_iter().chain(claim()).chain(file).collect();
        let answer = send(&mut tab, 6, "Save", &words);
        let (answer, steps) = run(&mut tab, answer, 7);
        assert_eq!(steps, ["takeGuard", "readGuard", "readLock", "dropGuard"], "and no save");
        let saved = effect(&answer, "saved");
        let error = &saved["error"];
        assert_eq!((&error["code"], &error["operation"]), (&"lease-stale".into(), &"save".into()));
        effect(&answer, "emit");
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
        let cases: [(&str, &[Word<'_>]); 7] = [
            ("Acquire", &[]),
            ("Acquire", &profile),
            ("Release", &[Number(1.0), Text("no lease id"), Flag(false), Nothing]),
            ("HeldProbed", &[Text("open")]),
            (
                "Save",
                &[
                    Number(1.0),
                    Text("no lease id"),
                    Number(1.0),
                    Text("current.json"),
                    Text("hash"),
                    Nothing,
                    Flag(false),
                ],
            ),
            ("Unsaved", &[Text("../outside"), Text("")]),
            ("Claim", &[Text(LEASE), Number(1.0), Text("../outside")]),
        ];
        for (name, words) in cases {
            let answer = send(&mut tab, 1, name, words);
            assert!(answer["invalid"].is_string(), "{name}: {answer}");
            assert_eq!(answer["effects"], Value::Null);
        }
        assert!(send(&mut Tab::default(), 0, "Timeout", &[])["invalid"].is_string());
        let at = Readings { wall: 0, monotonic: 0 };
        for bad in [vec![9], packed(&Text("nonsense"))] {
            assert!(String::from_utf8(Tab::default().handle(0, at, &bad)).unwrap().contains("invalid"));
        }
    }
}
