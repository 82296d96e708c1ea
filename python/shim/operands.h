// The tensors among the arguments of a call.
#pragma once

#include "form.h"
#include "storages.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

namespace remat {

// A tensor argument as a look at a storage, without the tensor.
struct Look {
  // Index of the argument, and of the item if the argument is a list; -1 for no list.
  uint32_t argument;
  int32_t item;
  // Index of the storage among the inputs of the op.
  uint32_t input;
  c10::ScalarType dtype;
  bool conj, neg, wrapped;
  // Index of an earlier look of the same tensor; -1 if there is none. Some kernels ask whether two operands are one.
  int32_t same;
  int64_t offset;
  c10::SmallVector<int64_t, 4> sizes, strides;

  // A tensor that looks so at a storage.
  at::Tensor at(const c10::intrusive_ptr<c10::StorageImpl>& storage) const;
};

struct Operands {
  c10::SmallVector<Look, 6> looks;
  // Storages that the op reads or writes, each once. The storages that the op writes to are the first ones.
  c10::SmallVector<c10::StorageImpl*, 8> storages;
  size_t targets = 0;
  // Whether some operand is no strided tensor of the budget's device, or other processes take part, so that no record
  // can repeat the op.
  bool foreign = false;
  // Whether the op must not run again, although a record could repeat it.
  bool once = false;
  // Storages that are written to, but in no look: running statistics of batch norm in training, and parts of sparse
  // tensors.
  c10::SmallVector<c10::StorageImpl*, 2> statistics;
  // Names the op, the shapes and types of its operands, and its other arguments.
  uint64_t key = 0;

  Operands() = default;

  Operands(const Form& form, const torch::jit::Stack& stack, c10::Device device);
};

// Dispatch keys of all tensors among the arguments. `Python` is the key of a tensor with a `__torch_dispatch__` of its
// own.
c10::DispatchKeySet keys_of(const Form& form, const torch::jit::Stack& stack);

// Whether a call reads, writes and makes tensors of other devices only.
bool is_elsewhere(const Form& form, const torch::jit::Stack& stack, c10::Device device);

// Whether the budget counts the tensor's bytes.
bool is_counted(const at::Tensor& tensor, c10::Device device);

// Whether a tensor stays what it is in a record: an undefined tensor, or a number of Python's.
inline bool is_constant(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Whether a value is a list whose items may be tensors.
inline bool may_hold_tensors(const c10::IValue& value) {
  return value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList();
}

// Item of a tensor that is in no list, and of a tensor in a list of lists.
constexpr int32_t ALONE = -1, NESTED = -2;

// Calls `see(tensor, item)` for each tensor in a value.
template <class See>
void each_tensor(const c10::IValue& value, See&& see) {
  if (value.isTensor()) {
    see(value.toTensor(), ALONE);
  } else if (may_hold_tensors(value)) {
    int32_t item = 0;
    for (const c10::IValue& inner : value.toListRef()) {
      if (inner.isTensor()) {
        see(inner.toTensor(), item);
      } else if (may_hold_tensors(inner)) {
        for (const c10::IValue& innermost : inner.toListRef())
          if (innermost.isTensor()) see(innermost.toTensor(), NESTED);
      }
      item++;
    }
  }
}

}  // namespace remat
