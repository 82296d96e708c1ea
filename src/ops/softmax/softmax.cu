// Softmax and cross entropy over rows.
//
// The threads of a block (`.._block`), or neighbouring lanes of a warp (`.._lanes`), share a row.
// There are at most as many lanes as elements in the row. Each row is read two or three times; only
// the first read is from memory, and the later reads are from the cache.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// A kernel whose blocks may have any number of threads.
#define BLOCK_KERNEL extern "C" __global__ void __launch_bounds__(1024)

struct Rows {
    u64 rows;
    u64 length;
    u32 lanes;  // Lanes per row; not used if a block shares the row.
    u32 width;  // Elements per load.
};

// Threads that share a row.
template <bool Block> struct Team {
    u32 rank, size;
    __device__ Team(const Rows &of)
    {
        size = Block ? blockDim.x : of.lanes;
        rank = threadIdx.x % size;
    }
    // Joins the values of the team's threads. All threads of the block must call this function. The
    // function returns the result to all threads of the team.
    template <class T, class Join> __device__ T join(T value, Join join) const
    {
        if (Block) return join_block(value, join);
        value = join_lanes(value, join, size);
        return __shfl_sync(ALL_LANES, value, 0, size);
    }
};

// Calls `body(team, row, length)` for each row. All threads run the same number of iterations;
// beyond the last row, `length` is 0.
template <bool Block, class Body> __device__ inline void each_row(const Rows &of, Body body)
{
    Team<Block> team(of);
    u32 together = Block ? 1 : THREADS / of.lanes;
    for (u64 first = (u64)blockIdx.x * together; first < of.rows; first += (u64)gridDim.x * together) {
        u64 row = first + (Block ? 0 : threadIdx.x / of.lanes);
        body(team, row, row < of.rows ? of.length : 0);
    }
}

// Calls `visit(place, values)` for the elements of a row that belong to this thread.
template <int Width, class Team, class Visit>
__device__ inline void each(const Team &team, const float *row, u64 length, Visit visit)
{
#pragma unroll 4
    for (u64 i = (u64)team.rank * Width; i < length; i += (u64)team.size * Width) {
        float v[Width];
        load<Width>(row + i, v);
        visit(i, v);
    }
}

// Largest element of a row, and the sum of `e^(x - largest)`. The comparison may ignore a NaN, but
// the NaN makes the sum NaN.
template <int Width, class Team>
__device__ inline float exponentials(const Team &team, const float *row, u64 length, double &sum)
{
    float largest = MINUS_INFINITY;
    each<Width>(team, row, length, [&](u64, const float(&v)[Width]) {
#pragma unroll
        for (int j = 0; j < Width; ++j) largest = v[j] > largest ? v[j] : largest;
    });
    largest = team.join(largest, Larger());
    sum = 0.0;
    each<Width>(team, row, length, [&](u64, const float(&v)[Width]) {
#pragma unroll
        for (int j = 0; j < Width; ++j) sum += expf(v[j] - largest);
    });
    sum = team.join(sum, Plus());
    return largest;
}

// Computes `y = f(x)` for each element of a row that belongs to this thread.
template <int Width, class Team, class F>
__device__ inline void write(const Team &team, float *y, const float *x, u64 length, F f)
{
    each<Width>(team, x, length, [&](u64 i, float(&v)[Width]) {
#pragma unroll
        for (int j = 0; j < Width; ++j) v[j] = f(v[j]);
        store<Width>(y + i, v);
    });
}

template <bool Block, int Width> struct Softmax {
    __device__ static void run(float *y, const float *x, const Rows &of)
    {
        each_row<Block>(of, [&](const Team<Block> &team, u64 row, u64 length) {
            double sum;
            const float *from = x + row * of.length;
            float largest = exponentials<Width>(team, from, length, sum);
            float scale = (float)(1.0 / sum);
            write<Width>(team, y + row * of.length, from, length, [&](float x) { return expf(x - largest) * scale; });
        });
    }
};

