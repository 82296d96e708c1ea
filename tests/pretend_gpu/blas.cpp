// cuBLAS: single-precision products and sums of matrices.

#include "device_state.h"
#include "gemm.h"
#include "stream.h"
#include <algorithm>
#include <cstring>

namespace {

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16,
};

constexpr int kPedanticMath = 2, kTf32Math = 3;
constexpr int kRealFloat = 0;  // CUDA_R_32F
constexpr int kCompute32F = 68, kCompute32FPedantic = 69, kCompute32FFastTf32 = 77;

struct Handle {
  std::shared_ptr<Stream> stream = stream_of(nullptr);
  CUstream stream_handle = nullptr;
  int math = 0;
  void* workspace = nullptr;  // null is one of cuBLAS's own
  size_t workspace_bytes = 0;
};

Handles<Handle>& handles() {
  static auto& handles = *new Handles<Handle>;
  return handles;
}

#define FIND_HANDLE(handle, pointer)                                                                  \
  if (entered(__func__) != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;                        \
  auto handle = handles().find(pointer);                                                              \
  if (!handle) return REFUSE(CUBLAS_STATUS_NOT_INITIALIZED, "there is no handle %p", pointer);        \
  if (stream_of(handle->stream_handle) != handle->stream) {                                           \
    return REFUSE(CUBLAS_STATUS_EXECUTION_FAILED, "the stream was destroyed");                        \
  }

// A matrix in memory, before it is transposed.
struct Matrix {
  const float* start;
  int64_t rows, columns, ld;
  int64_t stride = 0, count = 1;  // of a batch

  int64_t span() const { return rows && columns ? (columns - 1) * ld + rows : 0; }
  // The range from the first element to just past the last. Strides may be negative.
  std::pair<const float*, const float*> range() const {
    int64_t last = stride * (count - 1);
    return {start + std::min<int64_t>(last, 0), start + std::max<int64_t>(last, 0) + span()};
  }
};

// A real GPU would access the memory without an error.
bool on_device(const char* function, const char* name, const Matrix& x) {
  auto [from, to] = x.range();
  if (from == to) return true;
  if (reinterpret_cast<uintptr_t>(from) % sizeof(float)) {
    explain(function, "%s, at %p, is misaligned", name, (const void*)from);
    return false;
  }
  if (memory().on_device(from, (to - from) * sizeof(float))) return true;
  explain(function, "%s, from %p to %p, is not all of one live allocation", name, (const void*)from, (const void*)to);
  return false;
}

bool meet(const Matrix& x, const Matrix& y) {
  auto a = x.range(), b = y.range();
  return a.first < b.second && b.first < a.second;
}

// Whether the workspace is still allocated, and overlaps no other operand.
bool workspace_free(const char* function, const Handle& handle, std::initializer_list<const Matrix*> matrices) {
  if (!handle.workspace) return true;
  if (!memory().on_device(handle.workspace, handle.workspace_bytes)) {
    explain(function, "the workspace's memory was freed");
    return false;
  }
  for (auto x : matrices) {
    auto [from, to] = x->range();
    auto start = static_cast<const char*>(handle.workspace);
    if ((const char*)from < start + handle.workspace_bytes && start < (const char*)to) {
      explain(function, "a matrix overlaps the workspace");
      return false;
    }
  }
  return true;
}

// A real product may use all of its workspace. This one overwrites a part at each end of the workspace.
void spoil(char* workspace, size_t bytes) {
  if (!workspace) return;
  size_t part = std::min<size_t>(bytes, 16 << 10);
  memset(workspace, 0xFF, part);
  memset(workspace + bytes - part, 0xFF, part);
}

cublasStatus_t products(const char* function, Handle& handle, int ta, int tb, int m, int n, int k, const float* alpha,
                        const float* a, int lda, int64_t stride_a, const float* b, int ldb, int64_t stride_b,
                        const float* beta, float* c, int ldc, int64_t stride_c, int count, bool tf32) {
  // 3, CUBLAS_OP_CONJG, is for few functions, and not for these.
  if (ta < 0 || ta > 2 || tb < 0 || tb > 2 || m < 0 || n < 0 || k < 0 || count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  Matrix ma{a, ta ? k : m, ta ? m : k, lda, stride_a, count}, mb{b, tb ? n : k, tb ? k : n, ldb, stride_b, count};
  Matrix mc{c, m, n, ldc, stride_c, count};
  for (auto [x, name] : {std::pair{&ma, "lda"}, {&mb, "ldb"}, {&mc, "ldc"}}) {
    if (x->ld < std::max<int64_t>(1, x->rows)) {
      explain(function, "%s is %ld, but there are %ld rows", name, long(x->ld), long(x->rows));
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  if (!m || !n || !count) return CUBLAS_STATUS_SUCCESS;
  if (count > 1 && !stride_c) {
    explain(function, "all products of the batch would go to the same place");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  bool reads = k && *alpha != 0;
  if (!on_device(function, "C", mc)) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (reads) {
    if (!on_device(function, "A", ma) || !on_device(function, "B", mb)) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (meet(mc, ma) || meet(mc, mb)) {
      explain(function, "C overlaps A or B");
      return CUBLAS_STATUS_EXECUTION_FAILED;
    }
  }
  if (!workspace_free(function, handle, {reads ? &ma : &mc, reads ? &mb : &mc, &mc})) return CUBLAS_STATUS_EXECUTION_FAILED;
  auto workspace = static_cast<char*>(handle.workspace);
  size_t workspace_bytes = handle.workspace_bytes;
  Gemm g = {m, n, k, *alpha, *beta, a, lda, ta != 0, b, ldb, tb != 0, c, ldc, tf32};
  give(handle.stream, "a cuBLAS product", [=]() mutable {
    spoil(workspace, workspace_bytes);
    for (int i = 0; i < count; ++i, g.a += stride_a, g.b += stride_b, g.c += stride_c) gemm(g);
  });
  return CUBLAS_STATUS_SUCCESS;
}

// Whether a product of these types rounds its inputs to TF32; no value if the types are not supported.
cublasStatus_t precision(const char* function, const Handle& handle, int a, int b, int c, int compute, bool* tf32) {
  if (a != kRealFloat || b != kRealFloat || c != kRealFloat ||
      (compute != kCompute32F && compute != kCompute32FPedantic && compute != kCompute32FFastTf32)) {
    explain(function, "only CUDA_R_32F is supported, with CUBLAS_COMPUTE_32F, _PEDANTIC or _FAST_TF32");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  bool allowed = handle.math != kPedanticMath && compute != kCompute32FPedantic;
  *tf32 = allowed && (compute == kCompute32FFastTf32 || handle.math == kTf32Math);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

API cublasStatus_t cublasCreate_v2(void** to) {
  if (entered(__func__) != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!to) return CUBLAS_STATUS_INVALID_VALUE;
  *to = handles().add(std::make_shared<Handle>());
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasDestroy_v2(void* pointer) {
  if (!handles().remove(pointer)) return REFUSE(CUBLAS_STATUS_NOT_INITIALIZED, "there is no handle %p", pointer);
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetStream_v2(void* pointer, CUstream stream_handle) {
  if (entered(__func__) != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  auto handle = handles().find(pointer);
  if (!handle) return REFUSE(CUBLAS_STATUS_NOT_INITIALIZED, "there is no handle %p", pointer);
  auto stream = stream_of(stream_handle);
  if (!stream) return REFUSE(CUBLAS_STATUS_INVALID_VALUE, "there is no stream %p", stream_handle);
  handle->stream = stream;
  handle->stream_handle = stream_handle;
  // As in cuBLAS, setting the stream resets the workspace, so the workspace must be set after the stream.
  handle->workspace = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetWorkspace_v2(void* pointer, void* workspace, size_t bytes) {
  FIND_HANDLE(handle, pointer);
  if (reinterpret_cast<uintptr_t>(workspace) % 256) return REFUSE(CUBLAS_STATUS_INVALID_VALUE, "%p is not a multiple of 256", workspace);
  if (workspace && !memory().on_device(workspace, bytes)) {
    return REFUSE(CUBLAS_STATUS_INVALID_VALUE, "the %zu bytes at %p are not all of one live allocation", bytes, workspace);
  }
  handle->workspace = workspace;
  handle->workspace_bytes = workspace ? bytes : 0;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetMathMode(void* pointer, int mode) {
  FIND_HANDLE(handle, pointer);
  // The flag 16 forbids sums of lower precision. This library never uses lower precision.
  if ((mode & ~16) < 0 || (mode & ~16) > kTf32Math) return CUBLAS_STATUS_INVALID_VALUE;
  handle->math = mode & ~16;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetMathMode(void* pointer, int* mode) {
  FIND_HANDLE(handle, pointer);
  if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasGetVersion_v2(void* pointer, int* version) {
  FIND_HANDLE(handle, pointer);
  if (!version) return CUBLAS_STATUS_INVALID_VALUE;
  *version = 120900;
  return CUBLAS_STATUS_SUCCESS;
}

// The parts of the version: major, minor, patch.
API cublasStatus_t cublasGetProperty(int which, int* value) {
  const int parts[] = {12, 9, 0};
  if (which < 0 || which > 2 || !value) return CUBLAS_STATUS_INVALID_VALUE;
  *value = parts[which];
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSgemmStridedBatched(void* pointer, int ta, int tb, int m, int n, int k, const float* alpha,
                                             const float* a, int lda, long long stride_a, const float* b, int ldb,
                                             long long stride_b, const float* beta, float* c, int ldc,
                                             long long stride_c, int count) {
  FIND_HANDLE(handle, pointer);
  return products(__func__, *handle, ta, tb, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
                  count, handle->math == kTf32Math);
}

API cublasStatus_t cublasSgemm_v2(void* pointer, int ta, int tb, int m, int n, int k, const float* alpha, const float* a,
                                  int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  FIND_HANDLE(handle, pointer);
  return products(__func__, *handle, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1,
                  handle->math == kTf32Math);
}

API cublasStatus_t cublasGemmStridedBatchedEx(void* pointer, int ta, int tb, int m, int n, int k, const void* alpha,
                                              const void* a, int a_type, int lda, long long stride_a, const void* b,
                                              int b_type, int ldb, long long stride_b, const void* beta, void* c,
                                              int c_type, int ldc, long long stride_c, int count, int compute, int) {
  FIND_HANDLE(handle, pointer);
  bool tf32;
  cublasStatus_t supported = precision(__func__, *handle, a_type, b_type, c_type, compute, &tf32);
  if (supported != CUBLAS_STATUS_SUCCESS) return supported;
  return products(__func__, *handle, ta, tb, m, n, k, static_cast<const float*>(alpha), static_cast<const float*>(a), lda,
                  stride_a, static_cast<const float*>(b), ldb, stride_b, static_cast<const float*>(beta),
                  static_cast<float*>(c), ldc, stride_c, count, tf32);
}

API cublasStatus_t cublasGemmEx(void* pointer, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                                int a_type, int lda, const void* b, int b_type, int ldb, const void* beta, void* c,
                                int c_type, int ldc, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(pointer, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                                    c_type, ldc, 0, 1, compute, algorithm);
}

API cublasStatus_t cublasSgeam(void* pointer, int ta, int tb, int m, int n, const float* alpha_, const float* a, int lda,
                               const float* beta_, const float* b, int ldb, float* c, int ldc) {
  FIND_HANDLE(handle, pointer);
  if (ta < 0 || ta > 2 || tb < 0 || tb > 2 || m < 0 || n < 0 || !alpha_ || !beta_) return CUBLAS_STATUS_INVALID_VALUE;
  Matrix ma{a, ta ? n : m, ta ? m : n, lda}, mb{b, tb ? n : m, tb ? m : n, ldb}, mc{c, m, n, ldc};
  for (auto x : {&ma, &mb, &mc}) {
    if (x->ld < std::max<int64_t>(1, x->rows)) return REFUSE(CUBLAS_STATUS_INVALID_VALUE, "a leading dimension is too small");
  }
  if (!m || !n) return CUBLAS_STATUS_SUCCESS;
  float alpha = *alpha_, beta = *beta_;
  if (!on_device(__func__, "C", mc) || (alpha != 0 && !on_device(__func__, "A", ma)) ||
      (beta != 0 && !on_device(__func__, "B", mb))) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  // The output may be an input if each element stays at its position.
  if ((alpha != 0 && meet(mc, ma) && (a != c || ta || lda != ldc)) ||
      (beta != 0 && meet(mc, mb) && (b != c || tb || ldb != ldc))) {
    return REFUSE(CUBLAS_STATUS_INVALID_VALUE, "C overlaps A or B");
  }
  give(handle->stream, "a cuBLAS sum of matrices", [=] {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        float sum = alpha != 0 ? alpha * a[ta ? j + i * lda : i + j * lda] : 0.0f;
        if (beta != 0) sum += beta * b[tb ? j + i * ldb : i + j * ldb];
        c[i + j * ldc] = sum;
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

API const char* cublasGetStatusName(cublasStatus_t status) {
#define NAME(status) \
  case status: return #status
  switch (status) {
    NAME(CUBLAS_STATUS_SUCCESS);
    NAME(CUBLAS_STATUS_NOT_INITIALIZED);
    NAME(CUBLAS_STATUS_ALLOC_FAILED);
    NAME(CUBLAS_STATUS_INVALID_VALUE);
    NAME(CUBLAS_STATUS_ARCH_MISMATCH);
    NAME(CUBLAS_STATUS_MAPPING_ERROR);
    NAME(CUBLAS_STATUS_EXECUTION_FAILED);
    NAME(CUBLAS_STATUS_INTERNAL_ERROR);
    NAME(CUBLAS_STATUS_NOT_SUPPORTED);
    NAME(CUBLAS_STATUS_LICENSE_ERROR);
  }
  return "CUBLAS_STATUS unknown";
}

API const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
    default: return "an internal error";
  }
}
