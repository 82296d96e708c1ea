// Table of the bytes of PyTorch's storages.
//
// A tensor stays an ordinary tensor. Only the bytes of its storage move to the table. The storage keeps a pointer to
// the bytes, with a deleter that is called when the last reference to the storage is dropped. Eviction sets this
// pointer to null. Views, saved tensors and parameters share the storage and need no change.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>
#include <cstdint>
#include <vector>

namespace remat {

// A storage that the program holds.
struct Held {
  // Number of the value in the engine; 0 if the engine no longer knows it.
  uint64_t tensor;
  // Number of the bytes in the table; 0 while the value is evicted.
  uint64_t number;
  // Number of a second copy of the bytes, which a rerun made for its other outputs; 0 if there is none. The engine
  // frees one of the two at the end of the rerun.
  uint64_t second = 0;
  // Whether the value is a leaf: it has no compute path and is always resident.
  bool leaf;
  // Whether nobody has named the value since it was made without being written to. Somebody may write to it by a
  // pointer.
  bool blank = false;
  // Whether somebody outside of PyTorch may write to the bytes at any time, such as NumPy.
  bool tainted;
  // Whether a dry run has left out an op that writes to the bytes.
  bool stale = false;
  // The bytes before the first op of a dry run that wrote to them; null if none has.
  c10::DataPtr before = {};
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
};

// Most bytes of memory that a dry run allocates for a storage.
constexpr size_t MOST_DRY_BYTES = 64 << 10;

// Starts or ends a dry run: memory is counted, but not allocated unless it is small. A storage without memory has no
// values.
void set_dry(bool on);
bool is_dry();
// Whether the bytes of a storage are those that the program would see.
bool has_values(c10::StorageImpl* storage);
// An op that writes to the storage is left out.
void make_stale(c10::StorageImpl* storage);
// An op is about to write to the storage in a dry run: `give_back` gives the old bytes back.
void back_up(c10::StorageImpl* storage);

// The storage's entry; null if its bytes are not in the table.
Held* held_of(c10::StorageImpl* storage);
// Whether the storage is a look at bytes of the table, for one run.
bool is_lent(c10::StorageImpl* storage);

// Moves the bytes of a storage to the table.
void adopt(c10::StorageImpl* storage, uint64_t tensor, uint64_t number, bool leaf, bool tainted);
// Moves recomputed bytes to the table. Whoever holds `tensor` sees them.
void take(c10::StorageImpl* made, uint64_t tensor, uint64_t number);
// Whoever holds `tensor` sees recomputed bytes of the table.
void see_again(uint64_t tensor, uint64_t number);
// Frees bytes. Whoever holds them holds an evicted value.
void release(uint64_t number);
// Number of the bytes that whoever holds `tensor` sees; 0 if there are none.
uint64_t number_of(uint64_t tensor);
// Makes bytes without contents.
void allocate(uint64_t number, size_t bytes, c10::Device device);
// Copies bytes.
void clone(uint64_t from, uint64_t to);
// Whoever holds `tensor` sees the bytes `number` from now on.
void point(uint64_t tensor, uint64_t number);
// The storage of value `from` holds value `to` from now on.
void rename(uint64_t from, uint64_t to);
// Value `from` is called `to` from now on, because the op that was to write value `to` did not run.
void stand_in(uint64_t from, uint64_t to);
// Marks the value as a leaf.
void settle(uint64_t tensor);
// A storage that looks at bytes of the table. Its pointer is not owned.
c10::intrusive_ptr<c10::StorageImpl> lend(uint64_t number);

// The bytes are in use by work that is queued on another stream: their memory is free again only after that work.
void record_stream(Held* held, c10::Stream stream);

// Gives a storage its bytes back. The table and the engine forget them.
void leave(Held* held);
// Gives a storage new bytes. The table and the engine forget its value.
void renew(c10::StorageImpl* storage);
// A value that no storage holds: its number joins the dead.
void abandon(uint64_t tensor);
// Takes up to `most` numbers of values that nobody holds any more.
size_t take_dead(uint64_t* out, size_t most);
// Numbers of all values that are held and no leaves.
std::vector<uint64_t> evictable();
// Numbers of all values that are held.
std::vector<uint64_t> all_held();
// Gives all bytes back to the storages.
void give_back();
// Bytes in the table, now and at most.
uint64_t live();
uint64_t peak();

}  // namespace remat
