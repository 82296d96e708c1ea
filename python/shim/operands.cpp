#include "operands.h"

#include <ATen/Context.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/DefaultDtype.h>
#include <cstring>

namespace remat {
namespace {

struct Hash {
  uint64_t state = 0x9E3779B97F4A7C15ull;

  void add(uint64_t value) {
    state ^= value;
    state *= 0xD6E8FEB86659FD93ull;
    state ^= state >> 32;
  }

  void add(c10::ArrayRef<int64_t> values) {
    add(values.size());
    for (int64_t value : values) add(static_cast<uint64_t>(value));
  }

  void add(double value) {
    uint64_t bits;
    static_assert(sizeof(bits) == sizeof(value));
    std::memcpy(&bits, &value, sizeof(bits));
    add(bits);
  }
};

// Adds a value that holds no tensor. Numbers with fractions count apart: shapes depend on them only in ops without
// operands, such as `arange`.
void add(Hash& hash, Hash& fractions, const c10::IValue& value) {
  if (value.isNone()) {
    hash.add(uint64_t{1});
  } else if (value.isInt()) {
    hash.add(static_cast<uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    // Not a small number: a number and a truth value make tensors of different types.
    hash.add(uint64_t{7});
    hash.add(value.toBool() ? uint64_t{3} : uint64_t{2});
  } else if (value.isDouble()) {
    fractions.add(value.toDouble());
  } else if (value.isIntList()) {
    hash.add(value.toIntVector());
  } else if (value.isDoubleList()) {
    for (double number : value.toDoubleVector()) hash.add(number);
  } else if (value.isBoolList()) {
    for (bool bit : value.toBoolList()) hash.add(bit ? uint64_t{3} : uint64_t{2});
  } else if (value.isString()) {
    hash.add(std::hash<std::string>()(value.toStringRef()));
  } else if (value.isDevice()) {
    hash.add(std::hash<c10::Device>()(value.toDevice()));
  } else if (value.isComplexDouble()) {
    fractions.add(value.toComplexDouble().real());
    fractions.add(value.toComplexDouble().imag());
  } else if (value.isList()) {
    hash.add(uint64_t{5});
    for (const c10::IValue& item : value.toListRef()) add(hash, fractions, item);
  } else {
    // A value of another kind, such as a generator: shapes do not depend on it.
    hash.add(uint64_t{4});
  }
}

// Calls `see` for each dense tensor that a sparse tensor is made of.
template <class See>
void each_part(const at::Tensor& tensor, See&& see) {
  if (tensor.key_set().has(c10::DispatchKey::Python)) return;
  if (tensor.layout() == c10::kSparse) {
    auto* impl = at::sparse::get_sparse_impl(tensor);
    see(impl->indices());
    see(impl->values());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    auto* impl = at::sparse_csr::get_sparse_csr_impl(tensor);
    see(impl->compressed_indices());
    see(impl->plain_indices());
    see(impl->values());
  }
}

}  // namespace

at::Tensor Look::at(const c10::intrusive_ptr<c10::StorageImpl>& storage) const {
  auto type = storage->device_type();
  auto key = type == c10::kCUDA   ? c10::DispatchKey::CUDA
             : type == c10::kMeta ? c10::DispatchKey::Meta
                                  : c10::DispatchKey::CPU;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key),
                                                         caffe2::TypeMeta::fromScalarType(dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (conj) impl->_set_conj(true);
  if (neg) impl->_set_neg(true);
  if (wrapped) impl->set_wrapped_number(true);
  return tensor;
}

bool is_counted(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const auto keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && (tensor.device() == device || (is_dry() && tensor.is_meta())) && !tensor.is_quantized() &&
         !keys.has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::NestedTensor,
                                            c10::DispatchKey::ZeroTensor, c10::DispatchKey::Functionalize,
                                            c10::DispatchKey::Fake})) &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

c10::DispatchKeySet keys_of(const Form& form, const torch::jit::Stack& stack) {
  c10::DispatchKeySet keys;
  for (const auto& value : torch::jit::last(stack, form.arguments)) {
    each_tensor(value, [&](const at::Tensor& tensor, int32_t) {
      if (tensor.defined()) keys = keys | tensor.key_set();
    });
  }
  return keys;
}

bool is_elsewhere(const Form& form, const torch::jit::Stack& stack, c10::Device device) {
  auto arguments = torch::jit::last(stack, form.arguments);
  auto is_here = [&](c10::Device other) { return other.type() == device.type() || (is_dry() && other.is_meta()); };
  auto names = [&](size_t i) { return arguments[i].isDevice(); };
  bool any = false, here = form.device >= 0 && names(form.device) && is_here(arguments[form.device].toDevice());
  for (const auto& value : arguments) {
    here |= value.isStorage() || value.isStream();
    each_tensor(value, [&](const at::Tensor& tensor, int32_t) {
      if (!tensor.defined()) return;
      any = true;
      here |= is_here(tensor.device());
    });
  }
  // A factory that names no device makes a tensor of the CPU.
  if (!any && form.device >= 0 && !names(form.device)) here = is_here(c10::kCPU);
  return !here && (any || form.device >= 0);
}

