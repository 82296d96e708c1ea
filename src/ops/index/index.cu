// Taking and adding entries by number. Tensors are seen as `[outer, size, inner]`, entries being numbered along
// the middle.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// `y [outer, n, inner] = x [outer, size, inner]` at the entries `index`. `inner` is in units of `width`.
KERNEL gather(float *y, const float *x, const int *index, u64 units, Divider n, Divider inner, u64 size, u32 width,
              Report report)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units) return;
    Index outer = (Index)i;
    Index along = take_remainder(outer, inner);
    Index position = take_remainder(outer, n);
    int entry = index[position];
    bool allowed = report.allows(entry, position);
    const float *from = x + ((outer * size + (allowed ? entry : 0)) * inner.divisor + along) * width;
    if (width == 4) {
        float v[4] = {NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER};
        if (allowed) load<4>(from, v);
        store<4>(y + i * 4, v);
    } else {
        y[i] = allowed ? *from : NOT_A_NUMBER;
    }
}

// Entries that wait to be added.
#define WAITING 1024

struct Scatter {
    u64 n;        // Length of the index.
    u64 size;     // Entries of the result.
    u64 inner;
    u64 entries;  // Of a block.
    u32 columns;  // Of a block: a power of two, at most THREADS.
    u32 across;   // Blocks beside each other, for all columns,
    u64 along;    // and one after the other, for all entries.
};

// `x [outer, size, inner]` is zero, plus each entry of `y [outer, n, inner]` at its index, in order.
//
// A block owns some entries and columns of `x`: it goes through the whole index, collects what is for it, and
// its threads, each of which owns some entries and one column, add that in order. So the index is read once by
// each block, n * 4 bytes from the cache; the host makes about a thousand blocks, or one for each entry if these
// are fewer. Memory is read and written once, but where many numbers are the same, their entries are
// added one after the other.
KERNEL scatter_add(float *x, const float *y, const int *index, Scatter of, Report report)
{
    __shared__ u64 positions[WAITING];
    __shared__ u32 targets[WAITING];
    __shared__ u32 counts[2][THREADS / 32];
    u64 outer = blockIdx.x / of.across / of.along;
    u64 first = blockIdx.x / of.across % of.along * of.entries;
    u64 entries = first + of.entries < of.size ? of.entries : of.size - first;
    u64 column = (u64)(blockIdx.x % of.across) * of.columns + threadIdx.x % of.columns;
    u32 groups = THREADS / of.columns, group = threadIdx.x / of.columns;
    bool works = column < of.inner;
    x += (outer * of.size + first) * of.inner + column;
    y += outer * of.n * of.inner + column;
    if (works)
        for (u64 entry = group; entry < entries; entry += groups) x[entry * of.inner] = 0.0f;
    u32 waiting = 0;
    for (u64 round = 0; round < of.n || waiting > 0; round += THREADS) {
        if (round < of.n) {
            u64 position = round + threadIdx.x;
            u64 target = entries;
            if (position < of.n) {
                int entry = index[position];
                if (report.allows(entry, position)) target = (u64)entry - first;
            }
            bool mine = target < entries;
            u32 votes = __ballot_sync(ALL_LANES, mine);
            // Two rows of counts, so that nobody writes what another still reads.
            u32 *count = counts[round / THREADS % 2];
            if (threadIdx.x % 32 == 0) count[threadIdx.x / 32] = __popc(votes);
            __syncthreads();
            u32 before = waiting + __popc(votes & ((1u << threadIdx.x % 32) - 1u));
            for (u32 warp = 0; warp < THREADS / 32; ++warp) {
                if (warp < threadIdx.x / 32) before += count[warp];
                waiting += count[warp];
            }
            if (mine) {
                positions[before] = position;
                targets[before] = (u32)target;
            }
        }
        bool last = round + THREADS >= of.n;
        if (last || waiting + THREADS > WAITING) {
            __syncthreads();
            if (works) {
                // Sums stay in a register while the same entry comes again.
                float *held = x;
                float sum = 0.0f;
                bool any = false;
                for (u32 i = 0; i < waiting; ++i) {
                    u32 target = targets[i];
                    if (target % groups != group) continue;
                    float *place = x + target * of.inner;
                    if (!any || place != held) {
                        if (any) *held = sum;
                        held = place;
                        sum = *held;
                        any = true;
                    }
                    sum += y[positions[i] * of.inner];
                }
                if (any) *held = sum;
            }
            __syncthreads();
            waiting = 0;
        }
    }
}
