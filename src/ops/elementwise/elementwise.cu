// Macros for functions of one and of two elements. A line for each function follows. Each function
// has two kernels: for packed operands, and for operands of any strides. A packed operand may be
// the place of the result.

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

