// cuDNN's entry points for handles and descriptors.

#include "dnn.h"
#include <algorithm>

template <class T> static Handles<T>& table() {
  static auto& table = *new Handles<T>;
  return table;
}
Handles<DnnHandle>& dnn_handles() { return table<DnnHandle>(); }
Handles<TensorDescriptor>& tensors() { return table<TensorDescriptor>(); }
Handles<FilterDescriptor>& filters() { return table<FilterDescriptor>(); }
Handles<ConvolutionDescriptor>& convolutions() { return table<ConvolutionDescriptor>(); }

namespace {

template <class T> cudnnStatus_t create(void** to) {
  if (!to) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *to = table<T>().add(std::make_shared<T>());
  return CUDNN_STATUS_SUCCESS;
}

template <class T> cudnnStatus_t destroy(const char* function, void* pointer) {
  if (table<T>().remove(pointer)) return CUDNN_STATUS_SUCCESS;
  explain(function, "there is no such descriptor: %p", pointer);
  return CUDNN_STATUS_BAD_PARAM;
}

bool positive(const int* sizes, int count) { return std::all_of(sizes, sizes + count, [](int size) { return size > 0; }); }

// Sizes in cuDNN's order: images, planes, rows, columns.
template <class T> cudnnStatus_t set_packed(const char* function, void* pointer, int format, int type, const int* sizes) {
  auto descriptor = table<T>().find(pointer);
  if (!descriptor || !positive(sizes, 4)) {
    explain(function, "%s", descriptor ? "a size is not positive" : "there is no such descriptor");
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (format != kPlanes || type != kDataFloat) {
    explain(function, "only CUDNN_DATA_FLOAT in CUDNN_TENSOR_NCHW is supported");
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  descriptor->type = type;
  int stride = 1;
  for (int i = 3; i >= 0; stride *= sizes[i--]) {
    descriptor->sizes[i] = sizes[i];
    descriptor->strides[i] = stride;
  }
  descriptor->set = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_strided(const char* function, void* pointer, int type, const int* sizes, const int* strides) {
  auto descriptor = tensors().find(pointer);
  if (!descriptor || !positive(sizes, 4) || !positive(strides, 4)) {
    explain(function, "%s", descriptor ? "a size or stride is not positive" : "there is no such descriptor");
    return CUDNN_STATUS_BAD_PARAM;
  }
  descriptor->type = type;
  std::copy_n(sizes, 4, descriptor->sizes);
  std::copy_n(strides, 4, descriptor->strides);
  descriptor->set = true;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

API size_t cudnnGetVersion() { return 91000; }
API size_t cudnnGetCudartVersion() { return 12090; }

API const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT: return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH: return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

API cudnnStatus_t cudnnCreate(void** to) {
  if (entered(__func__) != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;
  return create<DnnHandle>(to);
}
API cudnnStatus_t cudnnDestroy(void* pointer) { return destroy<DnnHandle>(__func__, pointer); }

API cudnnStatus_t cudnnSetStream(void* pointer, CUstream stream_handle) {
  if (entered(__func__) != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;
  auto handle = dnn_handles().find(pointer);
  auto stream = stream_of(stream_handle);
  if (!handle || !stream) return REFUSE(CUDNN_STATUS_BAD_PARAM, "there is no such handle or stream");
  handle->stream = stream;
  handle->stream_handle = stream_handle;
  return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnCreateTensorDescriptor(void** to) { return create<TensorDescriptor>(to); }
API cudnnStatus_t cudnnDestroyTensorDescriptor(void* pointer) { return destroy<TensorDescriptor>(__func__, pointer); }

API cudnnStatus_t cudnnSetTensor4dDescriptor(void* pointer, int format, int type, int n, int c, int h, int w) {
  int sizes[] = {n, c, h, w};
  return set_packed<TensorDescriptor>(__func__, pointer, format, type, sizes);
}

API cudnnStatus_t cudnnSetTensor4dDescriptorEx(void* pointer, int type, int n, int c, int h, int w, int sn, int sc, int sh,
                                               int sw) {
  int sizes[] = {n, c, h, w}, strides[] = {sn, sc, sh, sw};
  return set_strided(__func__, pointer, type, sizes, strides);
}

API cudnnStatus_t cudnnSetTensorNdDescriptor(void* pointer, int type, int count, const int* sizes, const int* strides) {
  if (!sizes || !strides) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (count != 4) return REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "only 4 sizes are supported");
  return set_strided(__func__, pointer, type, sizes, strides);
}

API cudnnStatus_t cudnnSetTensorNdDescriptorEx(void* pointer, int format, int type, int count, const int* sizes) {
  if (!sizes) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (count != 4) return REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "only 4 sizes are supported");
  return set_packed<TensorDescriptor>(__func__, pointer, format, type, sizes);
}

API cudnnStatus_t cudnnCreateFilterDescriptor(void** to) { return create<FilterDescriptor>(to); }
API cudnnStatus_t cudnnDestroyFilterDescriptor(void* pointer) { return destroy<FilterDescriptor>(__func__, pointer); }

API cudnnStatus_t cudnnSetFilter4dDescriptor(void* pointer, int type, int format, int k, int c, int h, int w) {
  int sizes[] = {k, c, h, w};
  return set_packed<FilterDescriptor>(__func__, pointer, format, type, sizes);
}

API cudnnStatus_t cudnnSetFilterNdDescriptor(void* pointer, int type, int format, int count, const int* sizes) {
  if (!sizes) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (count != 4) return REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "only 4 sizes are supported");
  return set_packed<FilterDescriptor>(__func__, pointer, format, type, sizes);
}

API cudnnStatus_t cudnnCreateConvolutionDescriptor(void** to) { return create<ConvolutionDescriptor>(to); }
API cudnnStatus_t cudnnDestroyConvolutionDescriptor(void* pointer) {
  return destroy<ConvolutionDescriptor>(__func__, pointer);
}

API cudnnStatus_t cudnnSetConvolutionNdDescriptor(void* pointer, int count, const int* pad, const int* step,
                                                  const int* spread, int mode, int type) {
  auto descriptor = convolutions().find(pointer);
  if (!descriptor) return REFUSE(CUDNN_STATUS_BAD_PARAM, "there is no such descriptor");
  if (!pad || !step || !spread) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (count != 2) return REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "only 2-D convolutions are supported");
  if (pad[0] < 0 || pad[1] < 0 || !positive(step, 2) || !positive(spread, 2)) {
    return REFUSE(CUDNN_STATUS_BAD_PARAM, "a padding is negative, or a stride or dilation not positive");
  }
  if (mode != kCrossCorrelation || type != kDataFloat) {
    return REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "only CUDNN_CROSS_CORRELATION of CUDNN_DATA_FLOAT is supported");
  }
  std::copy_n(pad, 2, descriptor->pad);
  std::copy_n(step, 2, descriptor->step);
  std::copy_n(spread, 2, descriptor->spread);
  descriptor->set = true;
  return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolution2dDescriptor(void* pointer, int pad_h, int pad_w, int step_h, int step_w, int spread_h,
                                                  int spread_w, int mode, int type) {
  int pad[] = {pad_h, pad_w}, step[] = {step_h, step_w}, spread[] = {spread_h, spread_w};
  return cudnnSetConvolutionNdDescriptor(pointer, 2, pad, step, spread, mode, type);
}

API cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(void* pointer, void* input, void* filter, int* n, int* c, int* h,
                                                        int* w) {
  auto convolution = convolutions().find(pointer);
  auto x = tensors().find(input);
  auto weight = filters().find(filter);
  if (!convolution || !x || !weight || !convolution->set || !x->set || !weight->set) return CUDNN_STATUS_BAD_PARAM;
  int windows[2];
  for (int i = 0; i < 2; ++i) {
    int reach = (weight->sizes[2 + i] - 1) * convolution->spread[i] + 1;
    windows[i] = (x->sizes[2 + i] + 2 * convolution->pad[i] - reach) / convolution->step[i] + 1;
  }
  *n = x->sizes[0], *c = weight->sizes[0], *h = windows[0], *w = windows[1];
  return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionMathType(void* pointer, int math) {
  auto descriptor = convolutions().find(pointer);
  if (!descriptor || math < 0 || math > kFmaMath) return CUDNN_STATUS_BAD_PARAM;
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetConvolutionGroupCount(void* pointer, int groups) {
  auto descriptor = convolutions().find(pointer);
  if (!descriptor || groups < 1) return CUDNN_STATUS_BAD_PARAM;
  descriptor->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