template <bool Block, int Width> struct LogSoftmax {
    __device__ static void run(float *y, const float *x, const Rows &of)
    {
        each_row<Block>(of, [&](const Team<Block> &team, u64 row, u64 length) {
            double sum;
            const float *from = x + row * of.length;
            float largest = exponentials<Width>(team, from, length, sum);
            float log_sum = (float)log(sum);
            write<Width>(team, y + row * of.length, from, length, [&](float x) { return x - largest - log_sum; });
        });
    }
};

// Target probabilities of a row, computed from the row's label.
struct Targets {
    float on, off;  // `off`: probability of each class; `on`: what the label's class gets in addition.
    int ignore;     // Label that leaves a row out of the loss.
};

// Computes `log_probs` of each row, and the loss of the row: minus the dot product of targets and
// `log_probs`.
template <bool Block, int Width> struct CrossEntropy {
    __device__ static void run(float *y, const float *x, const Rows &of, float *losses, const int *labels,
                               const Targets &targets, Report report)
    {
        each_row<Block>(of, [&](const Team<Block> &team, u64 row, u64 length) {
            double sum, all = 0.0;
            const float *from = x + row * of.length;
            float largest = exponentials<Width>(team, from, length, sum);
            float log_sum = (float)log(sum);
            write<Width>(team, y + row * of.length, from, length, [&](float x) {
                float log_prob = x - largest - log_sum;
                all += log_prob;
                return log_prob;
            });
            if (targets.off != 0.0f) all = team.join(all, Plus());
            if (team.rank == 0 && row < of.rows) {
                int label = labels[row];
                if (label == targets.ignore) {
                    losses[row] = 0.0f;
                } else if (report.allows(label, row)) {
                    float of_label = from[label] - largest - log_sum;
                    losses[row] = targets.off == 0.0f ? -of_label
                                                      : (float)-(targets.on * (double)of_label + targets.off * all);
                } else {
                    losses[row] = NOT_A_NUMBER;
                }
            }
        });
    }
};

// `dx = y * (dy - sum y dy)`
template <bool Block, int Width> struct SoftmaxGrad {
    __device__ static void run(float *dx, const float *y, const Rows &of, const float *dy)
    {
        each_row<Block>(of, [&](const Team<Block> &team, u64 row, u64 length) {
            const float *d = dy + row * of.length;
            double dot = 0.0;
            each<Width>(team, y + row * of.length, length, [&](u64 i, float(&v)[Width]) {
                float w[Width];
                load<Width>(d + i, w);
#pragma unroll
                for (int j = 0; j < Width; ++j) dot += v[j] * w[j];
            });
            float all = (float)team.join(dot, Plus());
            each<Width>(team, y + row * of.length, length, [&](u64 i, float(&v)[Width]) {
                float w[Width];
                load<Width>(d + i, w);
#pragma unroll
                for (int j = 0; j < Width; ++j) v[j] = v[j] * (w[j] - all);
                store<Width>(dx + row * of.length + i, v);
            });
        });
    }
};

// `dx = dy - e^y * sum dy`
template <bool Block, int Width> struct LogSoftmaxGrad {
    __device__ static void run(float *dx, const float *y, const Rows &of, const float *dy)
    {
        each_row<Block>(of, [&](const Team<Block> &team, u64 row, u64 length) {
            const float *d = dy + row * of.length;
            double sum = 0.0;
            each<Width>(team, d, length, [&](u64, float(&w)[Width]) {
#pragma unroll
                for (int j = 0; j < Width; ++j) sum += w[j];
            });
            float all = (float)team.join(sum, Plus());
            each<Width>(team, y + row * of.length, length, [&](u64 i, float(&v)[Width]) {
                float w[Width];
                load<Width>(d + i, w);
#pragma unroll
                for (int j = 0; j < Width; ++j) v[j] = w[j] - expf(v[j]) * all;
                store<Width>(dx + row * of.length + i, v);
            });
        });
    }
};

