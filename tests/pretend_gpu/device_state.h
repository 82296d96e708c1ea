// The state of the pretend device which all parts share: settings, the context, memory, handles.

#pragma once
#include "cuda.h"
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

// Settings from environment variables, which are read once.
struct Settings {
  size_t memory;           // PRETEND_GPU_MEMORY: bytes on the device
  unsigned delay_us;       // PRETEND_GPU_DELAY_US: longest pause before each piece of work in a stream
  unsigned long shuffle;   // PRETEND_GPU_SHUFFLE: 0, or the seed of the order in which threads run
  bool explain;            // PRETEND_GPU_EXPLAIN: say on stderr why a call is refused
};
const Settings& settings();

// Prints why a call is refused, if `PRETEND_GPU_EXPLAIN` is set.
void explain(const char* function, const char* why, ...) __attribute__((format(printf, 2, 3)));
#define REFUSE(status, ...) (explain(__func__, __VA_ARGS__), (status))

// The error of a call that needs a current context, where there is none.
CUresult entered(const char* function);
#define ENTER()                                              \
  do {                                                       \
    CUresult entered_ = entered(__func__);                   \
    if (entered_ != CUDA_SUCCESS) return entered_;           \
  } while (0)

// Live objects by their handles.
template <class T> class Handles {
 public:
  void* add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    void* handle = object.get();
    live_[handle] = std::move(object);
    return handle;
  }
  std::shared_ptr<T> find(void* handle) {
    std::lock_guard lock(mutex_);
    auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(void* handle) {
    std::lock_guard lock(mutex_);
    auto found = live_.find(handle);
    if (found == live_.end()) return nullptr;
    auto object = std::move(found->second);
    live_.erase(found);
    return object;
  }
  std::vector<std::shared_ptr<T>> all() {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    for (auto& [_, object] : live_) objects.push_back(object);
    return objects;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<T>> live_;
};

// Memory of the device, and memory of the host that copies read when the stream gets there.
class Memory {
 public:
  CUresult allocate(size_t bytes, CUdeviceptr* to);
  CUresult free(CUdeviceptr);
  CUresult allocate_host(size_t bytes, unsigned flags, void** to);
  CUresult free_host(void*);
  bool host_flags(const void*, unsigned* flags);
  void free_all();
  size_t used();
  // Allocations that were ever made, on the device and of pinned memory.
  std::pair<size_t, size_t> made();

  // Whether all bytes belong to one live allocation that a kernel may access.
  bool on_device(CUdeviceptr, size_t bytes);
  bool on_device(const void* p, size_t bytes) { return on_device(reinterpret_cast<CUdeviceptr>(p), bytes); }
  enum class Host { Pageable, Pinned, Neither };
  // Kind of host memory that a copy reads or writes. Neither kind if only a part is pinned, or if it is device
  // memory.
  Host host(const void*, size_t bytes);

 private:
  struct Block {
    size_t bytes;
    char* mapping;  // with a guard page at either end
    size_t mapped;
    unsigned flags;
  };
  using Blocks = std::map<CUdeviceptr, Block>;
  static const Blocks::value_type* around(const Blocks&, CUdeviceptr);
  std::mutex mutex_;
  Blocks device_, host_;
  size_t used_ = 0;
  std::pair<size_t, size_t> made_ = {0, 0};
};
Memory& memory();

// Sets what the calling thread does for a stream, for the message of a crash.
void now_doing(const char* what);
void now_running(const struct pretend_thread*);
// Has crashes in a stream's work reported. Called on each thread that does such work.
void report_crashes();
