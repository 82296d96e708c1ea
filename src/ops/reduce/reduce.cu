// Sums, maxima and minima over any dimensions. Sums are in double precision, so that rounding
// errors do not grow. Reading memory is slower than the additions.
//
// The elements of a result may be cut into chunks, so that a few results keep the whole GPU busy.
// The partial results of the chunks are then written to the workspace, and a second kernel reduces
// the partial results of each result.

struct Reduction {
    Walk<1> kept;    // Walk over the results.
    Walk<1> joined;  // Walk over the elements of a result, in units.
    u64 results;     // Number of units of `kept`.
    u64 count;       // Number of units of `joined`.
    u64 chunk;       // Number of units of `joined` for each row of the grid.
    double divisor;  // Divisor of the final sums.
};

struct Sum {
    typedef double Value;
    typedef Plus Join;
    __device__ static float finish(double value, double divisor) { return (float)(value / divisor); }
};

struct Max {
    typedef float Value;
    typedef Larger Join;
    __device__ static float finish(float value, double) { return value; }
};

struct Min {
    typedef float Value;
    typedef Smaller Join;
    __device__ static float finish(float value, double) { return value; }
};

// Writes a result, or the partial result of a chunk.
template <class Kind>
__device__ inline void put(float *y, typename Kind::Value *partial, const Reduction &of, u64 results, u64 i,
                           typename Kind::Value value)
{
    if (gridDim.y == 1) {
        y[i] = Kind::finish(value, of.divisor);
    } else {
        partial[blockIdx.y * results + i] = value;
    }
}

// Calls `visit(place)` for units `from`, `from + step`, .. below `to`.
template <class Visit>
__device__ inline void each_unit(const Walk<1> &walk, u64 from, u64 to, u32 step, Visit visit)
{
    if (walk.loops == 1) {
        u64 stride = walk.steps[0][0];
#pragma unroll 4
        for (u64 i = from; i < to; i += step) visit(i * stride);
    } else {
#pragma unroll 2
        for (u64 i = from; i < to; i += step) {
            u64 at[1];
            locate(walk, (Index)i, at);
            visit(at[0]);
        }
    }
}

// Reduces units `from`, `from + step`, .. below `to` of one result.
template <class Kind, int Width>
__device__ inline typename Kind::Value join_some(const float *x, const Walk<1> &joined, u64 from, u64 to, u32 step)
{
    typedef typename Kind::Value Value;
    typename Kind::Join join;
    Value all = join.start(Value());
    each_unit(joined, from, to, step, [&](u64 at) {
        float v[Width];
        load<Width>(x + at, v);
#pragma unroll
        for (int j = 0; j < Width; ++j) all = join(all, (Value)v[j]);
    });
    return all;
}

// Neighbouring lanes share a result. Used if the elements of a result are contiguous, or if neither
// elements nor results are contiguous.
template <class Kind, int Lanes>
__device__ inline void rows(float *y, typename Kind::Value *partial, const float *x, const Reduction &of)
{
    typedef typename Kind::Value Value;
    const u32 Together = THREADS / Lanes;
    u64 from = blockIdx.y * of.chunk + threadIdx.x % Lanes;
    u64 to = of.count < (blockIdx.y + 1) * of.chunk ? of.count : (blockIdx.y + 1) * of.chunk;
    // All threads of a block run the same number of iterations, because the threads synchronize.
    for (u64 first = (u64)blockIdx.x * Together; first < of.results; first += (u64)gridDim.x * Together) {
        u64 i = first + threadIdx.x / Lanes;
        bool inside = i < of.results;
        u64 at[1] = {0};
        if (inside) locate(of.kept, (Index)i, at);
        Value all = of.joined.width == 4
                        ? join_some<Kind, 4>(x + at[0], of.joined, from, inside ? to : 0, Lanes)
                        : join_some<Kind, 1>(x + at[0], of.joined, from, inside ? to : 0, Lanes);
        if (Lanes == THREADS) {
            all = join_block(all, typename Kind::Join());
        } else if (Lanes > 1) {
            all = join_lanes(all, typename Kind::Join(), Lanes);
        }
        if (inside && threadIdx.x % Lanes == 0) put<Kind>(y, partial, of, of.results, i, all);
    }
}

