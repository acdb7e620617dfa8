"""What a model computes with on a mesh: the ranks, their exchanges and products, the schedules, the parameter table."""
