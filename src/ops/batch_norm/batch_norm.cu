// Batch normalization of `[n, c, inner]`.
//
// A channel that fits into the registers of a thread block is read once (`.._whole`). A larger
// channel is read twice. First, the elements of each chunk of a channel are added up (`.._chunks`),
// and the results of the chunks are joined (`.._join`). Then the statistics are applied to all
// elements (`normalize`, `.._apply`). The second pass begins with the last elements, because they
// may still be cached.

#define KERNEL extern "C" __global__ void
// Elements per thread, and maximum threads per block, of the kernels that read each element once.
#define HELD 16
#define HELD_GRAD 8
#define MOST_THREADS 512

// `count`, `inner` and `chunk` are in units of `width` elements.
struct Channels {
    Divider c;
    Divider inner;
    u64 count;       // Number of units of a channel.
    u64 chunk;       // Number of units for each row of the grid.
    double elements; // Number of elements of a channel.
    u32 width;
};

// First element of unit `i` of a channel.
template <int Width> __device__ inline u64 place(const Channels &of, Index i, u64 channel)
{
    Index rest = take_remainder(i, of.inner);
    return ((i * of.c.divisor + channel) * of.inner.divisor + rest) * Width;
}

// ---- Statistics ----

// Count of a set of numbers, the mean, and the sum of squared distances from the mean.
struct Moments {
    double count, mean, spread;
};

__device__ inline Moments from_lane_beyond(Moments x, int distance)
{
    x.count = from_lane_beyond(x.count, distance);
    x.mean = from_lane_beyond(x.mean, distance);
    x.spread = from_lane_beyond(x.spread, distance);
    return x;
}

// Joins moments by the formula of Chan, Golub and LeVeque. No digits cancel, however far the mean
// is from zero. If both means are equal, the joined mean is the same number.
struct Together {
    __device__ Moments operator()(const Moments &a, const Moments &b) const
    {
        if (b.count == 0.0) return a;
        double count = a.count + b.count, part = b.count / count, step = b.mean - a.mean;
        return Moments{count, a.mean + step * part, a.spread + b.spread + step * step * a.count * part};
    }
};

struct Training {
    const float *gamma, *beta, *old_mean, *old_var;
    float *mean, *inv_std, *new_mean, *new_var;
    double momentum, eps;
};

// Terms of a channel: `y = (x - mean) * scale + beta`.
struct Terms {
    float mean, scale, beta;
};

// Writes the outputs that depend on a channel's statistics.
__device__ inline void finish(const Training &with, u64 channel, const Moments &all)
{
    double inv_std = 1.0 / sqrt(all.spread / all.count + with.eps);
    double unbiased = all.spread / (all.count > 2.0 ? all.count - 1.0 : 1.0);
    double kept = 1.0 - with.momentum;
    with.mean[channel] = (float)all.mean;
    with.inv_std[channel] = (float)inv_std;
    with.new_mean[channel] = (float)(kept * with.old_mean[channel] + with.momentum * all.mean);
    with.new_var[channel] = (float)(kept * with.old_var[channel] + with.momentum * unbiased);
}

__device__ inline Terms terms(const Training &with, u64 channel, const Moments &all)
{
    double scale = 1.0 / sqrt(all.spread / all.count + with.eps) * with.gamma[channel];
    float mean = (float)all.mean;
    // Add the rounding error of the mean to the summand.
    return Terms{mean, (float)scale, (float)(with.beta[channel] - (all.mean - mean) * scale)};
}

__device__ inline float applied(Terms by, float x) { return (x - by.mean) * by.scale + by.beta; }

// ---- Forward ----

// Adds distances from `about`, and the squares of the distances. The elements are few, so they are
// first added in single precision.
template <int Width> __device__ inline void add_distances(Two &far, const float (&x)[Width], float about)
{
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        float distance = x[j] - about;
        sum += distance;
        squares += distance * distance;
    }
    far.a += sum;
    far.b += squares;
}