// Neighbouring lanes compute neighbouring results, in units of `Width`. If there are few results,
// several rows of threads of the block share each result.
template <class Kind, int Width>
__device__ inline void columns(float *y, typename Kind::Value *partial, const float *x, const Reduction &of, u32 lanes)
{
    typedef typename Kind::Value Value;
    typename Kind::Join join;
    __shared__ Value shared[THREADS * Width];
    u32 lane = threadIdx.x % lanes, row = threadIdx.x / lanes;
    u64 from = blockIdx.y * of.chunk + row;
    u64 to = of.count < (blockIdx.y + 1) * of.chunk ? of.count : (blockIdx.y + 1) * of.chunk;
    for (u64 first = (u64)blockIdx.x * lanes; first < of.results; first += (u64)gridDim.x * lanes) {
        u64 i = first + lane;
        bool inside = i < of.results;
        u64 at[1] = {0};
        if (inside) locate(of.kept, (Index)i, at);
        Value all[Width];
#pragma unroll
        for (int j = 0; j < Width; ++j) all[j] = join.start(Value());
        each_unit(of.joined, from, inside ? to : 0, THREADS / lanes, [&](u64 step) {
            float v[Width];
            load<Width>(x + at[0] + step, v);
#pragma unroll
            for (int j = 0; j < Width; ++j) all[j] = join(all[j], (Value)v[j]);
        });
        if (lanes < THREADS) {
            __syncthreads();  // Other threads may still read the sums of the last iteration.
#pragma unroll
            for (int j = 0; j < Width; ++j) shared[j * THREADS + threadIdx.x] = all[j];
            __syncthreads();
            if (row == 0)
                for (u32 other = lane + lanes; other < THREADS; other += lanes)
#pragma unroll
                    for (int j = 0; j < Width; ++j) all[j] = join(all[j], shared[j * THREADS + other]);
        }
        if (inside && row == 0)
#pragma unroll
            for (int j = 0; j < Width; ++j) put<Kind>(y, partial, of, of.results * Width, i * Width + j, all[j]);
    }
}

// Reduces the partial results of each result's chunks, with one warp for each result.
template <class Kind>
__device__ inline void chunks(float *y, const typename Kind::Value *partial, u64 results, u32 count, double divisor)
{
    typedef typename Kind::Value Value;
    typename Kind::Join join;
    u64 i = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (i >= results) return;
    Value all = join.start(Value());
    for (u32 chunk = threadIdx.x % 32; chunk < count; chunk += 32) all = join(all, partial[chunk * results + i]);
    all = join_lanes(all, join);
    if (threadIdx.x % 32 == 0) y[i] = Kind::finish(all, divisor);
}

#define ROWS(name, Kind, Lanes)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                        \
        name(float *y, Kind::Value *partial, const float *x, Reduction of)                                        \
    {                                                                                                             \
        rows<Kind, Lanes>(y, partial, x, of);                                                                  \
    }

#define COLUMNS(name, Kind)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                        \
        name(float *y, Kind::Value *partial, const float *x, Reduction of, u32 lanes)                             \
    {                                                                                                             \
        if (of.kept.width == 4) {                                                                                 \
            columns<Kind, 4>(y, partial, x, of, lanes);                                                        \
        } else {                                                                                                  \
            columns<Kind, 1>(y, partial, x, of, lanes);                                                        \
        }                                                                                                         \
    }

#define REDUCTION(name, Kind)                                                                                     \
    ROWS(name##_by_thread, Kind, 1)                                                                               \
    ROWS(name##_by_warp, Kind, 32)                                                                                \
    ROWS(name##_by_block, Kind, THREADS)                                                                          \
    COLUMNS(name##_columns, Kind)                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                        \
        name##_chunks(float *y, const Kind::Value *partial, u64 results, u32 count, double divisor)               \
    {                                                                                                             \
        chunks<Kind>(y, partial, results, count, divisor);                                                        \
    }

REDUCTION(sum, Sum)
REDUCTION(max, Max)
REDUCTION(min, Min)
