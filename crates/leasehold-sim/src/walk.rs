//! Every state that can be reached, nearest first: whatever is wrong is found with the shortest way to it.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What was found.
#[derive(Clone, Debug)]
pub struct Walk {
    /// How many different states there are.
    pub states: usize,
    /// The shortest way to a state that must not be, if there is one, and what is wrong with it.
    pub counterexample: Option<(String, Vec<String>)>,
}

/// Walks through every state that follows from `start`. `wrong` says what must not be in a state, or on the way to it
/// from the state before. Of the states seen, only a hash of 64 bits is kept.
pub fn walk<State: Hash, Move: Display>(
    start: State,
    mut successors: impl FnMut(&State) -> Vec<(Move, State)>,
    mut wrong: impl FnMut(&State, &State) -> Option<String>,
) -> Walk {
    let mut known = HashSet::from([hash(&start)]);
    let mut came_from: Vec<(usize, Option<Move>)> = vec![(0, None)];
    let mut frontier = vec![(0, start)];
    while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for (from, state) in frontier {
            for (action, next) in successors(&state) {
                if !known.insert(hash(&next)) {
                    continue;
                }
                came_from.push((from, Some(action)));
                if let Some(wrong) = wrong(&next, &state) {
                    return Walk { states: known.len(), counterexample: Some((wrong, trace(&came_from))) };
                }
                next_frontier.push((came_from.len() - 1, next));
            }
        }
        frontier = next_frontier;
    }
    Walk { states: known.len(), counterexample: None }
}

fn hash(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The way to the state that was found last.
fn trace<Move: Display>(came_from: &[(usize, Option<Move>)]) -> Vec<String> {
    let mut at = came_from.len() - 1;
    let mut moves = Vec::new();
    while let Some((from, Some(action))) = came_from.get(at) {
        moves.push(action.to_string());
        at = *from;
    }
    moves.reverse();
    moves
}
