/// Number of commands in a context: the last commands before the current position.
pub(super) const LENGTH: usize = 8;

/// Odd factor that spreads the tokens of commands over all bits of the hash.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A rolling hash of the last [`LENGTH`] commands.
#[derive(Debug, Default)]
pub(super) struct Context {
    tokens: [u64; LENGTH],
    heard: usize,
    hash: u64,
}

impl Context {
    pub fn push(&mut self, token: u64) {
        let oldest = &mut self.tokens[self.heard % LENGTH];
        let gone = const { power(FACTOR, LENGTH as u32) }.wrapping_mul(*oldest);
        self.hash = self
            .hash
            .wrapping_mul(FACTOR)
            .wrapping_add(token.wrapping_mul(FACTOR))
            .wrapping_sub(gone.wrapping_mul(FACTOR));
        *oldest = token;
        self.heard += 1;
    }

    /// The hash; `None` before [`LENGTH`] commands were added.
    pub fn key(&self) -> Option<u64> {
        (self.heard >= LENGTH).then_some(self.hash)
    }
}

const fn power(base: u64, exponent: u32) -> u64 {
    let mut product = 1_u64;
    let mut i = 0;
    while i < exponent {
        product = product.wrapping_mul(base);
        i += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_commands_count() {
        let after = |tokens: &[u64]| {
            let mut context = Context::default();
            tokens.iter().for_each(|&token| context.push(token));
            context.key()
        };
        let last: Vec<u64> = (10..10 + LENGTH as u64).collect();
        let led = |by: &[u64]| after(&[by, &last].concat());
        assert_eq!(led(&[]), led(&[1, 2, 3]));
        assert_eq!(led(&[7]), led(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        assert_ne!(led(&[]), after(&(11..11 + LENGTH as u64).collect::<Vec<_>>()));
        assert_eq!(after(&last[1..]), None);
    }
}
