//! Extraction of the parts of a command that are the same in each step.

use crate::command::Command;
use crate::device::Device;
use crate::driver::books::Books;
use crate::graph::StorageKey;
use crate::op::Operation as _;
use crate::step::recognize::{Heard, MARK, Makes, Role};
use rustc_hash::FxHasher;
use slotmap::SecondaryMap;
use std::hash::{Hash as _, Hasher as _};
use std::mem::discriminant;

/// Extracts the parts of a command that are equal in each step.
pub(super) fn hear<D: Device>(
    books: &Books<D>,
    roles: &SecondaryMap<StorageKey, Role>,
    command: &Command<D::Op, D::Host>,
) -> Heard {
    let mut heard = Heard { reads: true, ..Heard::default() };
    let mut hash = FxHasher::default();
    discriminant(command).hash(&mut hash);
    let role = |tensor| books.storage_of(tensor).and_then(|key| roles.get(key)).copied();
    match command {
        Command::Put { host, .. } => {
            heard.makes.push(Makes::Value(D::layout_of(host).bytes()));
        }
        Command::Replace { target, value, .. } => {
            heard.inputs.extend([role(*value), role(*target)]);
            heard.makes.push(match heard.inputs[1] {
                Some(_) => Makes::Replace { by: 0, target: 1 },
                None => Makes::Look(0),
            });
        }
        Command::Get(tensor) | Command::Commit(tensor) => heard.inputs.push(role(*tensor)),
        Command::Drop(tensor) | Command::Label { tensor, .. } => {
            heard.inputs.push(role(*tensor));
            heard.reads = false;
        }
        _ => {}
    }
    for call in command.calls() {
        call.op.name().hash(&mut hash);
        let before = heard.inputs.len() as u32;
        heard.inputs.extend(call.inputs.iter().map(|&input| role(input)));
        let looks = call.outputs.views();
        heard.makes.extend(looks.iter().map(|look| Makes::Look(before + look.input as u32)));
        heard.reads &= looks.is_empty();
        for target in 0..call.outputs.targets().min(call.inputs.len()) {
            let input = before + target as u32;
            heard.makes.push(match heard.inputs[input as usize] {
                Some(_) => Makes::Update(input),
                None => Makes::Value(books.bytes_of(call.inputs[target])),
            });
        }
        if let Some((_, fresh)) = call.outputs.written() {
            heard.makes.extend(fresh.iter().map(|layout| Makes::Value(layout.bytes())));
        }
    }
    for call in command.calls() {
        let looks = call.outputs.views().iter().map(|look| look.layout);
        let inputs = call.inputs.iter().filter_map(|&input| books.layout_of(input));
        // The hash includes only offset and element count of a layout, which suffice to distinguish
        // layouts.
        for layout in inputs.chain(looks) {
            (layout.offset(), layout.elements()).hash(&mut hash);
        }
    }
    heard.token = match command {
        Command::Step => MARK,
        _ => hash.finish(),
    };
    heard
}