// Sum of squared distances from the mean, computed from sums of distances from a number near the
// mean. The result is at least zero; NaN stays NaN.
__device__ inline double spread(Two far, double count)
{
    double spread = far.b - far.a * far.a / count;
    return spread < 0.0 ? 0.0 : spread;
}

template <int Width> __device__ inline void whole(float *y, const float *x, const Channels &of, const Training &with)
{
    const int Rounds = HELD / Width;
    u64 channel = blockIdx.x;
    float v[Rounds][Width];
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < Rounds; ++i) {
        u32 unit = threadIdx.x + i * blockDim.x;
        if (unit < of.count) load<Width>(x + place<Width>(of, unit, channel), v[i]);
    }
#pragma unroll
    for (int i = 0; i < Rounds; ++i)
        if (threadIdx.x + i * blockDim.x < of.count)
#pragma unroll
            for (int j = 0; j < Width; ++j) sum += v[i][j];
    Moments all = {of.elements, join_block(sum, Plus()) / of.elements, 0.0};
    // Distances are relative to the mean rounded to a float. The sum of the distances gives the
    // rounding error of this mean.
    float mean = (float)all.mean;
    Two far = {0.0, 0.0};
#pragma unroll
    for (int i = 0; i < Rounds; ++i)
        if (threadIdx.x + i * blockDim.x < of.count) add_distances(far, v[i], mean);
    far = join_block(far, Plus());
    all.spread = spread(far, of.elements);
    Terms by = terms(with, channel, all);
    if (threadIdx.x == 0) finish(with, channel, all);
#pragma unroll
    for (int i = 0; i < Rounds; ++i) {
        u32 unit = threadIdx.x + i * blockDim.x;
        if (unit < of.count) {
#pragma unroll
            for (int j = 0; j < Width; ++j) v[i][j] = applied(by, v[i][j]);
            store<Width>(y + place<Width>(of, unit, channel), v[i]);
        }
    }
}

KERNEL __launch_bounds__(MOST_THREADS, 2) batch_norm_whole(float *y, const float *x, Channels of, Training with)
{
    if (of.width == 4) {
        whole<4>(y, x, of, with);
    } else {
        whole<1>(y, x, of, with);
    }
}

// Chunk of a channel that a block reads, as a range of units.
struct Chunk {
    u64 channel, from, to;
    __device__ Chunk(const Channels &of)
    {
        channel = blockIdx.x;
        from = blockIdx.y * of.chunk;
        to = from + of.chunk < of.count ? from + of.chunk : of.count;
    }
};

template <int Width> __device__ inline void moments_of_chunk(Moments *partial, const float *x, const Channels &of)
{
    Chunk chunk(of);
    Moments own = {0.0, 0.0, 0.0};
    // A thread subtracts its first element from all its elements. A thread has few elements, so few
    // digits are lost even if the first element is an outlier.
    float first = 0.0f;
    if (chunk.from + threadIdx.x < chunk.to)
        first = x[place<Width>(of, (Index)(chunk.from + threadIdx.x), chunk.channel)];
    Two far = {0.0, 0.0};
    u32 units = 0;
#pragma unroll 4
    for (u64 i = chunk.from + threadIdx.x; i < chunk.to; i += THREADS) {
        float v[Width];
        load<Width>(x + place<Width>(of, (Index)i, chunk.channel), v);
        add_distances(far, v, first);
        ++units;
    }
    if (units > 0) {
        own.count = (double)units * Width;
        own.mean = first + far.a / own.count;
        own.spread = spread(far, own.count);
    }
    own = join_block(own, Together());
    if (threadIdx.x == 0) partial[blockIdx.y * of.c.divisor + chunk.channel] = own;
}

KERNEL __launch_bounds__(THREADS) batch_norm_chunks(Moments *partial, const float *x, Channels of)
{
    if (of.width == 4) {
        moments_of_chunk<4>(partial, x, of);
    } else {
        moments_of_chunk<1>(partial, x, of);
    }
}

