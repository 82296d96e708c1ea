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
