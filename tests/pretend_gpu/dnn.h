// cuDNN's names and descriptors.

#pragma once
#include "convolution.h"
#include "device_state.h"
#include "stream.h"

enum cudnnStatus_t : int {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
  CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 2006,
  CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH = 2008,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR = 4000,
  CUDNN_STATUS_EXECUTION_FAILED = 5000,
};

constexpr int kDataFloat = 0;         // CUDNN_DATA_FLOAT
constexpr int kPlanes = 0;            // CUDNN_TENSOR_NCHW
constexpr int kCrossCorrelation = 1;  // CUDNN_CROSS_CORRELATION
constexpr int kTensorOpMath = 1, kFmaMath = 3;
constexpr int kNonDeterministic = 0, kDeterministic = 1;

// A tensor or a filter: four sizes, and how it lies in memory.
struct TensorDescriptor {
  bool set = false;
  int type = 0;
  int sizes[4] = {};
  int strides[4] = {};
  bool packed_planes() const {
    return type == kDataFloat && strides[3] == 1 && strides[2] == sizes[3] && strides[1] == sizes[2] * strides[2] &&
           strides[0] == sizes[1] * strides[1];
  }
};
struct FilterDescriptor : TensorDescriptor {};

struct ConvolutionDescriptor {
  bool set = false;
  int pad[2] = {}, step[2] = {}, spread[2] = {};
  int mode = kCrossCorrelation, type = kDataFloat, math = 0, groups = 1;
};

struct DnnHandle {
  std::shared_ptr<Stream> stream = stream_of(nullptr);
  CUstream stream_handle = nullptr;
};

Handles<DnnHandle>& dnn_handles();
Handles<TensorDescriptor>& tensors();
Handles<FilterDescriptor>& filters();
Handles<ConvolutionDescriptor>& convolutions();
