"""What a run says of itself and watches over: metrics, phases, memory, spikes, profiles, the report."""
