//! What only the embedded store does: it outlives its process, and belongs to one.
