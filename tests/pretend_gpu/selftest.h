// Loads the pretend libraries as a program would, and checks what they do.

#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using Ptr = unsigned long long;

#define DRIVER_FUNCTIONS(F)                                                                           \
  F(cuInit, unsigned) F(cuDeviceGetCount, int*) F(cuDeviceGetName, char*, int, int)                   \
  F(cuDeviceGetAttribute, int*, int, int) F(cuDeviceTotalMem_v2, size_t*, int)                        \
  F(cuDevicePrimaryCtxRetain, void**, int) F(cuDevicePrimaryCtxRelease_v2, int)                       \
  F(cuCtxSetCurrent, void*) F(cuCtxSynchronize) F(cuMemGetInfo_v2, size_t*, size_t*)                  \
  F(cuMemAlloc_v2, Ptr*, size_t) F(cuMemFree_v2, Ptr) F(cuMemHostAlloc, void**, size_t, unsigned)     \
  F(cuMemFreeHost, void*) F(cuMemcpyHtoD_v2, Ptr, const void*, size_t)                                \
  F(cuMemcpyDtoH_v2, void*, Ptr, size_t) F(cuMemcpyHtoDAsync_v2, Ptr, const void*, size_t, void*)     \
  F(cuMemcpyDtoHAsync_v2, void*, Ptr, size_t, void*) F(cuMemcpyDtoDAsync_v2, Ptr, Ptr, size_t, void*) \
  F(cuMemsetD8Async, Ptr, unsigned char, size_t, void*) F(cuMemsetD32Async, Ptr, unsigned, size_t, void*) \
  F(cuStreamCreate, void**, unsigned) F(cuStreamDestroy_v2, void*) F(cuStreamSynchronize, void*)      \
  F(cuStreamQuery, void*) F(cuStreamWaitEvent, void*, void*, unsigned) F(cuEventCreate, void**, unsigned) \
  F(cuEventRecord, void*, void*) F(cuEventQuery, void*) F(cuEventSynchronize, void*)                  \
  F(cuEventElapsedTime, float*, void*, void*) F(cuEventDestroy_v2, void*)                             \
  F(cuModuleLoadData, void**, const void*) F(cuModuleUnload, void*)                                   \
  F(cuModuleGetFunction, void**, void*, const char*) F(cuFuncGetAttribute, int*, int, void*)          \
  F(cuFuncGetParamInfo, void*, size_t, size_t*, size_t*)                                              \
  F(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)
#define NVRTC_FUNCTIONS(F)                                                                            \
  F(nvrtcCreateProgram, void**, const char*, const char*, int, const char**, const char**)            \
  F(nvrtcCompileProgram, void*, int, const char**) F(nvrtcGetCUBINSize, void*, size_t*)               \
  F(nvrtcGetCUBIN, void*, char*) F(nvrtcGetPTXSize, void*, size_t*) F(nvrtcGetPTX, void*, char*)      \
  F(nvrtcGetProgramLogSize, void*, size_t*) F(nvrtcGetProgramLog, void*, char*) F(nvrtcDestroyProgram, void**)
#define BLAS_FUNCTIONS(F)                                                                             \
  F(cublasCreate_v2, void**) F(cublasDestroy_v2, void*) F(cublasSetStream_v2, void*, void*)           \
  F(cublasSetWorkspace_v2, void*, void*, size_t) F(cublasSetMathMode, void*, int)                     \
  F(cublasSgemm_v2, void*, int, int, int, int, int, const float*, Ptr, int, Ptr, int, const float*, Ptr, int) \
  F(cublasGemmStridedBatchedEx, void*, int, int, int, int, int, const void*, Ptr, int, int, long long, Ptr, int, int, \
    long long, const void*, Ptr, int, int, long long, int, int, int)                                  \
  F(cublasSgeam, void*, int, int, int, int, const float*, Ptr, int, const float*, Ptr, int, Ptr, int)
#define DNN_FUNCTIONS(F)                                                                              \
  F(cudnnCreate, void**) F(cudnnDestroy, void*) F(cudnnSetStream, void*, void*)                       \
  F(cudnnCreateTensorDescriptor, void**) F(cudnnSetTensor4dDescriptor, void*, int, int, int, int, int, int) \
  F(cudnnDestroyTensorDescriptor, void*) F(cudnnCreateFilterDescriptor, void**)                       \
  F(cudnnSetFilter4dDescriptor, void*, int, int, int, int, int, int) F(cudnnDestroyFilterDescriptor, void*) \
  F(cudnnCreateConvolutionDescriptor, void**) F(cudnnDestroyConvolutionDescriptor, void*)             \
  F(cudnnSetConvolution2dDescriptor, void*, int, int, int, int, int, int, int, int)                   \
  F(cudnnSetConvolutionMathType, void*, int) F(cudnnSetConvolutionGroupCount, void*, int)             \
  F(cudnnGetConvolutionForwardAlgorithm_v7, void*, void*, void*, void*, void*, int, int*, void*)      \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7, void*, void*, void*, void*, void*, int, int*, void*) \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7, void*, void*, void*, void*, void*, int, int*, void*) \
  F(cudnnGetConvolutionForwardWorkspaceSize, void*, void*, void*, void*, void*, int, size_t*)         \
  F(cudnnConvolutionForward, void*, const float*, void*, Ptr, void*, Ptr, void*, int, Ptr, size_t, const float*, void*, Ptr) \
  F(cudnnConvolutionBackwardData, void*, const float*, void*, Ptr, void*, Ptr, void*, int, Ptr, size_t, const float*, void*, Ptr) \
  F(cudnnConvolutionBackwardFilter, void*, const float*, void*, Ptr, void*, Ptr, void*, int, Ptr, size_t, const float*, void*, Ptr)

#define DECLARE(name, ...) extern int (*name)(__VA_ARGS__);
DRIVER_FUNCTIONS(DECLARE)
NVRTC_FUNCTIONS(DECLARE)
BLAS_FUNCTIONS(DECLARE)
DNN_FUNCTIONS(DECLARE)
#undef DECLARE

extern int failures;
void check(bool right, const char* what, const char* file, int line);
void check_equal(long long value, long long expected, const char* what, const char* file, int line);
#define CHECK(x) check((x), #x, __FILE__, __LINE__)
// The status of a call.
#define EXPECT(status, x) check_equal((x), (status), #x, __FILE__, __LINE__)
#define OK(x) EXPECT(0, x)

// A copy of host values on the device.
struct Buffer {
  Ptr p = 0;
  size_t count = 0;
  explicit Buffer(size_t count);
  explicit Buffer(const std::vector<float>& values);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  std::vector<float> read() const;
};
std::vector<float> random_floats(size_t count);
float largest_difference(const std::vector<float>&, const std::vector<float>&);

void test_libraries(void* stream);
