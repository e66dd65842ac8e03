"""Images to train on: random ones, published data sets, folders of photographs."""
