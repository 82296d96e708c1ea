// PyTorch's table of the Python interpreter, with the functions that a budget replaces.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/impl/PyInterpreter.h>

namespace remat {

struct Governor {
  // Whether the mode on top is the budget.
  bool (*governs)();
  // Gets each call under the budget. `inner` is PyTorch's own table.
  void (*dispatch)(const c10::OperatorHandle& op, torch::jit::Stack* stack, const c10::impl::PyInterpreterVTable& inner);
};

// Replaces PyTorch's table. Called once.
void replace_interpreter(Governor governor);

}  // namespace remat
