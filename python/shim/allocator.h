// Memory of tensors on the CPU: from the heap in `src/heap.rs` while a budget is in use.
#pragma once

namespace remat {

// Puts our allocator in place of PyTorch's. The first call does so.
void use_heap();

}  // namespace remat
