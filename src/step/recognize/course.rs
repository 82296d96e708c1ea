//! The predicted *course*: the nodes that follow the last command along the links, up to a link
//! that leads back to a node of the course.

use super::heirs::Heir;
use super::{MARK, Makes, NOWHERE, NodeId, Role, Steps};
use crate::step::{StepFuture, StepFutureBuilder};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// Inputs of the command that makes each value.
type Sources = FxHashMap<u32, SmallVec<[u32; 4]>>;

/// A known step, made from a course.
#[derive(Debug)]
pub(crate) struct Known {
    /// [`StepFuture::key`] of the future.
    pub key: u64,
    /// Uses of each value. One extra position follows the position of the last command. In a course
    /// that is a loop, the extra position reads all values that the next turn uses. In any other
    /// course, the extra position reads all held values.
    pub future: Arc<StepFuture>,
    values: FxHashMap<Role, Values>,
}

/// Ordinals of the step's values that storages in one role hold.
#[derive(Clone, Debug, Default)]
struct Values {
    /// Value that the storage in the role holds at the start of the step.
    carried: Option<u32>,
    /// Values made by commands, each with the position of its command, in ascending order of
    /// position.
    made: SmallVec<[(u32, u32); 1]>,
}

impl Values {
    /// The newest value in the role so far.
    fn now(&self) -> Option<u32> {
        self.made.last().map(|made| made.0).or(self.carried)
    }
}

impl Known {
    /// Ordinal of an unused value that stands for all values left from earlier turns.
    pub const LEFT_OVER: u32 = 0;

    /// The value of a role if the command at `position` is next.
    pub fn value(&self, role: Role, position: usize) -> u32 {
        let Some(values) = self.values.get(&role) else { return Self::LEFT_OVER };
        let made = values.made.partition_point(|&(_, made)| (made as usize) < position);
        match made {
            0 => values.carried.unwrap_or(Self::LEFT_OVER),
            _ => values.made[made - 1].0,
        }
    }
}

impl Steps {
    /// Makes a new prediction that begins at the last command. `None` if the commands follow the
    /// current prediction, if too few of the last commands were predicted correctly, or if no
    /// successor is known.
    pub fn look_ahead(&mut self) -> Option<Known> {
        if self.on_course.is_some() || self.as_expected < self.doubt.max(1) {
            return None;
        }
        self.look_along()
    }

    /// Whether the course leads back to its beginning and repeats. If false, the next turn has
    /// other commands.
    pub fn is_loop(&self) -> bool {
        self.again == Some(0) && !self.turns_differ
    }

    /// Whether the last command enters, for the first time, the loop in which a course ends.
    pub fn enters_loop(&self) -> bool {
        self.again.is_some_and(|again| again > 0) && self.on_course == self.again
    }

    /// Predicts the course that begins at the last command.
    pub fn look_along(&mut self) -> Option<Known> {
        let at = self.at?;
        self.after(at)?;
        if self.on_course.is_some() && self.since >= self.course.len() {
            // The old course was right for at least as many commands as it has, so courses are
            // trusted again.
            self.doubt = 0;
        }
        self.courses += 1;
        self.course.clear();
        self.again = None;
        let mut next = Some(at);
        while let Some(node) = next {
            let place = &mut self.nodes[node as usize].place;
            if place.0 == self.courses {
                self.again = Some(place.1 as usize);
                break;
            }
            *place = (self.courses, self.course.len() as u32);
            self.course.push(node);
            next = self.after(node);
        }
        (self.on_course, self.since, self.turns_differ) = (Some(0), 0, false);
        if self.again == Some(0) {
            self.begin_where_a_step_does();
        }
        Some(self.known())
    }

    /// Rotates a course that is a loop, so that it begins after a step mark. Without marks, the
    /// loop begins where it uses the least memory. The rotated loop does not depend on the node at
    /// which the program entered it.
    fn begin_where_a_step_does(&mut self) {
        let token =
            |position: usize| self.nodes[self.course[position % self.course.len()] as usize].token;
        let tokens =
            |position: usize| (token(position), token(position + 1), self.course[position]);
        let all = 0..self.course.len();
        // Position of the command after which the rotated loop begins.
        let marks = all.clone().filter(|&position| token(position) == MARK);
        let last = match marks.min_by_key(|&position| tokens(position)) {
            Some(mark) => mark,
            None => {
                let known = self.known();
                let used = |position: usize| known.future.usage()[position];
                all.min_by_key(|&position| (used(position), tokens(position))).unwrap_or(0)
            }
        };
        let turn = (last + 1) % self.course.len();
        self.course.rotate_left(turn);
        self.on_course = Some((self.course.len() - turn) % self.course.len());
        for (position, &node) in self.course.iter().enumerate() {
            self.nodes[node as usize].place.1 = position as u32;
        }
    }

