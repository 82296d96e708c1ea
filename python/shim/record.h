// A call that can be made again with the same bits.
#pragma once

#include "api.h"
#include "flags.h"
#include "operands.h"

#include <ATen/core/Generator.h>
#include <exception>
#include <optional>

namespace remat {

// A random generator, and its state before an op.
class Random {
  at::Generator generator;
  // On the CPU: the state as a tensor. On a GPU: another generator with the state, because setting the state by a tensor
  // would make cuDNN draw the masks of its dropout anew.
  at::Tensor state;
  at::Generator copy;

 public:
  explicit Random(at::Generator generator);
  // Puts the generator into this state.
  void put_back() const;

  // Puts the generator into this state, and into its state of now in the end.
  class Again {
    const Random& then;
    at::Tensor state;
    at::Generator copy;

   public:
    explicit Again(const Random& then);
    ~Again();
    Again(const Again&) = delete;
  };
};

struct Record {
  const Form& form;
  RmKind kind;
  size_t targets;
  // The arguments, with nothing in place of tensors, and how the tensors looked at their storages.
  std::vector<c10::IValue> arguments;
  c10::SmallVector<Look, 6> looks;
  // Values that the first run replaces in their storages. Until it runs, a rerun may still make them resident.
  std::vector<uint64_t> replaces;
  // Number of the first output, and number of outputs.
  uint64_t made = 0;
  size_t outputs = 0;
  bool leaves = false;
  // Bytes of the storage that RM_WRITE writes to.
  uint64_t bytes = 0;
  // The random generator before the first run.
  std::optional<Random> random;
  Flags flags;
  // Number of outputs that the first run made.
  size_t made_outputs = 0;

  // Below: of the first run only, which uses the program's own tensors.

  // The program's stack; null after the first run.
  torch::jit::Stack* first = nullptr;
  // Where the first run writes what it raised; may be null.
  std::exception_ptr* raised_to = nullptr;
  // Where the first run writes the bytes of the storages that it made; may be null.
  std::optional<std::vector<uint64_t>>* bytes_to = nullptr;

  Record(const Form& form, RmKind kind, const Operands& operands, const torch::jit::Stack& stack);
};

// Storage numbers that the engine gave to a run.
struct Places {
  c10::ArrayRef<uint64_t> inputs, outputs;
};

// Runs an operator as a kernel of autograd would: the keys for lazy conjugation and negation are seen by the ops that
// it is made of, although a dispatch mode hides them.
void call_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// Runs an operator: its kernel, or nothing but its sizes in a dry run.
void execute(const Form& form, torch::jit::Stack* stack, c10::Device device);

// Runs a call for the first time. Throws what the op throws.
void run_first(Record& record, Places places, c10::Device device);
// Runs a call again, and moves the outputs to the table.
void run_again(const Record& record, Places places, c10::Device device);

}  // namespace remat
