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

// Each function of numbers that kernels use, with what it gives.
const char* const kMaths = R"(
#define IS(x, y) if (!((x) == (y))) atomicAdd(wrong, 1), atomicExch(line, __LINE__);
#define NEAR(x, y) if (!(fabsf((x) - (y)) <= 1e-6f * fabsf(y))) atomicAdd(wrong, 1), atomicExch(line, __LINE__);
__constant__ float table[2] = {1.5f, 2.5f};
__device__ const int kCount = 3;
extern "C" __global__ void maths(int* wrong, int* line, float one) {
  float inf = __int_as_float(0x7f800000), nan = inf - inf;
  NEAR(expf(one), 2.7182818f) NEAR(logf(2 * one), 0.69314718f) NEAR(sqrtf(2 * one), 1.41421356f)
  NEAR(rsqrtf(4 * one), 0.5f) NEAR(tanhf(one), 0.76159416f) NEAR(powf(2 * one, 10), 1024) NEAR(log1pf(one), 0.69314718f)
  NEAR(expm1f(one), 1.7182818f) NEAR(sinf(one), 0.84147098f) NEAR(cosf(one), 0.54030231f) NEAR(erff(one), 0.84270079f)
  NEAR(exp(one), 2.7182818f) NEAR(sin(one), 0.84147098f) NEAR((float)exp((double)one), 2.7182818f)
  float s, c; sincosf(one, &s, &c); NEAR(s, sinf(one)) NEAR(c, cosf(one))
  NEAR(__expf(one), 2.7182818f) NEAR(__logf(2 * one), 0.69314718f) NEAR(__sinf(one), s) NEAR(__cosf(one), c)
  IS(fabsf(-one), 1) IS(fmaxf(one, nan), 1) IS(fminf(nan, one), 1) IS(max(one, nan), 1) IS(fmaf(2, 3, one), 7)
  IS(floorf(-1.5f * one), -2) IS(ceilf(-1.5f * one), -1) IS(truncf(-1.5f * one), -1) IS(rintf(2.5f * one), 2)
  IS(copysignf(2, -one), -2) IS(isnan(nan), true) IS(isnan(one), false) IS(isinf(-inf), true) IS(isfinite(inf), false)
  IS(__fdividef(one, 4), 0.25f) IS(__fmul_rn(3, one), 3) IS(__fadd_rn(3, one), 4) IS(__fsub_rn(3, one), 2)
  IS(__fdiv_rn(one, 2), 0.5f) IS(__frcp_rn(4 * one), 0.25f) IS(__fsqrt_rn(9 * one), 3) IS(__fmaf_rn(2, 3, one), 7)
  IS(__float2int_rn(2.5f * one), 2) IS(__float2uint_rn(3.5f * one), 4u) IS(__int2float_rn(-3), -3.0f)
  IS(__float2int_rn(nan), 0) IS(__float2int_rn(1e20f * one), 2147483647) IS(__float2uint_rn(-one), 0u)
  IS(__uint2float_rn(~0u), 4294967296.0f) IS(__float_as_int(one), 0x3f800000) IS(__float_as_uint(-one), 0xbf800000u)
  IS(__uint_as_float(0x40000000u), 2 * one) IS(__umulhi(~0u, ~0u), ~0u - 1) IS(__ldg(table + 1), 2.5f)
  IS(min(3, -4), -4) IS(max(3u, 4u), 4u) IS(min(3ll, 4ll), 3ll) IS(max((size_t)3, (size_t)4), (size_t)4) IS(max(kCount, 2), 3)
  IS(__popc(0xf0u), 4) IS(__clz(1), 31) IS(__ffs(8), 4)
  float4 v = make_float4(1, 2, 3, 4); float2 w = make_float2(v.z, v.w); int4 i = make_int4(1, 2, 3, 4); uint2 u = make_uint2(5, 6);
  IS(w.y, 4) IS(i.w, 4) IS(u.x, 5u) IS(sizeof(uint4), 16ul) IS(alignof(float2), 8ul) IS(alignof(int2), 8ul) IS(make_int2(1, 2).y, 2)
  IS(make_uint4(1, 2, 3, 4).z, 3u) IS(warpSize, 32)
  unsigned bits = 1; atomicOr(&bits, 6u); IS(bits, 7u) IS(atomicCAS(&bits, 7u, 9u), 7u) IS(atomicExch(&bits, 2u), 9u) IS(bits, 2u)
  float sum = 1; IS(atomicAdd(&sum, 2.0f), 1) IS(sum, 3) unsigned long long big = 1ull << 40; atomicMax(&big, 1ull << 41); IS(big, 1ull << 41)
  __threadfence(); __threadfence_block(); __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; ++k) IS(threadIdx.y, 0u)
  dim3 d(blockDim.x, 2); uint3 t = threadIdx; IS(d.z, 1u) IS(t.x, threadIdx.x)
}
)";
