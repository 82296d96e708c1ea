// Passes operator calls from PyTorch's dispatcher to the engine.
//
// A budget is a dispatch mode. PyTorch passes each call under a mode to the function `dispatch` of its Python
// interpreter, which `interpreter.cpp` replaces. If the top mode is the budget, the call stays in C++, and does not
// need Python's global lock.
#include "allocator.h"
#include "api.h"
#include "dry_run.h"
#include "interpreter.h"
#include "operands.h"
#include "record.h"
#include "sizes.h"
#include "storages.h"

#include <Python.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/StreamGuard.h>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/torch_dispatch_mode.h>

namespace remat {
namespace {

// The session of the budget in use; null if there is none.
void* session = nullptr;
PyObject* mode = nullptr;
PyObject* out_of_memory = nullptr;
c10::Device device = c10::kCPU;
// The stream of the first op under the budget, on which evicted tensors are restored; null on the CPU.
std::optional<c10::Stream> stream;
// Whether everything evictable is evicted after each op, for tests.
bool stress = false;
// Whether this process was forked from one with a budget. Its engine belongs to the parent.
bool forked = false;

// Storages that a kernel has handed out to other code during the current call.
std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> exposed;

// Calls of each kind.
struct Counts {
  uint64_t calls = 0, foreign = 0, unknown = 0, misjudged = 0;
  // Calls that do not run again, by operator.
  std::map<std::string, uint64_t> once;
} counts;

// Names of storages that the budget does not count yet, for error messages.
std::unordered_map<c10::StorageImpl*, std::string> labels;

std::mutex session_lock;
thread_local bool inside = false;

// Takes the lock of the session. While it waits, other threads may use Python.
struct Lock {
  Lock() {
    if (!session_lock.try_lock()) {
      if (PyGILState_Check()) {
        auto* state = PyEval_SaveThread();
        session_lock.lock();
        PyEval_RestoreThread(state);
      } else {
        session_lock.lock();
      }
    }
    inside = true;
  }
  ~Lock() {
    inside = false;
    session_lock.unlock();
  }
};

c10::Stream current_stream() { return c10::impl::getDeviceGuardImpl(device.type())->getStream(device); }

// Waits for the work on the stream of the first op.
void synchronize() {
  if (stream) c10::impl::getDeviceGuardImpl(device.type())->synchronizeStream(*stream);
}

// Work of the engine's own runs on the stream of the first op, whatever the program has chosen. A program that has
// chosen another stream waits for the work in the end.
class OnStream {
  c10::OptionalStreamGuard guard;
  bool waits = false;

