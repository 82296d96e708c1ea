// Macro that defines the kernels of functions of one element and two numbers. The source has a line
// for each function after this macro.

struct Numbers {
    float a, b;
};

#define WITH_NUMBERS(name, result) \
    struct name##_of { \
        Numbers of; \
        __device__ float operator()(const float (&v)[1]) const \
        { \
            float x = v[0], a = of.a, b = of.b; \
            (void)a, (void)b; \
            return result; \
        } \
    }; \
    KERNEL name##_packed(float *y, const float *x, u64 count, Numbers of) \
    { \
        map_packed(y, Inputs<1, float>{{x}}, count, name##_of{of}); \
    } \
    KERNEL name##_strided(float *y, const float *x, u64 units, Walk<1> walk, Numbers of) \
    { \
        map_strided(y, Inputs<1, float>{{x}}, walk, units, name##_of{of}); \
    }

