// Parameter updates.

struct Step {
    float lr, momentum, weight_decay;
};

__device__ inline void step(const Step &by, float &param, float &velocity, float grad)
{
    velocity = by.momentum * velocity + grad + by.weight_decay * param;
    param -= by.lr * velocity;
}

// `v = momentum * v + grad + weight_decay * p; p -= lr * v`, in one pass. Four elements per thread.
extern "C" __global__ void __launch_bounds__(THREADS)
sgd_momentum(float *param, float *velocity, const float *grad, u64 count, Step by)
{
    u64 first = (u64)blockIdx.x * THREADS * 4;
    if (first + THREADS * 4 <= count && aligned(param) && aligned(velocity) && aligned(grad)) {
        u64 i = first + threadIdx.x * 4;
        float p[4], v[4], g[4];
        load<4>(param + i, p);
        load<4>(velocity + i, v);
        load<4>(grad + i, g);
#pragma unroll
        for (int j = 0; j < 4; ++j) step(by, p[j], v[j], g[j]);
        store<4>(param + i, p);
        store<4>(velocity + i, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        u64 i = first + j * THREADS + threadIdx.x;
        if (i < count) step(by, param[i], velocity[i], grad[i]);
    }
}
