// A call that can be made again with the same bits.
#pragma once

#include "api.h"
#include "operands.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <exception>
#include <optional>

namespace remat {

// Settings of the process and the thread on which results depend.
struct Flags {
  // Type of factories that name none.
  c10::ScalarType default_dtype;
  // Whether gradients are on: some kernels keep more for a gradient.
  bool grad;
  bool deterministic, warns_only, fills, mkldnn;
  at::Float32MatmulPrecision precision;
  // Threads among which a reduction is split.
  int threads;

  static Flags now();
  void set() const;
  bool operator==(const Flags&) const = default;
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
  // The random generator and its state before the first run.
  std::optional<std::pair<at::Generator, at::Tensor>> random;
  Flags flags;
  // Number of outputs that the first run made.
  size_t made_outputs = 0;

  // Below: of the first run only, which uses the program's own tensors.

  // The program's stack; null after the first run.
  torch::jit::Stack* first = nullptr;
  // Whether the first run may write over the first input.
  bool gives = false;
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
