#include "storages.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace remat {
namespace {

struct Entry {
  c10::DataPtr data;
  size_t bytes = 0;
  Held* held = nullptr;
};

// Guards everything below. A storage may die in any thread, also within a call of ours.
std::recursive_mutex tables;
std::unordered_map<uint64_t, Entry> table;
std::unordered_map<uint64_t, Held*> holders;
std::vector<uint64_t> dead;
std::atomic<uint64_t> live_bytes = 0, peak_bytes = 0;

const char* const EVICTED =
    "remat: this tensor is evicted, and was read past PyTorch's dispatcher or by a thread without the budget. "
    "Read it by a method of torch.Tensor in a thread that was started under the budget, or keep a copy: x.clone().numpy()";
const char* const VALUELESS =
    "remat: this tensor has no values, because it was made by a step of remat.suggest, which computes none. "
    "Leave out what reads values from such a step";

bool dry = false;

// Memory of the device; none in a dry run, unless it is small.
c10::DataPtr memory(size_t bytes, c10::Device device) {
  if (dry && bytes > MOST_DRY_BYTES) return {nullptr, device};
  return c10::GetAllocator(device.type())->allocate(bytes);
}

// Readers past the dispatcher get an error, not a null pointer.
void guard_pointer(c10::StorageImpl* storage) {
  if (!storage->_mutable_data_ptr_no_checks().get() && storage->nbytes() && !storage->device().is_meta()) {
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(dry ? VALUELESS : EVICTED);
  } else {
    storage->clear_data_ptr_access_error_msg_();
  }
}

void add(uint64_t number, c10::DataPtr&& data, size_t bytes, Held* held) {
  table[number] = Entry{std::move(data), bytes, held};
  live_bytes += bytes;
  peak_bytes = std::max<uint64_t>(peak_bytes, live_bytes);
}

void on_death(void* context) {
  std::lock_guard guard(tables);
  auto* held = static_cast<Held*>(context);
  for (uint64_t number : {held->number, held->second})
    if (auto at = table.find(number); at != table.end() && at->second.held == held) at->second.held = nullptr;
  holders.erase(held->tensor);
  dead.push_back(held->tensor);
  delete held;
}

// Sets the pointer of a storage that may be dying.
void set(Held* held, void* bytes) {
  auto storage = held->storage.lock();
  if (!storage) return;
  auto& data = storage->_mutable_data_ptr_no_checks();
  auto device = data.device();
  data.release_context();
  storage->set_data_ptr_noswap(c10::DataPtr(bytes, held, &on_death, device));
  guard_pointer(storage.get());
}

Held* holder(uint64_t tensor) {
  auto at = holders.find(tensor);
  return at == holders.end() ? nullptr : at->second;
}

void see(Held* held, uint64_t number, Entry& entry) {
  if (held->number == number) return;
  if (auto old = table.find(held->number); old != table.end() && old->second.held == held) old->second.held = nullptr;
  held->number = number;
  entry.held = held;
  set(held, entry.data.get());
}

}  // namespace

Held* held_of(c10::StorageImpl* storage) {
  auto& data = storage->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &on_death ? static_cast<Held*>(data.get_context()) : nullptr;
}

bool is_lent(c10::StorageImpl* storage) {
  auto& data = storage->_mutable_data_ptr_no_checks();
  return data.get() && !data.get_context();
}

void adopt(c10::StorageImpl* storage, uint64_t tensor, uint64_t number, bool leaf, bool tainted) {
  std::lock_guard guard(tables);
  auto& data = storage->_mutable_data_ptr_no_checks();
  auto device = data.device();
  void* bytes = data.get();
  auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  auto* held = new Held{.tensor = tensor, .number = number, .leaf = leaf, .tainted = tainted, .storage = std::move(weak)};
  c10::DataPtr own = std::move(data);
  storage->set_data_ptr_noswap(c10::DataPtr(bytes, held, &on_death, device));
  if (dry) guard_pointer(storage);
  add(number, std::move(own), storage->nbytes(), held);
  holders[tensor] = held;
}

void take(c10::StorageImpl* made, uint64_t tensor, uint64_t number) {
  std::lock_guard guard(tables);
  c10::DataPtr own = std::move(made->_mutable_data_ptr_no_checks());
  add(number, std::move(own), made->nbytes(), nullptr);
  see_again(tensor, number);
}

void see_again(uint64_t tensor, uint64_t number) {
  std::lock_guard guard(tables);
  auto* held = holder(tensor);
  if (!held) return;
  auto& entry = table.at(number);
  if (!held->number) return see(held, number, entry);
  held->second = number;
  entry.held = held;
}

void release(uint64_t number) {
  std::lock_guard guard(tables);
  auto node = table.extract(number);
  if (node.empty()) return;
  auto& entry = node.mapped();
  if (auto* held = entry.held) {
    if (held->second == number) {
      held->second = 0;
    } else if (held->number == number) {
      held->number = std::exchange(held->second, 0);
      auto other = table.find(held->number);
      set(held, other == table.end() ? nullptr : other->second.data.get());
    }
  }
  live_bytes -= entry.bytes;
}

