// Runs a kernel's threads, one block at a time, each thread on a fiber that later threads reuse. A thread that never
// waits for others costs no switch, because its fiber continues with the next thread.

#include "grid.h"
#include "device_state.h"
#include "fiber.h"
#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <dlfcn.h>
#include <numeric>

#ifdef __x86_64__
asm(R"(
.text
.globl pretend_gpu_change_stack
.hidden pretend_gpu_change_stack
.type pretend_gpu_change_stack, @function
pretend_gpu_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pretend_gpu_change_stack, . - pretend_gpu_change_stack
)");
#endif

namespace {

constexpr unsigned kWarp = 32;

enum class State : uint8_t { NotStarted, Running, InBlockMeeting, InWarpMeeting, Returned };

// A thread of the block, and what it waits for.
struct Thread : pretend_thread {
  unsigned index;  // in its block
  State state;
  Fiber* fiber;  // while it waits
  unsigned source;
  uint64_t value, result;
};

// Lanes of a warp that wait for one another.
struct WarpMeeting {
  uint32_t mask;
  uint32_t here;
  pretend_meeting kind;
};

struct Random {
  uint64_t state;
  uint32_t below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(((state >> 32) * n) >> 32);
  }
};

const char* name_of(pretend_meeting kind) {
  switch (kind) {
    case pretend_barrier: return "__syncthreads";
    case pretend_barrier_vote: return "__syncthreads_or, _and or _count";
    case pretend_warp_barrier: return "__syncwarp";
    case pretend_warp_shuffle: return "a shuffle";
    default: return "a vote of the warp";
  }
}

class Runner {
 public:
  void run(const Launch&);
  int meet_block(Thread&, pretend_meeting, bool vote);
  uint64_t meet_warp(Thread&, uint32_t mask, pretend_meeting, uint64_t value, unsigned source);

 private:
  void run_block(pretend_dim);
  static void start_fiber();
  [[noreturn]] void run_threads();
  void change(Fiber& to);
  void wait(Thread&, State);
  void go_on(Thread&);
  Fiber& next_fiber();
  void finish(unsigned warp, const WarpMeeting&);
  uint32_t lanes_of(unsigned warp) const;
  [[noreturn]] void fail(const char* why, ...) __attribute__((format(printf, 2, 3)));
  [[noreturn]] void fail_stuck();

  const Launch* launch_ = nullptr;
  pretend_dim block_ = {};
  std::vector<Thread> threads_;
  std::vector<unsigned> order_;  // in which they start
  size_t started_ = 0, returned_ = 0;

  Fiber main_;
  Fiber* current_ = &main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<Fiber*> ready_;  // of threads that waited, and need not any more; from `ready_first_` on
  size_t ready_first_ = 0;
  Random random_ = {};

  pretend_meeting block_meeting_ = pretend_barrier;
  unsigned here_ = 0;
  int votes_ = 0;
  std::vector<std::vector<WarpMeeting>> warps_;
};

thread_local __attribute__((tls_model("initial-exec"))) Runner* runner = nullptr;

void Runner::run(const Launch& launch) {
  launch_ = &launch;
  auto [tx, ty, tz] = launch.threads;
  unsigned count = tx * ty * tz;
  threads_.resize(count);
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0u);
  warps_.resize((count + kWarp - 1) / kWarp);
  for (unsigned i = 0; i < count; ++i) {
    Thread& t = threads_[i];
    t.thread = {i % tx, i / tx % ty, i / tx / ty};
    t.threads = launch.threads;
    t.blocks = launch.blocks;
    t.index = i;
  }
  random_ = {launch.seed};
  auto [bx, by, bz] = launch.blocks;
  uint64_t blocks = static_cast<uint64_t>(bx) * by * bz;
  // If the step and the number of blocks have no common factor, each block is visited once.
  uint64_t step = 1, at = 0;
  if (launch.seed) {
    at = random_.state % blocks;
    do step = 1 + random_.below(static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX)));
    while (std::gcd(step, blocks) != 1);
  }
  for (uint64_t done = 0; done < blocks; ++done, at = (at + step) % blocks) {
    auto low = at % (static_cast<uint64_t>(bx) * by);
    run_block({static_cast<unsigned>(low % bx), static_cast<unsigned>(low / bx),
               static_cast<unsigned>(at / (static_cast<uint64_t>(bx) * by))});
  }
  now_running(nullptr);
}

