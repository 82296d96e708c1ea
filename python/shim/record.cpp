#include "record.h"

#include "dry_run.h"
#include "sizes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>

namespace remat {
namespace {

at::Generator generator_of(const Form& form, c10::ArrayRef<c10::IValue> arguments, c10::Device device) {
  if (form.generator >= 0 && arguments[form.generator].isGenerator()) return arguments[form.generator].toGenerator();
  return at::globalContext().defaultGenerator(device);
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments, const Form& form) {
  if (form.device >= 0 && arguments[form.device].isDevice()) return arguments[form.device].toDevice();
  c10::Device device(c10::kCPU);
  for (const auto& value : arguments)
    each_tensor(value, [&](const at::Tensor& tensor, int32_t) {
      if (tensor.defined() && tensor.is_cuda()) device = tensor.device();
    });
  return device;
}

}  // namespace

Random::Random(at::Generator of) : generator(std::move(of)) {
  std::lock_guard lock(generator.mutex());
  if (generator.device().is_cpu()) {
    state = generator.get_state();
  } else {
    copy = generator.clone();
  }
}

void Random::put_back() const {
  auto target = generator;
  std::lock_guard lock(target.mutex());
  if (state.defined()) {
    target.set_state(state);
  } else {
    target.set_current_seed(copy.current_seed());
    target.set_offset(copy.get_offset());
  }
}

Random::Again::Again(const Random& then) : then(then) {
  auto generator = then.generator;
  std::lock_guard lock(generator.mutex());
  if (then.state.defined()) {
    state = generator.get_state();
    generator.set_state(then.state);
  } else {
    copy = generator.graphsafe_get_state();
    generator.graphsafe_set_state(then.copy.clone());
  }
}

Random::Again::~Again() {
  auto generator = then.generator;
  std::lock_guard lock(generator.mutex());
  if (state.defined()) {
    generator.set_state(state);
  } else {
    generator.graphsafe_set_state(copy);
  }
}

Record::Record(const Form& form, RmKind kind, const Operands& operands, const torch::jit::Stack& stack)
    : form(form),
      kind(kind),
      targets(operands.targets),
      looks(operands.looks),
      flags(Flags::now(!form.pointwise)) {
  if (kind == RM_NOTICE || kind == RM_RESERVE || kind == RM_SNAPSHOT || operands.foreign) return;
  auto given = torch::jit::last(stack, form.arguments);
  arguments.reserve(given.size());
  size_t look = 0;
  for (size_t i = 0; i < given.size(); i++) {
    bool has_look = false;
    for (; look < looks.size() && looks[look].argument == i; look++) has_look = true;
    if (has_look && given[i].isTensor()) {
      arguments.emplace_back();
    } else if (has_look) {
      // The items that are tensors are replaced for each run.
      auto list = c10::impl::GenericList(c10::AnyType::get());
      for (const c10::IValue& item : given[i].toListRef()) list.push_back(item.isTensor() ? c10::IValue() : item);
      arguments.emplace_back(std::move(list));
    } else if (form.beside[i] && !operands.statistics.empty() && given[i].isTensor()) {
      // Stands for a tensor of a rerun's own.
      auto like = given[i].toTensor();
      arguments.emplace_back(at::detail::empty_strided_meta(like.sizes(), like.strides(), like.scalar_type()));
    } else if (given[i].isTensor() && !is_constant(given[i].toTensor())) {
      // A single number of the CPU, which the program may change.
      at::AutoDispatchBelowADInplaceOrView below;
      arguments.emplace_back(given[i].toTensor().clone());
    } else {
      arguments.push_back(given[i]);
    }
  }
  if (form.random) random.emplace(generator_of(form, given, device_of(given, form)));
}

void execute(const Form& form, torch::jit::Stack* stack, c10::Device device) {
  is_dry() ? call_without_values(form, stack, device) : call_kernel(form.op, stack);
}

void call_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.excluded_ = keys.excluded_ - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                                         c10::DispatchKey::ZeroTensor});
  c10::impl::ForceDispatchKeyGuard guard(keys);
  op.callBoxed(stack);
}

namespace {

// Storages that the op writes to get the memory for their new values.
void prepare(const Record& record, Places places, c10::Device device) {
  for (size_t i = 0; i < record.replaces.size(); i++) rename(record.replaces[i], record.made + i);
  if (record.kind == RM_WRITE) {
    allocate(places.outputs[0], record.bytes, device);
    point(record.made, places.outputs[0]);
  } else {
    for (size_t i = 0; i < record.targets; i++) point(record.made + i, places.outputs[i]);
  }
}

// The storage that an op should have written over has its old value, whose bytes were `before`. `prepare` may have
// stopped anywhere.
void undo(const Record& record, Places places, uint64_t before) {
  if (record.kind == RM_WRITE) release(places.outputs[0]);
  if (record.kind != RM_OVER) return;
  point(record.made, before);
  rename(record.made, record.replaces[0]);
}

}  // namespace

