// Attention in tiles of ROWS queries and ROWS keys. The tiles, whose rows have up to DEPTH
// elements, are in shared memory and take at most 33 KiB.
//
// A thread block computes one tile of queries, and reads the tiles of keys in order. In the
// backward pass, a thread block may also compute one tile of keys, and reads the tiles of queries
// in order. Sums therefore have a fixed order, and no two blocks add to the same element.
//
// All counts are 64-bit integers.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// An operand `[b, h, n, d]` of any strides.
struct Heads {
    const float *data;
    u64 strides[4];

    __device__ const float *head(u64 i, u64 h) const { return data + i / h * strides[0] + i % h * strides[1]; }
};

struct Sizes {
    u64 heads, h, t, s, d;  // `heads`: heads in the whole batch; `h`: heads in one entry.
    u32 causal;
    float scale;

    __device__ bool sees(u64 query, u64 key) const { return query < t && key < s && (!causal || key <= query); }
};

// Rows of a tile. A row has one spare element, so that neighbouring rows begin in different memory
// banks.
template <int ROWS, int DEPTH> struct Tile {
    float rows[ROWS][DEPTH + 1];

    // Copies rows of a head from `first` on. Rows beyond `count` and elements beyond `d` are zeros.
    __device__ void fill(const Heads &from, const float *head, u64 first, u64 count, u64 d)
    {
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
            int row = i / DEPTH, column = i % DEPTH;
            bool inside = first + row < count && column < d;
            rows[row][column] = inside ? head[(first + row) * from.strides[2] + column * from.strides[3]] : 0.0f;
        }
    }
};

template <int ROWS, int DEPTH>
__device__ inline float product(const Tile<ROWS, DEPTH> &a, int i, const Tile<ROWS, DEPTH> &b, int j, u64 d)
{
    float sum = 0.0f;
    for (int l = 0; l < d; ++l) sum += a.rows[i][l] * b.rows[j][l];
    return sum;
}

// Elements of a tile of sums that one thread computes: every LANES-th element of one row.
template <int ROWS, int DEPTH> struct Part {
    static const int LANES = THREADS / ROWS;
    static const int COUNT = (DEPTH + LANES - 1) / LANES;
    float v[COUNT];
    int row, lane;

    __device__ Part() : row(threadIdx.x / LANES), lane(threadIdx.x % LANES)
    {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) v[i] = 0.0f;
    }
    // Adds row `of` of the tile, times `factor`.
    __device__ void add(float factor, const Tile<ROWS, DEPTH> &tile, int of)
    {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (lane + i * LANES < DEPTH) v[i] += factor * tile.rows[of][lane + i * LANES];
    }
    // Writes the elements times `factor` to row `first + row`, if the row exists.
    __device__ void store(float *to, u64 first, u64 count, u64 d, float factor) const
    {
        if (first + row >= count) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (lane + i * LANES < d) to[(first + row) * d + lane + i * LANES] = v[i] * factor;
    }
};

// Calls `body(head, first)` for each tile that this thread block computes. `rows` is the number of
// rows of a head, and `first` is the first row of the tile.
template <int ROWS, class Body> __device__ inline void each_tile(const Sizes &of, u64 rows, Body body)
{
    u64 tiles = (rows + ROWS - 1) / ROWS;
    for (u64 i = blockIdx.x; i < of.heads * tiles; i += gridDim.x) {
        __syncthreads();  // Other threads may still read the last tiles.
        body(i / tiles, i % tiles * ROWS);
    }
}

template <int ROWS, int DEPTH>
__device__ inline void forward(float *y, float *lse, const Heads &q, const Heads &k, const Heads &v, const Sizes &of)
{
    __shared__ Tile<ROWS, DEPTH> queries, others;
    __shared__ float scores[ROWS][ROWS + 1];
    each_tile<ROWS>(of, of.t, [&](u64 head, u64 first) {
        queries.fill(q, q.head(head, of.h), first, of.t, of.d);
        Part<ROWS, DEPTH> sums;
        float most = MINUS_INFINITY, total = 0.0f;
        u64 end = of.causal && first + ROWS < of.s ? first + ROWS : of.s;
        for (u64 key = 0; key < end; key += ROWS) {
            __syncthreads();  // Other threads may still read values of the last tile.
            others.fill(k, k.head(head, of.h), key, of.s, of.d);
            __syncthreads();
            for (int i = threadIdx.x; i < ROWS * ROWS; i += THREADS) {
                int row = i / ROWS, column = i % ROWS;
                scores[row][column] = of.sees(first + row, key + column)
                                          ? product(queries, row, others, column, of.d) * of.scale
                                          : MINUS_INFINITY;
            }
            __syncthreads();
            others.fill(v, v.head(head, of.h), key, of.s, of.d);
            __syncthreads();
            int row = sums.row;
            if (!of.sees(first + row, key)) continue;
            float now = most;
            for (int j = 0; j < ROWS && of.sees(first + row, key + j); ++j) now = Larger()(now, scores[row][j]);
            float kept = expf(most - now);
            total *= kept;
#pragma unroll
            for (int i = 0; i < Part<ROWS, DEPTH>::COUNT; ++i) sums.v[i] *= kept;
            for (int j = 0; j < ROWS && of.sees(first + row, key + j); ++j) {
                float p = expf(scores[row][j] - now);
                total += p;
                sums.add(p, others, j);
            }
            most = now;
        }
        // If there are no keys, the result is zeros.
        float whole = of.s > 0 ? total : 1.0f;
        sums.store(y + head * of.t * of.d, first, of.t, of.d, 1.0f / whole);
        if (sums.lane == 0 && first + sums.row < of.t) lse[head * of.t + first + sums.row] = most + logf(total);
    });
}

