"""Whether B is faster or slower than A."""
