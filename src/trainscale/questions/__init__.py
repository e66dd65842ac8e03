"""The questions that runs answer, a folder for each: what it computes, and how its answer is worded."""
