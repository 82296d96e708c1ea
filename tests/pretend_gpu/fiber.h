// Stacks to run on in turn, on one thread of the processor.

#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

class Fiber {
 public:
  // A fiber for the stack that already runs.
  Fiber() = default;
  // A fiber which calls `entry` when it is first switched to; `entry` never returns.
  explicit Fiber(void (*entry)());
  Fiber(const Fiber&) = delete;
  ~Fiber() {
    if (stack_) munmap(stack_, kGuard + kStack);
  }
  // Goes on with `to`; returns when somebody switches back to `from`.
  static void change(Fiber& from, Fiber& to);

 private:
  static constexpr size_t kGuard = 4096, kStack = 64 << 10;
  char* map_stack() {
    void* p = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0) {
      perror("pretend GPU: no memory for the stack of a kernel's thread");
      abort();
    }
    stack_ = static_cast<char*>(p);
    return stack_ + kGuard;
  }
  char* stack_ = nullptr;
#ifdef __x86_64__
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

#ifdef __x86_64__
// Saves what a called function must keep, and takes over the other stack's. The rounding mode and the
// signal mask are not saved: no kernel changes them, and saving the mask is a call of the system.
extern "C" void pretend_gpu_change_stack(void** from, void* to);

inline Fiber::Fiber(void (*entry)()) {
  // Stacks begin at different places in their pages: else all would meet in the same few cache lines.
  static thread_local unsigned made = 0;
  auto top = reinterpret_cast<uintptr_t*>(map_stack() + kStack - made++ % 64 * 320 % 4096);
  *--top = 0;                                   // the return address of `entry`: none
  *--top = reinterpret_cast<uintptr_t>(entry);  // where the switch returns to
  for (int saved = 0; saved < 6; ++saved) *--top = 0;
  stack_pointer_ = top;
}
inline void Fiber::change(Fiber& from, Fiber& to) {
  pretend_gpu_change_stack(&from.stack_pointer_, to.stack_pointer_);
}
#else
inline Fiber::Fiber(void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = map_stack();
  context_.uc_stack.ss_size = kStack;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}
inline void Fiber::change(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }
#endif
