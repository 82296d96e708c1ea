// Parameter updates, each in one pass over its operands. A launch updates at most MOST tensors, and
// a thread updates four elements.

#define MOST 64

struct Tensor {
    float *written[3];
    const float *grad;
    u64 count, first_block;
};

struct Tensors {
    Tensor each[MOST];
    u64 count;
};

struct Momentum {
    float lr, momentum, weight_decay;
    u32 nesterov;

    __device__ void operator()(float (&x)[2], float grad) const
    {
        float &param = x[0], &velocity = x[1];
        if (nesterov) {
            grad = grad + weight_decay * param;
            velocity = momentum * velocity + grad;
            param -= lr * (grad + momentum * velocity);
        } else {
            velocity = momentum * velocity + grad + weight_decay * param;
            param -= lr * velocity;
        }
    }
};

struct AdamW {
    float keep, beta1, rest1, beta2, rest2, eps, size, spread;

    __device__ void operator()(float (&x)[3], float grad) const
    {
        float &param = x[0], &average = x[1], &square = x[2];
        average = beta1 * average + rest1 * grad;
        square = beta2 * square + rest2 * (grad * grad);
        param = keep * param - size * (average / (sqrtf(square) * spread + eps));
    }
};

struct Lion {
    float keep, beta1, rest1, beta2, rest2, lr;

    __device__ void operator()(float (&x)[2], float grad) const
    {
        float &param = x[0], &average = x[1];
        float along = beta1 * average + rest1 * grad;
        // NaN stays NaN.
        float sign = along > 0 ? 1.0f : along < 0 ? -1.0f : along;
        param = keep * param - lr * sign;
        average = beta2 * average + rest2 * grad;
    }
};

// Calls `step` with each element of the tensors that are written, and of the gradient.
template <int N, class Step> __device__ inline void update(const Tensors &all, const Step &step)
{
    u32 k = 0;
    while (k + 1 < all.count && blockIdx.x >= all.each[k + 1].first_block) ++k;
    const Tensor &tensor = all.each[k];
    u64 first = (blockIdx.x - tensor.first_block) * THREADS * 4;
    bool fours = first + THREADS * 4 <= tensor.count && aligned(tensor.grad);
#pragma unroll
    for (int n = 0; n < N; ++n) fours = fours && aligned(tensor.written[n]);
    if (fours) {
        u64 i = first + threadIdx.x * 4;
        float x[N][4], grad[4];
#pragma unroll
        for (int n = 0; n < N; ++n) load<4>(tensor.written[n] + i, x[n]);
        load<4>(tensor.grad + i, grad);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            float element[N];
#pragma unroll
            for (int n = 0; n < N; ++n) element[n] = x[n][j];
            step(element, grad[j]);
#pragma unroll
            for (int n = 0; n < N; ++n) x[n][j] = element[n];
        }
#pragma unroll
        for (int n = 0; n < N; ++n) store<4>(tensor.written[n] + i, x[n]);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u64 i = first + j * THREADS + threadIdx.x;
        if (i >= tensor.count) return;
        float element[N];
#pragma unroll
        for (int n = 0; n < N; ++n) element[n] = tensor.written[n][i];
        step(element, tensor.grad[i]);
#pragma unroll
        for (int n = 0; n < N; ++n) tensor.written[n][i] = element[n];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) sgd_momentum(Tensors all, Momentum step) { update<2>(all, step); }
extern "C" __global__ void __launch_bounds__(THREADS) adamw(Tensors all, AdamW step) { update<3>(all, step); }
extern "C" __global__ void __launch_bounds__(THREADS) lion(Tensors all, Lion step) { update<2>(all, step); }