// Joins the chunks, with a warp for each channel.
KERNEL __launch_bounds__(THREADS)
batch_norm_join(Terms *terms_of, const Moments *partial, u64 c, u32 chunks, Training with)
{
    u64 channel = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (channel >= c) return;
    Moments all = {0.0, 0.0, 0.0};
    for (u32 chunk = threadIdx.x % 32; chunk < chunks; chunk += 32)
        all = Together()(all, partial[chunk * c + channel]);
    all = join_lanes(all, Together());
    if (threadIdx.x % 32 != 0) return;
    terms_of[channel] = terms(with, channel, all);
    finish(with, channel, all);
}

// `y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta`
KERNEL __launch_bounds__(THREADS) batch_norm_infer(Terms *terms_of, const float *gamma, const float *beta,
                                                   const float *mean, const float *var, u64 c, float eps)
{
    u64 channel = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (channel < c)
        terms_of[channel] = Terms{mean[channel], gamma[channel] / sqrtf(var[channel] + eps), beta[channel]};
}

// Unit of a thread, and the channel of the unit. Threads take the last unit first.
struct Unit {
    u64 at;
    Index channel;
    bool inside;
    __device__ Unit(const Channels &of, u64 units)
    {
        u64 i = ((u64)gridDim.x - 1 - blockIdx.x) * THREADS + threadIdx.x;
        inside = i < units;
        Index run = quotient((Index)i, of.inner);
        channel = take_remainder(run, of.c);
        at = i * of.width;
    }
};

template <int Width> __device__ inline void normalize_unit(float *y, const float *x, Terms by)
{
    float v[Width];
    load<Width>(x, v);
#pragma unroll
    for (int j = 0; j < Width; ++j) v[j] = applied(by, v[j]);
    store<Width>(y, v);
}

KERNEL __launch_bounds__(THREADS) normalize(float *y, const float *x, const Terms *terms_of, u64 units, Channels of)
{
    Unit unit(of, units);
    if (!unit.inside) return;
    Terms by = terms_of[unit.channel];
    if (of.width == 4) {
        normalize_unit<4>(y + unit.at, x + unit.at, by);
    } else {
        normalize_unit<1>(y + unit.at, x + unit.at, by);
    }
}

// ---- Gradient ----

struct Grad {
    const float *gamma, *mean, *inv_std;
    float *dgamma, *dbeta;
};

// `dx = scale * ((dy - plain) - (x - mean) * weighted)`
struct GradTerms {
    float mean, scale, plain, weighted;
};

// Writes the outputs that depend on a channel's sums of `dy` and of `(x - mean) * dy`.
__device__ inline void finish(const Grad &with, u64 channel, Two sums)
{
    with.dbeta[channel] = (float)sums.a;
    with.dgamma[channel] = (float)(sums.b * with.inv_std[channel]);
}

__device__ inline GradTerms terms(const Grad &with, u64 channel, Two sums, double elements)
{
    double inv_std = with.inv_std[channel];
    return GradTerms{with.mean[channel], with.gamma[channel] * with.inv_std[channel], (float)(sums.a / elements),
                     (float)(sums.b * inv_std * inv_std / elements)};
}

__device__ inline float applied(GradTerms by, float x, float dy)
{
    return by.scale * ((dy - by.plain) - (x - by.mean) * by.weighted);
}

template <int Width> __device__ inline void add(Two &sums, const float (&x)[Width], const float (&dy)[Width], float mean)
{
    // The elements are few, so they are first added in single precision.
    float plain = 0.0f, weighted = 0.0f;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
        plain += dy[j];
        weighted += (x[j] - mean) * dy[j];
    }
    sums.a += plain;
    sums.b += weighted;
}

