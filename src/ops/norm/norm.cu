// Normalization of rows, and of groups of channels.
//
// A whole block, or neighbouring lanes of a warp, compute a row. There are at most as many lanes as
// elements in the row. Each row is read two or three times; only the first read is from memory, and
// the later reads are from the cache.
//
// The gradients of `gamma` and `beta` are sums over rows. Neighbouring lanes read neighbouring
// elements of a row. The rows may be cut into chunks, so that short rows keep the whole device
// busy. The sums of each chunk are then written to the workspace, and a second kernel adds the sums
// of the chunks.
//
// All counts are 64-bit integers.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// A kernel whose blocks may have any number of threads.
#define ROW_KERNEL extern "C" __global__ void __launch_bounds__(1024)

struct Rows {
    u64 rows;
    u64 length;
    u32 threads;  // Threads per row: a power of two up to 32, or the whole block.
    u32 width;    // Elements per load.
};

__device__ inline double of_first(double x, u32 lanes) { return __shfl_sync(ALL_LANES, x, 0, lanes); }
__device__ inline Two of_first(Two x, u32 lanes) { return Two{of_first(x.a, lanes), of_first(x.b, lanes)}; }

// A row, and the part of the row that belongs to a thread.
struct Row {
    u64 number, begin, length;
    u32 rank, threads;
    bool inside;

    // Rows beyond the last row have no elements. Threads of these rows do not return, because every
    // thread must reach each synchronization.
    __device__ Row(const Rows &of, u64 number) : number(number), begin(number * of.length), threads(of.threads)
    {
        inside = number < of.rows;
        length = inside ? of.length : 0;
        rank = threadIdx.x % threads;
    }
    // Calls `visit(place)` for the row's elements that belong to this thread, `Width` at a time.
    template <int Width, class Visit> __device__ void each(Visit visit) const
    {
#pragma unroll 4
        for (u64 i = (u64)rank * Width; i < length; i += (u64)threads * Width) visit(i);
    }
    // Sum of the values of the row's threads. All threads of the block must call this function.
    template <class T> __device__ T sum(T value) const
    {
        if (threads > 32) return join_block(value, Plus());
        return of_first(join_lanes(value, Plus(), threads), threads);
    }
};

// Calls `body(row)` for each row that a block computes.
template <class Body> __device__ inline void each_row(const Rows &of, Body body)
{
    u32 together = blockDim.x / of.threads;
    for (u64 first = (u64)blockIdx.x * together; first < of.rows; first += (u64)gridDim.x * together)
        body(Row(of, first + threadIdx.x / of.threads));
}

// ---- Forward ----

// If `mean` is null, the mean is not subtracted from `x`, and `beta` is not added.
struct Forward {
    float *y, *mean, *inv_std;
    const float *x, *gamma, *beta;
    double eps;
};

// Parameters of rows: one parameter for each element of a row.
struct OfElements {
    template <int Width>
    __device__ void get(const Forward &with, const Row &, u64 i, float (&gamma)[Width], float (&beta)[Width]) const
    {
        load<Width>(with.gamma + i, gamma);
#pragma unroll
        for (int j = 0; j < Width; ++j) beta[j] = 0.0f;
        if (with.beta) load<Width>(with.beta + i, beta);
    }
};

// Parameters of groups: one parameter for each channel. A row is a group of channels of an image.
struct Channels {
    u64 groups, channels;  // `groups`: groups per image; `channels`: channels per group.
    Divider inner;         // Elements per channel.

    __device__ u64 of(const Row &row, u64 i) const
    {
        return row.number % groups * channels + quotient((Index)i, inner);
    }
    template <int Width>
    __device__ void get(const Forward &with, const Row &row, u64 i, float (&gamma)[Width], float (&beta)[Width]) const
    {
        u64 channel = of(row, i);
#pragma unroll
        for (int j = 0; j < Width; ++j) gamma[j] = with.gamma[channel];
#pragma unroll
        for (int j = 0; j < Width; ++j) beta[j] = with.beta[channel];
    }
};

template <int Width, class Parameters>
__device__ inline void normalize(const Forward &with, const Row &row, double length, const Parameters &parameters)
{
    const float *x = with.x + row.begin;
    double mean = 0.0;
    if (with.mean) {
        double sum = 0.0;
        row.each<Width>([&](u64 i) {
            float v[Width];
            load<Width>(x + i, v);
#pragma unroll
            for (int j = 0; j < Width; ++j) sum += v[j];
        });
        mean = row.sum(sum) / length;
    }
    // Distances are relative to the mean rounded to a float. The sum of the distances gives the
    // rounding error of this mean.
    float about = (float)mean;
    Two far = {0.0, 0.0};
    row.each<Width>([&](u64 i) {
        float v[Width];
        load<Width>(x + i, v);
        // The elements are few, so they are first added in single precision.
        float distances = 0.0f, squares = 0.0f;
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            float distance = v[j] - about;
            distances += distance;
            squares += distance * distance;
        }
        far.a += distances;
        far.b += squares;
    });
    far = row.sum(far);
    double spread = with.mean ? far.b - far.a * far.a / length : far.b;
    // The sum of squared distances is at least zero; NaN stays NaN.
    spread = spread < 0.0 ? 0.0 : spread;
    float inv_std = (float)(1.0 / sqrt(spread / length + with.eps));
    float lost = (float)(mean - about);
    row.each<Width>([&](u64 i) {
        float v[Width], gamma[Width], beta[Width];
        load<Width>(x + i, v);
        parameters.get(with, row, i, gamma, beta);
#pragma unroll
        for (int j = 0; j < Width; ++j) v[j] = ((v[j] - about) - lost) * inv_std * gamma[j] + beta[j];
        store<Width>(with.y + row.begin + i, v);
    });
    if (row.inside && row.rank == 0) {
        if (with.mean) with.mean[row.number] = about;
        with.inv_std[row.number] = inv_std;
    }
}