 public:
  OnStream() {
    if (!stream) return;
    waits = current_stream() != *stream;
    guard.reset_stream(*stream);
  }
  ~OnStream() {
    try {
      if (waits) synchronize();
    } catch (const c10::Error&) {
      // The next call on the GPU reports its failure again.
    }
  }
  OnStream(const OnStream&) = delete;
};

// Raises a Python exception with this text.
[[noreturn]] void raise(PyObject* type, const std::string& text) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyErr_SetString(type, text.c_str());
  python_error error;
  error.persist();
  PyGILState_Release(state);
  throw error;
}

[[noreturn]] void raise_text(char* text, RmOutcome outcome, const std::string& where = "") {
  std::string message = text ? text : "remat: out of memory";
  remat_free_text(text);
  message += where;
  raise(outcome == RM_FAILED ? PyExc_RuntimeError : out_of_memory ? out_of_memory : PyExc_MemoryError, message);
}

void call_plain(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::torch_dispatch_mode::StashTorchDispatchModeGuard stash;
  call_kernel(op, stack);
}

// The entry of a storage, which becomes a leaf if the budget did not count it before.
Held* counted(c10::StorageImpl* storage) {
  if (auto* held = held_of(storage)) return held;
  // Other code, such as NumPy or another process, may write to memory that it allocated at any time.
  auto& data = storage->_mutable_data_ptr_no_checks();
  auto own = c10::GetAllocator(storage->device_type())->raw_deleter();
  if (!data.get() && storage->nbytes() && !is_dry())
    raise(PyExc_RuntimeError, "remat: an operand has no values, because it was made by a step of remat.suggest");
  bool tainted = data.get() && !storage->allocator() && data.get_deleter() != own;
  char* error = nullptr;
  uint64_t tensor = remat_put(session, storage, storage->nbytes(), tainted, &error);
  if (!tensor) raise_text(error, RM_NO_MEMORY);
  if (!labels.empty())
    if (auto named = labels.extract(storage)) remat_label(session, tensor, named.mapped().c_str());
  return held_of(storage);
}

// Counts storages that an op returned and that the engine does not know yet. They are leaves.
void count_results(const Form& form, const torch::jit::Stack& stack) {
  c10::SmallVector<c10::StorageImpl*, 8> seen;
  each_new_storage(torch::jit::last(stack, form.results), seen, [](const at::Tensor& tensor, c10::StorageImpl* storage) {
    if (is_counted(tensor, device) && !is_lent(storage)) counted(storage);
  });
}

// The call that the program made, with the types and shapes of its operands, for an error.
std::string call_of_program(const Form& form, const Operands& operands) {
  std::ostringstream out;
  out << "\n  in the program's call " << form.name << "(";
  const char* between = "";
  for (const auto& look : operands.looks) {
    out << between << c10::toString(look.dtype) << c10::ArrayRef<int64_t>(look.sizes);
    between = ", ";
  }
  out << ")";
  return out.str();
}

// Passes an op to the engine. Throws if the op raises or memory does not suffice.
void apply(RmApply& call, Record* record, const Form& form, const Operands& operands) {
  call.record = record;
  // Rust may delete the record as soon as no value needs it, so the record writes what it raised to this frame.
  std::exception_ptr raised;
  record->raised_to = &raised;
  auto outcome = remat_apply(session, &call);
  if (outcome == RM_DONE && !raised) return;
  if (!raised) raise_text(call.error, outcome, call_of_program(form, operands));
  remat_free_text(call.error);
  std::rethrow_exception(raised);
}

// Announces that an op will write to these storages. Tensors whose recomputation needs the old values get copies
// first.
void notice(const Form& form, c10::ArrayRef<c10::StorageImpl*> storages, const torch::jit::Stack& stack) {
  if (storages.empty()) return;
  Operands none;
  none.targets = storages.size();
  std::vector<uint64_t> inputs;
  for (auto* storage : storages) inputs.push_back(counted(storage)->tensor);
  RmApply call{};
  call.name = form.name.c_str();
  call.inputs = inputs.data();
  call.inputs_len = call.targets = inputs.size();
  call.kind = RM_NOTICE;
  apply(call, new Record(form, RM_NOTICE, none, stack), form, none);
}

// Number of a copy of a tainted value, which nobody else can write to. The caller abandons the number.
uint64_t snapshot(const Held& held) {
  static const Form& form = form_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", ""));
  uint64_t bytes = held.storage.lock()->nbytes();
  RmApply call{};
  call.name = "remat::snapshot";
  call.inputs = &held.tensor;
  call.inputs_len = 1;
  call.outputs = &bytes;
  call.outputs_len = 1;
  call.kind = RM_SNAPSHOT;
  call.work = static_cast<double>(bytes);
  Operands none;
  apply(call, new Record(form, RM_SNAPSHOT, none, {}), form, none);
  return call.made;
}

// Frees memory for results of unknown size.
void reserve(const Form& form, const torch::jit::Stack& stack) {
  auto bound = bound_of(form, stack);
  if (!bound) return remat_evict_all(session);
  Operands none;
  RmApply call{};
  call.name = "remat::reserve";
  call.outputs = &*bound;
  call.outputs_len = 1;
  call.kind = RM_RESERVE;
  apply(call, new Record(form, RM_RESERVE, none, stack), form, none);
  abandon(call.made);
  remat_bury(session);
}

// Whether the first operand views its whole storage.
bool covers(const Operands& operands) {
  const auto& look = operands.looks[0];
  uint64_t elements = 1;
  for (int64_t size : look.sizes) elements *= static_cast<uint64_t>(size);
  uint64_t reach = 1;
  for (size_t i = 0; i < look.sizes.size(); i++) {
    if (look.strides[i] < 0 || look.sizes[i] == 0) return false;
    reach += static_cast<uint64_t>(look.sizes[i] - 1) * static_cast<uint64_t>(look.strides[i]);
  }
  // Elements that do not overlap fill exactly the bytes from the first to the last of them.
  return look.argument == 0 && look.offset == 0 && !look.conj && !look.neg && elements == reach &&
         elements * c10::elementSize(look.dtype) == operands.storages[0]->nbytes();
}

// Whether another operand views the storage that the op writes to.
bool reads_target(const Operands& operands) {
  for (size_t i = 1; i < operands.looks.size(); i++)
    if (operands.looks[i].input == 0) return true;
  return false;
}

void mark_blank(const Form& form, const torch::jit::Stack& stack) {
  c10::SmallVector<c10::StorageImpl*, 8> seen;
  each_new_storage(torch::jit::last(stack, form.results), seen, [](const at::Tensor&, c10::StorageImpl* storage) {
    if (auto* held = held_of(storage)) held->blank = true;
  });
}

// Raises an error for an op on another stream than the first. Such an op would not wait until its operands are restored.
// An op without operands that the budget counts, such as a copy from the CPU, may run on any stream.
void check_stream(const Form& form, bool has_operands) {
  if (device.is_cpu() || is_dry() || !has_operands) return;
  auto now = current_stream();
  if (!stream) stream = now;
  if (now != *stream)
    raise(PyExc_RuntimeError, "remat: " + form.name +
                                  " is called on another stream than the first op under the budget; evicted tensors "
                                  "are restored on one stream, so call the op on that stream");
}

void run(const Form& form, torch::jit::Stack* stack) {
  Operands operands(form, *stack, device);
  check_stream(form, !operands.storages.empty() && form.stream < 0);
  c10::SmallVector<Held*, 8> held;
  bool tainted = false;
  for (auto* storage : operands.storages) {
    held.push_back(counted(storage));
    tainted |= held.back()->tainted;
  }
  std::shared_ptr<const Sizes> sizes;
  static const auto nothing = std::make_shared<const Sizes>();
  if (form.makes_nothing) sizes = nothing;
  else if (!operands.foreign && !form.opaque) sizes = sizes_of(form, operands, *stack, device);
  bool is_unknown = !sizes;
  if (is_unknown) {
    (operands.foreign ? counts.foreign : counts.unknown)++;
    counts.once[form.name]++;
    if (!operands.foreign) reserve(form, *stack);
    sizes = nothing;
  }
  notice(form, operands.statistics, *stack);
  // Reserving and noticing may have changed numbers: read them now.
  std::vector<uint64_t> inputs;
  for (auto* one : held) inputs.push_back(one->tensor);
  std::vector<uint64_t> snapshots;
  if (tainted && !is_unknown && operands.targets == 0) {
    // An op can run again only if its inputs do not change. The op therefore reads copies, if the copies are smaller
    // than its outputs.
    uint64_t copied = 0, made = 0;
    for (auto* one : held)
      if (one->tainted) copied += one->storage.lock()->nbytes();
    for (uint64_t bytes : sizes->bytes) made += bytes;
    if (copied < made) {
      for (size_t i = 0; i < held.size(); i++)
        if (held[i]->tainted) snapshots.push_back(inputs[i] = snapshot(*held[i]));
      tainted = false;
    }
  }

  RmApply call{};
  call.name = form.name.c_str();
  call.inputs = inputs.data();
  call.inputs_len = inputs.size();
  call.targets = operands.targets;
  call.work = sizes->work;
  call.moved = sizes->moved;
  call.again = !tainted && !is_unknown && !operands.once;
  std::vector<uint64_t> bytes = sizes->bytes;
  bool is_blank = operands.targets == 1 && held[0]->blank;
  for (auto* one : held) one->blank = false;
  bool is_whole = form.overwrites && is_blank && call.again && !operands.foreign && covers(operands) &&
                  !reads_target(operands);
  bool is_over = operands.targets == 1 && bytes.empty() && call.again && !held[0]->leaf && !operands.foreign;
  if (operands.targets == 0) {
    call.kind = RM_FRESH;
  } else if (is_whole) {
    call.kind = RM_WRITE;
    call.over = inputs[0];
    inputs.erase(inputs.begin());
    call.inputs = inputs.data();
    call.inputs_len = inputs.size();
    call.targets = 0;
    bytes.push_back(operands.storages[0]->nbytes());
  } else if (is_over) {
    call.kind = RM_OVER;
  } else {
    call.kind = RM_UPDATE;
  }
  if (call.kind == RM_UPDATE || operands.foreign || form.blank) call.again = false;
  call.outputs = bytes.data();
  call.outputs_len = bytes.size();
  if (inputs.empty() && bytes.empty()) {
    execute(form, stack, device);
    return count_results(form, *stack);
  }
  std::optional<c10::Stream> other;
  if (auto arguments = torch::jit::last(*stack, form.arguments); form.stream >= 0 && arguments[form.stream].isStream())
    other = arguments[form.stream].toStream();
  auto* record = new Record(form, call.kind, operands, *stack);
  record->first = stack;
  record->leaves = !call.again;
  if (call.kind == RM_WRITE) record->bytes = bytes[0];
  std::optional<std::vector<uint64_t>> made;
  record->bytes_to = &made;
  try {
    apply(call, record, form, operands);
  } catch (...) {
    for (uint64_t copy : snapshots) abandon(copy);
    // No op has written to the old memory, so new memory is as good.
    if (call.kind == RM_WRITE) renew(operands.storages[0]);
    throw;
  }
  for (uint64_t copy : snapshots) abandon(copy);
  // PyTorch's own kernel does not know memory of the table.
  if (other && device.is_cuda()) record_stream(held[0], *other);
  if (call.kind == RM_WRITE) held[0]->leaf = false;
  if (form.blank) mark_blank(form, *stack);
  if (!is_unknown && call.kind != RM_OVER && call.kind != RM_WRITE && made && *made != sizes->bytes && !form.makes_nothing) {
    counts.misjudged++;
    correct(operands.key, std::move(*made));
  }
  count_results(form, *stack);
}

// Storages that a kernel has handed out become leaves that others may write to.
void expose() {
  for (auto& weak : std::exchange(exposed, {})) {
    auto storage = weak.lock();
    auto* held = storage ? held_of(storage.get()) : nullptr;
    if (!held) continue;
    remat_expose(session, held->tensor);
    held->leaf = held->tainted = true;
  }
}

// Whether PyTorch traces the program on tensors without data.
bool is_traced() {
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  for (auto key : {TorchDispatchModeKey::FAKE, TorchDispatchModeKey::PROXY, TorchDispatchModeKey::FUNCTIONAL})
    if (TorchDispatchModeTLS::get_mode(key)) return true;
  return false;
}

void governed(const c10::OperatorHandle& op, torch::jit::Stack* stack, const c10::impl::PyInterpreterVTable& inner) {
  const auto& form = form_of(op);
  if (form.decomposes && !is_traced()) return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  if (forked || inside || is_traced()) return call_plain(op, stack);
  const auto keys = keys_of(form, *stack);
  // The subclass gets the call, and its own calls come here.
  if (keys.has(c10::DispatchKey::Python)) return inner.dispatch(op, stack);
  // Most views read no bytes. A view of a sparse tensor reads the tensor's parts.
  bool is_sparse = keys.has(c10::DispatchKey::Sparse) || keys.has(c10::DispatchKey::SparseCsr);
  if (form.passes && !is_sparse) return call_plain(op, stack);
  if (is_elsewhere(form, *stack, device)) return call_plain(op, stack);
  Lock lock;
  if (!session) return call_plain(op, stack);
  torch::torch_dispatch_mode::StashTorchDispatchModeGuard stash;
  counts.calls++;
  remat_bury(session);
  run(form, stack);
  expose();
  if (stress) remat_evict_all(session);
  remat_done(session);
}

bool is_ours_on_top() {
  using c10::impl::TorchDispatchModeTLS;
  if (!mode) return false;
  auto length = TorchDispatchModeTLS::stack_len();
  return length > 0 && TorchDispatchModeTLS::get_stack_at(length - 1)->ptr(getPyInterpreter()) == mode;
}

// The entry of a tensor or a storage of Python's; null if the budget does not count it.
Held* held_by(PyObject* object) {
  if (THPVariable_Check(object)) {
    const auto& tensor = THPVariable_Unpack(object);
    return tensor.defined() && tensor.has_storage() ? held_of(tensor.storage().unsafeGetStorageImpl()) : nullptr;
  }
  return THPStorage_Check(object) ? held_of(THPStorage_Unpack(object).unsafeGetStorageImpl()) : nullptr;
}

// Dispatch keys above the key for modes. Code that runs outside of a call must not pass these keys, as code within a
// call does not.
constexpr auto ABOVE_MODES = c10::DispatchKeySet(c10::DispatchKeySet::FULL) ^
                             (c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python) |
                              c10::DispatchKeySet(c10::DispatchKey::Python));

}  // namespace

