// cuDNN's entry points for convolutions. The first algorithm that they offer must not be used: it is not
// deterministic, or needs an absurd workspace.

#include "dnn.h"
#include <algorithm>
#include <atomic>
#include <cstring>

namespace {

// Properties that an algorithm reports.
struct Algorithm {
  int number;
  enum { Modest, None, Absurd } workspace;
  int determinism;
  bool supported;
};
// In the order in which they are offered.
constexpr Algorithm kForward[] = {
    {4, Algorithm::Absurd, kDeterministic, true},   // FFT
    {1, Algorithm::Modest, kDeterministic, true},   // IMPLICIT_PRECOMP_GEMM
    {0, Algorithm::None, kDeterministic, true},     // IMPLICIT_GEMM
    {6, Algorithm::None, kDeterministic, false},    // WINOGRAD
};
constexpr Algorithm kBackwardData[] = {
    {0, Algorithm::None, kNonDeterministic, true},  // ALGO_0
    {1, Algorithm::Modest, kDeterministic, true},   // ALGO_1
    {3, Algorithm::Modest, kDeterministic, true},   // FFT_TILING
    {4, Algorithm::None, kDeterministic, false},    // WINOGRAD
};
constexpr Algorithm kBackwardFilter[] = {
    {0, Algorithm::None, kNonDeterministic, true},  // ALGO_0
    {1, Algorithm::Modest, kDeterministic, true},   // ALGO_1
    {6, Algorithm::Modest, kDeterministic, true},   // FFT_TILING
    {5, Algorithm::None, kDeterministic, false},    // WINOGRAD_NONFUSED
};
constexpr int kOffered = 4;

// cudnnConvolutionFwdAlgoPerf_t, and alike those of the other two.
struct Performance {
  int algorithm;
  cudnnStatus_t status;
  float time;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};
static_assert(sizeof(Performance) == 48);

// The three descriptors of a call, which are checked to be compatible.
struct Problem {
  Convolution shape;
  int math;
};

cudnnStatus_t read_problem(const char* function, void* x_pointer, void* w_pointer, void* convolution_pointer,
                           void* y_pointer, Problem* problem) {
  auto x = tensors().find(x_pointer), y = tensors().find(y_pointer);
  auto w = filters().find(w_pointer);
  auto c = convolutions().find(convolution_pointer);
  if (!x || !y || !w || !c || !x->set || !y->set || !w->set || !c->set) {
    explain(function, "a descriptor is not there, or was not set");
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (!x->packed_planes() || !y->packed_planes()) {
    explain(function, "only tensors without gaps, in the order NCHW, are supported");
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  auto out = [&](int i) {
    return (x->sizes[2 + i] + 2 * c->pad[i] - ((w->sizes[2 + i] - 1) * c->spread[i] + 1)) / c->step[i] + 1;
  };
  bool fits = x->sizes[1] == w->sizes[1] * c->groups && w->sizes[0] % c->groups == 0 && y->sizes[0] == x->sizes[0] &&
              y->sizes[1] == w->sizes[0] && y->sizes[2] == out(0) && y->sizes[3] == out(1);
  if (!fits) {
    explain(function, "x [%d, %d, %d, %d], w [%d, %d, %d, %d], %d groups and y [%d, %d, %d, %d] do not fit", x->sizes[0],
            x->sizes[1], x->sizes[2], x->sizes[3], w->sizes[0], w->sizes[1], w->sizes[2], w->sizes[3], c->groups,
            y->sizes[0], y->sizes[1], y->sizes[2], y->sizes[3]);
    return CUDNN_STATUS_BAD_PARAM;
  }
  // Unless it is forbidden, cuDNN uses tensor cores.
  bool tf32 = c->math != kFmaMath;
  *problem = {{x->sizes[0], c->groups, w->sizes[1], x->sizes[2], x->sizes[3], w->sizes[0], w->sizes[2], w->sizes[3],
               y->sizes[2], y->sizes[3], c->pad[0], c->pad[1], c->step[0], c->step[1], c->spread[0], c->spread[1], tf32},
              c->math};
  return CUDNN_STATUS_SUCCESS;
}

size_t workspace_bytes(const Algorithm& algorithm, const Convolution& shape) {
  switch (algorithm.workspace) {
    case Algorithm::None: return 0;
    case Algorithm::Modest: return 512 + std::min<size_t>(shape.patch() * shape.places() * sizeof(float), 4 << 20);
    default: return size_t{1} << 42;
  }
}

const Algorithm* find_algorithm(const Algorithm (&offered)[kOffered], int number) {
  for (auto& algorithm : offered) {
    if (algorithm.number == number && algorithm.supported) return &algorithm;
  }
  return nullptr;
}

cudnnStatus_t offer(const char* function, const Algorithm (&offered)[kOffered], void* handle, void* x, void* w,
                    void* convolution, void* y, int asked, int* count, void* to) {
  if (!dnn_handles().find(handle)) return CUDNN_STATUS_BAD_PARAM;
  if (!count || !to) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (asked < 1) return CUDNN_STATUS_BAD_PARAM;
  Problem problem;
  cudnnStatus_t status = read_problem(function, x, w, convolution, y, &problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  *count = std::min(asked, kOffered);
  for (int i = 0; i < *count; ++i) {
    auto& algorithm = offered[i];
    Performance performance = {};
    performance.algorithm = algorithm.number;
    performance.status = algorithm.supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    performance.time = algorithm.supported ? 0.1f * (i + 1) : -1.0f;
    performance.memory = algorithm.supported ? workspace_bytes(algorithm, problem.shape) : 0;
    performance.determinism = algorithm.determinism;
    performance.math = problem.math == kFmaMath ? kFmaMath : kTensorOpMath;
    memcpy(static_cast<Performance*>(to) + i, &performance, sizeof performance);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t tell_workspace(const char* function, const Algorithm (&offered)[kOffered], void* handle, void* x, void* w,
                             void* convolution, void* y, int number, size_t* bytes) {
  if (!dnn_handles().find(handle)) return CUDNN_STATUS_BAD_PARAM;
  if (!bytes) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  Problem problem;
  cudnnStatus_t status = read_problem(function, x, w, convolution, y, &problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  auto algorithm = find_algorithm(offered, number);
  if (!algorithm) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = workspace_bytes(*algorithm, problem.shape);
  return CUDNN_STATUS_SUCCESS;
}

struct Range {
  const char* name;
  const void* start;
  size_t bytes;
  bool meets(const Range& other) const {
    auto a = static_cast<const char*>(start), b = static_cast<const char*>(other.start);
    return a < b + other.bytes && b < a + bytes;
  }
};

using Run = void (*)(const Convolution&, const float*, const float*, float*, Scale);

// The parts of a convolution by their descriptors' order: two that are read and one that is written.
cudnnStatus_t run(const char* function, const Algorithm (&offered)[kOffered], Run convolve, void* pointer,
                  const Problem& problem, int number, Range first, Range second, Range result, void* workspace,
                  size_t workspace_size, const void* alpha, const void* beta) {
  if (entered(function) != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;
  auto handle = dnn_handles().find(pointer);
  if (!handle) return CUDNN_STATUS_BAD_PARAM;
  if (!alpha || !beta || !first.start || !second.start || !result.start) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  auto algorithm = find_algorithm(offered, number);
  if (!algorithm) {
    explain(function, "the algorithm %d is not supported", number);
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  size_t needed = workspace_bytes(*algorithm, problem.shape);
  if (workspace_size < needed || (needed && !workspace)) {
    explain(function, "the workspace has %zu bytes at %p, the algorithm %d needs %zu", workspace_size, workspace, number, needed);
    return CUDNN_STATUS_BAD_PARAM;
  }
  Range scratch = {"the workspace", workspace, needed};
  for (auto& range : {first, second, result, scratch}) {
    if (range.bytes && !memory().on_device(range.start, range.bytes)) {
      explain(function, "%s, %zu bytes at %p, is not all of one live allocation", range.name, range.bytes, range.start);
      return CUDNN_STATUS_EXECUTION_FAILED;
    }
  }
  // The output and the workspace must not overlap any other operand. The two inputs may be the same.
  std::pair<const Range*, const Range*> apart[] = {
      {&result, &first}, {&result, &second}, {&scratch, &first}, {&scratch, &second}, {&scratch, &result}};
  for (auto [written, other] : apart) {
    if (written->meets(*other)) {
      explain(function, "%s overlaps %s", written->name, other->name);
      return CUDNN_STATUS_EXECUTION_FAILED;
    }
  }
  if (stream_of(handle->stream_handle) != handle->stream) {
    explain(function, "the stream was destroyed");
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  static std::atomic<int64_t> turns{0};
  Scale scale = {*static_cast<const float*>(alpha), *static_cast<const float*>(beta), 0};
  if (algorithm->determinism == kNonDeterministic) scale.turn = ++turns;
  auto shape = problem.shape;
  give(handle->stream, "a cuDNN convolution", [=] {
    // The old contents of the workspace are overwritten.
    if (needed) memset(workspace, 0xFF, needed);
    convolve(shape, static_cast<const float*>(first.start), static_cast<const float*>(second.start),
             static_cast<float*>(const_cast<void*>(result.start)), scale);
  });
  return CUDNN_STATUS_SUCCESS;
}

#define READ_PROBLEM(x, w, convolution, y)                                                    \
  Problem problem;                                                                            \
  cudnnStatus_t read_ = read_problem(__func__, x, w, convolution, y, &problem);               \
  if (read_ != CUDNN_STATUS_SUCCESS) return read_;                                            \
  size_t x_bytes = problem.shape.x_count() * sizeof(float);                                   \
  size_t w_bytes = problem.shape.w_count() * sizeof(float);                                   \
  size_t y_bytes = problem.shape.y_count() * sizeof(float)

}  // namespace

API cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(void* handle, void* x, void* w, void* convolution, void* y,
                                                         int asked, int* count, void* to) {
  return offer(__func__, kForward, handle, x, w, convolution, y, asked, count, to);
}
API cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(void* handle, void* w, void* dy, void* convolution, void* dx,
                                                              int asked, int* count, void* to) {
  return offer(__func__, kBackwardData, handle, dx, w, convolution, dy, asked, count, to);
}
API cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(void* handle, void* x, void* dy, void* convolution,
                                                                void* dw, int asked, int* count, void* to) {
  return offer(__func__, kBackwardFilter, handle, x, dw, convolution, dy, asked, count, to);
}

API cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(void* handle, void* x, void* w, void* convolution, void* y,
                                                          int algorithm, size_t* bytes) {
  return tell_workspace(__func__, kForward, handle, x, w, convolution, y, algorithm, bytes);
}
API cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(void* handle, void* w, void* dy, void* convolution, void* dx,
                                                               int algorithm, size_t* bytes) {
  return tell_workspace(__func__, kBackwardData, handle, dx, w, convolution, dy, algorithm, bytes);
}
API cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(void* handle, void* x, void* dy, void* convolution,
                                                                 void* dw, int algorithm, size_t* bytes) {
  return tell_workspace(__func__, kBackwardFilter, handle, x, dw, convolution, dy, algorithm, bytes);
}

API cudnnStatus_t cudnnConvolutionForward(void* handle, const void* alpha, void* x_descriptor, const void* x,
                                          void* w_descriptor, const void* w, void* convolution, int algorithm,
                                          void* workspace, size_t bytes, const void* beta, void* y_descriptor, void* y) {
  READ_PROBLEM(x_descriptor, w_descriptor, convolution, y_descriptor);
  return run(__func__, kForward, convolve, handle, problem, algorithm, {"x", x, x_bytes}, {"w", w, w_bytes},
             {"y", y, y_bytes}, workspace, bytes, alpha, beta);
}

API cudnnStatus_t cudnnConvolutionBackwardData(void* handle, const void* alpha, void* w_descriptor, const void* w,
                                               void* dy_descriptor, const void* dy, void* convolution, int algorithm,
                                               void* workspace, size_t bytes, const void* beta, void* dx_descriptor,
                                               void* dx) {
  READ_PROBLEM(dx_descriptor, w_descriptor, convolution, dy_descriptor);
  return run(__func__, kBackwardData, convolve_backward_data, handle, problem, algorithm, {"w", w, w_bytes},
             {"dy", dy, y_bytes}, {"dx", dx, x_bytes}, workspace, bytes, alpha, beta);
}

API cudnnStatus_t cudnnConvolutionBackwardFilter(void* handle, const void* alpha, void* x_descriptor, const void* x,
                                                 void* dy_descriptor, const void* dy, void* convolution, int algorithm,
                                                 void* workspace, size_t bytes, const void* beta, void* dw_descriptor,
                                                 void* dw) {
  READ_PROBLEM(x_descriptor, dw_descriptor, convolution, dy_descriptor);
  return run(__func__, kBackwardFilter, convolve_backward_filter, handle, problem, algorithm, {"x", x, x_bytes},
             {"dy", dy, y_bytes}, {"dw", dw, w_bytes}, workspace, bytes, alpha, beta);
}
