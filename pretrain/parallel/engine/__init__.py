"""What lays a model over the ranks and runs it: sharding, the pipeline, and the order in which they are applied."""
