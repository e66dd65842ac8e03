"""Whether B is faster or slower than A: the sides, in what they differ, the verdict and the gate, and the words."""
