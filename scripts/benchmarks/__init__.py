"""What benchmarks share: records that a later run goes on from, limits of time, small networks."""
