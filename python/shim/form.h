// Facts about an operator, read from its schema once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <atomic>
#include <string>
#include <vector>

namespace remat {

struct Form {
  c10::OperatorHandle op;
  // `aten::mm`, `aten::add.Tensor`
  std::string name;
  // Numbers of arguments and of results.
  size_t arguments, results;
  // The op reads and writes no bytes: all results are views, or no operand is a tensor. It runs without the engine.
  bool passes = false;
  // The op is made of other ops, and reaches us only in inference mode. Those ops run in its place.
  bool decomposes = false;
  bool random = false;
  // Each element of the results depends on one element of each operand.
  bool pointwise = false;
  // The op exchanges data with other processes, which do not take part in a rerun. Other threads may read and write
  // its operands after the call, so all operands count as written to.
  bool collective = false;
  // A rerun could give another result: an argument is an object of C++, whose state nobody restores, or the result is a
  // state that cuDNN changes later.
  bool once = false;
  // Some kernel for GPUs adds numbers in an order that changes from run to run.
  bool unordered = false;
  // The sizes of the results depend on values.
  bool dynamic = false;
  // The op may change the size or the storage of an operand, so its operands are leaves afterwards.
  bool opaque = false;
  // The op makes memory that nobody has written to.
  bool blank = false;
  // The op writes to its first operand without reading the old value.
  bool overwrites = false;
  // The op makes no storage: it has no results, or all results are operands that are written to, or numbers.
  bool makes_nothing = false;
  // Some result is a tensor or a list of tensors.
  bool makes_tensors = false;
  // Whether each argument is written to.
  std::vector<bool> writes;
  // Arguments that are written to without an effect on the results, in training: the running statistics of batch
  // norm. A rerun writes to tensors of its own instead.
  std::vector<bool> beside;
  // Index of the argument that says whether batch norm trains; ALWAYS if it always trains, -1 for other ops.
  static constexpr int ALWAYS = -2;
  int trains = -1;
  // Indices of the dropout probability, of the flag for training, and of the state from which cuDNN draws the masks of
  // a recurrent layer: the op changes the state. -1 for other ops.
  int dropout = -1, drops_in_training = -1, dropout_state = -1;
  // Index of the stream that `record_stream` names; -1 for other ops.
  int stream = -1;
  // Index of the argument for a random generator; -1 if there is none.
  int generator = -1;
  // Indices of the arguments `device` and `pin_memory`; -1 if there are none.
  int device = -1, pinned = -1;
  // Whether the operator's library has taken it away, so that `op` must not be called.
  std::atomic<bool> is_gone = false;

  explicit Form(const c10::OperatorHandle& op);
};

// The facts about `op`. The caller holds the lock of the session or is alone.
Form& form_of(const c10::OperatorHandle& op);

}  // namespace remat
