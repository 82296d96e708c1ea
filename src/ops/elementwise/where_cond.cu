struct Where {
    __device__ float operator()(const float (&v)[3]) const { return v[0] != 0.0f ? v[1] : v[2]; }
};

KERNEL where_packed(float *y, const float *mask, const float *a, const float *b, u64 count)
{
    map_packed(y, Inputs<3, float>{{mask, a, b}}, count, Where());
}

KERNEL where_strided(float *y, const float *mask, const float *a, const float *b, u64 units, Walk<3> walk)
{
    map_strided(y, Inputs<3, float>{{mask, a, b}}, walk, units, Where());
}
