//! From Burn's stream of operations to commands of remat's. Tensors have the same numbers in both.

use crate::backend::Facts;
use crate::device::{BurnDevice, Host};
use crate::error::Error;
use crate::form::{Form, Forms, Tensors, layout_of, number};
use crate::op::{BurnOp, Looks};
use crate::random::{random, seed_of};
use crate::view::Strides;
use burn_backend::TensorData;
use burn_ir::{BackendIr, OperationIr, TensorIr, TensorStatus};
use remat::Layout;
use remat::device::Device;
use remat::evict::Forecast;
use remat::op::Outputs;
use remat::program::{Ahead, Apply, Command, Driver, Ids, TensorId, Waiting, Window};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Do<B> = Command<BurnOp, <BurnDevice<B> as Device>::Host>;

/// What runs on one device, under one budget.
pub(crate) struct Session<B: BackendIr> {
    driver: Driver<BurnDevice<B>>,
    facts: Facts,
    /// Those that look at the storage of another tensor. All others are as their shapes say.
    views: FxHashMap<TensorId, View>,
    /// What waits until all that may be seen from it is there; `None` without a window.
    ahead: Option<Ahead>,
    waiting: VecDeque<Do<B>>,
    /// Numbers below this were given before the session began.
    first: TensorId,
    /// Made from tensors of earlier sessions, or not here, and why they are not there.
    lost: FxHashMap<TensorId, Error>,
    forms: Forms,
    seed: u64,
    /// Random operations so far.
    randoms: u64,
    marks: Marks,
    /// Whether what is in memory is compared with what is counted, after each operation.
    #[cfg(test)]
    pub checks: bool,
}

/// A tensor that looks at another's storage.
#[derive(Clone)]
struct View {
    /// What remat knows of that storage.
    layout: Layout,
    /// How the view is made of it.
    ops: Vec<BurnOp>,
    strides: Strides,
}

/// Who says where steps of training end. History is cut there; without any marks it would grow for ever.
#[derive(Debug, Default)]
struct Marks {
    /// The user marks steps.
    by_user: bool,
    /// The first step that the user marked is over.
    settled: bool,
    /// A step has ended, and history is to be cut: before the next command, when nobody waits for it.
    due: bool,
    /// Operations since the last mark.
    operations: usize,
}

impl Marks {
    /// After so many operations, or so many for each tensor that is there, there is a mark even if nobody asked for one: far more
    /// than a step has, since what a step needs is history up to the mark before the last.
    const OPERATIONS: usize = 1 << 12;
    const PER_TENSOR: usize = 8;
}

/// Numbers for so many tensors, one after the other, that no tensor of the process has. The first of them.
pub(crate) fn numbers(count: usize) -> TensorId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    TensorId(NEXT.fetch_add(count as u64, Ordering::Relaxed))
}

impl<B: BackendIr> Session<B> {
    /// With a driver that has done nothing yet.
    pub fn new(
        driver: Driver<BurnDevice<B>>,
        facts: Facts,
        window: Window,
        seed: u64,
        pure: Arc<BTreeMap<String, bool>>,
    ) -> Self {
        Self {
            driver,
            facts,
            views: FxHashMap::default(),
            ahead: (window.commands > 0).then(|| Ahead::new(window)),
            waiting: VecDeque::new(),
            first: numbers(0),
            lost: FxHashMap::default(),
            forms: Forms::new(pure),
            seed,
            randoms: 0,
            marks: Marks::default(),
            #[cfg(test)]
            checks: true,
        }
    }

    /// A value from the host.
    pub fn put(&mut self, tensor: TensorId, data: TensorData) {
        self.mark_if_due();
        // In the host's memory, a copy to evict it by would take as much as it gives.
        let leaf = self.facts.on_host;
        self.push(Command::Put { tensor, host: Arc::new(Host::new(data, leaf)), leaf });
    }

    /// A tensor that is not there.
    pub fn lose(&mut self, tensor: TensorId, why: Error) {
        self.lost.insert(tensor, why);
    }

    /// An operation.
    pub fn run(&mut self, ir: OperationIr) {
        self.mark_if_due();
        match &ir {
            OperationIr::Init(_) => return,
            OperationIr::Drop(tensor) => return self.let_go(number(tensor.id)),
            _ => {}
        }
        let (form, tensors) = self.forms.of(ir);
        if let Some(why) = form.inputs_of(&tensors).find_map(|(input, _)| self.why_lost(input)) {
            self.lost.extend(form.outputs_of(&tensors).map(|out| (out, why.clone())));
        } else if let Some((input, view)) = self.look(&form, &tensors) {
            self.apply_view(&form, &tensors, input, view);
        } else {
            self.apply(&form, &tensors);
        }
        for (input, status) in form.inputs_of(&tensors) {
            if status == TensorStatus::ReadWrite {
                self.let_go(input);
            }
        }
        self.bound_history();
        #[cfg(test)]
        if self.checks {
            self.driver.engine().device().check(self.driver.engine().used_bytes());
        }
    }

