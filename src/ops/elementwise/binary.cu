// Derivatives of functions. A gradient is multiplied by the derivative.

__device__ inline float silu_slope(float x)
{
    float gate = 1.0f / (1.0f + expf(-x));
    return gate * (1.0f + x * (1.0f - gate));
}

__device__ inline float gelu_slope(float x)
{
    return 0.5f * erfcf(-0.70710678f * x) + x * (0.39894228f * expf(-0.5f * x * x));
}

__device__ inline float gelu_tanh_slope(float x)
{
    float xx = x * x;
    float gate = 1.0f / (1.0f + expf(-x * (1.5957692f + 0.071354814f * xx)));
    return gate + gate * (1.0f - gate) * (x * (1.5957692f + 3.0f * 0.071354814f * xx));
}