#define ROWS(Kind, Block, ...) \
    if (of.width == 4) { \
        Kind<Block, 4>::run(__VA_ARGS__); \
    } else { \
        Kind<Block, 1>::run(__VA_ARGS__); \
    }

#define FORWARD(name, Kind) \
    KERNEL name##_lanes(float *y, const float *x, Rows of) { ROWS(Kind, false, y, x, of) } \
    BLOCK_KERNEL name##_block(float *y, const float *x, Rows of) { ROWS(Kind, true, y, x, of) }

#define GRADIENT(name, Kind) \
    KERNEL name##_lanes(float *dx, const float *y, Rows of, const float *dy) { ROWS(Kind, false, dx, y, of, dy) } \
    BLOCK_KERNEL name##_block(float *dx, const float *y, Rows of, const float *dy) { ROWS(Kind, true, dx, y, of, dy) }

FORWARD(softmax, Softmax)
FORWARD(log_softmax, LogSoftmax)
GRADIENT(softmax_grad, SoftmaxGrad)
GRADIENT(log_softmax_grad, LogSoftmaxGrad)

KERNEL cross_entropy_lanes(float *y, const float *x, Rows of, float *losses, const int *labels, Targets targets,
                                Report report)
{
    ROWS(CrossEntropy, false, y, x, of, losses, labels, targets, report)
}

BLOCK_KERNEL cross_entropy_block(float *y, const float *x, Rows of, float *losses, const int *labels,
                                 Targets targets, Report report)
{
    ROWS(CrossEntropy, true, y, x, of, losses, labels, targets, report)
}

// Number of labels that are not ignored. All threads of the block must call this function.
__device__ inline double counted(const int *labels, u64 rows, const Targets &targets)
{
    double count = 0.0;
    for (u64 i = threadIdx.x; i < rows; i += blockDim.x) count += labels[i] != targets.ignore;
    return join_block(count, Plus());
}

// The grid has one block.
BLOCK_KERNEL mean_loss(float *loss, const float *losses, const int *labels, u64 rows, Targets targets)
{
    double sum = 0.0;
#pragma unroll 4
    for (u64 i = threadIdx.x; i < rows; i += blockDim.x) sum += losses[i];
    sum = join_block(sum, Plus());
    double count = counted(labels, rows, targets);
    if (threadIdx.x == 0) *loss = (float)(sum / count);
}

// The grid has one block.
BLOCK_KERNEL count_labels(float *count, const int *labels, u64 rows, Targets targets)
{
    double all = counted(labels, rows, targets);
    if (threadIdx.x == 0) *count = (float)all;
}

template <int Width>
__device__ inline void grad_unit(float *dx, const float *log_probs, u64 first, int label, bool allowed, float scale,
                                 const Targets &targets)
{
    float v[Width];
    load<Width>(log_probs, v);
    bool counts = label != targets.ignore;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        float target = first + j == label ? targets.on + targets.off : targets.off;
        v[j] = !counts ? 0.0f : allowed ? (expf(v[j]) - target) * scale : NOT_A_NUMBER;
    }
    store<Width>(dx, v);
}

// `(e^log_probs - targets) * dloss / count`
KERNEL cross_entropy_grad(float *dx, const float *log_probs, const int *labels, const float *dloss, const float *count,
                          u64 units, Divider length, u32 width, Targets targets, Report report)
{
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units) return;
    float scale = *dloss / *count;
    Index row = (Index)i;
    u64 first = (u64)take_remainder(row, length) * width;
    int label = labels[row];
    bool allowed = label == targets.ignore || report.allows(label, row);
    if (width == 4) {
        grad_unit<4>(dx + i * 4, log_probs + i * 4, first, label, allowed, scale, targets);
    } else {
        grad_unit<1>(dx + i, log_probs + i, first, label, allowed, scale, targets);
    }
}
