//! Saving a file of the project: refused here if this tab knows that its lease is over, and otherwise decided in the guarded
//! section that swaps the file. The content is the shell's.

use leasehold_core::lease::Proof;

use super::sections::Purpose;
use super::{Over, ProjectLock, claim_of};
use crate::clock::Now;
use crate::effect::{CallId, Effect, Folder, IoError, IoKind, NotSaved, Save};
use crate::fault::{Fault, Operation, ProjectLockError};
use crate::guarded::{Action, Outcome};
use crate::section::Conclusion;
use crate::version::Version;

impl ProjectLock {
    /// Replaces a file by what the shell has for this call, if the claim is still good and the file has the version that the
    /// save was made from. Answered by [`Effect::Saved`].
    pub fn save(&mut self, call: CallId, save: Save, now: Now) {
        let claim = save.claim;
        let refused = if let Err(error) = self.may_save(claim, now) {
            Some(NotSaved::Lost(error))
        } else if let Folder::Absent { said } = &self.surroundings.folder {
            Some(NotSaved::Folder(IoError { kind: IoKind::Open, said: said.clone() }))
        } else {
            self.out.sections.push(Purpose::Save(call, Box::new(save)), Action::Save { claim, call });
            None
        };
        if let Some(refused) = refused {
            self.out.push(Effect::Saved { call, saved: Err(refused) });
        }
    }

    /// Whether a save under this claim would be tried now, for a shell that has much to prepare before it.
    pub fn may_save(&mut self, claim: Proof, now: Now) -> Result<(), ProjectLockError> {
        let was_ours = self.lease().is_some_and(|lease| claim_of(lease) == claim);
        self.wake(now);
        if self.claim(now) == Some(claim) { Ok(()) } else { Err(self.why_lost(claim, was_ours)) }
    }

    /// The application has read this version of a file, or that there is none: the saves that it asks for from now on are
    /// made from it. Reported once the application has the content, and not before: a save that it asked for meanwhile was
    /// made from what it had then.
    pub fn saw(&mut self, path: &str, version: Version) {
        self.out.sections.push(Purpose::Saw(path.into(), version), Action::Look);
    }

    /// Whether content of this version is something that the application could lose: it is not what this tab last read or
    /// wrote under the path. Answers which version it was made from.
    pub fn unsaved(&self, path: &str, version: &Version) -> Option<Version> {
        self.out.sections.versions.base_of(path, version)
    }

    pub(super) fn saved(&mut self, call: CallId, save: &Save, result: Result<Conclusion, IoError>, now: Now) {
        let Save { claim, path, version, .. } = save;
        let claim = *claim;
        let was_ours = self.lease().is_some_and(|lease| claim_of(lease) == claim);
        let saved = match result {
            Ok(Conclusion { outcome: Outcome::Saved, .. }) => {
                self.out.sections.versions.saw(path, version);
                Ok(())
            }
            Ok(Conclusion { outcome: Outcome::StaleBase, .. }) => {
                let error = ProjectLockError::new(Fault::StaleBase, Operation::Save, self.profile);
                Err(NotSaved::StaleBase(error.said(path)))
            }
            // Whose it is cannot be told now: the lease may still be good.
            Ok(Conclusion { outcome: Outcome::Unreadable { said }, .. }) => {
                Err(NotSaved::Folder(IoError { kind: IoKind::Read, said }))
            }
            Ok(Conclusion { outcome, holder, .. }) => {
                self.handle_commit(claim, &outcome, holder, now);
                Err(NotSaved::Lost(self.why_lost(claim, was_ours)))
            }
            Err(error) => {
                self.out.sections.versions.may_have_written(path, version);
                Err(NotSaved::Folder(error))
            }
        };
        self.out.push(Effect::Saved { call, saved });
    }

    /// What a save is refused with: how its lease was lost, if that was noticed just now.
    fn why_lost(&self, claim: Proof, was_ours: bool) -> ProjectLockError {
        let stale = ProjectLockError::new(Fault::Stale, Operation::Save, self.profile);
        match &self.over {
            Some((known, Over::Lost(error))) if *known == claim.lease_id => {
                let error = error.clone();
                let of = if was_ours { error } else { ProjectLockError { holder: error.holder, ..stale } };
                ProjectLockError { operation: Operation::Save, ..of }
            }
            _ => stale,
        }
    }
}