template <int Width>
__device__ inline void grad_whole(float *dx, const float *x, const float *dy, const Channels &of, const Grad &with)
{
    const int Rounds = HELD_GRAD / Width;
    u64 channel = blockIdx.x;
    float mean = with.mean[channel];
    float v[Rounds][Width], d[Rounds][Width];
    Two sums = {0.0, 0.0};
#pragma unroll
    for (int i = 0; i < Rounds; ++i) {
        u32 unit = threadIdx.x + i * blockDim.x;
        if (unit < of.count) {
            u64 at = place<Width>(of, unit, channel);
            load<Width>(x + at, v[i]);
            load<Width>(dy + at, d[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < Rounds; ++i)
        if (threadIdx.x + i * blockDim.x < of.count) add(sums, v[i], d[i], mean);
    sums = join_block(sums, Plus());
    GradTerms by = terms(with, channel, sums, of.elements);
    if (threadIdx.x == 0) finish(with, channel, sums);
#pragma unroll
    for (int i = 0; i < Rounds; ++i) {
        u32 unit = threadIdx.x + i * blockDim.x;
        if (unit < of.count) {
#pragma unroll
            for (int j = 0; j < Width; ++j) d[i][j] = applied(by, v[i][j], d[i][j]);
            store<Width>(dx + place<Width>(of, unit, channel), d[i]);
        }
    }
}

KERNEL __launch_bounds__(MOST_THREADS, 2)
batch_norm_grad_whole(float *dx, const float *x, const float *dy, Channels of, Grad with)
{
    if (of.width == 4) {
        grad_whole<4>(dx, x, dy, of, with);
    } else {
        grad_whole<1>(dx, x, dy, of, with);
    }
}

template <int Width>
__device__ inline void sums_of_chunk(Two *partial, const float *x, const float *dy, const float *mean, const Channels &of)
{
    Chunk chunk(of);
    Two sums = {0.0, 0.0};
    float about = mean[chunk.channel];
#pragma unroll 4
    for (u64 i = chunk.from + threadIdx.x; i < chunk.to; i += THREADS) {
        u64 at = place<Width>(of, (Index)i, chunk.channel);
        float v[Width], d[Width];
        load<Width>(x + at, v);
        load<Width>(dy + at, d);
        add(sums, v, d, about);
    }
    sums = join_block(sums, Plus());
    if (threadIdx.x == 0) partial[blockIdx.y * of.c.divisor + chunk.channel] = sums;
}

KERNEL __launch_bounds__(THREADS)
batch_norm_grad_chunks(Two *partial, const float *x, const float *dy, const float *mean, Channels of)
{
    if (of.width == 4) {
        sums_of_chunk<4>(partial, x, dy, mean, of);
    } else {
        sums_of_chunk<1>(partial, x, dy, mean, of);
    }
}

KERNEL __launch_bounds__(THREADS)
batch_norm_grad_join(GradTerms *terms_of, const Two *partial, u64 c, u32 chunks, double elements, Grad with)
{
    u64 channel = ((u64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (channel >= c) return;
    Two sums = {0.0, 0.0};
    for (u32 chunk = threadIdx.x % 32; chunk < chunks; chunk += 32) sums = Plus()(sums, partial[chunk * c + channel]);
    sums = join_lanes(sums, Plus());
    if (threadIdx.x % 32 != 0) return;
    terms_of[channel] = terms(with, channel, sums, elements);
    finish(with, channel, sums);
}

template <int Width> __device__ inline void grad_unit(float *dx, const float *x, const float *dy, GradTerms by)
{
    float v[Width], d[Width];
    load<Width>(x, v);
    load<Width>(dy, d);
#pragma unroll
    for (int j = 0; j < Width; ++j) d[j] = applied(by, v[j], d[j]);
    store<Width>(dx, d);
}

KERNEL __launch_bounds__(THREADS) batch_norm_grad_apply(float *dx, const float *x, const float *dy,
                                                        const GradTerms *terms_of, u64 units, Channels of)
{
    Unit unit(of, units);
    if (!unit.inside) return;
    GradTerms by = terms_of[unit.channel];
    if (of.width == 4) {
        grad_unit<4>(dx + unit.at, x + unit.at, dy + unit.at, by);
    } else {
        grad_unit<1>(dx + unit.at, x + unit.at, dy + unit.at, by);
    }
}
