// What all kernels share.
