// A kernel's launch, and running it.

#pragma once
#include "kernel_abi.h"
#include <memory>
#include <string>
#include <vector>

// Loaded code of a kernel.
struct Module {
  ~Module();
  void* library = nullptr;
  const pretend_module* description = nullptr;
  size_t shared_bytes = 0;  // of the shared variables of all its kernels
};

struct Launch {
  std::shared_ptr<Module> module;
  const pretend_kernel* kernel;
  pretend_dim blocks, threads;
  std::vector<void*> parameters;    // pointers into `values`
  std::unique_ptr<char[]> values;
  uint64_t seed;  // of the order of blocks and threads; 0 is one after the other
};

// Runs all threads of all blocks on the calling thread.
void run(const Launch&);

extern const pretend_api kernel_api;
