#include "allocator.h"

#include "api.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <mutex>

namespace remat {
namespace {

c10::Allocator* inner = nullptr;

// Frees memory of the heap, and memory that PyTorch's allocator gave.
void release_memory(void* memory) {
  if (memory && !remat_heap_free(memory)) inner->raw_deleter()(memory);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (within_call()) {
      if (void* memory = remat_heap_alloc(bytes)) return {memory, memory, &release_memory, c10::kCPU};
    }
    return inner->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner->copy_data(to, from, bytes); }
};

}  // namespace

void use_heap() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Tensors may outlive all else.
    static auto* allocator = new Allocator();
    inner = c10::GetCPUAllocator();
    c10::SetCPUAllocator(allocator, 255);
  });
}

}  // namespace remat
