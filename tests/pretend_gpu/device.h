// What a kernel's source sees of CUDA C++. No standard header is included, since NVRTC has none either:
// a kernel which needs one must fail here as well.

#define PRETEND_GPU 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDA_ARCH__ 9900

// `__global__` and `__launch_bounds__` stay as they are in the first pass, which looks for kernels.
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x) ((void)0)
#define __trap() __builtin_trap()
// All threads of a block run on one thread of the processor, and no other block runs there meanwhile.
#define __shared__ static thread_local

typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;

extern "C" int printf(const char*, ...);

namespace std {
template <class T> struct pretend_bare { typedef T type; };
template <class T> struct pretend_bare<T&> { typedef T type; };
template <class T> struct pretend_bare<T&&> { typedef T type; };
template <class T> constexpr typename pretend_bare<T>::type&& move(T&& x) {
  return static_cast<typename pretend_bare<T>::type&&>(x);
}
template <class T> constexpr T&& forward(typename pretend_bare<T>::type& x) {
  return static_cast<T&&>(x);
}
}  // namespace std

// ---- Where a thread is

#ifdef __x86_64__
// Kept in a register that no kernel uses otherwise: as quick to read as on a GPU.
register const pretend_thread* pretend_self asm("r15");
#else
static thread_local const pretend_thread* pretend_self;
#endif
static const pretend_api* pretend_runtime;

#define threadIdx (pretend_self->thread)
#define blockIdx (pretend_self->block)
#define blockDim (pretend_self->threads)
#define gridDim (pretend_self->blocks)
#define warpSize 32

// ---- Vector types

#define PRETEND_VECTORS(NAME, T, ALIGN2, ALIGN4)                                                     \
  struct alignas(sizeof(T)) NAME##1 { T x; };                                                        \
  struct alignas(ALIGN2) NAME##2 { T x, y; };                                                        \
  struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };                                                  \
  static inline NAME##1 make_##NAME##1(T x) { return {x}; }                                          \
  static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                  \
  static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PRETEND_VECTORS(char, signed char, 2, 4)
PRETEND_VECTORS(uchar, unsigned char, 2, 4)
PRETEND_VECTORS(short, short, 4, 8)
PRETEND_VECTORS(ushort, unsigned short, 4, 8)
PRETEND_VECTORS(int, int, 8, 16)
PRETEND_VECTORS(uint, unsigned, 8, 16)
PRETEND_VECTORS(longlong, long long, 16, 16)
PRETEND_VECTORS(ulonglong, unsigned long long, 16, 16)
PRETEND_VECTORS(float, float, 8, 16)
PRETEND_VECTORS(double, double, 16, 16)
#undef PRETEND_VECTORS
typedef pretend_dim uint3;
struct int3 { int x, y, z; };
struct float3 { float x, y, z; };
static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
static inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
static inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(pretend_dim d) : x(d.x), y(d.y), z(d.z) {}
};

// ---- Barriers, shuffles, votes

// The running thread comes back from a meeting on its own stack, so a local variable is enough to
// restore `pretend_self` where it is not a register.
static inline int pretend_meet_block(pretend_meeting meeting, bool vote) {
  const pretend_thread* self = pretend_self;
  asm volatile("" ::: "memory");
  int voted = pretend_runtime->meet_block(self, meeting, vote);
  asm volatile("" ::: "memory");
  pretend_self = self;
  return voted;
}
static inline unsigned long long pretend_meet_warp(unsigned mask, pretend_meeting meeting,
                                                   unsigned long long value, unsigned source) {
  const pretend_thread* self = pretend_self;
  asm volatile("" ::: "memory");
  unsigned long long result = pretend_runtime->meet_warp(self, mask, meeting, value, source);
  asm volatile("" ::: "memory");
  pretend_self = self;
  return result;
}

