"""What `benches/run`, `benches/report` and `benches/instructions` are made of. Python 3.9, standard library only."""
