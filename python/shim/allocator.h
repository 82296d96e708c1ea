// Memory of tensors on the CPU: from the heap in `src/heap.rs` while a budget is in use.
#pragma once

namespace remat {

// Whether this thread is in an operator call that the budget handles. Other calls get their memory from PyTorch's
// allocator: tensors of threads without the budget must not take up the heap, whose pages follow the budget.
bool within_call();

// Puts our allocator in place of PyTorch's. The first call does so.
void use_heap();

}  // namespace remat
