"""What a rank computes and holds, in operations and bytes."""