ROW_KERNEL layer_norm(Forward with, Rows of)
{
    each_row(of, [&](const Row &row) {
        if (of.width == 4) {
            normalize<4>(with, row, (double)of.length, OfElements());
        } else {
            normalize<1>(with, row, (double)of.length, OfElements());
        }
    });
}

ROW_KERNEL group_norm(Forward with, Rows of, Channels by)
{
    each_row(of, [&](const Row &row) {
        if (of.width == 4) {
            normalize<4>(with, row, (double)of.length, by);
        } else {
            normalize<1>(with, row, (double)of.length, by);
        }
    });
}

// ---- Gradient ----

// Operands of the gradients. If `mean` is null, 0 is used for the mean of `x` and for `mean(z)`.
struct Grad {
    const float *x, *gamma, *mean, *inv_std, *dy;

    __device__ float mean_of(u64 row) const { return mean ? mean[row] : 0.0f; }
};

// `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, where `x' = (x - mean) * inv_std` and
// `z = gamma * dy`.
template <int Width> __device__ inline void grad(float *dx, const Grad &with, const Row &row, double length)
{
    const float *x = with.x + row.begin, *dy = with.dy + row.begin;
    float mean = row.inside ? with.mean_of(row.number) : 0.0f;
    float inv_std = row.inside ? with.inv_std[row.number] : 0.0f;
    Two sums = {0.0, 0.0};
    row.each<Width>([&](u64 i) {
        float v[Width], z[Width], gamma[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, z);
        load<Width>(with.gamma + i, gamma);
        // The elements are few, so they are first added in single precision.
        float plain = 0.0f, weighted = 0.0f;
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            z[j] *= gamma[j];
            plain += z[j];
            weighted += z[j] * ((v[j] - mean) * inv_std);
        }
        sums.a += plain;
        sums.b += weighted;
    });
    sums = row.sum(sums);
    float plain = with.mean ? (float)(sums.a / length) : 0.0f, weight = (float)(sums.b / length);
    row.each<Width>([&](u64 i) {
        float v[Width], z[Width], gamma[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, z);
        load<Width>(with.gamma + i, gamma);
#pragma unroll
        for (int j = 0; j < Width; ++j)
            v[j] = inv_std * ((z[j] * gamma[j] - plain) - (v[j] - mean) * inv_std * weight);
        store<Width>(dx + row.begin + i, v);
    });
}

ROW_KERNEL layer_norm_grad(float *dx, Grad with, Rows of)
{
    each_row(of, [&](const Row &row) {
        if (of.width == 4) {
            grad<4>(dx, with, row, (double)of.length);
        } else {
            grad<1>(dx, with, row, (double)of.length);
        }
    });
}

// Sums over rows, for each element of a row.
struct Sums {
    float *dgamma, *dbeta;
    Two *partial;  // Sums of each chunk, if there are several chunks.
};

__device__ inline void finish(const Sums &to, u64 element, Two sums)
{
    to.dgamma[element] = (float)sums.a;
    if (to.dbeta) to.dbeta[element] = (float)sums.b;
}

// `dgamma = sum dy * x'` and `dbeta = sum dy`.
//
// The threads of a block form rows of `lanes` threads. The threads of a row read neighbouring
// units. Different rows of threads read different rows of `x`.
template <int Width>
__device__ inline void add_rows(const Sums &to, const Grad &with, const Rows &of, u64 chunk, u32 lanes)
{
    __shared__ Two shared[THREADS * Width];
    u32 lane = threadIdx.x % lanes;
    u64 first = ((u64)blockIdx.x * lanes + lane) * Width;
    bool inside = first < of.length;
    u64 from = blockIdx.y * chunk, end = from + chunk < of.rows ? from + chunk : of.rows;
    Two all[Width];
#pragma unroll
    for (int j = 0; j < Width; ++j) all[j] = Two{0.0, 0.0};
#pragma unroll 4
    for (u64 row = from + threadIdx.x / lanes; row < (inside ? end : 0); row += THREADS / lanes) {
        float v[Width], dy[Width];
        load<Width>(with.x + row * of.length + first, v);
        load<Width>(with.dy + row * of.length + first, dy);
        float mean = with.mean_of(row), inv_std = with.inv_std[row];
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            all[j].a += dy[j] * ((v[j] - mean) * inv_std);
            all[j].b += dy[j];
        }
    }
