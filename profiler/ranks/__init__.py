"""Memory of one process among several that train together: torch's engines without data, and measured."""
