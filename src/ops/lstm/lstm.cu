// The elementwise work of an LSTM step, after the step's matrix product. Each thread computes one
// unit of one sequence.
//
// All counts are 64-bit integers.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

struct Sizes {
    u64 n, t, h;
    u64 s;  // Number of the step.
};

// Rows `[n, h]` of a step, with any strides.
struct Rows {
    const float *data;
    u64 sequence, unit;

    __device__ float at(u64 i, u64 j) const { return data[i * sequence + j * unit]; }
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// `product [n, 4h]` is the `h` of the previous step times the weight.
KERNEL lstm_step(float *y, float *c, float *gates, float *h_last, float *c_last, const float *product, const float *sums,
                 const float *bias, Rows before, Sizes of)
{
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= of.n * of.h) return;
    u64 i = at / of.h, j = at % of.h, row = i * of.t + of.s;
    float sum[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        u64 gate = k * of.h + j;
        sum[k] = product[i * 4 * of.h + gate] + sums[row * 4 * of.h + gate] + bias[gate];
    }
    float in = sigmoid(sum[0]), forget = sigmoid(sum[1]), change = tanhf(sum[2]), out = sigmoid(sum[3]);
    float now = forget * before.at(i, j) + in * change, seen = out * tanhf(now);
    float *to = gates + row * 4 * of.h + j;
    to[0] = in;
    to[of.h] = forget;
    to[2 * of.h] = change;
    to[3 * of.h] = out;
    c[row * of.h + j] = now;
    y[row * of.h + j] = seen;
    if (of.s + 1 == of.t) {
        c_last[at] = now;
        h_last[at] = seen;
    }
}

// `dh` and `dc` are the gradients from the next step. The kernel replaces `dc` by the gradient for
// the previous step.
KERNEL lstm_step_grad(float *dsums, float *dc, const float *dh, const float *gates, const float *c, Rows before, Rows dy,
                      Sizes of)
{
    u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= of.n * of.h) return;
    u64 i = at / of.h, j = at % of.h, row = i * of.t + of.s;
    const float *from = gates + row * 4 * of.h + j;
    float in = from[0], forget = from[of.h], change = from[2 * of.h], out = from[3 * of.h];
    float bent = tanhf(c[row * of.h + j]);
    float reached = dh[at] + dy.at(i, j);
    float kept = dc[at] + reached * out * (1.0f - bent * bent);
    float *to = dsums + row * 4 * of.h + j;
    to[0] = kept * change * (in * (1.0f - in));
    to[of.h] = kept * before.at(i, j) * (forget * (1.0f - forget));
    to[2 * of.h] = kept * in * (1.0f - change * change);
    to[3 * of.h] = reached * bent * (out * (1.0f - out));
    dc[at] = kept * forget;
}
