"""How a model is laid over ranks: the mesh, the parameter table, sharded data parallelism."""
