"""Where the efficiency of a run went: the parts of the step of every point, and the cause that stands out."""