bool within_call() { return inside; }

}  // namespace remat

using namespace remat;

extern "C" {

// Replaces PyTorch's table of the Python interpreter. Called once.
void rm_install() {
  replace_interpreter({is_ours_on_top, governed});
}

// Work of Rust on the engine, from Python: `work(data)` runs under the lock, without modes and above no dispatch key.
// Returns whether it ran: within an op, or in a forked process, it does not.
bool rm_locked(void (*work)(void*), void* data) {
  if (inside || forked) return false;
  Lock lock;
  c10::impl::ExcludeDispatchKeyGuard keys(ABOVE_MODES);
  torch::torch_dispatch_mode::StashTorchDispatchStackGuard stash;
  OnStream on;
  work(data);
  return true;
}

void rm_begin(void* session_, PyObject* mode_, PyObject* out_of_memory_, int8_t type, int8_t index) {
  session = session_;
  mode = mode_;
  out_of_memory = out_of_memory_;
  device = c10::Device(static_cast<c10::DeviceType>(type), index);
  stream.reset();
  exposed.clear();
  counts = Counts();
  stress = false;
  forget_guesses();
}

void rm_end() {
  give_back();
  set_dry(false);
  labels.clear();
  session = nullptr;
  mode = nullptr;
}

// Warns. PyTorch keeps the warning until the current call of Python ends.
void rm_warn(const char* text, size_t len) { TORCH_WARN(std::string(text, len)); }

void rm_stress(bool on) { stress = on; }
void rm_dry() { set_dry(true); }
void rm_use_heap() { use_heap(); }
void rm_forked() { forked = true; }

// Runs a call. Returns 0; 1 if it raised, with a text; 2 if the device has too little memory.
int rm_execute(void* record_, const uint64_t* inputs, size_t inputs_len, const uint64_t* outputs, size_t outputs_len,
               void* text, void (*say)(void*, const char*, size_t)) {
  auto& record = *static_cast<Record*>(record_);
  Places places{{inputs, inputs_len}, {outputs, outputs_len}};
  auto tell = [&](const char* what) { say(text, what, std::char_traits<char>::length(what)); };
  bool is_first = record.first;
  auto keep = [&] {
    if (is_first && record.raised_to) *record.raised_to = std::current_exception();
  };
  // If an op raises, the storages that it updates keep the bytes that it has written so far, as in plain PyTorch.
  bool goes_on = is_first && record.kind == RM_UPDATE;
  auto over = [&] {
    for (size_t i = record.targets; goes_on && i < outputs_len; i++) abandon(record.made + i);
    return goes_on ? 0 : 1;
  };
  try {
    if (record.kind == RM_RESERVE) {
    } else if (record.kind == RM_SNAPSHOT) {
      clone(places.inputs[0], places.outputs[0]);
    } else if (record.kind == RM_NOTICE) {
      for (size_t i = 0; i < record.replaces.size(); i++) rename(record.replaces[i], record.made + i);
      for (size_t i = 0; i < record.targets; i++) point(record.made + i, places.outputs[i]);
    } else if (is_first) {
      run_first(record, places, device);
    } else {
      OnStream on;
      run_again(record, places, device);
    }
    return 0;
  } catch (const c10::OutOfMemoryError& error) {
    tell(error.what_without_backtrace());
    if (!is_first || record.first) return 2;
    keep();
  } catch (const c10::Error& error) {
    keep();
    tell(error.what_without_backtrace());
  } catch (const std::exception& error) {
    keep();
    tell(error.what());
  } catch (...) {
    keep();
    tell("an error without a text");
  }
  return over();
}

void rm_record_made(void* record, RmKind kind, uint64_t made, size_t outputs, const uint64_t* replaces, size_t replaces_len) {
  auto& of = *static_cast<Record*>(record);
  of.replaces.assign(replaces, replaces + replaces_len);
  of.kind = kind;
  of.made = made;
  of.outputs = outputs;
}
void rm_forget_record(void* record) { delete static_cast<Record*>(record); }

void rm_adopt(void* storage, uint64_t tensor, uint64_t number, bool tainted) {
  adopt(static_cast<c10::StorageImpl*>(storage), tensor, number, true, tainted);
}
void rm_release(uint64_t number) { release(number); }
// Copies bytes. Returns 0; 1 if that failed; 2 if the device has too little memory.
int rm_clone(uint64_t from, uint64_t to) {
  try {
    clone(from, to);
    return 0;
  } catch (const c10::OutOfMemoryError&) {
    return 2;
  } catch (...) {
    return 1;
  }
}
// Waits until the device has done its work, so that a time is that of the work.
void rm_synchronize() { synchronize(); }
void rm_stand_in(uint64_t from, uint64_t to) { stand_in(from, to); }
void rm_settle(uint64_t tensor) { settle(tensor); }
size_t rm_take_dead(uint64_t* out, size_t most) { return take_dead(out, most); }
void rm_each_held(bool evictable_only, void* data, void (*see)(void*, uint64_t)) {
  for (uint64_t tensor : evictable_only ? evictable() : all_held()) see(data, tensor);
}
uint64_t rm_live() { return live(); }
uint64_t rm_peak() { return peak(); }
void rm_counts(uint64_t out[4]) {
  out[0] = counts.calls;
  out[1] = counts.foreign;
  out[2] = counts.unknown;
  out[3] = counts.misjudged;
}
void rm_each_once(void* data, void (*see)(void*, const char*, uint64_t)) {
  for (auto& [name, count] : counts.once) see(data, name.c_str(), count);
}

void rm_each_guess(void* data, void (*see)(void*, const char*, uint64_t)) {
  for (auto& [name, count] : guesses()) see(data, name.c_str(), count);
}

// Whether a tensor of Python's has no values: a dry run made it, or left out an op that writes to it.
bool rm_valueless(PyObject* object) {
  if (!THPVariable_Check(object)) return false;
  const auto& tensor = THPVariable_Unpack(object);
  if (!tensor.defined() || !tensor.has_storage() || tensor.is_meta()) return false;
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  // Outside of a dry run, a counted storage without memory is evicted.
  return !has_values(storage) && (is_dry() || !held_of(storage));
}

// Number of the value that a tensor or a storage of Python's holds; 0 if the budget does not count it. `leaf` says
// whether the value is a leaf.
uint64_t rm_tensor(PyObject* object, bool* leaf) {
  auto* held = held_by(object);
  if (!held) return 0;
  *leaf = held->leaf;
  return held->tensor;
}

// Whether somebody outside of PyTorch may write to what a tensor or a storage of Python's holds.
bool rm_tainted(PyObject* object) {
  auto* held = held_by(object);
  return held && held->tainted;
}

// Gives a leaf its bytes back: the budget does not count it until it is used again.
void rm_leave(PyObject* object) {
  if (auto* held = held_by(object)) leave(held);
}

// Names a tensor that the budget does not count yet.
void rm_label_later(PyObject* object, const char* label) {
  if (!THPVariable_Check(object)) return;
  const auto& tensor = THPVariable_Unpack(object);
  if (tensor.defined() && tensor.has_storage()) labels[tensor.storage().unsafeGetStorageImpl()] = label;
}

// State of a tensor's value: 0 if the budget does not count it, 1 for a leaf, 2 if it is resident, 3 if it is evicted.
int rm_state(PyObject* object) {
  auto* held = held_by(object);
  return !held ? 0 : held->leaf ? 1 : held->number ? 2 : 3;
}

// Marks a value as a leaf; if `tainted`, somebody outside of PyTorch may write to it from now on.
void rm_keep(PyObject* object, bool tainted) {
  if (auto* held = held_by(object)) {
    held->leaf = true;
    held->tainted |= tainted;
  }
}

// A kernel hands out the bytes of a tensor or of a storage: they are exposed when the current call ends.
void rm_expose_later(PyObject* object) {
  auto* held = inside ? held_by(object) : nullptr;
  if (held && !held->tainted) exposed.push_back(held->storage);
}

// A record of a notice for one storage, for `Session::expose`.
void* rm_notice_record() {
  static const Form& form = form_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""));
  Operands none;
  none.targets = 1;
  return new Record(form, RM_NOTICE, none, {});
}
}
