// Cumulative sums, in double precision.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// Each thread computes the sums of one row. Neighbouring threads read neighbouring elements of
// `[outer, n, inner]`.
KERNEL cumsum_by_thread(float *y, const float *x, u64 rows, u64 n, u64 inner, u32 reverse)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows) return;
    u64 begin = i / inner * n * inner + i % inner;
    double sum = 0.0;
    for (u64 k = 0; k < n; ++k) {
        u64 at = begin + (reverse ? n - 1 - k : k) * inner;
        sum += x[at];
        y[at] = (float)sum;
    }
}

// Each block computes the sums of one row of contiguous elements, one tile after another.
KERNEL cumsum_by_block(float *y, const float *x, u64 rows, u64 n, u32 reverse)
{
    __shared__ double of_warp[THREADS / 32];
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double before = 0.0;
        for (u64 first = 0; first < n; first += THREADS) {
            u64 i = first + threadIdx.x;
            bool inside = i < n;
            u64 at = row * n + (reverse ? n - 1 - i : i);
            double sum = inside ? x[at] : 0.0;
            for (u32 distance = 1; distance < 32; distance *= 2) {
                double other = __shfl_up_sync(ALL_LANES, sum, distance);
                if (threadIdx.x % 32 >= distance) sum += other;
            }
            __syncthreads();  // Other threads may still read the sums of the last tile.
            if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = sum;
            __syncthreads();
            double all = before;
            for (u32 warp = 0; warp < THREADS / 32; ++warp) {
                if (warp == threadIdx.x / 32) sum += all;
                all += of_warp[warp];
            }
            before = all;
            if (inside) y[at] = (float)sum;
        }
    }
}
