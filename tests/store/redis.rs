//! What only the Redis store does: it is shared, can be away, and can be set up wrongly.
