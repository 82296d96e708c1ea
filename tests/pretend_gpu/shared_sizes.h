#pragma once
#include <map>
#include <string>

// Bytes of the shared variables of each function in a compiled image, by its name: a kernel's own, or,
// for functions which are no kernels, as the compiler mangles it.
std::map<std::string, size_t> shared_sizes(const char* image, size_t bytes);

// Most that a kernel can have without asking for it at its launch.
constexpr size_t kSharedPerBlock = 48 << 10;
