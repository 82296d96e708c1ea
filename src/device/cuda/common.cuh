// Code that all kernels share. The host puts this text in front of each source. Kernels include no
// other headers.
//
// Kernels give the same bits on every run, because only the sizes determine which thread adds which
// elements, and in which order.

typedef unsigned int u32;
typedef unsigned long long u64;

// Type that counts units of work. The host compiles a source with WIDE for 2^31 units or more.
#ifdef WIDE
typedef u64 Index;
#else
typedef u32 Index;
#endif

// Number of threads of a block, unless a kernel declares another number.
#define THREADS 256
// Number of elements that a block of an elementwise kernel computes.
#define TILE 2048
#define PER_THREAD (TILE / THREADS)
#define ALL_LANES 0xffffffffu
#define NOT_A_NUMBER __int_as_float(0x7fc00000)
#define MINUS_INFINITY __int_as_float(0xff800000)

// ---- Faults ----

// First fault that kernels have found since the host last read this record. A fault is an index or
// label out of range. The record is all zeros if there is no fault.
struct Fault {
    u32 launch;  // First launch that found a fault. Later launches do not change the record.
    u32 kind;
    u64 limit;
    // Fault at the lowest position in that launch. The high half is the complement of the position,
    // and the low half is the value.
    u64 lowest;
};

// Parameter with which one launch reports numbers that are not in `0..limit`.
struct Report {
    Fault *fault;
    u64 limit;
    u32 kind;
    u32 launch;  // Number of the launch; not 0.

    __device__ bool is_inside(int value) const { return value >= 0 && (u64)value < limit; }

    // Returns whether the number is valid. Records a number that is not valid.
    __device__ bool allows(int value, u64 position) const
    {
        if (is_inside(value)) return true;
        u32 first = atomicCAS(&fault->launch, 0u, launch);
        if (first == 0 || first == launch) {
            fault->kind = kind;
            fault->limit = limit;
            // Positions from 2^32 - 1 on are reported as 2^32 - 1.
            u32 place = position < 0xffffffffull ? (u32)position : 0xffffffffu;
            atomicMax(&fault->lowest, (u64)~place << 32 | (u32)value);
        }
        return false;
    }
};

// ---- Sixteen bytes at a time ----

template <class T> struct alignas(16) Four {
    T v[4];
};

__device__ inline bool aligned(const void *address) { return ((u64)address & 15) == 0; }

template <class T> __device__ inline Four<T> load_four(const T *from) { return *(const Four<T> *)from; }

// Use an intrinsic, because in some loops the compiler would turn an assignment into four stores.
__device__ inline void store_four(float *to, Four<float> x)
{
    __stcg((float4 *)to, make_float4(x.v[0], x.v[1], x.v[2], x.v[3]));
}

__device__ inline void store_four(u32 *to, Four<u32> x)
{
    __stcg((uint4 *)to, make_uint4(x.v[0], x.v[1], x.v[2], x.v[3]));
}

// Loads `Width` contiguous elements. If the width is 4, this is a single load.
template <int Width, class T> __device__ inline void load(const T *from, T (&v)[Width])
{
    if (Width == 4) {
        Four<T> four = load_four(from);
#pragma unroll
        for (int i = 0; i < Width; ++i) v[i] = four.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < Width; ++i) v[i] = from[i];
    }
}

template <int Width, class T> __device__ inline void store(T *to, const T (&v)[Width])
{
    if (Width == 4) {
        Four<T> four;
#pragma unroll
        for (int i = 0; i < Width; ++i) four.v[i] = v[i];
        store_four(to, four);
    } else {
#pragma unroll
        for (int i = 0; i < Width; ++i) to[i] = v[i];
    }
}

// ---- From the number of an element to its offset ----

// A divisor that the host has prepared. For numbers below 2^31, a division is a multiplication and
// a shift.
struct Divider {
    u64 divisor;
    u32 factor;
    u32 shift;
};

__device__ inline u32 quotient(u32 n, const Divider &by) { return (__umulhi(n, by.factor) + n) >> by.shift; }
__device__ inline u64 quotient(u64 n, const Divider &by) { return n / by.divisor; }

// Replaces `n` by the quotient, and returns the remainder.
__device__ inline Index take_remainder(Index &n, const Divider &by)
{
    Index whole = quotient(n, by);
    Index rest = n - whole * (Index)by.divisor;
    n = whole;
    return rest;
}

#define MAX_LOOPS 6

// Loops over a shape, innermost first, for K operands. Each operand has its own steps, in elements.
//
// The innermost loop counts units of `width` elements. In each operand, the elements of a unit are
// contiguous, or are one element repeated.
template <int K> struct Walk {
    Divider sizes[MAX_LOOPS];
    u64 steps[MAX_LOOPS][K];
    u32 loops;
    u32 width;
};

// Finds the first element of unit `i` in each operand.
template <int K> __device__ inline void locate(const Walk<K> &walk, Index i, u64 (&at)[K])
{
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] = 0;
    // Do not unroll, because unrolling slows the compiler down and most walks have one or two
    // loops.
#pragma unroll 1
    for (u32 loop = 0; loop + 1 < walk.loops; ++loop) {
        Index index = take_remainder(i, walk.sizes[loop]);
#pragma unroll
        for (int k = 0; k < K; ++k) at[k] += index * walk.steps[loop][k];
    }
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] += i * walk.steps[walk.loops - 1][k];
}

