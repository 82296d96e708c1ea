// Functions of one and of two elements. Each has two kernels: for packed operands, and for operands of any
// strides. An operand may be where the result goes, if it is packed.

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

#define UNARY(name, result) \
    struct name##_of { \
        __device__ float operator()(const float (&v)[1]) const \
        { \
            float x = v[0]; \
            return result; \
        } \
    }; \
    KERNEL name##_packed(float *y, const float *x, u64 count) \
    { \
        map_packed(y, Inputs<1, float>{{x}}, count, name##_of()); \
    } \
    KERNEL name##_strided(float *y, const float *x, u64 units, Walk<1> walk) \
    { \
        map_strided(y, Inputs<1, float>{{x}}, walk, units, name##_of()); \
    }

#define BINARY(name, result) \
    struct name##_of { \
        __device__ float operator()(const float (&v)[2]) const \
        { \
            float a = v[0], b = v[1]; \
            return result; \
        } \
    }; \
    KERNEL name##_packed(float *y, const float *a, const float *b, u64 count) \
    { \
        map_packed(y, Inputs<2, float>{{a, b}}, count, name##_of()); \
    } \
    KERNEL name##_strided(float *y, const float *a, const float *b, u64 units, Walk<2> walk) \
    { \
        map_strided(y, Inputs<2, float>{{a, b}}, walk, units, name##_of()); \
    }

UNARY(neg, -x)
UNARY(relu, x < 0.0f ? 0.0f : x)
UNARY(exp, expf(x))
UNARY(log, logf(x))
UNARY(sqrt, sqrtf(x))
UNARY(recip, 1.0f / x)
UNARY(square, x * x)
UNARY(tanh, tanhf(x))
UNARY(sigmoid, 1.0f / (1.0f + expf(-x)))

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a * b)
BINARY(div, a / b)
BINARY(maximum, Larger()(a, b))
BINARY(greater, a > b ? 1.0f : 0.0f)
BINARY(relu_grad, a > 0.0f ? b : 0.0f)
BINARY(tanh_grad, b * (1.0f - a * a))
BINARY(sigmoid_grad, b * a * (1.0f - a))

struct Affine {
    float scale, shift;
    __device__ float operator()(const float (&v)[1]) const { return v[0] * scale + shift; }
};

KERNEL affine_packed(float *y, const float *x, u64 count, Affine f)
{
    map_packed(y, Inputs<1, float>{{x}}, count, f);
}

KERNEL affine_strided(float *y, const float *x, u64 units, Walk<1> walk, Affine f)
{
    map_strided(y, Inputs<1, float>{{x}}, walk, units, f);
}
