"""What goes over the network: whom a connection may reach, and what an answer may cost."""
