//! A program as plain data: the acts that a thread gives to a runtime, one after the other.

use remat::ops::{Binary, Reduction, Unary};

/// Which tensor: counted from the newest one back, modulo how many there are that fit. If none does, one is put.
pub type Pick = usize;

/// Acts of one thread, or of two at once.
#[derive(Clone, Debug)]
pub struct Program {
    pub acts: Vec<Act>,
    /// Those of a second thread with the same runtime. Mostly none: then there is no such thread.
    pub beside: Vec<Act>,
    /// What would make a tensor of more elements is left out.
    pub most_elements: usize,
    /// Whether [`Act::Cancel`] is done. What it hits depends on time.
    pub cancels: bool,
}

/// Values from the host.
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
    /// For the oldest value of `GetLater`.
    Wait,
    /// Does not wait for the oldest value of `GetLater` after all.
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

/// In place.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    pub target: Pick,
    /// The gradient, or what is added.
    pub other: Pick,
    /// Of stochastic gradient descent: then not just added.
    pub velocity: Option<Pick>,
}

/// Some calculations on a tape, and what becomes of the gradients.
#[derive(Clone, Debug)]
pub struct Segment {
    pub watched: Vec<Pick>,
    pub calcs: Vec<Calc>,
    /// Whether what was calculated on the way is let go before the backward pass.
    pub lets_go: bool,
    pub gradients: Gradients,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradients {
    Hold,
    LetGo,
    /// Each is used to update what it is the gradient of.
    Descend,
    /// The same, as one.
    DescendAll,
    /// As soon as they are complete, while the backward pass still runs.
    DescendMeanwhile,
}

/// What a number is drawn from.
#[derive(Clone, Copy, Debug)]
pub enum Distribution {
    Uniform,
    Normal,
    Bernoulli,
}

/// A window of a convolution or a pooling. Clipped to what fits.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
}

/// Something computed from tensors, which changes none of them. Axes and sizes are clipped to what fits.
#[derive(Clone, Debug)]
pub enum Calc {
    Unary(Unary, Pick),
    Binary(Binary, Pick, Pick),
    Affine {
        x: Pick,
        scale: f32,
        shift: f32,
    },
    /// With the last two axes of an operand swapped where `turned`.
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
    /// `keeps`: the running statistics replace the old ones.
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
    /// Along the axes whose bits are set.
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
    /// Any op of the registry, drawn with this seed, on small operands: those that are there, where they fit.
    Sample {
        op: usize,
        seed: u64,
        from: Pick,
    },
}
