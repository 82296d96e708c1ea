//! What is expected: the commands from one on, as far as the links lead, up to where they lead back.

use super::{MARK, Makes, NOWHERE, Role, Steps};
use crate::graph::{StepFuture, StepFutureBuilder};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A course, as a step that is known.
#[derive(Debug)]
pub(in crate::program) struct Known {
    /// What it uses when. A course that leads back to its beginning has one more position than commands, the last, where
    /// all is used that the next turn uses of this one.
    pub future: Arc<StepFuture>,
    values: FxHashMap<Role, Values>,
}

/// The values of one role: ordinals.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    /// What is there in the beginning.
    carried: Option<u32>,
    /// What a command makes, and at which position.
    made: Option<(u32, u32)>,
}

impl Known {
    /// The value that the storage in this role holds while the command at `position` is at hand.
    pub fn value(&self, role: Role, position: usize) -> Option<u32> {
        let values = self.values.get(&role)?;
        match values.made {
            Some((ordinal, made)) if (made as usize) < position => Some(ordinal),
            _ => values.carried,
        }
    }
}

impl Steps {
    /// Looks along what is expected from the last command on. `None`: the course is as it was, or nothing is expected.
    pub fn look_ahead(&mut self) -> Option<Known> {
        // To look takes as long as the course is: not at every command of a program that hardly repeats itself.
        if self.on_course.is_some() || self.since * 16 < self.course.len() {
            return None;
        }
        let at = self.at?;
        self.after(at)?;
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
        (self.on_course, self.since, self.stale) = (Some(0), 0, false);
        if self.again == Some(0) {
            self.begin_where_a_step_does();
        }
        Some(self.known())
    }

    /// A course that leads back to its beginning could as well begin elsewhere: let it be where the program says that a
    /// step begins, or if it does not, in a place that does not depend on where the course was found.
    fn begin_where_a_step_does(&mut self) {
        let tokens = |position: usize| {
            let node = &self.nodes[self.course[position % self.course.len()] as usize];
            (node.token != MARK, node.token)
        };
        // The one before the first.
        let last = (0..self.course.len()).min_by_key(|&position| {
            (tokens(position), tokens(position + 1), self.course[position])
        });
        let turn = last.map_or(0, |last| (last + 1) % self.course.len());
        self.course.rotate_left(turn);
        self.on_course = Some((self.course.len() - turn) % self.course.len());
        for (position, &node) in self.course.iter().enumerate() {
            self.nodes[node as usize].place.1 = position as u32;
        }
    }

    fn known(&self) -> Known {
        let mut builder = StepFutureBuilder::default();
        let mut values: FxHashMap<Role, Values> = FxHashMap::default();
        // What is read or looked at before it is made was there in the beginning.
        let mut made: FxHashMap<Role, ()> = FxHashMap::default();
        for &node in &self.course {
            let node = &self.nodes[node as usize];
            for &role in node.inputs.iter().flatten() {
                if !made.contains_key(&role) {
                    let values = values.entry(role).or_default();
                    values.carried.get_or_insert_with(|| builder.carry(self.roles[role.index()].0));
                }
            }
            made.extend(node.roles().map(|role| (role, ())));
        }
        // Which values are gone after which command.
        let mut gone: Vec<(u32, Role)> = Vec::new();
        for &role in values.keys().chain(made.keys().filter(|role| !values.contains_key(role))) {
            let node = self.roles[role.index()].1;
            if node != NOWHERE && self.nodes[node as usize].place.0 == self.courses {
                gone.push((self.nodes[node as usize].place.1, role));
            }
        }
        gone.sort_unstable();
        let mut gone = gone.into_iter().peekable();
        let now = |values: &FxHashMap<Role, Values>, role: Role| {
            let values = values.get(&role)?;
            values.made.map(|made| made.0).or(values.carried)
        };
        for (position, &node) in self.course.iter().enumerate() {
            let node = &self.nodes[node as usize];
            if node.reads {
                for &role in node.inputs.iter().flatten() {
                    if let Some(value) = now(&values, role) {
                        builder.read(value);
                    }
                }
            }
            let mut next = node.first;
            for makes in &node.makes {
                let ordinal = match *makes {
                    Makes::Value(bytes) => {
                        let ordinal = builder.value(bytes);
                        values.entry(next).or_default().made = Some((ordinal, position as u32));
                        next = next.after(1);
                        ordinal
                    }
                    Makes::Look(input) => {
                        let role = node.inputs.get(input as usize).copied().flatten();
                        // Of what has no role nothing is known: a value that nobody reads.
                        role.and_then(|role| now(&values, role)).unwrap_or_else(|| builder.value(0))
                    }
                };
                builder.output(ordinal);
            }
            builder.next(node.cost);
            while let Some((_, role)) = gone.next_if(|(at, _)| *at as usize <= position) {
                if let Some(value) = now(&values, role) {
                    builder.gone(value);
                }
            }
        }
        if self.again == Some(0) {
            let mut carried: Vec<_> =
                values.values().filter(|values| values.carried.is_some()).collect();
            carried.sort_unstable_by_key(|values| values.carried);
            for values in carried {
                let last = values.made.map(|made| made.0).or(values.carried);
                last.into_iter().for_each(|value| builder.read(value));
            }
            builder.next(0.0);
        }
        Known { future: Arc::new(builder.finish()), values }
    }
}
