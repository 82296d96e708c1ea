// The driver's entry points for memory, copies, streams and events.

#include "device_state.h"
#include "stream.h"
#include <cstring>
#include <tuple>

namespace {

// Makes a call on a stream, or returns the error of an invalid handle.
#define FIND_STREAM(stream, handle)         \
  auto stream = stream_of(handle);          \
  if (!stream) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no stream %p", handle)

#define FIND_EVENT(event, handle)           \
  auto event = events().find(handle);       \
  if (!event) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no event %p", handle)

#define ON_DEVICE(p, bytes)                                                                            \
  do {                                                                                                 \
    if (!memory().on_device(p, bytes)) {                                                               \
      return REFUSE(CUDA_ERROR_INVALID_VALUE, "the %zu bytes at 0x%llx are not all of one live allocation", \
                    static_cast<size_t>(bytes), p);                                                    \
    }                                                                                                  \
  } while (0)

void* at(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

// Position in a stream after which a piece of work is done.
struct Given {
  std::shared_ptr<Stream> stream;
  uint64_t count;
  void wait() const { stream->wait(count); }
};

CUresult to_device(const char* function, CUdeviceptr to, const void* from, size_t bytes,
                   const std::shared_ptr<Stream>& stream, Given* given) {
  if (!bytes) return CUDA_SUCCESS;
  if (!from) return CUDA_ERROR_INVALID_VALUE;
  if (!memory().on_device(to, bytes)) {
    explain(function, "the %zu bytes at 0x%llx are not all of one live allocation", bytes, to);
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (memory().host(from, bytes)) {
    case Memory::Host::Neither:
      explain(function, "the %zu bytes at %p are not all of the host, or not all pinned", bytes, from);
      return CUDA_ERROR_INVALID_VALUE;
    case Memory::Host::Pinned:
      // The bytes are read when the stream reaches the copy, as by the copy engine of a GPU.
      *given = {stream, give(stream, "a copy to the device", [=] { memcpy(at(to), from, bytes); })};
      return CUDA_SUCCESS;
    case Memory::Host::Pageable:
      auto start = static_cast<const char*>(from);
      auto staged = std::make_shared<std::vector<char>>(start, start + bytes);
      *given = {stream, give(stream, "a copy to the device", [=] { memcpy(at(to), staged->data(), bytes); })};
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult to_host(const char* function, void* to, CUdeviceptr from, size_t bytes, const std::shared_ptr<Stream>& stream,
                 Given* given) {
  if (!bytes) return CUDA_SUCCESS;
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  if (!memory().on_device(from, bytes)) {
    explain(function, "the %zu bytes at 0x%llx are not all of one live allocation", bytes, from);
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto host = memory().host(to, bytes);
  if (host == Memory::Host::Neither) {
    explain(function, "the %zu bytes at %p are not all of the host, or not all pinned", bytes, to);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *given = {stream, give(stream, "a copy to the host", [=] { memcpy(to, at(from), bytes); })};
  // Into pageable memory a copy is never asynchronous.
  if (host == Memory::Host::Pageable) given->wait();
  return CUDA_SUCCESS;
}

}  // namespace

API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER();
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  *total = settings().memory;
  *free = *total - memory().used();
  return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr* to, size_t bytes) {
  ENTER();
  if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
  return memory().allocate(bytes, to);
}

// Not a function of CUDA: returns how often device memory and pinned memory were allocated so far.
API void pretendGpuAllocations(size_t* device, size_t* pinned) { std::tie(*device, *pinned) = memory().made(); }

API CUresult cuMemFree_v2(CUdeviceptr p) {
  ENTER();
  if (!p) return CUDA_SUCCESS;
  // As in a real driver, memory is freed only when no work uses it any more.
  wait_for_all_streams();
  CUresult freed = memory().free(p);
  return freed == CUDA_ERROR_INVALID_VALUE ? REFUSE(freed, "0x%llx is not the start of a live allocation", p) : freed;
}

API CUresult cuMemHostAlloc(void** to, size_t bytes, unsigned flags) {
  ENTER();
  constexpr unsigned kPortableMappedWriteCombined = 7;
  if (!to || !bytes || flags & ~kPortableMappedWriteCombined) return CUDA_ERROR_INVALID_VALUE;
  return memory().allocate_host(bytes, flags, to);
}

API CUresult cuMemFreeHost(void* p) {
  ENTER();
  if (!p) return CUDA_SUCCESS;
  // The call does not wait. A later copy then accesses unmapped memory, which ends the process.
  CUresult freed = memory().free_host(p);
  return freed ? REFUSE(freed, "%p is not the start of pinned memory", p) : freed;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* p, unsigned flags) {
  ENTER();
  unsigned ignored;
  if (!to || flags || !memory().host_flags(p, &ignored)) return CUDA_ERROR_INVALID_VALUE;
  *to = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned* flags, void* p) {
  ENTER();
  return flags && memory().host_flags(p, flags) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  Given given;
  return to_device(__func__, to, from, bytes, stream, &given);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER();
  Given given;
  CUresult result = to_device(__func__, to, from, bytes, stream_of(nullptr), &given);
  if (given.stream) given.wait();
  return result;
}

API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  Given given;
  return to_host(__func__, to, from, bytes, stream, &given);
}

API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER();
  Given given;
  CUresult result = to_host(__func__, to, from, bytes, stream_of(nullptr), &given);
  if (given.stream) given.wait();
  return result;
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  if (!bytes) return CUDA_SUCCESS;
  ON_DEVICE(to, bytes);
  ON_DEVICE(from, bytes);
  if (to < from + bytes && from < to + bytes) {
    return REFUSE(CUDA_ERROR_INVALID_VALUE, "the ranges overlap, which leaves the outcome to chance");
  }
  give(stream, "a copy on the device", [=] { memcpy(at(to), at(from), bytes); });
  return CUDA_SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  if (!count) return CUDA_SUCCESS;
  ON_DEVICE(to, count);
  give(stream, "a memset", [=] { memset(at(to), value, count); });
  return CUDA_SUCCESS;
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  if (!count) return CUDA_SUCCESS;
  if (to % 4 || count > SIZE_MAX / 4) return CUDA_ERROR_INVALID_VALUE;
  ON_DEVICE(to, count * 4);
  give(stream, "a memset", [=] {
    auto words = static_cast<unsigned*>(at(to));
    for (size_t i = 0; i < count; ++i) words[i] = value;
  });
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream* to, unsigned flags) {
  ENTER();
  if (!to || flags & ~CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *to = add_stream(flags);
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream* to, unsigned flags, int) { return cuStreamCreate(to, flags); }

API CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER();
  if (!handle || !remove_stream(handle)) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no stream %p", handle);
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  stream->wait(stream->given());
  return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(CUstream handle) {
  ENTER();
  FIND_STREAM(stream, handle);
  return stream->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  ENTER();
  FIND_STREAM(stream, handle);
  FIND_EVENT(event, event_handle);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  // An event that was never recorded counts as done.
  if (auto moment = event->moment()) give(stream, "waiting for an event", [moment] { moment->wait(); });
  return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent* to, unsigned flags) {
  ENTER();
  constexpr unsigned kBlockingSyncDisableTiming = 3;
  if (!to || flags & ~kBlockingSyncDisableTiming) return CUDA_ERROR_INVALID_VALUE;
  *to = events().add(std::make_shared<Event>(flags));
  return CUDA_SUCCESS;
}

API CUresult cuEventRecordWithFlags(CUevent event_handle, CUstream handle, unsigned flags) {
  ENTER();
  FIND_STREAM(stream, handle);
  FIND_EVENT(event, event_handle);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  event->record(stream);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }

API CUresult cuEventQuery(CUevent handle) {
  ENTER();
  FIND_EVENT(event, handle);
  auto moment = event->moment();
  return !moment || moment->has_come() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(CUevent handle) {
  ENTER();
  FIND_EVENT(event, handle);
  if (auto moment = event->moment()) moment->wait();
  return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  ENTER();
  FIND_EVENT(start, start_handle);
  FIND_EVENT(end, end_handle);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) {
    return REFUSE(CUDA_ERROR_INVALID_HANDLE, "an event was made without timing");
  }
  auto from = start->moment(), to = end->moment();
  if (!from || !to) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "an event was never recorded");
  if (!from->has_come() || !to->has_come()) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(to->when() - from->when()).count();
  return CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

API CUresult cuEventDestroy_v2(CUevent handle) {
  ENTER();
  if (!events().remove(handle)) return REFUSE(CUDA_ERROR_INVALID_HANDLE, "there is no event %p", handle);
  return CUDA_SUCCESS;
}
