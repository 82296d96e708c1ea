// Index of the largest or smallest element. For each result, 1, 32 or all threads of a block search
// the elements.

struct Best {
    float value;
    int at;  // Index of the element; the largest int before the first element is compared.
};

__device__ inline Best from_lane_beyond(Best x, int distance)
{
    x.value = __shfl_down_sync(ALL_LANES, x.value, distance);
    x.at = __shfl_down_sync(ALL_LANES, x.at, distance);
    return x;
}

// Returns the better of two elements; of equal elements, the first. NaN is better than any number.
struct Better {
    u32 smallest;
    __device__ Best operator()(Best a, Best b) const
    {
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        bool same = a_nan ? b_nan : a.value == b.value;
        if (same) return a.at < b.at ? a : b;
        if (a_nan || b_nan) return a_nan ? a : b;
        return (smallest ? a.value < b.value : a.value > b.value) ? a : b;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
arg(int *index, const float *x, u64 results, u64 n, u64 inner, u32 threads, u32 smallest)
{
    Better join{smallest};
    u32 together = THREADS / threads, rank = threadIdx.x % threads;
    // All threads of a block run the same number of iterations, because the threads synchronize.
    for (u64 first = (u64)blockIdx.x * together; first < results; first += (u64)gridDim.x * together) {
        u64 i = first + threadIdx.x / threads;
        bool inside = i < results;
        const float *from = x + (inside ? i / inner * n * inner + i % inner : 0);
        Best best = {smallest ? -MINUS_INFINITY : MINUS_INFINITY, 0x7fffffff};
        for (u64 k = rank; k < (inside ? n : 0); k += threads) best = join(best, Best{from[k * inner], (int)k});
        if (threads == THREADS) {
            best = join_block(best, join);
        } else if (threads > 1) {
            best = join_lanes(best, join, threads);
        }
        if (inside && rank == 0) index[i] = best.at;
    }
}