Operands::Operands(const Form& form, const torch::jit::Stack& stack, c10::Device device) {
  auto arguments = torch::jit::last(stack, form.arguments);
  auto flag = [&](int i) { return i >= 0 && arguments[i].isBool() && arguments[i].toBool(); };
  // cuDNN changes the state of its dropout, although the schema of the op does not say so.
  bool drops = form.dropout_state >= 0 && flag(form.drops_in_training) && form.dropout >= 0 &&
               arguments[form.dropout].isDouble() && arguments[form.dropout].toDouble() > 0;
  foreign = form.collective;
  once = drops || form.once ||
         (form.unordered && device.is_cuda() && !at::globalContext().deterministicAlgorithms());
  bool trains = form.trains == Form::ALWAYS || flag(form.trains);
  c10::SmallVector<c10::StorageImpl*, 8> read;
  c10::SmallVector<c10::TensorImpl*, 8> impls;
  auto add_once = [](auto& list, c10::StorageImpl* storage) {
    for (auto* other : list)
      if (other == storage) return;
    list.push_back(storage);
  };
  Hash hash, fractions;
  hash.add(reinterpret_cast<uint64_t>(&form));
  for (size_t i = 0; i < form.arguments; i++) {
    const auto& value = arguments[i];
    if (value.isStorage()) {
      // The op takes a storage as a whole, which no record can repeat.
      foreign = true;
      add_once(read, value.toStorage().unsafeGetStorageImpl());
      continue;
    }
    if (!value.isTensor() && !may_hold_tensors(value)) {
      add(hash, fractions, value);
      continue;
    }
    if (value.isList()) hash.add(value.toListRef().size());
    bool has_tensor = false;
    each_tensor(value, [&](const at::Tensor& tensor, int32_t item) {
      has_tensor = true;
      if (!tensor.defined()) return hash.add(uint64_t{6});
      hash.add(static_cast<uint64_t>(item) << 8 | static_cast<uint64_t>(tensor.scalar_type()));
      auto* impl = tensor.unsafeGetTensorImpl();
      // A number of Python's as a tensor is a constant: it stays in the record.
      if (impl->is_wrapped_number() && !form.writes[i]) return;
      // Ops of a GPU take a single number of the CPU. The record has a copy of it.
      if (device.is_cuda() && tensor.is_cpu() && tensor.dim() == 0 && item == ALONE && !form.writes[i]) return;
      if (!is_counted(tensor, device)) {
        foreign = true;
        // The parts of a sparse tensor are tensors that the budget counts.
        each_part(tensor, [&](const at::Tensor& part) {
          if (!is_counted(part, device)) return;
          auto* storage = part.storage().unsafeGetStorageImpl();
          add_once(read, storage);
          if (form.writes[i]) add_once(statistics, storage);
        });
        return;
      }
      auto* storage = tensor.storage().unsafeGetStorageImpl();
      if (form.beside[i]) {
        if (trains) return add_once(statistics, storage);
      } else if (form.writes[i] || (drops && static_cast<int>(i) == form.dropout_state)) {
        add_once(this->storages, storage);
      }
      add_once(read, storage);
      // No look says where in a list of lists a tensor stands.
      if (item == NESTED) return void(foreign = true);
      hash.add(tensor.sizes());
      hash.add(tensor.strides());
      hash.add(static_cast<uint64_t>(tensor.storage_offset()));
      int32_t same = -1;
      for (size_t other = 0; other < impls.size() && same < 0; other++)
        if (impls[other] == impl) same = static_cast<int32_t>(other);
      impls.push_back(impl);
      looks.push_back(Look{static_cast<uint32_t>(i), item, 0, tensor.scalar_type(), tensor.is_conj(), tensor.is_neg(),
                           impl->is_wrapped_number(), same, tensor.storage_offset(),
                           c10::SmallVector<int64_t, 4>(tensor.sizes().begin(), tensor.sizes().end()),
                           c10::SmallVector<int64_t, 4>(tensor.strides().begin(), tensor.strides().end())});
    });
    if (!has_tensor) add(hash, fractions, value);
  }
  targets = storages.size();
  for (auto* storage : read) add_once(storages, storage);
  // The looks were found in the order of the arguments; the storages that are written to come first.
  size_t next = 0;
  for (size_t i = 0; i < form.arguments; i++) {
    each_tensor(arguments[i], [&](const at::Tensor& tensor, int32_t item) {
      if (next >= looks.size() || looks[next].argument != i || looks[next].item != item) return;
      auto* storage = tensor.storage().unsafeGetStorageImpl();
      for (uint32_t at = 0; at < storages.size(); at++)
        if (storages[at] == storage) looks[next].input = at;
      next++;
    });
  }
  if (storages.empty()) {
    hash.add(fractions.state);
    hash.add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  }
  key = hash.state;
}

}  // namespace remat
