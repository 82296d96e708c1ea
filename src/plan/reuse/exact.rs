mod memory;
mod preorder;
mod search;
mod sections;
#[cfg(test)]
mod tests;