// Probabilities of a tile, and the gradients of the scores.
template <int ROWS> struct Probabilities {
    float p[ROWS][ROWS + 1], ds[ROWS][ROWS + 1];

    template <int DEPTH>
    __device__ void fill(const Tile<ROWS, DEPTH> &q, const Tile<ROWS, DEPTH> &k, const Tile<ROWS, DEPTH> &v,
                         const Tile<ROWS, DEPTH> &dy, const float *lse, const float *delta, u64 query, u64 key,
                         const Sizes &of)
    {
        for (int i = threadIdx.x; i < ROWS * ROWS; i += THREADS) {
            int row = i / ROWS, column = i % ROWS;
            float found = 0.0f, slope = 0.0f;
            if (of.sees(query + row, key + column)) {
                found = expf(product(q, row, k, column, of.d) * of.scale - lse[query + row]);
                slope = found * (product(dy, row, v, column, of.d) - delta[query + row]);
            }
            p[row][column] = found;
            ds[row][column] = slope;
        }
    }
};

template <int ROWS, int DEPTH>
__device__ inline void to_queries(float *dq, const Heads &q, const Heads &k, const Heads &v, const Heads &dy,
                                  const float *lse, const float *delta, const Sizes &of)
{
    __shared__ Tile<ROWS, DEPTH> queries, dys, keys, values;
    __shared__ Probabilities<ROWS> tile;
    each_tile<ROWS>(of, of.t, [&](u64 head, u64 first) {
        queries.fill(q, q.head(head, of.h), first, of.t, of.d);
        dys.fill(dy, dy.head(head, of.h), first, of.t, of.d);
        Part<ROWS, DEPTH> sums;
        u64 end = of.causal && first + ROWS < of.s ? first + ROWS : of.s;
        for (u64 key = 0; key < end; key += ROWS) {
            __syncthreads();  // Other threads may still read the last tiles.
            keys.fill(k, k.head(head, of.h), key, of.s, of.d);
            values.fill(v, v.head(head, of.h), key, of.s, of.d);
            __syncthreads();
            tile.fill(queries, keys, values, dys, lse + head * of.t, delta + head * of.t, first, key, of);
            __syncthreads();
            for (int j = 0; j < ROWS; ++j)
                if (of.sees(first + sums.row, key + j)) sums.add(tile.ds[sums.row][j], keys, j);
        }
        sums.store(dq + head * of.t * of.d, first, of.t, of.d, of.scale);
    });
}

template <int ROWS, int DEPTH>
__device__ inline void to_keys(float *dk, float *dv, const Heads &q, const Heads &k, const Heads &v, const Heads &dy,
                               const float *lse, const float *delta, const Sizes &of)
{
    __shared__ Tile<ROWS, DEPTH> queries, dys, keys, values;
    __shared__ Probabilities<ROWS> tile;
    each_tile<ROWS>(of, of.s, [&](u64 head, u64 first) {
        keys.fill(k, k.head(head, of.h), first, of.s, of.d);
        values.fill(v, v.head(head, of.h), first, of.s, of.d);
        Part<ROWS, DEPTH> of_keys, of_values;
        // A query before the key `first` sees no key of this tile. `first` is a multiple of `ROWS`.
        for (u64 query = of.causal ? first : 0; query < of.t; query += ROWS) {
            __syncthreads();  // Other threads may still read the last tiles.
            queries.fill(q, q.head(head, of.h), query, of.t, of.d);
            dys.fill(dy, dy.head(head, of.h), query, of.t, of.d);
            __syncthreads();
            tile.fill(queries, keys, values, dys, lse + head * of.t, delta + head * of.t, query, first, of);
            __syncthreads();
            for (int i = 0; i < ROWS; ++i) {
                if (!of.sees(query + i, first + of_keys.row)) continue;
                of_keys.add(tile.ds[i][of_keys.row], queries, i);
                of_values.add(tile.p[i][of_keys.row], dys, i);
            }
        }
        of_keys.store(dk + head * of.s * of.d, first, of.s, of.d, of.scale);
        of_values.store(dv + head * of.s * of.d, first, of.s, of.d, 1.0f);
    });
}

#define ATTENTION(DEPTH, ROWS)                                                                                        \
    KERNEL attention_##DEPTH(float *y, float *lse, Heads q, Heads k, Heads v, Sizes of)                               \
    {                                                                                                                 \
        forward<ROWS, DEPTH>(y, lse, q, k, v, of);                                                                    \
    }                                                                                                                 \
    KERNEL attention_grad_queries_##DEPTH(float *dq, Heads q, Heads k, Heads v, Heads dy, const float *lse,           \
                                          const float *delta, Sizes of)                                               \
    {                                                                                                                 \
        to_queries<ROWS, DEPTH>(dq, q, k, v, dy, lse, delta, of);                                                     \
    }                                                                                                                 \
    KERNEL attention_grad_keys_##DEPTH(float *dk, float *dv, Heads q, Heads k, Heads v, Heads dy, const float *lse,   \
                                       const float *delta, Sizes of)                                                  \
    {                                                                                                                 \
        to_keys<ROWS, DEPTH>(dk, dv, q, k, v, dy, lse, delta, of);                                                    \
    }

ATTENTION(64, 16)
ATTENTION(128, 16)
ATTENTION(256, 8)