void Runner::run_block(pretend_dim block) {
  block_ = block;
  // Overwrites shared memory, so that no value of the previous block is left.
  void* shared = nullptr;
  if (launch_->module->shared_bytes && dlinfo(launch_->module->library, RTLD_DI_TLS_DATA, &shared) == 0 && shared) {
    memset(shared, 0xFF, launch_->module->shared_bytes);
  }
  started_ = returned_ = 0;
  for (Thread& t : threads_) t.state = State::NotStarted;
  if (launch_->seed) {
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
  }
  change(next_fiber());
  if (returned_ < threads_.size()) fail_stuck();
}

// Entry function of a fiber.
void Runner::start_fiber() { runner->run_threads(); }

void Runner::run_threads() {
  for (;;) {
    while (started_ < threads_.size()) {
      Thread& t = threads_[order_[started_++]];
      t.block = block_;
      t.state = State::Running;
      now_running(&t);
      launch_->kernel->run(&t, const_cast<void**>(launch_->parameters.data()));
      t.state = State::Returned;
      ++returned_;
    }
    idle_.push_back(current_);
    change(next_fiber());
  }
}

void Runner::change(Fiber& to) {
  Fiber& from = *current_;
  current_ = &to;
  if (&from != &to) Fiber::change(from, to);
}

// Fiber to continue with: that of a thread that has finished waiting, or else one on which to start further threads,
// or else the caller of all fibers.
Fiber& Runner::next_fiber() {
  if (ready_first_ < ready_.size()) {
    if (launch_->seed) {
      std::swap(ready_[ready_first_], ready_[ready_first_ + random_.below(ready_.size() - ready_first_)]);
    }
    Fiber* fiber = ready_[ready_first_++];
    if (ready_first_ == ready_.size()) ready_.clear(), ready_first_ = 0;
    return *fiber;
  }
  if (started_ == threads_.size()) return main_;
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(start_fiber));
    return *fibers_.back();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return *fiber;
}

void Runner::wait(Thread& t, State state) {
  t.state = state;
  t.fiber = current_;
  change(next_fiber());
  now_running(&t);
}

void Runner::go_on(Thread& t) {
  t.state = State::Running;
  ready_.push_back(t.fiber);
}

int Runner::meet_block(Thread& t, pretend_meeting kind, bool vote) {
  if (here_ == 0) block_meeting_ = kind, votes_ = 0;
  if (kind != block_meeting_) {
    fail("some threads of a block wait at %s while others come to %s", name_of(block_meeting_), name_of(kind));
  }
  votes_ += vote;
  if (++here_ < threads_.size()) {
    wait(t, State::InBlockMeeting);
    return static_cast<int>(t.result);
  }
  here_ = 0;
  for (Thread& other : threads_) {
    other.result = votes_;
    if (&other != &t) go_on(other);
  }
  return votes_;
}

// Lanes of a warp. The last warp of a block may have fewer than 32.
uint32_t Runner::lanes_of(unsigned warp) const {
  unsigned count = std::min<unsigned>(threads_.size() - warp * kWarp, kWarp);
  return count == kWarp ? ~0u : (1u << count) - 1;
}

