// Gather and scatter-add of entries by index. Tensors are seen as `[outer, size, inner]`; the index
// runs over the middle dimension.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// Copies the entries `index` of `x [outer, size, inner]` to `y [outer, n, inner]`. `inner` is in
// units of `width` elements.
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

// Capacity of the list of entries that are still to be added.
#define WAITING 1024

struct Scatter {
    u64 n;        // Length of the index.
    u64 size;     // Number of entries of the result.
    u64 inner;
    u64 entries;  // Entries per block.
    u32 columns;  // Columns per block: a power of two, at most THREADS.
    u32 across;   // Number of blocks along the columns.
    u64 along;    // Number of blocks along the entries.
};

// Fills `x [outer, size, inner]` with zeros. Then adds each entry `i` of `y [outer, n, inner]` to
// the entry `index[i]` of `x`, in the order of `i`.
//
// Each block computes some entries and columns of `x`. The block scans the whole index, and
// collects the positions at which its entries occur. Each thread computes some entries of one
// column, and adds the collected entries of `y` in order.
//
// Each block therefore reads the whole index, n * 4 bytes from the cache. The host launches about a
// thousand blocks, or one block for each entry if there are fewer entries. `y` is read once, and
// `x` is written once. Entries of `y` with the same index are added one after the other.
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
            // Two rows of counts, so that no thread overwrites a count that another thread has yet
            // to read.
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
                // The sum stays in a register while the same entry repeats.
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

// Fills `y [n, classes]` with 1 at the index of each row, else 0.
KERNEL one_hot(float *y, const int *index, u64 count, Divider classes, Report report)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Index position = (Index)i;
    Index along = take_remainder(position, classes);
    int entry = index[position];
    y[i] = !report.allows(entry, position) ? NOT_A_NUMBER : (Index)entry == along ? 1.0f : 0.0f;
}
