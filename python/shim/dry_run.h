// Dry runs: ops give tensors of the right sizes, and compute nothing.
//
// A dry run asks for sizes and work, not for numbers. Values that are known and small are computed all the same, because
// loops, lengths and indices depend on them. Tensors of the program keep the bytes that they had before the run.
#pragma once

#include "form.h"

#include <ATen/core/stack.h>
#include <map>
#include <string>

namespace remat {

// Runs an operator without values on the stack's arguments. Throws what the operator's kernel for tensors without data
// throws.
void call_without_values(const Form& form, torch::jit::Stack* stack, c10::Device device);

// Calls for which the dry run assumed something, by operator: a number that it could not know, or the largest size of a
// result.
const std::map<std::string, uint64_t>& guesses();
void forget_guesses();

}  // namespace remat
