"""How cost grows: with kept tasks, replicas, listeners and callers. `benches/scale` runs it."""
