// Settings of the process and the thread on which results depend.
#pragma once

#include <ATen/Context.h>
#include <array>
#include <optional>

namespace remat {

// Precision of products, convolutions and recurrent layers of f32.
struct Precision {
  // The setting of older versions of PyTorch. None if the settings below contradict it, because PyTorch raises an error
  // then.
  std::optional<at::Float32MatmulPrecision> matmul;
  // The newer settings: of products, convolutions and recurrent layers, on CUDA and then in oneDNN.
  std::array<at::Float32Precision, 6> each;

  static Precision now();
  void replace(const Precision& now) const;
  bool operator==(const Precision&) const = default;
};

struct Flags {
  // Type of factories that name none.
  c10::ScalarType default_dtype;
  // Whether gradients are on: some kernels keep more for a gradient.
  bool grad;
  bool deterministic, warns_only, fills;
  bool mkldnn, mkldnn_deterministic, cudnn, cudnn_deterministic;
  // None for an op on each element, which has no products: PyTorch takes long to tell the precision.
  std::optional<Precision> precision;
  at::CuBLASReductionOption halves, bfloats;
  bool accumulates_halves;
  at::LinalgBackend linalg;
  // Threads among which a reduction is split.
  int threads;
  // Bits of the processor that replace denormal numbers by zero.
  unsigned denormals;

  static Flags now(bool with_precision);
  // Puts these flags in place of `now`. Flags that are equal are left alone.
  void replace(const Flags& now) const;
  bool operator==(const Flags&) const = default;
};

// Puts the flags of the first run in place, and those of now back in the end.
class WithFlags {
  const Flags& then;
  const Flags now;

 public:
  explicit WithFlags(const Flags& then) : then(then), now(Flags::now(then.precision.has_value())) { then.replace(now); }
  ~WithFlags() { now.replace(then); }
  WithFlags(const WithFlags&) = delete;
};

}  // namespace remat