// Windows over images, of a pooling or of a convolution.
struct Windows {
    // Rows and columns of the tensor whose elements the threads compute: the windows in the forward
    // pass, the image in the backward pass.
    Divider rows, columns;
    int image[2];    // Height and width.
    int windows[2];  // Numbers of windows along height and width.
    int kernel[2], stride[2], padding[2];
    int dilation[2];  // Distance between a window's elements; 1 in a pooling.
};

// ---- Elementwise ----

template <int K, class T> struct Inputs {
    const T *x[K];
};

// Computes `y[i] = f(x0[i], ..)`, where the result and all operands are packed. A block computes
// TILE elements.
template <int K, class T, class F> __device__ inline void map_packed(T *y, const Inputs<K, T> &in, u64 count, F f)
{
    u64 from = (u64)blockIdx.x * TILE;
    bool fours = from + TILE <= count && aligned(y);
#pragma unroll
    for (int k = 0; k < K; ++k) fours = fours && aligned(in.x[k]);
    T v[PER_THREAD][K];
    if (fours) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int i = 0; i < PER_THREAD; i += 4) {
                Four<T> four = load_four(in.x[k] + from + i * THREADS + threadIdx.x * 4);
#pragma unroll
                for (int j = 0; j < 4; ++j) v[i + j][k] = four.v[j];
            }
        }
#pragma unroll
        for (int i = 0; i < PER_THREAD; i += 4) {
            Four<T> four;
#pragma unroll
            for (int j = 0; j < 4; ++j) four.v[j] = f(v[i + j]);
            store_four(y + from + i * THREADS + threadIdx.x * 4, four);
        }
    } else {
        u64 first = from + threadIdx.x;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (first + i * THREADS < count)
#pragma unroll
                for (int k = 0; k < K; ++k) v[i][k] = in.x[k][first + i * THREADS];
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (first + i * THREADS < count) y[first + i * THREADS] = f(v[i]);
    }
}

template <int Width, int K, class T, class F>
__device__ inline void map_unit(T *y, const Inputs<K, T> &in, const Walk<K> &walk, const u64 (&at)[K], F f)
{
    T v[K][Width];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        if (Width == 1 || walk.steps[0][k] != 0) {
            load<Width>(in.x[k] + at[k], v[k]);
        } else {
            T one = in.x[k][at[k]];
#pragma unroll
            for (int j = 0; j < Width; ++j) v[k][j] = one;
        }
    }
    T out[Width];
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        T of[K];
#pragma unroll
        for (int k = 0; k < K; ++k) of[k] = v[k][j];
        out[j] = f(of);
    }
    store<Width>(y, out);
}

// Computes `y[i] = f(x0[..], ..)`, where the result is packed and operands have any steps. A thread
// computes one unit.
//
// If the walk's width is 4, `y` must be aligned, and each operand that the innermost loop does not
// repeat must be aligned.
template <int K, class T, class F>
__device__ inline void map_strided(T *y, const Inputs<K, T> &in, const Walk<K> &walk, u64 units, F f)
{
    u64 unit = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (unit >= units) return;
    u64 at[K];
    locate(walk, (Index)unit, at);
    if (walk.width == 4) {
        map_unit<4>(y + unit * 4, in, walk, at, f);
    } else {
        map_unit<1>(y + unit, in, walk, at, f);
    }
}

// ---- Joining values of threads ----

__device__ inline float from_lane_beyond(float x, int distance) { return __shfl_down_sync(ALL_LANES, x, distance); }
__device__ inline double from_lane_beyond(double x, int distance) { return __shfl_down_sync(ALL_LANES, x, distance); }

struct Two {
    double a, b;
};

__device__ inline Two from_lane_beyond(Two x, int distance)
{
    x.a = from_lane_beyond(x.a, distance);
    x.b = from_lane_beyond(x.b, distance);
    return x;
}

struct Plus {
    __device__ static float start(float) { return 0.0f; }
    __device__ static double start(double) { return 0.0; }
    __device__ static Two start(Two) { return Two{0.0, 0.0}; }
    __device__ float operator()(float a, float b) const { return a + b; }
    __device__ double operator()(double a, double b) const { return a + b; }
    __device__ Two operator()(Two a, Two b) const { return Two{a.a + b.a, a.b + b.b}; }
};

// The larger of two values; NaN if either is NaN.
struct Larger {
    __device__ static float start(float) { return MINUS_INFINITY; }
    __device__ float operator()(float a, float b) const { return a >= b || a != a ? a : b; }
};

// The smaller of two values; NaN if either is NaN.
struct Smaller {
    __device__ static float start(float) { return -MINUS_INFINITY; }
    __device__ float operator()(float a, float b) const { return a <= b || a != a ? a : b; }
};

// Joins the values of `lanes` neighbouring lanes, a power of two. The function returns the result
// to the first of these lanes. All lanes of the warp must call the function.
template <class T, class Join> __device__ inline T join_lanes(T value, Join join, int lanes = 32)
{
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        value = join(value, from_lane_beyond(value, distance));
    return value;
}

// Joins the values of all threads of the block, which consists of whole warps. The function returns
// the result to every thread. All threads must call the function.
template <class T, class Join> __device__ inline T join_block(T value, Join join)
{
    __shared__ T of_warp[32];
    value = join_lanes(value, join);
    __syncthreads();  // Other threads may still read the result of the last call.
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    T all = of_warp[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) all = join(all, of_warp[warp]);
    return all;
}