    /// The input that the operation only looks at, and how.
    fn look(&self, form: &Form, tensors: &Tensors) -> Option<(TensorId, View)> {
        let (input, _) = form.inputs_of(tensors).next()?;
        let seen = self.views.get(&input);
        let strides = (self.facts.views)(&form.ir, &|| match (seen, form.ir.inputs().next()) {
            (Some(view), _) => view.strides.clone(),
            (None, base) => Strides::contiguous(base.map_or(&[], |base| &base.shape)),
        })?;
        let view = match seen {
            Some(view) => View { strides, ..view.clone() },
            None => View { layout: layout_of(form.ir.inputs().next()?), ops: Vec::new(), strides },
        };
        Some((input, view))
    }

    fn apply_view(&mut self, form: &Arc<Form>, tensors: &Tensors, input: TensorId, mut view: View) {
        let Some(made) = form.outputs_of(tensors).next() else { return };
        let outputs = Outputs::view(0, view.layout);
        let op = BurnOp::new(Arc::clone(form), None, None, false);
        view.ops.push(op.clone());
        self.views.insert(made, view);
        self.push(Command::Apply(Apply::new(op, [input].as_slice(), outputs, made)));
    }

    fn apply(&mut self, form: &Arc<Form>, tensors: &Tensors) {
        let inputs: Ids = form.inputs_of(tensors).map(|(input, _)| input).collect();
        let seed = random(&form.ir).map(|_| {
            self.randoms += 1;
            seed_of(self.seed, self.randoms)
        });
        let ends_first = self.ends_first(form, tensors);
        let op = BurnOp::new(Arc::clone(form), self.looks(&inputs), seed, ends_first);
        let layouts = form.layouts.clone();
        let outputs = form.outputs_of(tensors);
        let first = outputs.clone().next().unwrap_or_default();
        if outputs.clone().eq(first.and_next(outputs.len())) {
            return self.push(Command::Apply(Apply::new(op, &*inputs, layouts, first)));
        }
        // Numbers of outputs must be in a row. Where Burn's are not, it gets others, and those name them.
        let row = numbers(outputs.len());
        self.push(Command::Apply(Apply::new(op.clone(), &*inputs, layouts, row)));
        for (i, (made, out)) in row.and_next(outputs.len()).zip(outputs).enumerate() {
            let layout = form.layouts.layout(i, |_| unreachable!("they are fresh"));
            let outputs = Outputs::view(0, layout);
            self.push(Command::Apply(Apply::new(op.clone(), [made].as_slice(), outputs, out)));
            self.push(Command::Del(made));
        }
    }

    /// How the views among these inputs are made; `None` if there are none.
    fn looks(&self, inputs: &[TensorId]) -> Option<Box<Looks>> {
        if !inputs.iter().any(|input| self.views.contains_key(input)) {
            return None;
        }
        let mut looks = Box::new(Looks::default());
        for input in inputs {
            looks.add(self.views.get(input).map_or(&[], |view| &view.ops));
        }
        Some(looks)
    }

    /// Whether the first input may be written over: it is deleted once the operation has run, and is no view.
    fn ends_first(&self, form: &Form, tensors: &Tensors) -> bool {
        let mut inputs = form.inputs_of(tensors);
        self.facts.writes_over
            && inputs.next().is_some_and(|(first, status)| {
                status == TensorStatus::ReadWrite
                    && !self.views.contains_key(&first)
                    && inputs.all(|(other, _)| other != first)
            })
    }

    /// Executes a command. An op may write over its first input, if that would be evicted by deleting it: it is evicted, be it so
    /// or before.
    fn execute(&mut self, command: Do<B>) {
        let given = match &command {
            Command::Apply(Apply { op, inputs, .. }) if op.ends_first => {
                Some(inputs[0]).filter(|&first| self.can_give(first))
            }
            _ => None,
        };
        if let (Some(_), Command::Apply(Apply { op, .. })) = (given, &command) {
            op.give_first();
        }
        self.driver.execute(command);
        if let Some(first) = given.filter(|_| !self.driver.evicts_unheld()) {
            self.driver.execute(Command::Drop(first));
        }
    }

    fn can_give(&mut self, tensor: TensorId) -> bool {
        // What waits was announced, one command after the other.
        (self.ahead.is_none() || self.driver.evicts_unheld()) && self.driver.would_go(tensor)
    }