uint64_t Runner::meet_warp(Thread& t, uint32_t mask, pretend_meeting kind, uint64_t value, unsigned source) {
  unsigned warp = t.index / kWarp, lane = t.index % kWarp;
  if (!(mask >> lane & 1)) fail("lane %u comes to %s without being in its own mask 0x%08x", lane, name_of(kind), mask);
  mask &= lanes_of(warp);
  t.value = value;
  t.source = source;
  auto& meetings = warps_[warp];
  auto meeting = std::find_if(meetings.begin(), meetings.end(), [&](auto& m) { return m.mask == mask; });
  if (meeting == meetings.end()) meeting = meetings.insert(meetings.end(), {mask, 0, kind});
  if (kind != meeting->kind) {
    fail("some lanes of a warp wait at %s while others come to %s", name_of(meeting->kind), name_of(kind));
  }
  meeting->here |= 1u << lane;
  if (meeting->here != mask) {
    wait(t, State::InWarpMeeting);
    return t.result;
  }
  WarpMeeting complete = *meeting;
  meetings.erase(meeting);
  finish(warp, complete);
  for (uint32_t rest = mask & ~(1u << lane); rest; rest &= rest - 1) {
    go_on(threads_[warp * kWarp + __builtin_ctz(rest)]);
  }
  return t.result;
}

// Gives the result of a barrier, vote or shuffle to all of its lanes.
void Runner::finish(unsigned warp, const WarpMeeting& meeting) {
  Thread* lanes = &threads_[warp * kWarp];
  uint64_t votes = 0;
  for (uint32_t rest = meeting.mask; rest; rest &= rest - 1) {
    unsigned lane = __builtin_ctz(rest);
    votes |= static_cast<uint64_t>(lanes[lane].value != 0) << lane;
  }
  for (uint32_t rest = meeting.mask; rest; rest &= rest - 1) {
    Thread& t = lanes[__builtin_ctz(rest)];
    if (meeting.kind == pretend_warp_vote) t.result = votes;
    // The value of a lane outside of the mask is undefined. Here it is NaN, as a float.
    if (meeting.kind == pretend_warp_shuffle) t.result = meeting.mask >> t.source & 1 ? lanes[t.source].value : ~0ull;
  }
}

void Runner::fail(const char* why, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, why);
  vsnprintf(text, sizeof text, why, arguments);
  va_end(arguments);
  fprintf(stderr, "pretend GPU: kernel `%s`, block (%u, %u, %u) of %u threads: %s\n", launch_->kernel->name,
          block_.x, block_.y, block_.z, static_cast<unsigned>(threads_.size()), text);
  abort();
}

void Runner::fail_stuck() {
  char warps[256] = "";
  size_t length = 0;
  unsigned in_warps = 0;
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    for (auto& meeting : warps_[warp]) {
      in_warps += __builtin_popcount(meeting.here);
      if (length + 100 < sizeof warps) {
        length += snprintf(warps + length, sizeof warps - length, "; warp %zu: lanes 0x%08x of 0x%08x at %s", warp,
                           meeting.here, meeting.mask, name_of(meeting.kind));
      }
    }
  }
  fail("threads wait for one another for ever: %u at %s, %u in their warps, %zu have returned%s", here_,
       name_of(block_meeting_), in_warps, returned_, warps);
}

// Functions that kernels call. A fiber stays on its thread of the processor, so its runner stays the same.
int meet_block(const pretend_thread* t, pretend_meeting kind, bool vote) {
  return runner->meet_block(*static_cast<Thread*>(const_cast<pretend_thread*>(t)), kind, vote);
}
unsigned long long meet_warp(const pretend_thread* t, unsigned mask, pretend_meeting kind, unsigned long long value,
                             unsigned source) {
  return runner->meet_warp(*static_cast<Thread*>(const_cast<pretend_thread*>(t)), mask, kind, value, source);
}

}  // namespace

const pretend_api kernel_api = {meet_block, meet_warp};

Module::~Module() {
  if (library) dlclose(library);
}

void run(const Launch& launch) {
  // Kept for the next launch, which can reuse the stacks of the fibers.
  static thread_local std::unique_ptr<Runner> kept;
  if (!kept) kept = std::make_unique<Runner>();
  runner = kept.get();
  launch.module->description->touch_shared();
  kept->run(launch);
}
