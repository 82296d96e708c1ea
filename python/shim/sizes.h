// Bytes and work of an op, known before it runs.
#pragma once

#include "operands.h"

#include <memory>
#include <optional>

namespace remat {

struct Sizes {
  // Bytes of each storage that the op makes, in the order of its results.
  std::vector<uint64_t> bytes;
  // Floating-point operations, or an equivalent of the bytes moved.
  double work = 0;
  // Bytes that the op reads and writes: of a view, those of its elements. 0 if not known.
  uint64_t moved = 0;
};

// A call on tensors without data in place of its operands.
struct WithoutData {
  torch::jit::Stack arguments, results;
  // Each operand without data, and the tensor that it stands for.
  std::vector<std::pair<at::Tensor, at::Tensor>> operands;
};

// Calls an operator's kernel for tensors without data. Throws what the kernel throws. Operands for which `stays` holds
// keep their data.
WithoutData without_data(const Form& form, c10::ArrayRef<c10::IValue> arguments,
                         bool (*stays)(const at::Tensor& operand) = nullptr);
// Sizes of what the op makes, by its kernel for tensors without data; null if that is not known before it runs.
// The answer is kept for the next call with operands of the same kinds.
std::shared_ptr<const Sizes> sizes_of(const Form& form, const Operands& operands, const torch::jit::Stack& stack,
                                      c10::Device device);
// Corrects an answer that was wrong.
void correct(uint64_t key, std::vector<uint64_t> bytes);
// Whether an index picks the elements where it is true, so that the number of elements depends on its values.
inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte;
}
// Whether the op picks elements by whole numbers, not by masks.
bool has_known_index(const Form& form, c10::ArrayRef<c10::IValue> arguments);
// Most bytes that an op of unknown size makes; none if no bound is known.
std::optional<uint64_t> bound_of(const Form& form, const torch::jit::Stack& stack);
// Bytes of each storage among tensors that an op returned, without the storages in `known`.
template <class See>
void each_new_storage(c10::ArrayRef<c10::IValue> results, c10::SmallVector<c10::StorageImpl*, 8>& known, See&& see) {
  for (const auto& value : results) {
    each_tensor(value, [&](const at::Tensor& tensor, int32_t) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      auto* storage = tensor.storage().unsafeGetStorageImpl();
      for (auto* other : known)
        if (other == storage) return;
      known.push_back(storage);
      see(tensor, storage);
    });
  }
}

}  // namespace remat
