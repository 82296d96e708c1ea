#include "flags.h"

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace remat {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

constexpr std::pair<Float32Backend, Float32Op> PRECISIONS[] = {
    {Float32Backend::CUDA, Float32Op::MATMUL},   {Float32Backend::CUDA, Float32Op::CONV},
    {Float32Backend::CUDA, Float32Op::RNN},      {Float32Backend::MKLDNN, Float32Op::MATMUL},
    {Float32Backend::MKLDNN, Float32Op::CONV},   {Float32Backend::MKLDNN, Float32Op::RNN},
};

#if defined(__SSE2__)
// Denormal results are zero, and denormal operands are zero.
constexpr unsigned DENORMALS = 0x8040;
unsigned denormals_now() { return _mm_getcsr() & DENORMALS; }
void set_denormals(unsigned bits) { _mm_setcsr((_mm_getcsr() & ~DENORMALS) | bits); }
#else
unsigned denormals_now() { return 0; }
void set_denormals(unsigned) {}
#endif

// The older setting, which PyTorch refuses to tell if the newer settings contradict it. An exception takes too long for
// each op, so the answer is kept for as long as the newer settings stay.
std::optional<at::Float32MatmulPrecision> matmul_of(const std::array<Float32Precision, 6>& precisions) {
  auto is_plain = [](Float32Precision of) { return of != Float32Precision::TF32 && of != Float32Precision::BF16; };
  if (is_plain(precisions[0]) && is_plain(precisions[3])) return at::globalContext().float32MatmulPrecision();
  thread_local std::array<Float32Precision, 6> known{};
  thread_local std::optional<at::Float32MatmulPrecision> answer;
  if (known != precisions) {
    known = precisions;
    answer.reset();
    try {
      answer = at::globalContext().float32MatmulPrecision();
    } catch (const c10::Error&) {
    }
  }
  return answer;
}

const char* name_of(at::Float32MatmulPrecision precision) {
  using Precision = at::Float32MatmulPrecision;
  return precision == Precision::HIGHEST ? "highest" : precision == Precision::HIGH ? "high" : "medium";
}

std::pair<bool, bool> arguments_of(at::CuBLASReductionOption option) {
  using Option = at::CuBLASReductionOption;
  return {option == Option::AllowReducedPrecisionWithSplitK,
          option != Option::DisallowReducedPrecisionDisallowSplitK};
}

}  // namespace

Precision Precision::now() {
  Precision now;
  for (size_t i = 0; i < now.each.size(); i++)
    now.each[i] = at::globalContext().float32Precision(PRECISIONS[i].first, PRECISIONS[i].second);
  now.matmul = matmul_of(now.each);
  return now;
}

void Precision::replace(const Precision& now) const {
  auto& context = at::globalContext();
  // The older setting changes some of the newer settings, so the newer ones follow.
  if (matmul && matmul != now.matmul) context.setFloat32MatmulPrecision(name_of(*matmul));
  for (size_t i = 0; i < each.size(); i++) {
    auto [backend, op] = PRECISIONS[i];
    if (context.float32Precision(backend, op) != each[i]) context.setFloat32Precision(backend, op, each[i]);
  }
}

Flags Flags::now(bool with_precision) {
  const auto& context = at::globalContext();
  return {.default_dtype = c10::get_default_dtype().toScalarType(),
          .grad = c10::GradMode::is_enabled(),
          .deterministic = context.deterministicAlgorithms(),
          .warns_only = context.deterministicAlgorithmsWarnOnly(),
          .fills = context.deterministicFillUninitializedMemory(),
          .mkldnn = context.userEnabledMkldnn(),
          .mkldnn_deterministic = context.deterministicMkldnn(),
          .cudnn = context.userEnabledCuDNN(),
          .cudnn_deterministic = context.deterministicCuDNN(),
          .precision = with_precision ? std::optional(Precision::now()) : std::nullopt,
          .halves = context.allowFP16ReductionCuBLAS(),
          .bfloats = context.allowBF16ReductionCuBLAS(),
          .accumulates_halves = context.allowFP16AccumulationCuBLAS(),
          .linalg = context.linalgPreferredBackend(),
          .threads = at::get_num_threads(),
          .denormals = denormals_now()};
}

void Flags::replace(const Flags& now) const {
  if (*this == now) return;
  auto& context = at::globalContext();
  if (default_dtype != now.default_dtype) c10::set_default_dtype(caffe2::TypeMeta::fromScalarType(default_dtype));
  c10::GradMode::set_enabled(grad);
  context.setDeterministicAlgorithms(deterministic, warns_only);
  context.setDeterministicFillUninitializedMemory(fills);
  context.setUserEnabledMkldnn(mkldnn);
  context.setDeterministicMkldnn(mkldnn_deterministic);
  context.setUserEnabledCuDNN(cudnn);
  context.setDeterministicCuDNN(cudnn_deterministic);
  if (precision && now.precision) precision->replace(*now.precision);
  if (halves != now.halves) {
    auto [reduces, splits] = arguments_of(halves);
    context.setAllowFP16ReductionCuBLAS(reduces, splits);
  }
  if (bfloats != now.bfloats) {
    auto [reduces, splits] = arguments_of(bfloats);
    context.setAllowBF16ReductionCuBLAS(reduces, splits);
  }
  if (accumulates_halves != now.accumulates_halves) context.setAllowFP16AccumulationCuBLAS(accumulates_halves);
  if (linalg != now.linalg) context.setLinalgPreferredBackend(linalg);
  if (threads != now.threads) at::set_num_threads(threads);
  if (denormals != now.denormals) set_denormals(denormals);
}

}  // namespace remat
