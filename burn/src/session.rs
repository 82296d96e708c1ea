//! Session: turns Burn's stream of operations into remat's commands. A tensor has the same number
//! in Burn and in remat.

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
use remat::unstable::program::{Ahead, Apply, Command, Driver, Ids, TensorId, Waiting, Window};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Do<B> = Command<BurnOp, <BurnDevice<B> as Device>::Host>;

/// State of a device under a budget.
pub(crate) struct Session<B: BackendIr> {
    driver: Driver<BurnDevice<B>>,
    facts: Facts,
    /// Tensors that are views of another tensor's storage. Tensors that are not in this map are
    /// contiguous.
    views: FxHashMap<TensorId, View>,
    /// Window of announced commands that the evictor sees before they run; `None` if
    /// [`Builder::look_ahead`](crate::Builder::look_ahead) is 0.
    ahead: Option<Ahead>,
    waiting: VecDeque<Do<B>>,
    /// First tensor number of this session. Tensors with smaller numbers belong to closed sessions,
    /// but operations on those tensors may still arrive.
    first: TensorId,
    /// Tensors without a value, each with the reason. A tensor has no value if it was computed from
    /// a tensor without a value, or if it could not be moved to this device.
    lost: FxHashMap<TensorId, Error>,
    forms: Forms,
    seed: u64,
    /// Number of random operations so far.
    randoms: u64,
    marks: Marks,
    /// Whether the backend's bytes are compared with the counted bytes after each operation.
    #[cfg(test)]
    pub checks: bool,
}

/// View: a tensor that takes no bytes, because it lies in another tensor's storage.
#[derive(Clone)]
struct View {
    /// Layout of the storage in remat.
    layout: Layout,
    /// Ops that make the view from the storage.
    ops: Vec<BurnOp>,
    strides: Strides,
}

/// Marks of the ends of training steps. At a mark, compute paths of earlier steps are cut. Without
/// marks, compute paths would accumulate without limit.
#[derive(Debug, Default)]
struct Marks {
    /// Whether the user marks steps.
    by_user: bool,
    /// Whether the first step that the user marked has ended.
    settled: bool,
    /// Whether a step has ended, but its mark was not executed yet. The mark is executed before the
    /// next command, so that the user does not wait for it.
    due: bool,
    /// Operations since the last mark.
    operations: usize,
}

impl Marks {
    /// Limits for automatic marks: a mark is set after `OPERATIONS` operations, but not before
    /// `PER_TENSOR` operations for each tensor in the graph. These limits are far above the
    /// operations of a step, because a step needs the compute paths since the mark before the last.
    const OPERATIONS: usize = 1 << 12;
    const PER_TENSOR: usize = 8;
}

/// Reserves `count` new tensor numbers in a row, unique in the process, and returns the first.
pub(crate) fn numbers(count: usize) -> TensorId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    TensorId(NEXT.fetch_add(count as u64, Ordering::Relaxed))
}

impl<B: BackendIr> Session<B> {
    /// Makes a session with a driver that has executed nothing yet.
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

    /// Declares all tensors with numbers up to now to have no value. Called when the session is
    /// opened, because clients of the slot's last session may reserve numbers until then.
    pub fn opened(&mut self) {
        self.first = numbers(0);
    }

    /// Uploads a value from the host as `tensor`.
    pub fn put(&mut self, tensor: TensorId, data: TensorData) {
        if tensor < self.first {
            return;
        }
        self.mark_if_due();
        // If the device uses the host's memory, evicting an upload would free as many bytes as the
        // host copy for restoring it takes. The tensor is therefore a leaf without a copy.
        let leaf = self.facts.on_host;
        self.push(Command::Put { tensor, host: Arc::new(Host::new(data, leaf)), leaf });
    }

    /// Records that a tensor has no value, and why.
    pub fn lose(&mut self, tensor: TensorId, why: Error) {
        self.lost.insert(tensor, why);
    }

