// Reading NVRTC's options, and kernels' sources.

#pragma once
#include <string>
#include <vector>

struct Options {
  std::string standard = "c++17";
  std::vector<std::string> macros;  // and folders of headers: what g++ is given as well
  unsigned architecture = 0;        // 990 for sm_990; 0 for compute_990
};

// First option that NVRTC does not know; empty if NVRTC knows all options.
std::string read_options(const std::vector<std::string>&, Options&);

struct FoundKernel {
  std::string name;
  std::string max_threads;  // an expression; empty if there are no launch bounds
};

// The `extern "C" __global__` functions of a source after its preprocessor.
std::vector<FoundKernel> find_kernels(const std::string& source);

// Text to append to the source, so that the library finds the kernels.
std::string describe_module(const std::vector<FoundKernel>&, unsigned long version, unsigned architecture);
