// Macros that define the kernels of functions of one and of two elements. The source has a line for
// each function after these macros. Each function has two kernels: one for packed operands, and one
// for operands of any strides. The result may overwrite a packed operand.

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