void run_first(Record& record, Places places, c10::Device device) {
  auto* stack = std::exchange(record.first, nullptr);
  // A kernel takes its arguments off the stack. If the device has too little memory, the call is made again, unless
  // it may already have written to one of several tensors.
  std::optional<std::vector<c10::IValue>> arguments;
  if (device.is_cuda() && (record.kind != RM_UPDATE || record.targets < 2)) {
    auto given = torch::jit::last(*stack, record.form.arguments);
    arguments.emplace(given.begin(), given.end());
  }
  auto below = stack->size() - record.form.arguments;
  uint64_t before = record.kind == RM_OVER ? number_of(record.replaces[0]) : 0;
  try {
    prepare(record, places, device);
    execute(record.form, stack, device);
  } catch (const c10::OutOfMemoryError&) {
    undo(record, places, before);
    if (arguments) {
      stack->resize(below);
      stack->insert(stack->end(), arguments->begin(), arguments->end());
      record.first = stack;
      if (record.random) record.random->put_back();
    }
    throw;
  } catch (...) {
    undo(record, places, before);
    throw;
  }
  size_t next = record.kind == RM_WRITE ? 1 : record.targets;
  std::vector<uint64_t> actual;
  c10::SmallVector<c10::StorageImpl*, 8> seen;
  each_new_storage(torch::jit::last(*stack, record.form.results), seen,
                   [&](const at::Tensor& tensor, c10::StorageImpl* storage) {
                     if (held_of(storage) || !is_counted(tensor, device)) return;
                     actual.push_back(storage->nbytes());
                     if (next >= places.outputs.size()) return;
                     adopt(storage, record.made + next, places.outputs[next], record.leaves, false);
                     next++;
                   });
  record.made_outputs = next;
  // Outputs that were foretold, but not made.
  for (; next < places.outputs.size(); next++) abandon(record.made + next);
  if (auto* to = std::exchange(record.bytes_to, nullptr)) *to = std::move(actual);
}

void run_again(const Record& record, Places places, c10::Device device) {
  TORCH_CHECK(!record.form.is_gone, "its library was taken away, so it cannot compute a tensor again");
  c10::SmallVector<c10::intrusive_ptr<c10::StorageImpl>, 8> storages;
  c10::SmallVector<c10::StorageImpl*, 8> given;
  if (record.kind == RM_WRITE) {
    allocate(places.outputs[0], record.bytes, device);
    storages.push_back(lend(places.outputs[0]));
    given.push_back(storages.back().get());
  }
  for (size_t i = 0; i < places.inputs.size(); i++) {
    storages.push_back(lend(places.inputs[i]));
    given.push_back(storages.back().get());
  }
  std::vector<at::Tensor> tensors;
  for (const auto& look : record.looks)
    tensors.push_back(look.same < 0 ? look.at(storages[look.input]) : tensors[look.same]);
  torch::jit::Stack stack;
  size_t look = 0;
  for (size_t i = 0; i < record.arguments.size(); i++) {
    const auto& argument = record.arguments[i];
    if (look == record.looks.size() || record.looks[look].argument != i) {
      if (record.form.beside[i] && argument.isTensor() && argument.toTensor().is_meta()) {
        auto like = argument.toTensor();
        stack.emplace_back(at::zeros(like.sizes(), like.options().device(storages[0]->device())));
      } else {
        stack.push_back(argument);
      }
    } else if (record.looks[look].item < 0) {
      stack.emplace_back(tensors[look]);
      look++;
    } else {
      const auto& type = *record.form.op.schema().arguments()[i].type();
      auto element = type.cast<c10::ListType>() ? type.cast<c10::ListType>()->getElementType() : c10::TypePtr(c10::TensorType::get());
      auto list = c10::impl::GenericList(element);
      int32_t item = 0;
      for (const c10::IValue& other : argument.toListRef()) {
        if (look < record.looks.size() && record.looks[look].argument == i && record.looks[look].item == item) {
          list.push_back(tensors[look]);
          look++;
        } else {
          list.push_back(other);
        }
        item++;
      }
      stack.emplace_back(std::move(list));
    }
  }
  {
    std::optional<Random::Again> random;
    if (record.random) random.emplace(*record.random);
    WithFlags flags(record.flags);
    execute(record.form, &stack, device);
  }
  if (record.kind == RM_OVER || record.kind == RM_WRITE) {
    see_again(record.made, places.outputs[0]);
    return;
  }
  size_t next = 0;
  each_new_storage(torch::jit::last(stack, record.form.results), given,
                   [&](const at::Tensor& tensor, c10::StorageImpl* storage) {
                     if (next >= places.outputs.size() || !is_counted(tensor, device)) return;
                     take(storage, record.made + next, places.outputs[next]);
                     next++;
                   });
  TORCH_CHECK(next >= record.made_outputs, record.form.name, " made ", record.made_outputs,
              " tensors in its first run, but ", next, " when it ran again");
}

}  // namespace remat