void move(uint64_t from, uint64_t to) {
  std::lock_guard guard(tables);
  auto node = table.extract(from);
  if (node.empty()) return;
  node.key() = to;
  if (auto* held = node.mapped().held) held->number = to;
  table.insert(std::move(node));
}

void allocate(uint64_t number, size_t bytes, c10::Device device) {
  std::lock_guard guard(tables);
  add(number, memory(bytes, device), bytes, nullptr);
}

void clone(uint64_t from, uint64_t to) {
  std::lock_guard guard(tables);
  auto& source = table.at(from);
  auto bytes = source.bytes;
  auto device = source.data.device();
  auto data = memory(bytes, device);
  if (bytes && data.get() && source.data.get()) c10::GetAllocator(device.type())->copy_data(data.get(), source.data.get(), bytes);
  add(to, std::move(data), bytes, nullptr);
}

void point(uint64_t tensor, uint64_t number) {
  std::lock_guard guard(tables);
  auto to = table.find(number);
  auto* held = holder(tensor);
  if (held && to != table.end()) see(held, number, to->second);
}

void rename(uint64_t from, uint64_t to) {
  std::lock_guard guard(tables);
  auto node = holders.extract(from);
  if (node.empty()) return;
  node.key() = to;
  node.mapped()->tensor = to;
  holders.insert(std::move(node));
}

void settle(uint64_t tensor) {
  std::lock_guard guard(tables);
  if (auto* held = holder(tensor)) held->leaf = true;
}

c10::intrusive_ptr<c10::StorageImpl> lend(uint64_t number) {
  std::lock_guard guard(tables);
  auto& entry = table.at(number);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), entry.bytes, c10::DataPtr(entry.data.get(), entry.data.device()), nullptr,
      false);
}

void leave(Held* held) {
  std::lock_guard guard(tables);
  auto node = table.extract(held->number);
  auto storage = held->storage.lock();
  if (node.empty() || !storage) return;
  live_bytes -= node.mapped().bytes;
  storage->_mutable_data_ptr_no_checks().release_context();
  storage->set_data_ptr_noswap(std::move(node.mapped().data));
  holders.erase(held->tensor);
  dead.push_back(held->tensor);
  delete held;
}

void renew(c10::StorageImpl* storage) {
  std::lock_guard guard(tables);
  auto* held = held_of(storage);
  if (!held) return;
  auto& data = storage->_mutable_data_ptr_no_checks();
  auto device = data.device();
  // The value of the storage dies with the old pointer.
  storage->set_data_ptr_noswap(c10::GetAllocator(device.type())->allocate(storage->nbytes()));
  storage->clear_data_ptr_access_error_msg_();
}

void set_dry(bool on) { dry = on; }
bool is_dry() { return dry; }

bool has_values(c10::StorageImpl* storage) {
  std::lock_guard guard(tables);
  auto* held = held_of(storage);
  return !storage->nbytes() || (storage->_mutable_data_ptr_no_checks().get() && !(held && held->stale));
}

void make_stale(c10::StorageImpl* storage) {
  std::lock_guard guard(tables);
  if (auto* held = held_of(storage)) held->stale = true;
}

void back_up(c10::StorageImpl* storage) {
  std::lock_guard guard(tables);
  auto* held = held_of(storage);
  auto& data = storage->_mutable_data_ptr_no_checks();
  if (held && !held->before && data.get()) held->before = c10::GetAllocator(storage->device_type())->clone(data.get(), storage->nbytes());
}

void abandon(uint64_t tensor) {
  std::lock_guard guard(tables);
  dead.push_back(tensor);
}

size_t take_dead(uint64_t* out, size_t most) {
  std::lock_guard guard(tables);
  size_t n = std::min(most, dead.size());
  std::copy(dead.end() - static_cast<ptrdiff_t>(n), dead.end(), out);
  dead.resize(dead.size() - n);
  return n;
}

std::vector<uint64_t> evictable() {
  std::lock_guard guard(tables);
  std::vector<uint64_t> found;
  for (auto& [tensor, held] : holders)
    if (!held->leaf) found.push_back(tensor);
  // In the order in which they were made, so that a run repeats.
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<uint64_t> all_held() {
  std::lock_guard guard(tables);
  std::vector<uint64_t> found;
  for (auto& [tensor, held] : holders) found.push_back(tensor);
  std::sort(found.begin(), found.end());
  return found;
}

void give_back() {
  std::lock_guard guard(tables);
  auto all = std::move(holders);
  holders.clear();
  for (auto& [tensor, held] : all) {
    auto at = table.find(held->number);
    if (auto storage = held->storage.lock()) {
      auto& data = storage->_mutable_data_ptr_no_checks();
      data.release_context();
      if (at != table.end()) {
        if (held->before)
          c10::GetAllocator(storage->device_type())->copy_data(at->second.data.get(), held->before.get(), storage->nbytes());
        storage->set_data_ptr_noswap(std::move(at->second.data));
        guard_pointer(storage.get());
      }
    }
    delete held;
  }
  table.clear();
  dead.clear();
  live_bytes = peak_bytes = 0;
}

uint64_t live() { return live_bytes; }
uint64_t peak() { return peak_bytes; }

}  // namespace remat
