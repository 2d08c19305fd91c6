"""The only place that builds and wires components."""
