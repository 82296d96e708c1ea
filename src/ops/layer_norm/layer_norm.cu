// Layer normalization of rows. A block has a row, and reads it two or three times, from memory once.
//
// The gradients of `gamma` and `beta` are sums over rows. Neighbouring lanes have neighbouring elements of a row. Rows
// may be cut into chunks, so that short rows keep all of the device busy; then each chunk's sums go to the
// workspace, and a second kernel joins them.
//
// All is counted in 64 bits.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// Of blocks of any size.
#define ROW_KERNEL extern "C" __global__ void __launch_bounds__(1024)

struct Rows {
    u64 rows;
    u64 length;
    u32 width;  // Elements that are loaded at once.
};

// Calls `visit(place)` for the elements of a row that belong to this thread, `Width` at a time.
template <int Width, class Visit> __device__ inline void each(u64 length, Visit visit)
{
#pragma unroll 4
    for (u64 i = (u64)threadIdx.x * Width; i < length; i += (u64)blockDim.x * Width) visit(i);
}

// ---- Forward ----

struct Forward {
    float *y, *mean, *inv_std;
    const float *x, *gamma, *beta;
    double eps;
};

template <int Width> __device__ inline void normalize(const Forward &with, const Rows &of, u64 row)
{
    const float *x = with.x + row * of.length;
    double sum = 0.0;
    each<Width>(of.length, [&](u64 i) {
        float v[Width];
        load<Width>(x + i, v);
#pragma unroll
        for (int j = 0; j < Width; ++j) sum += v[j];
    });
    double mean = join_block(sum, Plus()) / (double)of.length;
    // Distances from the mean as a float can hold it. How far that is off, the sum of them tells.
    float about = (float)mean;
    Two far = {0.0, 0.0};
    each<Width>(of.length, [&](u64 i) {
        float v[Width];
        load<Width>(x + i, v);
        // Few enough to be added in single precision first.
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
    far = join_block(far, Plus());
    double spread = far.b - far.a * far.a / (double)of.length;
    // At least zero; NaN stays.
    spread = spread < 0.0 ? 0.0 : spread;
    float inv_std = (float)(1.0 / sqrt(spread / (double)of.length + with.eps));
    float lost = (float)(mean - about);
    each<Width>(of.length, [&](u64 i) {
        float v[Width], gamma[Width], beta[Width];
        load<Width>(x + i, v);
        load<Width>(with.gamma + i, gamma);
        load<Width>(with.beta + i, beta);
#pragma unroll
        for (int j = 0; j < Width; ++j) v[j] = ((v[j] - about) - lost) * inv_std * gamma[j] + beta[j];
        store<Width>(with.y + row * of.length + i, v);
    });
    if (threadIdx.x == 0) {
        with.mean[row] = about;
        with.inv_std[row] = inv_std;
    }
}

ROW_KERNEL layer_norm(Forward with, Rows of)
{
    for (u64 row = blockIdx.x; row < of.rows; row += gridDim.x) {
        if (of.width == 4) {
            normalize<4>(with, of, row);
        } else {
            normalize<1>(with, of, row);
        }
    }
}

// ---- Gradient ----

// What gradients are made of.
struct Grad {
    const float *x, *gamma, *mean, *inv_std, *dy;
};

// `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, where `x' = (x - mean) * inv_std` and `z = gamma * dy`.
template <int Width> __device__ inline void grad(float *dx, const Grad &with, const Rows &of, u64 row)
{
    const float *x = with.x + row * of.length, *dy = with.dy + row * of.length;
    float mean = with.mean[row], inv_std = with.inv_std[row];
    Two sums = {0.0, 0.0};
    each<Width>(of.length, [&](u64 i) {
        float v[Width], z[Width], gamma[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, z);
        load<Width>(with.gamma + i, gamma);
        // Few enough to be added in single precision first.
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
    sums = join_block(sums, Plus());
    float plain = (float)(sums.a / (double)of.length), weight = (float)(sums.b / (double)of.length);
    each<Width>(of.length, [&](u64 i) {
        float v[Width], z[Width], gamma[Width];
        load<Width>(x + i, v);
        load<Width>(dy + i, z);
        load<Width>(with.gamma + i, gamma);
#pragma unroll
        for (int j = 0; j < Width; ++j)
            v[j] = inv_std * ((z[j] * gamma[j] - plain) - (v[j] - mean) * inv_std * weight);
        store<Width>(dx + row * of.length + i, v);
    });
}

ROW_KERNEL layer_norm_grad(float *dx, Grad with, Rows of)
{
    for (u64 row = blockIdx.x; row < of.rows; row += gridDim.x) {
        if (of.width == 4) {
            grad<4>(dx, with, of, row);
        } else {
            grad<1>(dx, with, of, row);
        }
    }
}

// Sums over rows, for each element of a row.
struct Sums {
    float *dgamma, *dbeta;
    Two *partial;  // Of each chunk, unless there is one chunk.
};

__device__ inline void finish(const Sums &to, u64 element, Two sums)
{
    to.dgamma[element] = (float)sums.a;
    to.dbeta[element] = (float)sums.b;
}

// `dgamma = sum dy * x'` and `dbeta = sum dy`. `lanes` threads of a block have neighbouring units; its rows of
// threads share these.
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
        float mean = with.mean[row], inv_std = with.inv_std[row];
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

// Joins the chunks, a warp for each element of a row.
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