static inline void __syncthreads() { pretend_meet_block(pretend_barrier, false); }
static inline int __syncthreads_count(int p) { return pretend_meet_block(pretend_barrier_vote, p != 0); }
static inline int __syncthreads_or(int p) { return __syncthreads_count(p) != 0; }
static inline int __syncthreads_and(int p) {
  return (unsigned)__syncthreads_count(p) == blockDim.x * blockDim.y * blockDim.z;
}
static inline void __syncwarp(unsigned mask = ~0u) { pretend_meet_warp(mask, pretend_warp_barrier, 0, 0); }
static inline unsigned __ballot_sync(unsigned mask, int p) {
  return (unsigned)pretend_meet_warp(mask, pretend_warp_vote, p != 0, 0);
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p == 0) == 0; }

static inline unsigned pretend_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
// CUDA promises no more than that the thread itself is in it, and nobody can count on more.
static inline unsigned __activemask() { return 1u << pretend_lane(); }
template <class T> static inline T pretend_shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4 or 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = pretend_meet_warp(mask, pretend_warp_shuffle, bits, source);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
#define PRETEND_SHUFFLES(T)                                                                          \
  static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {                  \
    unsigned first = pretend_lane() & ~(width - 1u);                                                 \
    return pretend_shuffle(mask, value, first | (source & (width - 1u)));                            \
  }                                                                                                  \
  static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {           \
    unsigned lane = pretend_lane(), first = lane & ~(width - 1u);                                    \
    return pretend_shuffle(mask, value, lane - first < delta ? lane : lane - delta);                 \
  }                                                                                                  \
  static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {         \
    unsigned lane = pretend_lane(), end = (lane & ~(width - 1u)) + width;                            \
    return pretend_shuffle(mask, value, end - lane <= delta ? lane : lane + delta);                  \
  }                                                                                                  \
  static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {                \
    unsigned lane = pretend_lane(), end = (lane & ~(width - 1u)) + width, source = lane ^ bits;      \
    return pretend_shuffle(mask, value, source >= end ? lane : source);                              \
  }
PRETEND_SHUFFLES(int)
PRETEND_SHUFFLES(unsigned)
PRETEND_SHUFFLES(long)
PRETEND_SHUFFLES(unsigned long)
PRETEND_SHUFFLES(long long)
PRETEND_SHUFFLES(unsigned long long)
PRETEND_SHUFFLES(float)
PRETEND_SHUFFLES(double)
#undef PRETEND_SHUFFLES

// ---- Atomics. Kernels of other streams may run at the same time, so they must be real ones.

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }

#define PRETEND_ATOMICS(T)                                                                           \
  static inline T atomicAdd(T* p, T x) { return __atomic_fetch_add(p, x, __ATOMIC_RELAXED); }        \
  static inline T atomicExch(T* p, T x) { return __atomic_exchange_n(p, x, __ATOMIC_RELAXED); }      \
  static inline T atomicAnd(T* p, T x) { return __atomic_fetch_and(p, x, __ATOMIC_RELAXED); }        \
  static inline T atomicOr(T* p, T x) { return __atomic_fetch_or(p, x, __ATOMIC_RELAXED); }          \
  static inline T atomicXor(T* p, T x) { return __atomic_fetch_xor(p, x, __ATOMIC_RELAXED); }        \
  static inline T atomicCAS(T* p, T expected, T x) {                                                 \
    __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);         \
    return expected;                                                                                 \
  }                                                                                                  \
  static inline T atomicMax(T* p, T x) {                                                             \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                    \
    while (old < x && !__atomic_compare_exchange_n(p, &old, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
    return old;                                                                                      \
  }                                                                                                  \
  static inline T atomicMin(T* p, T x) {                                                             \
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                    \
    while (x < old && !__atomic_compare_exchange_n(p, &old, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
    return old;                                                                                      \
  }
PRETEND_ATOMICS(int)
PRETEND_ATOMICS(unsigned)
PRETEND_ATOMICS(unsigned long long)
#undef PRETEND_ATOMICS
static inline int atomicSub(int* p, int x) { return __atomic_fetch_sub(p, x, __ATOMIC_RELAXED); }
static inline unsigned atomicSub(unsigned* p, unsigned x) { return __atomic_fetch_sub(p, x, __ATOMIC_RELAXED); }
#define PRETEND_ATOMIC_FLOAT(T)                                                                      \
  static inline T atomicAdd(T* p, T x) {                                                             \
    T old, sum;                                                                                      \
    __atomic_load(p, &old, __ATOMIC_RELAXED);                                                        \
    do sum = old + x;                                                                                \
    while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));     \
    return old;                                                                                      \
  }                                                                                                  \
  static inline T atomicExch(T* p, T x) {                                                            \
    T old;                                                                                           \
    __atomic_exchange(p, &x, &old, __ATOMIC_RELAXED);                                                \
    return old;                                                                                      \
  }
PRETEND_ATOMIC_FLOAT(float)
PRETEND_ATOMIC_FLOAT(double)
#undef PRETEND_ATOMIC_FLOAT

template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline void __stcs(T* p, T x) { *p = x; }
template <class T> static inline void __stcg(T* p, T x) { *p = x; }

// ---- Numbers

template <class To, class From> static inline To pretend_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To y;
  __builtin_memcpy(&y, &x, sizeof(To));
  return y;
}
static inline int __float_as_int(float x) { return pretend_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return pretend_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return pretend_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return pretend_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return pretend_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return pretend_bits<double>(x); }

static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

// No `extern "C" {`: the search for kernels would take it for the source's own.
#define PRETEND_MATHS(F) extern "C" float F##f(float); extern "C" double F(double);
PRETEND_MATHS(exp) PRETEND_MATHS(exp2) PRETEND_MATHS(exp10) PRETEND_MATHS(expm1)
PRETEND_MATHS(log) PRETEND_MATHS(log2) PRETEND_MATHS(log10) PRETEND_MATHS(log1p)
PRETEND_MATHS(sin) PRETEND_MATHS(cos) PRETEND_MATHS(tan) PRETEND_MATHS(asin) PRETEND_MATHS(acos)
PRETEND_MATHS(atan) PRETEND_MATHS(sinh) PRETEND_MATHS(cosh) PRETEND_MATHS(tanh)
PRETEND_MATHS(erf) PRETEND_MATHS(erfc) PRETEND_MATHS(lgamma) PRETEND_MATHS(tgamma) PRETEND_MATHS(cbrt)
PRETEND_MATHS(sqrt) PRETEND_MATHS(fabs) PRETEND_MATHS(floor) PRETEND_MATHS(ceil) PRETEND_MATHS(trunc)
PRETEND_MATHS(rint) PRETEND_MATHS(round) PRETEND_MATHS(nearbyint)
#undef PRETEND_MATHS
#define PRETEND_MATHS(F) extern "C" float F##f(float, float); extern "C" double F(double, double);
PRETEND_MATHS(pow) PRETEND_MATHS(atan2) PRETEND_MATHS(fmod) PRETEND_MATHS(hypot) PRETEND_MATHS(remainder)
PRETEND_MATHS(fmax) PRETEND_MATHS(fmin) PRETEND_MATHS(copysign) PRETEND_MATHS(nextafter) PRETEND_MATHS(fdim)
#undef PRETEND_MATHS
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
extern "C" float ldexpf(float, int);
extern "C" double ldexp(double, int);
extern "C" void sincosf(float, float*, float*);
extern "C" void sincos(double, double*, double*);
extern "C" int abs(int);
extern "C" long long llabs(long long);
#define PRETEND_MATHS(F) static inline float F(float x) { return F##f(x); }
PRETEND_MATHS(exp) PRETEND_MATHS(exp2) PRETEND_MATHS(log) PRETEND_MATHS(log2) PRETEND_MATHS(sin)
PRETEND_MATHS(cos) PRETEND_MATHS(tanh) PRETEND_MATHS(sqrt) PRETEND_MATHS(fabs) PRETEND_MATHS(floor)
PRETEND_MATHS(ceil) PRETEND_MATHS(trunc) PRETEND_MATHS(rint) PRETEND_MATHS(round) PRETEND_MATHS(erf)
#undef PRETEND_MATHS
static inline float pow(float x, float y) { return powf(x, y); }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }

#define PRETEND_CLASSES(T)                                                                           \
  static inline bool isnan(T x) { return __builtin_isnan(x); }                                       \
  static inline bool isinf(T x) { return __builtin_isinf(x); }                                       \
  static inline bool isfinite(T x) { return __builtin_isfinite(x); }                                 \
  static inline bool signbit(T x) { return __builtin_signbit(x) != 0; }
PRETEND_CLASSES(float)
PRETEND_CLASSES(double)
#undef PRETEND_CLASSES

#define PRETEND_MIN_MAX(T, A, B)                                                                     \
  static inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; }                                \
  static inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
PRETEND_MIN_MAX(int, int, int)
PRETEND_MIN_MAX(unsigned, unsigned, unsigned)
PRETEND_MIN_MAX(unsigned, int, unsigned)
PRETEND_MIN_MAX(unsigned, unsigned, int)
PRETEND_MIN_MAX(long, long, long)
PRETEND_MIN_MAX(unsigned long, unsigned long, unsigned long)
PRETEND_MIN_MAX(unsigned long, long, unsigned long)
PRETEND_MIN_MAX(unsigned long, unsigned long, long)
PRETEND_MIN_MAX(long long, long long, long long)
PRETEND_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
PRETEND_MIN_MAX(unsigned long long, long long, unsigned long long)
PRETEND_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef PRETEND_MIN_MAX
// Of numbers that may be NaN, the other one: as fminf and fmaxf.
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(float a, double b) { return fmin(a, b); }
static inline double max(float a, double b) { return fmax(a, b); }
static inline double min(double a, float b) { return fmin(a, b); }
static inline double max(double a, float b) { return fmax(a, b); }

// The quick approximations of a GPU are exact here.
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return exp10f(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanf(float x) { return tanf(x); }
static inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// A GPU's conversions stay within the target's range, and NaN becomes 0.
static inline int pretend_to_int(double x) {
  return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? -2147483647 - 1 : (int)x;
}
static inline unsigned pretend_to_uint(double x) {
  return x != x || x <= 0.0 ? 0u : x >= 4294967295.0 ? 4294967295u : (unsigned)x;
}
static inline int __float2int_rn(float x) { return pretend_to_int(rintf(x)); }
static inline int __float2int_rz(float x) { return pretend_to_int(truncf(x)); }
static inline int __float2int_rd(float x) { return pretend_to_int(floorf(x)); }
static inline int __float2int_ru(float x) { return pretend_to_int(ceilf(x)); }
static inline unsigned __float2uint_rn(float x) { return pretend_to_uint(rintf(x)); }
static inline unsigned __float2uint_rz(float x) { return pretend_to_uint(truncf(x)); }
static inline unsigned __float2uint_rd(float x) { return pretend_to_uint(floorf(x)); }
static inline unsigned __float2uint_ru(float x) { return pretend_to_uint(ceilf(x)); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline int __double2int_rn(double x) { return pretend_to_int(rint(x)); }

// ---- From a kernel's type to the way it is run

template <size_t... I> struct pretend_indices {};
template <auto F> struct pretend_run;
template <class... A, void (*F)(A...)> struct pretend_run<F> {
  static constexpr unsigned count = sizeof...(A);
  static_assert((sizeof(A) + ... + 0) <= 4096, "a kernel's parameters are 4096 bytes at most");
  static constexpr size_t sizes[] = {sizeof(A)..., 0};
  static constexpr size_t alignments[] = {alignof(A)..., 0};
  template <size_t... I> static void call(void** p, pretend_indices<I...>) { F(*(A*)p[I]...); }
  static void run(const pretend_thread* thread, void** parameters) {
    const pretend_thread* before = pretend_self;
    pretend_self = thread;
    call(parameters, pretend_indices<__integer_pack(sizeof...(A))...>());
    pretend_self = before;
  }
};
static void pretend_attach(const pretend_api* api) { pretend_runtime = api; }
static thread_local char pretend_shared_anchor;
static void pretend_touch_shared() { *(volatile char*)&pretend_shared_anchor; }
