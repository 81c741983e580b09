//! Decides: pools, mounts, plans, and the loop that runs them.
