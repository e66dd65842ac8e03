"""What a third party may add to trainscale: a model, a framework, a launcher. The entry points in pyproject.toml name
them.

Nothing is imported here: trainscale loads only the modules that the entry points name.
"""
