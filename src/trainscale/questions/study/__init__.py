"""A run as the scaling part of a request for computing time."""