#pragma unroll
    for (int j = 0; j < Width; ++j) shared[j * THREADS + threadIdx.x] = all[j];
    __syncthreads();
    if (!inside || threadIdx.x >= lanes) return;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        for (u32 other = lane + lanes; other < THREADS; other += lanes)
            all[j] = Plus()(all[j], shared[j * THREADS + other]);
        if (gridDim.y == 1) {
            finish(to, first + j, all[j]);
        } else {
            to.partial[blockIdx.y * of.length + first + j] = all[j];
        }
    }
}

KERNEL layer_norm_grad_sums(Sums to, Grad with, Rows of, u64 chunk, u32 lanes)
{
    if (of.width == 4) {
        add_rows<4>(to, with, of, chunk, lanes);
    } else {
        add_rows<1>(to, with, of, chunk, lanes);
    }
}

// Adds the sums of the chunks. One warp computes each element of a row.
KERNEL layer_norm_grad_join(Sums to, u64 length, u32 chunks)
{
    u64 element = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (element >= length) return;
    Two all = {0.0, 0.0};
    for (u32 chunk = threadIdx.x % 32; chunk < chunks; chunk += 32)
        all = Plus()(all, to.partial[chunk * length + element]);
    all = join_lanes(all, Plus());
    if (threadIdx.x % 32 == 0) finish(to, element, all);
}

// ---- Gradient of groups of channels ----

// `sum dy * x'` and `sum dy` of a channel of an image. Here, the channel is the row.
template <int Width> __device__ inline Two sums_of(const Grad &with, const Row &row, u64 group)
{
    const float *x = with.x + row.begin, *dy = with.dy + row.begin;
    float mean = row.inside ? with.mean[group] : 0.0f, inv_std = row.inside ? with.inv_std[group] : 0.0f;
    Two all = {0.0, 0.0};
    row.each<Width>([&](u64 i) {
        float v[Width], d[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, d);
#pragma unroll
        for (int j = 0; j < Width; ++j) {
            all.a += d[j] * ((v[j] - mean) * inv_std);
            all.b += d[j];
        }
    });
    return row.sum(all);
}

ROW_KERNEL group_norm_grad_sums(Two *sums, Grad with, Rows of, u64 channels)
{
    each_row(of, [&](const Row &row) {
        u64 group = row.number / channels;
        Two all = of.width == 4 ? sums_of<4>(with, row, group) : sums_of<1>(with, row, group);
        if (row.inside && row.rank == 0) sums[row.number] = all;
    });
}

// Computes `dx` of a group by the formula for rows, from the sums of the channels.
template <int Width>
__device__ inline void grad_of_group(float *dx, const Two *sums, const Grad &with, const Row &row, double length,
                                     const Channels &by)
{
    const float *x = with.x + row.begin, *dy = with.dy + row.begin;
    float mean = row.inside ? with.mean[row.number] : 0.0f;
    float inv_std = row.inside ? with.inv_std[row.number] : 0.0f;
    const float *gamma = with.gamma + row.number % by.groups * by.channels;
    Two all = {0.0, 0.0};
    for (u64 channel = row.rank; channel < (row.inside ? by.channels : 0); channel += row.threads) {
        Two of = sums[row.number * by.channels + channel];
        all.a += gamma[channel] * of.b;
        all.b += gamma[channel] * of.a;
    }
    all = row.sum(all);
    float plain = (float)(all.a / length), weight = (float)(all.b / length);
    row.each<Width>([&](u64 i) {
        float v[Width], z[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, z);
        float factor = with.gamma[by.of(row, i)];
#pragma unroll
        for (int j = 0; j < Width; ++j)
            v[j] = inv_std * ((z[j] * factor - plain) - (v[j] - mean) * inv_std * weight);
        store<Width>(dx + row.begin + i, v);
    });
}

ROW_KERNEL group_norm_grad(float *dx, const Two *sums, Grad with, Rows of, Channels by)
{
    each_row(of, [&](const Row &row) {
        if (of.width == 4) {
            grad_of_group<4>(dx, sums, with, row, (double)of.length, by);
        } else {
            grad_of_group<1>(dx, sums, with, row, (double)of.length, by);
        }
    });
}

// Adds the sums of the images. One thread computes each channel.
KERNEL group_norm_grad_join(float *dgamma, float *dbeta, const Two *sums, u64 images, u64 channels)
{
    u64 channel = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (channel >= channels) return;
    Two all = {0.0, 0.0};
    for (u64 image = 0; image < images; ++image) all = Plus()(all, sums[image * channels + channel]);
    dgamma[channel] = (float)all.a;
    dbeta[channel] = (float)all.b;
}
