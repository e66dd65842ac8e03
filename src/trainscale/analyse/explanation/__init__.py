"""Where the efficiency went: the step time of a point, split into parts each with its cause, from recorded trials."""