    fn known(&self) -> Known {
        let mut builder = StepFutureBuilder::default();
        builder.carry(0);
        let mut values: FxHashMap<Role, Values> = FxHashMap::default();
        // Add values from before the step first.
        for role in self.inputs_from_before(0) {
            let carried = Some(builder.carry(self.roles[role.index()].0));
            values.insert(role, Values { carried, ..Values::default() });
        }
        // Roles, each with the position after which the last handle of its storage ends.
        let mut gone: Vec<(u32, Role)> = Vec::new();
        let made = self.course.iter().flat_map(|&node| self.values_of(node));
        let all: FxHashSet<Role> = values.keys().copied().chain(made).collect();
        for role in all {
            let node = self.roles[role.index()].1;
            if node != NOWHERE && self.nodes[node as usize].place.0 == self.courses {
                gone.push((self.nodes[node as usize].place.1, role));
            }
        }
        gone.sort_unstable();
        let mut gone = gone.into_iter().peekable();
        let mut sources: Sources = Sources::default();
        let inherits = !self.heirs.is_empty();
        // Walk along the course, and add reads, outputs, role changes at marks, and ends of
        // handles.
        for (position, &id) in self.course.iter().enumerate() {
            let node = &self.nodes[id as usize];
            let input = |input: u32| node.inputs.get(input as usize).copied().flatten();
            let now = |values: &FxHashMap<Role, Values>, role: Option<Role>| {
                role.and_then(|role| values.get(&role)?.now()).unwrap_or(Known::LEFT_OVER)
            };
            let mut read: SmallVec<[u32; 4]> = SmallVec::new();
            if node.reads {
                let inputs = node.inputs.iter().filter(|role| role.is_some());
                read.extend(inputs.map(|role| now(&values, *role)));
                read.iter().for_each(|&value| builder.read(value));
            }
            let mut made = self.values_of(id);
            for makes in &node.makes {
                let (role, ordinal) = match *makes {
                    Makes::Value(bytes) => (made.next(), builder.value(bytes)),
                    Makes::Update(target) => {
                        let role = input(target);
                        let bytes = role.map_or(0, |role| self.roles[role.index()].0);
                        (role, builder.value(bytes))
                    }
                    Makes::Replace { by, target } => (input(target), now(&values, input(by))),
                    Makes::Look(at) => (None, now(&values, input(at))),
                };
                if let Some(role) = role {
                    let values = values.entry(role).or_default();
                    if let (Makes::Update(_) | Makes::Replace { .. }, Some(old)) =
                        (makes, values.now())
                    {
                        builder.gone(old);
                    }
                    values.made.push((ordinal, position as u32));
                }
                if let (Makes::Value(_), true) = (makes, inherits) {
                    sources.insert(ordinal, read.clone());
                }
                builder.output(ordinal);
            }
            self.inherit(id, position, &mut values, &sources, &mut builder);
            builder.next(node.cost);
            while let Some((_, role)) = gone.next_if(|(at, _)| *at as usize <= position) {
                if let Some(value) = values.get(&role).and_then(Values::now) {
                    builder.gone(value);
                }
            }
        }
        // The position after the last command reads the values that the next turn uses.
        let mut last: Vec<_> = match self.again {
            Some(again) => {
                let carried = self.inputs_from_before(again);
                carried.iter().filter_map(|role| values.get(role)?.now()).collect()
            }
            None => {
                let now = values.values().filter_map(Values::now);
                now.filter(|&value| builder.is_held(value)).collect()
            }
        };
        last.sort_unstable();
        last.into_iter().for_each(|value| builder.read(value));
        builder.next(0.0);
        let future = builder.finish();
        Known { key: future.key(), future: Arc::new(future), values }
    }

    /// Roles of values made before `position` that commands at `position` or later read or view
    /// before they make a value of the role.
    fn inputs_from_before(&self, position: usize) -> Vec<Role> {
        let mut known: FxHashSet<Role> = FxHashSet::default();
        let mut inputs = Vec::new();
        for &id in &self.course[position..] {
            let node = &self.nodes[id as usize];
            inputs.extend(node.inputs.iter().flatten().filter(|role| known.insert(**role)));
            known.extend(self.values_of(id));
        }
        inputs
    }

    /// Applies the role changes of a step mark. The mark counts as reading the inheriting values,
    /// because it makes them leaves. The mark also counts as reading the values from which the
    /// inheriting values would be restored.
    ///
    /// Without reads by the mark, held gradients would be evicted first, because no command reads
    /// held gradients. New parameters that are then evicted could be restored only by the whole
    /// backward pass.
    fn inherit(
        &self,
        node: NodeId,
        position: usize,
        values: &mut FxHashMap<Role, Values>,
        sources: &Sources,
        builder: &mut StepFutureBuilder,
    ) {
        let value = |heir: &Heir| Some((heir.inherits, values.get(&heir.plays)?.now()?));
        let inherited: SmallVec<[_; 8]> = self.heirs(node).iter().filter_map(value).collect();
        let restored = inherited.iter().map(|heir| heir.1).collect();
        builder.read_sources(restored, |value| sources.get(&value).map_or(&[], |of| &of[..]));
        for (role, value) in inherited {
            builder.read(value);
            let values = values.entry(role).or_default();
            // The last handle of the old value ends at the mark, unless it is known to end at
            // another command.
            if let (Some(old), NOWHERE) = (values.now(), self.roles[role.index()].1) {
                builder.gone(old);
            }
            values.made.push((value, position as u32));
        }
    }
}
