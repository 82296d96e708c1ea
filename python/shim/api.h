// Calls between the shim and Rust: `src/ffi.rs` has the same declarations.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// How the outputs of an op lie in storages.
enum RmKind : uint32_t {
  // In storages of their own.
  RM_FRESH = 0,
  // In the first input, whose old value can be restored.
  RM_OVER = 1,
  // In the first `targets` inputs, which are leaves from then on, and in storages of their own.
  RM_UPDATE = 2,
  // Nowhere. An op is about to write to the first inputs, so tensors whose recomputation needs the old values get
  // copies.
  RM_NOTICE = 3,
  // Nowhere. Memory for the outputs is made free.
  RM_RESERVE = 4,
  // In a copy of the first input.
  RM_SNAPSHOT = 5,
  // In the storage `over`, which the op writes to as a whole without reading its old value. `over` is no input.
  RM_WRITE = 6,
};

// Outcome of an op.
enum RmOutcome : uint32_t {
  RM_DONE = 0,
  // A larger budget may help.
  RM_NO_MEMORY = 1,
  RM_FAILED = 2,
};

// An op, for the engine.
struct RmApply {
  // The record, which Rust owns from now on.
  void* record;
  const char* name;
  const uint64_t* inputs;
  size_t inputs_len;
  // Inputs that are written to, which are the first ones.
  size_t targets;
  // Bytes of the outputs in storages of their own.
  const uint64_t* outputs;
  size_t outputs_len;
  RmKind kind;
  // For RM_WRITE: number of the old value, which the program no longer holds afterwards.
  uint64_t over;
  // Whether the op may run again.
  bool again;
  // Floating-point operations; 0 if not known.
  double work;
  // Bytes read and written; 0 for all bytes of inputs and outputs.
  uint64_t moved;
  // Set by Rust: number of the first output.
  uint64_t made;
  // Set by Rust if the call fails: a text that `remat_free_text` frees.
  char* error;
};

// Implemented in Rust. The caller holds the lock.

// Deletes the tensors that nobody holds any more.
void remat_bury(void* session);
// Makes a leaf of `bytes` bytes out of a storage. Returns its number, or 0 and an error.
uint64_t remat_put(void* session, void* storage, uint64_t bytes, bool tainted, char** error);
// Names a value for error messages.
void remat_label(void* session, uint64_t tensor, const char* label);
// Runs an op.
RmOutcome remat_apply(void* session, RmApply* apply);
// Evicts all storages that can be evicted.
void remat_evict_all(void* session);
// Makes a leaf of a value, whose bytes other code may change. Tensors whose recomputation needs the bytes get copies.
void remat_expose(void* session, uint64_t tensor);
// Called after each op.
void remat_done(void* session);
void remat_free_text(char* text);

// Implemented in Rust, for any thread.

// Memory of the heap for a tensor; null if the heap has none, or is not in use.
void* remat_heap_alloc(size_t bytes);
// Frees memory. Returns whether it was of the heap.
bool remat_heap_free(void* memory);
}
