"""Memory of one process among several that train together: predicted by torch's own engines without data, and measured."""
