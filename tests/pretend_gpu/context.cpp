// The driver's entry points for the device, its context, and errors.

#include "device_state.h"
#include "launch.h"
#include "stream.h"
#include <atomic>
#include <cstdio>
#include <cstring>

// The primary context: the only one.
struct Context {};

namespace {

std::atomic<bool> initialized{false};
Context primary;
std::mutex retained_mutex;
std::atomic<int> retained{0};
thread_local CUcontext current = nullptr;

const char* const kName = "Pretend GPU (runs on the processor)";

struct ErrorText {
  CUresult error;
  const char *name, *text;
};
#define ERROR(name, text) {name, #name, text}
const ErrorText kErrors[] = {
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const ErrorText* text_of(CUresult error) {
  for (auto& text : kErrors) {
    if (text.error == error) return &text;
  }
  return nullptr;
}

CUresult known_device(CUdevice device) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
#define KNOWN_DEVICE(device)                                      \
  do {                                                            \
    CUresult known_ = known_device(device);                       \
    if (known_ != CUDA_SUCCESS) return known_;                    \
  } while (0)

}  // namespace

CUresult entered(const char* function) {
  if (!initialized) {
    explain(function, "cuInit was not called");
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (!current) {
    explain(function, "no context is current on this thread");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!retained) {
    explain(function, "the current context was released");
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  initialized = true;
  return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 12090;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int* count) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  KNOWN_DEVICE(ordinal);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  KNOWN_DEVICE(device);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, length, "%s", kName);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(char* uuid, CUdevice device) {
  KNOWN_DEVICE(device);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  memcpy(uuid, "pretend GPU uuid", 16);
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid(char* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  KNOWN_DEVICE(device);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = settings().memory;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  KNOWN_DEVICE(device);
  constexpr int kLast = 161;
  if (!value || attribute < 1 || attribute > kLast) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case 1: *value = 1024; break;              // MAX_THREADS_PER_BLOCK
    case 2: case 3: *value = 1024; break;      // MAX_BLOCK_DIM_X, _Y
    case 4: *value = 64; break;                // MAX_BLOCK_DIM_Z
    case 5: *value = 2147483647; break;        // MAX_GRID_DIM_X
    case 6: case 7: *value = 65535; break;     // MAX_GRID_DIM_Y, _Z
    case 8: *value = 48 << 10; break;          // MAX_SHARED_MEMORY_PER_BLOCK
    case 9: *value = 64 << 10; break;          // TOTAL_CONSTANT_MEMORY
    case 10: *value = 32; break;               // WARP_SIZE
    case 11: *value = 2147483647; break;       // MAX_PITCH
    case 12: *value = 65536; break;            // MAX_REGISTERS_PER_BLOCK
    case 13: *value = 1000000; break;          // CLOCK_RATE, kHz
    case 14: *value = 512; break;              // TEXTURE_ALIGNMENT
    case 15: *value = 1; break;                // GPU_OVERLAP
    case 16: *value = 4; break;                // MULTIPROCESSOR_COUNT
    case 19: *value = 1; break;                // CAN_MAP_HOST_MEMORY
    case 31: *value = 1; break;                // CONCURRENT_KERNELS
    case 36: *value = 1000000; break;          // MEMORY_CLOCK_RATE, kHz
    case 37: *value = 128; break;              // GLOBAL_MEMORY_BUS_WIDTH
    case 38: *value = 4 << 20; break;          // L2_CACHE_SIZE
    case 39: *value = 2048; break;             // MAX_THREADS_PER_MULTIPROCESSOR
    case 40: *value = 2; break;                // ASYNC_ENGINE_COUNT
    case 41: *value = 1; break;                // UNIFIED_ADDRESSING
    case 75: *value = 99; break;               // COMPUTE_CAPABILITY_MAJOR: no real device's
    case 76: *value = 0; break;                // COMPUTE_CAPABILITY_MINOR
    case 81: *value = 228 << 10; break;        // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    case 82: *value = 65536; break;            // MAX_REGISTERS_PER_MULTIPROCESSOR
    case 87: *value = 2; break;                // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
    case 97: *value = 227 << 10; break;        // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    case 106: *value = 32; break;              // MAX_BLOCKS_PER_MULTIPROCESSOR
    case 111: *value = 1 << 10; break;         // RESERVED_SHARED_MEMORY_PER_BLOCK
    default: *value = 0;                       // not supported, or none; memory pools as well
  }
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(void**, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
API CUresult cuDeviceGetMemPool(void**, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }
API CUresult cuDeviceSetMemPool(CUdevice, void*) { return CUDA_ERROR_NOT_SUPPORTED; }

API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  KNOWN_DEVICE(device);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(retained_mutex);
  ++retained;
  *context = &primary;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  KNOWN_DEVICE(device);
  std::lock_guard lock(retained_mutex);
  if (!retained) return CUDA_ERROR_INVALID_CONTEXT;
  if (retained == 1) {
    // The end of the context frees everything that belongs to it.
    wait_for_all_streams();
    close_all_streams();
    for (auto& event : events().all()) events().remove(event.get());
    unload_all_modules();
    memory().free_all();
  }
  --retained;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }

API CUresult cuCtxSetCurrent(CUcontext context) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (context && context != &primary) return REFUSE(CUDA_ERROR_INVALID_CONTEXT, "there is no such context");
  if (context && !retained) return REFUSE(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context was released");
  current = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext* context) {
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = current;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice* device) {
  ENTER();
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = 0;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetFlags(unsigned) {
  ENTER();
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize() {
  ENTER();
  wait_for_all_streams();
  return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult error, const char** name) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  auto text = text_of(error);
  *name = text ? text->name : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult error, const char** string) {
  if (!string) return CUDA_ERROR_INVALID_VALUE;
  auto text = text_of(error);
  *string = text ? text->text : nullptr;
  return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
