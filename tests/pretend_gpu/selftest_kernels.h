// The kernels that the self-test compiles and runs.

#pragma once

const char* const kKernels = R"(
struct Shape { int rows, columns; float scale; long long offset; };
extern "C" __global__ void parameters(float* out, unsigned char a, double b, Shape s, float4 v, long long c) {
  if (threadIdx.x == 0) {
    out[0] = a; out[1] = (float)b; out[2] = s.rows; out[3] = s.columns; out[4] = s.scale; out[5] = (float)s.offset;
    out[6] = v.x + v.w; out[7] = (float)c;
  }
}
extern "C" __global__ void axpy(float* y, const float* __restrict__ x, float a, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
// Kernels that a macro writes, with names the C library has as well.
#define UNARY(NAME, EXPRESSION)                                                        \
  extern "C" __global__ void __launch_bounds__(256) NAME(float* y, const float* x, int n) { \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
    if (i < n) { float v = x[i]; y[i] = EXPRESSION; }                                  \
  }
UNARY(select, v > 0 ? v : 0.0f)
UNARY(index, tanhf(v) + __expf(v) * rsqrtf(fabsf(v) + 1.0f))
template <int N, class Op> __device__ __forceinline__ float block_reduce(float v, Op op) {
  __shared__ float parts[N / 32];
  for (int delta = 16; delta; delta /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, delta));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x < N / 32 ? parts[threadIdx.x] : 0.0f;
  if (threadIdx.x < 32) for (int delta = 16; delta; delta /= 2) v = op(v, __shfl_down_sync(0xffffffffu, v, delta));
  return v;
}
extern "C" __global__ void sum_rows(float* out, const float* x, int columns) {
  float v = 0;
  for (int i = threadIdx.x; i < columns; i += 256) v += x[(size_t)blockIdx.x * columns + i];
  v = block_reduce<256>(v, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) out[blockIdx.x] = v;
}
extern "C" __global__ __launch_bounds__(1024) void transpose(float* out, const float* in, int rows, int columns) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  if (x < columns && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  if (x < rows && y < columns) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void warps(int* out) {
  unsigned all = 0xffffffffu; int t = threadIdx.x;
  int wrong = 0;
  wrong |= (__shfl_sync(all, t, 5) != 5) << 0;
  wrong |= (__shfl_up_sync(all, t, 3) != (t >= 3 ? t - 3 : t)) << 1;
  wrong |= (__shfl_down_sync(all, t, 4, 8) != (t % 8 < 4 ? t + 4 : t)) << 2;
  wrong |= (__shfl_xor_sync(all, (long long)t << 40, 1) != (long long)(t ^ 1) << 40) << 3;
  wrong |= (__ballot_sync(all, t % 2) != 0xaaaaaaaau) << 4;
  wrong |= (!__any_sync(all, t == 7) || __any_sync(all, t > 31)) << 5;
  wrong |= (!__all_sync(all, t < 32) || __all_sync(all, t < 31)) << 6;
  if (t < 16) wrong |= (__shfl_sync(0xffffu, t, t + 1, 16) != (t + 1) % 16) << 7;
  __syncwarp();
  wrong |= (__syncthreads_count(t < 10) != 10) << 8;
  wrong |= (!__syncthreads_or(t == 3) || __syncthreads_and(t != 3)) << 9;
  wrong |= !(__activemask() >> t & 1) << 10;
  out[t] = wrong;
}
extern "C" __global__ void atomics(int* counts, float* sum, unsigned long long* last) {
  __shared__ int here;
  if (threadIdx.x == 0) here = 0;
  __syncthreads();
  atomicAdd(&here, 1);
  __syncthreads();
  if (threadIdx.x == 0) { atomicAdd(&counts[0], here); atomicMax(&counts[1], (int)blockIdx.x); }
  if (threadIdx.x == 1) { atomicMin(&counts[2], -(int)blockIdx.x); atomicAdd(sum, 0.5f); }
  if (threadIdx.x == 2) atomicCAS(last, 0ull, 1ull + blockIdx.x);
}
extern "C" __global__ void grid3(int* out) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  atomicAdd(&out[block * blockDim.x * blockDim.y * blockDim.z + thread], 1 + block);
}
extern "C" __global__ void garbage(unsigned* out) {
  __shared__ unsigned left[64];
  out[blockIdx.x * 64 + threadIdx.x] = left[threadIdx.x];
  left[threadIdx.x] = 1;
}
extern "C" __global__ void order(int* next, int* out) { out[atomicAdd(next, 1)] = blockIdx.x * blockDim.x + threadIdx.x; }
// What must not go well.
extern "C" __global__ void stray(float* p, long long by) { p[by] = 1.0f; }
extern "C" __global__ void misaligned(float* p) { *reinterpret_cast<float4*>(p + 1) = make_float4(1, 2, 3, 4); }
extern "C" __global__ void early_return() { if (threadIdx.x == 9) return; __shfl_sync(0xffffffffu, 1, 0); }
extern "C" __global__ void split() { if (threadIdx.x < 32) __syncthreads(); else __shfl_sync(0xffffffffu, 1, 0); }
extern "C" __global__ void two_barriers() { if (threadIdx.x < 8) __syncthreads(); else __syncthreads_or(1); }
__global__ void no_c_name() {}
)";
