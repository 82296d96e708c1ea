//! Program as plain data: the acts of each thread, in order.

use remat::unstable::ops::{Binary, Reduction, Unary};

/// Choice of a tensor: counted back from the newest tensor, modulo the number of tensors that fit.
/// If no tensor fits, a new one is uploaded.
pub type Pick = usize;

/// Acts of one thread, or of two threads at once.
#[derive(Clone, Debug)]
pub struct Program {
    pub acts: Vec<Act>,
    /// Acts of a second thread on the same runtime. Without acts, there is no second thread; most
    /// programs have none.
    pub beside: Vec<Act>,
    /// Maximum number of elements of a tensor. Calculations that would make a larger tensor are
    /// left out.
    pub most_elements: usize,
    /// Whether [`Act::Cancel`] has an effect. Which command it stops depends on time.
    pub cancels: bool,
}

/// Values from the host, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Data {
    pub shape: Vec<usize>,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub enum Act {
    Put {
        data: Data,
        leaf: bool,
    },
    Calc(Calc),
    Clone(Pick),
    Del(Pick),
    DropNow(Pick),
    Commit(Pick),
    Label(Pick),
    Get(Pick),
    GetLater(Pick),
    /// Waits for the oldest read begun by `GetLater`.
    Wait,
    /// Forgets the oldest read begun by `GetLater`, without waiting for it.
    Forget,
    Update(Update),
    UpdateAll(Vec<Update>),
    Replace {
        target: Pick,
        value: Pick,
    },
    Tape(Segment),
    Step,
    Sync,
    Stats,
    Cancel,
}

/// Update in place.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    pub target: Pick,
    /// Gradient, or the value to add.
    pub other: Pick,
    /// Velocity of an optimizer step. Without a velocity, the update only adds `other`.
    pub velocity: Option<Pick>,
}

/// Calculations on a tape, and the use of their gradients.
#[derive(Clone, Debug)]
pub struct Segment {
    pub watched: Vec<Pick>,
    pub calcs: Vec<Calc>,
    /// Whether the intermediate results are dropped before the backward pass.
    pub lets_go: bool,
    pub gradients: Gradients,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradients {
    Hold,
    LetGo,
    /// Updates each watched tensor by its gradient.
    Descend,
    /// Updates all watched tensors by their gradients, as one.
    DescendAll,
    /// Updates each watched tensor as soon as its gradient is complete, while the backward pass
    /// runs.
    DescendMeanwhile,
}

/// Distribution of random numbers.
#[derive(Clone, Copy, Debug)]
pub enum Distribution {
    Uniform,
    Normal,
    Bernoulli,
}

/// Window of a convolution or a pooling, clipped to a size that fits.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
}

/// Calculation on tensors that changes none of them. Axes and sizes are clipped to values that fit.
#[derive(Clone, Debug)]
pub enum Calc {
    Unary(Unary, Pick),
    Binary(Binary, Pick, Pick),
    Affine {
        x: Pick,
        scale: f32,
        shift: f32,
    },
    /// Product of matrices. The last two axes of an operand are swapped where `turned`.
    MatMul {
        a: Pick,
        b: Pick,
        turned: [bool; 2],
        columns: usize,
    },
    Conv {
        x: Pick,
        weight: Option<Pick>,
        channels: usize,
        window: Window,
        seed: u64,
    },
    /// Batch norm in training. `keeps`: the running statistics replace the old ones.
    BatchNorm {
        x: Pick,
        vectors: Pick,
        momentum: f32,
        keeps: bool,
    },
    BatchNormInfer {
        x: Pick,
        vectors: Pick,
    },
    MaxPool {
        x: Pick,
        window: Window,
    },
    AvgPool {
        x: Pick,
        window: Window,
    },
    /// Reduction along the axes whose bits are set.
    Reduce {
        x: Pick,
        kind: Reduction,
        axes: usize,
        keep_dims: bool,
    },
    Softmax(Pick),
    LogSoftmax(Pick),
    LayerNorm {
        x: Pick,
        vectors: Pick,
    },
    CrossEntropy {
        logits: Pick,
        seed: u64,
    },
    Concat {
        parts: Vec<Pick>,
        axis: usize,
    },
    Pad {
        x: Pick,
        axis: usize,
        before: usize,
        after: usize,
    },
    Gather {
        x: Pick,
        axis: usize,
        count: usize,
        seed: u64,
    },
    ScatterAdd {
        x: Pick,
        axis: usize,
        size: usize,
        seed: u64,
    },
    Contiguous(Pick),
    Reshape {
        x: Pick,
        how: usize,
    },
    Permute {
        x: Pick,
        how: usize,
    },
    Slice {
        x: Pick,
        axis: usize,
        start: usize,
        len: usize,
    },
    Broadcast {
        x: Pick,
        times: usize,
    },
    Full {
        shape: Vec<usize>,
        value: f32,
    },
    Random {
        shape: Vec<usize>,
        from: Distribution,
    },
    Dropout {
        x: Pick,
        p: f32,
    },
    /// Any op of the registry, drawn with this seed, on small operands. Existing tensors are
    /// operands where they fit.
    Sample {
        op: usize,
        seed: u64,
        from: Pick,
    },
}
