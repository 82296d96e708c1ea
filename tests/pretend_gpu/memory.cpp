// Memory of the pretend device. Every allocation is a separate mapping between two guard pages.

#include "device_state.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
constexpr unsigned char kFresh = 0xFF;  // as floats: NaN

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// A file of fresh memory. Mapping it copy-on-write over and over fills an allocation of any size
// without touching it.
constexpr size_t kFreshBytes = 16 << 20;
int fresh_file() {
  static const int file = [] {
    int fd = memfd_create("pretend_gpu_fresh", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kFreshBytes) != 0) return -1;
    void* p = mmap(nullptr, kFreshBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return -1;
    memset(p, kFresh, kFreshBytes);
    munmap(p, kFreshBytes);
    return fd;
  }();
  return file;
}

// Maps fresh memory of whole pages between guard pages; null if the system gives none.
char* map_fresh(size_t bytes) {
  int file = fresh_file();
  if (file < 0) return nullptr;
  void* all = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* inner = static_cast<char*>(all) + kPage;
  for (size_t at = 0; at < bytes; at += kFreshBytes) {
    size_t part = std::min(kFreshBytes, bytes - at);
    if (mmap(inner + at, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
      munmap(all, bytes + 2 * kPage);
      return nullptr;
    }
  }
  return static_cast<char*>(all);
}

// Frees the memory, but keeps its addresses unused for a long time. An access through an old pointer must fault, and
// not reach a later allocation.
void retire(char* mapping, size_t mapped) {
  constexpr size_t kKept = 4096;
  static auto& kept = *new std::deque<std::pair<char*, size_t>>;
  mmap(mapping, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  kept.emplace_back(mapping, mapped);
  if (kept.size() > kKept) {
    munmap(kept.front().first, kept.front().second);
    kept.pop_front();
  }
}

}  // namespace

Memory& memory() {
  // Never destroyed: streams may still work while the process ends.
  static Memory& memory = *new Memory;
  return memory;
}

CUresult Memory::allocate(size_t bytes, CUdeviceptr* to) {
  std::lock_guard lock(mutex_);
  size_t taken = round_up(bytes, kAlignment);
  if (bytes > settings().memory || used_ + taken > settings().memory) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t pages = round_up(taken, kPage);
  char* mapping = map_fresh(pages);
  if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
  // The allocation ends at the end of its pages, so that the first access past the end reaches the guard page.
  auto start = reinterpret_cast<CUdeviceptr>(mapping + kPage + pages - taken);
  device_[start] = {bytes, mapping, pages + 2 * kPage, 0};
  used_ += taken;
  ++made_.first;
  *to = start;
  return CUDA_SUCCESS;
}

CUresult Memory::free(CUdeviceptr p) {
  std::lock_guard lock(mutex_);
  auto found = device_.find(p);
  if (found == device_.end()) return CUDA_ERROR_INVALID_VALUE;
  auto [bytes, mapping, mapped, flags] = found->second;
  // Bytes that only fill up the alignment. If they have changed, a kernel has written past the end.
  size_t taken = round_up(bytes, kAlignment);
  auto start = reinterpret_cast<const unsigned char*>(p);
  bool intact = std::all_of(start + bytes, start + taken, [](unsigned char c) { return c == kFresh; });
  if (!intact) fprintf(stderr, "pretend GPU: something wrote past the end of the %zu bytes at 0x%llx\n", bytes, p);
  retire(mapping, mapped);
  device_.erase(found);
  used_ -= taken;
  return intact ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult Memory::allocate_host(size_t bytes, unsigned flags, void** to) {
  std::lock_guard lock(mutex_);
  size_t pages = round_up(bytes, kPage);
  char* mapping = map_fresh(pages);
  if (!mapping) return CUDA_ERROR_OUT_OF_MEMORY;
  ++made_.second;
  *to = mapping + kPage;
  host_[reinterpret_cast<CUdeviceptr>(*to)] = {bytes, mapping, pages + 2 * kPage, flags};
  return CUDA_SUCCESS;
}

CUresult Memory::free_host(void* p) {
  std::lock_guard lock(mutex_);
  auto found = host_.find(reinterpret_cast<CUdeviceptr>(p));
  if (found == host_.end()) return CUDA_ERROR_INVALID_VALUE;
  retire(found->second.mapping, found->second.mapped);
  host_.erase(found);
  return CUDA_SUCCESS;
}

bool Memory::host_flags(const void* p, unsigned* flags) {
  std::lock_guard lock(mutex_);
  auto block = around(host_, reinterpret_cast<CUdeviceptr>(p));
  if (block) *flags = block->second.flags;
  return block != nullptr;
}

void Memory::free_all() {
  std::lock_guard lock(mutex_);
  for (auto blocks : {&device_, &host_}) {
    for (auto& [_, block] : *blocks) retire(block.mapping, block.mapped);
    blocks->clear();
  }
  used_ = 0;
}

std::pair<size_t, size_t> Memory::made() {
  std::lock_guard lock(mutex_);
  return made_;
}

size_t Memory::used() {
  std::lock_guard lock(mutex_);
  return used_;
}

const Memory::Blocks::value_type* Memory::around(const Blocks& blocks, CUdeviceptr p) {
  auto after = blocks.upper_bound(p);
  if (after == blocks.begin()) return nullptr;
  auto block = std::prev(after);
  return p < block->first + block->second.bytes ? &*block : nullptr;
}

bool Memory::on_device(CUdeviceptr p, size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto blocks : {&device_, &host_}) {
    auto block = around(*blocks, p);
    if (block) return bytes <= block->first + block->second.bytes - p;
  }
  return false;
}

Memory::Host Memory::host(const void* p, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto start = reinterpret_cast<CUdeviceptr>(p);
  auto meets = [&](const Blocks& blocks) {
    auto after = blocks.upper_bound(start);
    return (after != blocks.end() && after->first < start + bytes) || around(blocks, start);
  };
  if (meets(device_)) return Host::Neither;
  if (!meets(host_)) return Host::Pageable;
  auto block = around(host_, start);
  bool inside = block && bytes <= block->first + block->second.bytes - start;
  return inside ? Host::Pinned : Host::Neither;
}
