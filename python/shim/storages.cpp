#include "storages.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
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

// Guards everything below. A storage may die in any thread, also within a call of ours, and while the process exits.
// The tables are therefore never destroyed: bytes that Python has made cannot be freed after Python has ended.
auto& tables = *new std::recursive_mutex;
auto& table = *new std::unordered_map<uint64_t, Entry>;
auto& holders = *new std::unordered_map<uint64_t, Held*>;
// Value -> its new name, for values that an op was to write over and did not.
auto& names = *new std::unordered_map<uint64_t, uint64_t>;
auto& dead = *new std::vector<uint64_t>;
std::atomic<uint64_t> live_bytes = 0, peak_bytes = 0;

const char* const EVICTED =
    "remat: this tensor is evicted, and was read past PyTorch's dispatcher or by a thread without the budget. "
    "Read it by a method of torch.Tensor in a thread that was started under the budget, or keep a copy: x.clone().numpy()";
const char* const VALUELESS =
    "remat: this tensor has no values, because it was made by a step of remat.suggest, which computes none. "
    "Leave out what reads values from such a step";

bool dry = false;

// Memory of the device.
c10::DataPtr memory(size_t bytes, c10::Device device) {
  // The allocator of GPUs takes memory of the current one.
  c10::OptionalDeviceGuard guard;
  if (!device.is_cpu()) guard.reset_device(device);
  return c10::GetAllocator(device.type())->allocate(bytes);
}

// Memory of the device; none in a dry run, unless it is small.
c10::DataPtr memory_if_needed(size_t bytes, c10::Device device) {
  if (dry && bytes > MOST_DRY_BYTES) return {nullptr, device};
  return memory(bytes, device);
}

// Copies bytes on the current stream, unlike the allocator's own function.
void copy(void* to, void* from, size_t bytes, c10::Device device) {
  if (device.is_cpu()) return void(std::memcpy(to, from, bytes));
  at::AutoDispatchBelowADInplaceOrView below;
  auto of = [&](void* data) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
  };
  of(to).copy_(of(from));
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
  auto& entry = table[number];
  // An op that ran out of memory is called again with the same numbers.
  live_bytes += bytes - entry.bytes;
  entry = Entry{std::move(data), bytes, held};
  peak_bytes = std::max<uint64_t>(peak_bytes, live_bytes);
}

void on_death(void* context) {
  std::lock_guard guard(tables);
  auto* held = static_cast<Held*>(context);
  for (uint64_t number : {held->number, held->second})
    if (auto at = table.find(number); at != table.end() && at->second.held == held) at->second.held = nullptr;
  if (held->tensor) {
    holders.erase(held->tensor);
    dead.push_back(held->tensor);
  }
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
  // A rerun knows a value by its first name.
  for (auto name = names.find(tensor); at == holders.end() && name != names.end(); name = names.find(name->second))
    at = holders.find(name->second);
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

uint64_t number_of(uint64_t tensor) {
  std::lock_guard guard(tables);
  auto* held = holder(tensor);
  return held ? held->number : 0;
}

void allocate(uint64_t number, size_t bytes, c10::Device device) {
  std::lock_guard guard(tables);
  add(number, memory_if_needed(bytes, device), bytes, nullptr);
}

void clone(uint64_t from, uint64_t to) {
  std::lock_guard guard(tables);
  auto& source = table.at(from);
  auto bytes = source.bytes;
  auto device = source.data.device();
  auto data = memory_if_needed(bytes, device);
  if (bytes && data.get() && source.data.get()) copy(data.get(), source.data.get(), bytes, device);
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

void stand_in(uint64_t from, uint64_t to) {
  std::lock_guard guard(tables);
  rename(from, to);
  if (holders.count(to)) names[from] = to;
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
  storage->set_data_ptr_noswap(memory(storage->nbytes(), device));
  storage->clear_data_ptr_access_error_msg_();
}

void record_stream(Held* held, c10::Stream stream) {
  std::lock_guard guard(tables);
  auto at = table.find(held->number);
  if (at == table.end()) return;
  c10::impl::getDeviceGuardImpl(stream.device_type())->recordDataPtrOnStream(at->second.data, stream);
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
  if (!held || held->before || !data.get()) return;
  held->before = memory(storage->nbytes(), storage->device());
  copy(held->before.get(), data.get(), storage->nbytes(), storage->device());
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
          copy(at->second.data.get(), held->before.get(), storage->nbytes(), storage->device());
        storage->set_data_ptr_noswap(std::move(at->second.data));
        guard_pointer(storage.get());
      }
      delete held;
    } else {
      // Another thread is about to end the storage, and calls `on_death`.
      held->tensor = 0;
    }
  }
  table.clear();
  names.clear();
  dead.clear();
  live_bytes = peak_bytes = 0;
}

uint64_t live() { return live_bytes; }
uint64_t peak() { return peak_bytes; }

}  // namespace remat
