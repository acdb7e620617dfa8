"""The engine room: durable files, storage, stages and executors, shared by every package."""
