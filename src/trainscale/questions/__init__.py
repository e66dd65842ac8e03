"""Questions to runs, a folder or file for each: what it computes and how it words its answer."""
