// What compiled kernels and the library that runs them know of one another. Part of both: it stands at
// the front of every kernel's source, so it includes nothing and its names all begin with `pretend_`.

struct pretend_dim {
  unsigned x, y, z;
};

// A thread of a block, as the kernel sees it.
struct pretend_thread {
  pretend_dim thread, block;    // where it is: in its block, and its block in the grid
  pretend_dim threads, blocks;  // how many there are: of threads in a block, of blocks in the grid
};

// What a thread can wait for together with others. Those who wait together must wait for the same.
enum pretend_meeting {
  pretend_barrier,        // __syncthreads
  pretend_barrier_vote,   // __syncthreads_or, _and, _count
  pretend_warp_barrier,   // __syncwarp
  pretend_warp_shuffle,   // __shfl_sync and its variants
  pretend_warp_vote,      // __ballot_sync, __any_sync, __all_sync
};

// What the library does for kernels.
struct pretend_api {
  // Waits for all threads of the block. How many of them voted true.
  int (*meet_block)(const pretend_thread*, pretend_meeting, bool vote);
  // Waits for the lanes of the mask. For a shuffle, the value of the lane `source`; for a vote, the
  // lanes whose value is not zero.
  unsigned long long (*meet_warp)(const pretend_thread*, unsigned mask, pretend_meeting,
                                  unsigned long long value, unsigned source);
};

struct pretend_kernel {
  const char* name;
  // Runs one thread. The parameters are pointers to them, as in cuLaunchKernel.
  void (*run)(const pretend_thread*, void** parameters);
  unsigned parameters;
  const unsigned long* sizes;       // of each parameter
  const unsigned long* alignments;  // of each parameter
  unsigned max_threads;             // of its __launch_bounds__; 0 if it has none
};

struct pretend_module {
  unsigned long version;  // of this header and device.h: a hash of their text
  unsigned architecture;  // 990 for sm_990; 0 if it is to run on any, as PTX does
  unsigned count;
  const pretend_kernel* kernels;
  void (*attach)(const pretend_api*);
  // Makes sure that the calling thread has its copy of the shared variables.
  void (*touch_shared)();
};