    /// Runs an operation.
    pub fn run(&mut self, ir: OperationIr) {
        self.mark_if_due();
        match &ir {
            OperationIr::Init(_) => return,
            OperationIr::Drop(tensor) => return self.let_go(number(tensor.id)),
            _ => {}
        }
        let (form, tensors) = self.forms.of(ir);
        let inputs = form.inputs_of(&tensors).map(|(input, _)| input);
        if let Some(why) =
            inputs.chain(form.outputs_of(&tensors)).find_map(|tensor| self.why_lost(tensor))
        {
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

    /// First input, and the output as a view, if the operation only makes a view. `None` for other
    /// operations.
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
        // remat needs consecutive numbers for the outputs of an op. If Burn's numbers are not
        // consecutive, the outputs get new numbers, and a view of each output gets Burn's number.
        let row = numbers(outputs.len());
        self.push(Command::Apply(Apply::new(op.clone(), &*inputs, layouts, row)));
        for (i, (made, out)) in row.and_next(outputs.len()).zip(outputs).enumerate() {
            let layout = form.layouts.layout(i, |_| unreachable!("they are fresh"));
            let outputs = Outputs::view(0, layout);
            self.push(Command::Apply(Apply::new(op.clone(), [made].as_slice(), outputs, out)));
            self.push(Command::Del(made));
        }
    }

    /// Ops that make those inputs that are views; `None` if no input is a view.
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

    /// Whether the op may overwrite its first input. Backend and op must permit overwriting, Burn
    /// must delete the input after the op, and the input must not be a view and must occur only
    /// once.
    fn ends_first(&self, form: &Form, tensors: &Tensors) -> bool {
        let mut inputs = form.inputs_of(tensors);
        self.facts.writes_over
            && form.same_over
            && inputs.next().is_some_and(|(first, status)| {
                status == TensorStatus::ReadWrite
                    && !self.views.contains_key(&first)
                    && inputs.all(|(other, _)| other != first)
            })
    }

    /// Executes a command. An op may overwrite its first input if deleting the input would evict it
    /// anyway. The input's content is invalid after the op, so the input is then evicted at once,
    /// by its deletion or by a `Drop` in this function.
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
        // With a window, the evictor already knows the sequence of commands, so no `Drop` may be
        // inserted.
        (self.ahead.is_none() || self.driver.evicts_unheld()) && self.driver.would_go(tensor)
    }

    /// Deletes a tensor that Burn no longer uses.
    fn let_go(&mut self, tensor: TensorId) {
        if self.lost.remove(&tensor).is_none() && tensor >= self.first {
            self.views.remove(&tensor);
            self.push(Command::Del(tensor));
        }
    }

    /// Reads a tensor.
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

    /// Waits until all work is done. Fails with the first unreported failure.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.mark_if_due();
        self.push(Command::Sync);
        self.catch_up();
        let late = self.driver.engine().device().take_failure().map(remat::Error::from);
        let failure = late.or_else(|| self.driver.take_failure());
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Ends a step, as marked by the user. Fails as [`Session::sync`] does.
    pub fn step(&mut self) -> Result<(), Error> {
        let done = self.sync();
        (self.marks.by_user, self.marks.due) = (true, true);
        done
    }

    /// Sets the seed of later random operations.
    pub fn seed(&mut self, seed: u64) {
        (self.seed, self.randoms) = (seed, 0);
    }

    /// Executes all commands so far, and calls `question` on the driver.
    pub fn ask<T>(&mut self, question: impl FnOnce(&Driver<BurnDevice<B>>) -> T) -> T {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        question(&self.driver)
    }

    /// Executes all commands so far, and changes a setting.
    pub fn set(
        &mut self,
        change: impl FnOnce(&mut Driver<BurnDevice<B>>) -> Result<(), remat::Error>,
    ) -> Result<(), Error> {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        change(&mut self.driver)?;
        // Memory of evicted tensors is free when this returns.
        self.driver.engine().device().catch_up();
        Ok(())
    }

    /// Executes all commands so far, and returns the forecasts found. [`Driver::forecasts`]
    /// explains `turns`.
    pub fn forecasts(&mut self, turns: Option<u64>) -> Vec<Forecast> {
        self.mark_if_due();
        self.catch_up();
        self.driver.record_wait();
        self.driver.forecasts(turns)
    }

    /// Writes the remaining lines of the recording, if a recording is on.
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

    /// Sets an automatic mark after many operations without a mark: see [`Marks::OPERATIONS`].
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

    /// Executes the next waiting command. False if no command waits.
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