    /// Burn has no more use for a tensor.
    fn let_go(&mut self, tensor: TensorId) {
        if tensor >= self.first && self.lost.remove(&tensor).is_none() {
            self.views.remove(&tensor);
            self.push(Command::Del(tensor));
        }
    }

    /// The value of a tensor.
    pub fn read(&mut self, ir: &TensorIr) -> Result<TensorData, Error> {
        self.mark_if_due();
        let tensor = number(ir.id);
        if let Some(why) = self.why_lost(tensor) {
            return Err(why);
        }
        if self.ahead.is_some() {
            self.driver.admit(&Command::Get(tensor));
        }
        self.catch_up();
        let looks = self.looks(&[tensor]);
        let looks = looks.as_deref();
        let data = self.driver.visit(tensor, |device, place| device.read_view(looks, ir, place));
        if ir.status == TensorStatus::ReadWrite {
            self.let_go(tensor);
        }
        self.marks.due |= !self.marks.by_user;
        Ok(data?.map_err(remat::Error::from)?)
    }

    /// Waits until all is done. Fails with the first failure that nobody was told of.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.mark_if_due();
        self.push(Command::Sync);
        self.catch_up();
        let late = self.driver.engine().device().take_failure().map(remat::Error::from);
        let failure = late.or_else(|| self.driver.take_failure());
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The end of a step, as the user says. Fails as [`Session::sync`].
    pub fn step(&mut self) -> Result<(), Error> {
        let done = self.sync();
        (self.marks.by_user, self.marks.due) = (true, true);
        done
    }

    /// Seeds what is random from now on.
    pub fn seed(&mut self, seed: u64) {
        (self.seed, self.randoms) = (seed, 0);
    }

    /// Asks something, after all commands so far.
    pub fn ask<T>(&mut self, question: impl FnOnce(&Driver<BurnDevice<B>>) -> T) -> T {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        question(&self.driver)
    }

    /// Changes a setting, after all commands so far.
    pub fn set(
        &mut self,
        change: impl FnOnce(&mut Driver<BurnDevice<B>>) -> Result<(), remat::Error>,
    ) -> Result<(), Error> {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        change(&mut self.driver)?;
        // What was evicted is gone when this returns.
        self.driver.engine().device().catch_up();
        Ok(())
    }

    /// What was found about steps, after all commands so far.
    pub fn forecasts(&mut self, turns: Option<u64>) -> Vec<Forecast> {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        self.driver.forecasts(turns)
    }

    /// Writes out the rest of the recording, if there is one.
    pub fn finish_recording(&mut self) -> Result<(), Error> {
        self.mark_if_due();
        self.catch_up();
        Ok(self.driver.finish_recording()?)
    }

    /// Evicts a tensor.
    #[cfg(test)]
    pub fn evict(&mut self, tensor: TensorId) {
        self.push(Command::Drop(tensor));
    }

    fn why_lost(&self, tensor: TensorId) -> Option<Error> {
        if tensor < self.first {
            return Some(Error::Dropped);
        }
        self.lost.get(&tensor).cloned()
    }

    fn mark(&mut self) {
        if self.marks.by_user && !std::mem::replace(&mut self.marks.settled, true) {
            self.catch_up();
            self.driver.end_first_step();
        }
        self.marks.due = false;
        self.marks.operations = 0;
        self.push(Command::Step);
    }

    fn mark_if_due(&mut self) {
        if self.marks.due {
            self.mark();
        }
    }

    /// Marks a step where there was no mark for long.
    fn bound_history(&mut self) {
        self.marks.operations += 1;
        if self.marks.operations >= Marks::OPERATIONS {
            let (tensors, ..) = self.driver.engine().graph().counts();
            if self.marks.operations >= Marks::PER_TENSOR * tensors {
                self.mark();
            }
        }
    }

    fn push(&mut self, command: Do<B>) {
        let Some(ahead) = &mut self.ahead else { return self.execute(command) };
        self.driver.admit(&command);
        ahead.push(waiting(&command));
        self.waiting.push_back(command);
        while self.ahead.as_ref().is_some_and(Ahead::is_complete) && self.next() {}
    }

    /// Executes the next command that waits. False if there is none.
    fn next(&mut self) -> bool {
        let Some(command) = self.waiting.pop_front() else { return false };
        if let Some(ahead) = &mut self.ahead {
            ahead.pop(waiting(&command));
        }
        self.execute(command);
        true
    }

    fn catch_up(&mut self) {
        while self.next() {}
    }
}

fn waiting(command: &Command<BurnOp, Host>) -> Waiting {
    Waiting::of(command, |host| host.layout().bytes())
}
