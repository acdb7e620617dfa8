"""What a configuration will need of a machine before it runs there."""
